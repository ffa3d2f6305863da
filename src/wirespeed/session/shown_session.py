"""Folders of runs that are shown, and end with their own code, whether they can be stored or not."""

import sys
from collections.abc import Mapping
from typing import Any

from wirespeed.runs.folder import PatientFolder


def patient_folder(command: str, config: Mapping[str, Any]) -> PatientFolder:
    """A new folder that tells what it could not store. StorageError where it cannot be made."""
    folder = PatientFolder.create(command, config)
    folder.on_unstored = tell_unstored
    return folder


def tell_unstored(why: str) -> None:
    """What it means and what to do, on stderr."""
    said = f"warning: this run could not be stored whole: {why}"
    todo = (
        "make room there, or name another place by WIRESPEED_HOME; keep what is printed meanwhile"
    )
    sys.stderr.write(f"wirespeed: {said}\n  next      {todo}\n")
