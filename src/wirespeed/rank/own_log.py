"""The rank's own log file, also after somebody has renamed or removed it."""

import os
from contextlib import suppress
from pathlib import Path

VARIABLE = "WIRESPEED_LOG"
"""The path of the file that stdout and stderr go to; set where wirespeed has opened it."""


def reopen_log() -> None:
    """Print into the file that now has the log's name (log rotation leaves us the renamed one)."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    with suppress(OSError):  # no room, or the folder is gone: the old file does
        if not _is_ours(path):
            print_to(path)


def print_to(path: str) -> None:
    """stdout and stderr go to the end of that file from now on. OSError where it cannot be opened."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)


def _is_ours(path: str) -> bool:
    try:
        named = Path(path).stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(1)
    return (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino)
