"""A disk that is really full: a tmpfs of a few pages under the run folder."""

import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wirespeed.runs.store import load, save


@pytest.fixture
def tiny(small_disk: Callable[[str], Path]) -> Path:
    return small_disk("64k")


def test_full_before_the_start(cli: Any, tiny: Path, says_clearly: Any) -> None:
    (tiny / "ballast").write_bytes(bytes(64 * 1024))
    done = cli("bench", "barrier", "-n", "3", "--ranks", "2", "-q", env=home(tiny), timeout=30)
    assert "No space left on device" in says_clearly(done, 3)


def test_full_in_the_middle(cli: Any, tiny: Path) -> None:
    """One record after the other, until there is no more room: all is told, what fits can be read."""
    words = ("bench", "all_reduce", "-b", "1000", "-e", "300K", "-i", "1000", "-w", "0", "-n", "1")
    done = cli(*words, "--ranks", "2", "-q", "-o", "json", env=home(tiny))
    assert (done.code, done.json["verdict"]) == (0, "MEASURED"), done.err
    assert len(done.json["measurements"]) > 250
    assert "could not be stored whole" in done.err
    assert "No space left on device" in done.err
    shown = cli("runs", "show", "last", "-o", "json", env=home(tiny))
    assert shown.code == 0, shown.err
    assert len(shown.json["measurements"]) > 5
    assert shown.json["verdict"] == "UNKNOWN"
    # The ranks carried another home than the other tests' ones: they must be gone as well.
    assert ranks_left(tiny) == []


def test_the_temporary_folder_is_full(cli: Any, tiny: Path, says_clearly: Any) -> None:
    (tiny / "ballast").write_bytes(bytes(64 * 1024))
    done = cli("bench", "barrier", "-n", "3", "--ranks", "2", "-q", env={"TMPDIR": str(tiny)})
    assert done.code in (0, 3), done.err
    assert "Traceback" not in done.err


def home(place: Path) -> dict[str, str]:
    return {"WIRESPEED_HOME": str(place)}


def ranks_left(place: Path) -> list[str]:
    mark = f"WIRESPEED_HOME={place}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in entry.read_bytes().split(b"\0"):
                found.append(entry.parent.name)
        except OSError:
            continue
    return found


def test_the_index_where_it_cannot_be_written(
    cli: Any, small_disk: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, then one that is read-only, without an index and with one: the list is the same."""
    place = small_disk("1m")
    monkeypatch.setenv("WIRESPEED_HOME", str(place))
    run = load(Path(__file__).parents[1] / "runs" / "golden" / "first-check.run.json")
    for number in range(5):
        save(replace(run, id=f"0000000{number}"))

    def listed() -> list[str]:
        done = cli("runs", "list", "-o", "json", env=home(place))
        assert (done.code, done.err) == (0, "")
        return [one["id"] for one in done.json]

    with (place / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
        for _ in range(1024):
            ballast.write(bytes(1024))
    right = [f"0000000{number}" for number in range(5)]
    assert listed() == right
    (place / "ballast").unlink()
    for index in place.glob("index-*"):
        index.unlink()
    for _ in range(2):
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        assert listed() == right
        subprocess.run(["mount", "-o", "remount,rw", place], check=True)
        assert listed() == right
    assert list(place.glob("index-*.sqlite"))
