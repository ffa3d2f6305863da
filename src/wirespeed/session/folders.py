"""A run's folders: the one that is stored, and one in the temporary folder.

What runs that were killed have left in the temporary folder goes with the next:

    $TMPDIR/wirespeed-XXXXXXXX/owner    host, boot id, PID namespace, pid and start of the process

Only a folder of this user is removed, and only one whose process is known to be gone: it ran on this
host before its last boot, or in this namespace and has ended. What another host or container has put
there is theirs.
"""

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from wirespeed.errors import StorageError
from wirespeed.model.records import Run
from wirespeed.process import boot_id, owner_record, pid_space
from wirespeed.runs.folder import PatientFolder, begun, new_id

_PREFIX = "wirespeed-"
_OWNER = "owner"
_LONGEST = 1000
"""Bytes of an owner's record."""


def new_scratch() -> Path:
    """A new folder, which its user removes, or else the first run after the end of this process."""
    _clear()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    with suppress(OSError):  # the disk is full: then it stays, should we be killed
        (folder / _OWNER).write_text(owner_record(os.getpid()))
    return folder


def _clear() -> None:
    """Remove the folders of this user whose process is gone."""
    with suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with suppress(OSError, ValueError):
                if folder.lstat().st_uid == os.getuid() and _is_orphan(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _is_orphan(folder: Path) -> bool:
    if folder.is_symlink() or not (folder / _OWNER).is_file():
        return False
    with (folder / _OWNER).open() as stream:
        told = stream.read(_LONGEST)
    host, boot, namespace, pid, _ = told.split("\n")
    if host != socket.gethostname():
        return False
    return boot != boot_id() or (namespace == str(pid_space()) and owner_record(int(pid)) != told)


# Folders of runs that are shown, and end with their own code, whether they can be stored or not.


def patient_folder(command: str, config: Mapping[str, Any]) -> PatientFolder:
    """A new folder that tells what it could not store. StorageError where it cannot be made."""
    folder = PatientFolder.create(command, config)
    folder.on_unstored = tell_unstored
    return folder


def folder_or_none(command: str, config: Mapping[str, Any]) -> tuple[PatientFolder | None, Run]:
    """The folder, or None where it cannot be made, which is told; and the run that begins."""
    try:
        folder = patient_folder(command, config)
    except StorageError as error:
        tell_unstored(error.saw)
        return None, begun(command, config, new_id())
    return folder, folder.header


def tell_unstored(why: str) -> None:
    """What it means and what to do, on stderr."""
    said = f"warning: this run could not be stored whole: {why}"
    todo = (
        "make room there, or name another place by WIRESPEED_HOME; keep what is printed meanwhile"
    )
    sys.stderr.write(f"wirespeed: {said}\n  next      {todo}\n")
