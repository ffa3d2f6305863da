"""Files kept by a name: whole or not at all, private where they are told to be, damage is told."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from wirespeed.errors import InputError, StorageError, UsageError
from wirespeed.runs.named_files import NamedFiles


def files(**changes: object) -> NamedFiles:
    fields: dict[str, object] = {
        "folder": "things",
        "suffix": ".txt",
        "what": "a thing",
        "missing": lambda name, others: UsageError(f"no {name}", expected=",".join(others)),
        "again": "wirespeed thing set",
        "largest": 1 << 20,
    }
    return NamedFiles(**{**fields, **changes})  # type: ignore[arg-type]


def test_kept_replaced_listed_removed(home: Path) -> None:
    kept = files()
    assert kept.names() == []
    path = kept.write("b", "1")
    kept.write("a", "2")
    kept.write("b", "3")
    (home / "things" / ".b.txt.77").write_text("half of one")
    assert (path, kept.names(), kept.read("b")) == (home / "things" / "b.txt", ["a", "b"], "3")
    assert kept.remove("b") == path
    assert kept.names() == ["a"]


def test_permissions(home: Path) -> None:
    path = files().write("a", "x")
    assert path.stat().st_mode & 0o777 == 0o600
    assert {one.stat().st_mode & 0o777 for one in (home, path.parent)} == {0o700}


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_told(make: Callable[[Path], None]) -> None:
    kept = files()
    kept.write("b", "x")
    make(kept.path("a"))
    with pytest.raises(InputError, match="it is a"):
        kept.read("a")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 65, "a\nb"])
def test_names_that_are_none(name: str) -> None:
    kept = files()
    for call in (kept.read, kept.remove, lambda name: kept.write(name, "x")):
        with pytest.raises(UsageError, match="is no name for a thing"):
            call(name)


def test_what_is_not_there_is_told_with_what_is() -> None:
    kept = files()
    kept.write("a", "x")
    for call in (kept.read, kept.remove):
        with pytest.raises(UsageError, match="no b") as told:
            call("b")
        assert told.value.expected == "a"


def test_damage_is_told() -> None:
    kept = files(largest=4)
    path = kept.write("a", "x")
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match="is not text"):
        kept.read("a")
    path.write_text("12345")
    with pytest.raises(InputError, match="larger than"):
        kept.read("a")


def test_a_folder_that_cannot_be(home: Path) -> None:
    home.parent.mkdir(exist_ok=True)
    home.write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="cannot write") as told:
        files().write("a", "x")
    assert "wirespeed thing set" in (told.value.next or "")
