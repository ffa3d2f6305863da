"""Whether the runs' folder, or a run in it, is as it was when the index was written."""

import os
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from pathlib import Path

from wirespeed.errors import StorageError
from wirespeed.runs.place import FOLDER_NAME

_STEP_S = 2.0
_FEW, _MANY = 64, 1000
CHANGING = "changing "
"""Begins the stamp of the runs' folder where it changed just now."""
GOES_ON = "goes on "
"""Begins the stamp of a run that somebody holds: of its header, which is enough."""
_LOCK = ".wirespeed-lock."
"""As `node/lock.py` names it, which takes long to import."""
_HELD_S = 30.0
"""Who holds a lock touches it every two seconds."""


def folder_stamp(folder: Path) -> str:
    """Another one where a name has come or gone; empty where that cannot be told.

    Times of files come in steps (of some ms, on a network's file system up to a second): a folder that
    changed just now may change again within the same.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # asks a file server
    except OSError:
        return ""
    try:
        told = os.fstat(handle)
    finally:
        os.close(handle)
    if abs(time.time() - told.st_mtime) < _STEP_S:
        return f"{CHANGING}{time.time_ns()}"
    return f"{told.st_ino} {told.st_mtime_ns} {told.st_nlink} {told.st_size}"


def run_stamp(folder: Path, *, held: bool = False) -> str:
    """Another one where the run was written to; held: where its header was, and it goes on."""
    header = _of_file(folder / "run.json")
    return f"{GOES_ON}{header}" if held else f"{header} {_of_file(folder / 'records.jsonl')}"


def is_as(seen: str, folder: Path) -> bool:
    """Whether the run is as it was when `run_stamp` said so."""
    return seen == run_stamp(folder, held=seen.startswith(GOES_ON) and is_held(folder))


def is_held(folder: Path) -> bool:
    """Whether somebody goes on with this run, as far as the lock's time tells."""
    try:
        with os.scandir(folder) as found:
            locks = [one.stat(follow_symlinks=False) for one in found if one.name.startswith(_LOCK)]
    except OSError:
        return False
    return any(abs(time.time() - one.st_mtime) < _HELD_S for one in locks)


def _of_file(path: Path) -> str:
    try:
        told = path.lstat()
    except OSError:
        return "-"
    return f"{told.st_ino},{told.st_mtime_ns},{told.st_size}"


def folder_names(runs: Path) -> set[str]:
    """Names of the run folders. StorageError where they cannot be read."""
    return folder_changes(runs, lambda after: set())[0]


def folder_changes(
    runs: Path, known: Callable[[str], AbstractSet[str]], seen: str = ""
) -> tuple[set[str], set[str], str]:
    """Names of run folders that have come, of those that have gone, and `seen` for the next time.

    known: all that come after a name; these are not looked at closely. seen: "" or what an earlier call
    gave, while nothing has become unknown since: where the names up to its own are as they were, those
    after it are compared. StorageError where they cannot be read.
    """
    try:
        names = os.listdir(runs)  # noqa: PTH208  in half the time of looking at each
        last = seen.partition(" ")[0]
        if _up_to(last, names) != seen:
            last = ""
        there, before = {one for one in names if one > last}, known(last)
        new = there - before
        gone = set(before - there) if len(there) - len(new) < len(before) else set[str]()
        if len(new) <= _FEW:
            new = {one for one in new if FOLDER_NAME.fullmatch(one) and (runs / one).is_dir()}
        else:
            with os.scandir(runs) as found:
                new = {one.name for one in found if one.name in new and _is_run(one)}
        if len(there) >= _MANY:  # without others among them, which may become run folders
            are = (before - gone) | new
            seen = _up_to(max(are, default=""), names) if not last and there == are else ""
        return new, gone, seen
    except FileNotFoundError:
        return set(), set(known("")), ""
    except OSError as error:
        raise StorageError(f"cannot read {runs}: {error.strerror or error}") from error


def _up_to(last: str, names: Sequence[str]) -> str:
    """That name, and what tells whether those up to it are the same, in the same order."""
    told = os.fsencode("/".join([one for one in names if one <= last]))
    return f"{last} {sha256(told).hexdigest()}" if last else ""


def _is_run(entry: os.DirEntry[str]) -> bool:
    return FOLDER_NAME.fullmatch(entry.name) is not None and entry.is_dir()
