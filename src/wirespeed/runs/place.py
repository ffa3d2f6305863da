"""Where what wirespeed keeps lies, and that nobody else can change it."""

import os
import re
import shlex
import stat
from pathlib import Path

from wirespeed.errors import StorageError

FOLDER_NAME = re.compile(r"(\d{8}-\d{6})-([0-9a-f]{8})")
"""Name of a run folder: start in UTC, then the id."""

LIVE = "live.json"
"""In the folder of a watched job, while it runs: what a person sees of it."""

LARGEST = 1 << 30
"""Bytes of a run.json or records.jsonl that are read."""

ELSEWHERE = 'WIRESPEED_HOME="$PWD/wirespeed-home"'
"""How a command is told another home."""
_NOBODY = "65534"


def home() -> Path:
    """`$WIRESPEED_HOME`, else `$XDG_STATE_HOME/wirespeed`, else `~/.local/state/wirespeed`.

    StorageError where somebody else could change what is in it.
    """
    if own := os.environ.get("WIRESPEED_HOME"):
        return own_folder(Path(own).expanduser())
    if state := os.environ.get("XDG_STATE_HOME"):
        return own_folder(Path(state).expanduser() / "wirespeed")
    try:
        return own_folder(Path.home() / ".local" / "state" / "wirespeed")
    except RuntimeError as error:  # no HOME and no entry in the password file: some containers
        raise StorageError(
            f"no place for the run folder: {error}",
            expected="a home folder, or WIRESPEED_HOME",
            next=f"{ELSEWHERE} wirespeed check",
        ) from error


def runs_home() -> Path:
    """Where the run folders lie."""
    return own_folder(home() / "runs")


def own_folder(path: Path) -> Path:
    """`path`, which need not be there; StorageError where it is another user's, or open to others."""
    try:
        about = path.stat()
    except OSError:
        return path  # whoever needs it tells why it cannot be had
    if not is_ours(about.st_uid):
        raise StorageError(
            f"{path} belongs to another user (id {about.st_uid})",
            expected=f"a folder of yours (id {os.geteuid()}) for what wirespeed keeps",
            next=f"{ELSEWHERE} wirespeed …",
        )
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not about.st_mode & stat.S_ISVTX:
        mode = stat.filemode(about.st_mode)
        raise StorageError(
            f"{path} may be changed by other users ({mode})",
            expected="a folder that only you can write to: what lies there decides what is trusted",
            next=f"chmod go-w {shlex.quote(str(path))}"
            if about.st_uid == os.geteuid()
            else f"WIRESPEED_HOME={shlex.quote(str(path / 'mine'))} wirespeed …",
        )
    return path


def is_ours(owner: int) -> bool:
    """Whether what that user has written is as good as ours.

    root's is, as what root wants happens anyway. For root what it made itself on NFS, which may come to
    belong to `nobody`, and under sudo what the caller made.
    """
    me = os.geteuid()
    return owner in (me, 0) or (me == 0 and str(owner) in (_NOBODY, os.environ.get("SUDO_UID")))


def private_folder(name: str) -> Path:
    """The folder of that name in the home; what is not there yet is made for this user alone."""
    top = home()
    if not top.exists():
        top.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = top / name
    path.mkdir(mode=0o700, exist_ok=True)
    return own_folder(path)
