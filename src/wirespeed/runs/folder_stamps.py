"""Whether the runs' folder, or a run in it, is as it was when the index was written."""

import os
import time
from collections.abc import Set as AbstractSet
from pathlib import Path

from wirespeed.errors import StorageError
from wirespeed.runs.place import FOLDER_NAME

_STEP_S = 2.0
_FEW = 64
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
        return f"changing {time.time_ns()}"
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
    return folder_changes(runs, set())[0]


def folder_changes(runs: Path, known: AbstractSet[str]) -> tuple[set[str], set[str]]:
    """Names of run folders that have come, and of those that have gone.

    What is known to be one is not looked at closely. StorageError where they cannot be read.
    """
    try:
        there = set(os.listdir(runs))  # noqa: PTH208  in half the time of looking at each
        new = there - known
        gone = set(known - there) if len(there) - len(new) < len(known) else set[str]()
        if len(new) <= _FEW:
            new = {one for one in new if FOLDER_NAME.fullmatch(one) and (runs / one).is_dir()}
        else:
            with os.scandir(runs) as found:
                new = {one.name for one in found if one.name in new and _is_run(one)}
        return new, gone
    except FileNotFoundError:
        return set(), set(known)
    except OSError as error:
        raise StorageError(f"cannot read {runs}: {error.strerror or error}") from error


def _is_run(entry: os.DirEntry[str]) -> bool:
    return FOLDER_NAME.fullmatch(entry.name) is not None and entry.is_dir()
