"""A disk that is really full: a tmpfs of a few pages under the run folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


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
    assert (done.code, done.json["verdict"]) == (0, "READY"), done.err
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
