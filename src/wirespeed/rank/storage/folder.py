"""The folder itself: what is mounted there, its room, and a folder of this run's own within it.

    DIR/.wirespeed-storage-TOKEN/    all that a run writes; rank-N.… are rank N's files
    …/rank-N.owner                   JSON: the process of rank N, to tell whether it lives; removed last

A run that was killed leaves its folder behind. The next one removes it: only a folder of that name, of
the same user, that holds nothing but such files, and whose owners have all ended. Those of another
machine count as ended when nothing in the folder has changed for ten minutes by the file system's clock.
"""

import errno
import json
import os
import re
import stat
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from wirespeed.node.redact import redact_words
from wirespeed.process import boot_id, pid_space, started

PREFIX = ".wirespeed-storage-"
_OURS = re.compile(re.escape(PREFIX) + "[0-9a-f]{16}")
_FILE = re.compile(
    r"rank-\d+\.(bin|dcp|late|owner|probe|small|token)|\.nfs[0-9a-f]+|\.fuse_hidden\w+"
)
"""Ours, and what NFS and FUSE make of one that was removed while a process held it."""
_OLD_S = 600.0
_MOST_OWNER = 4096
_MOST_FOLDERS = 100
_LOOKED_S = 20.0
"""For such folders among all that lies there: a data set may be millions of files.
As long to remove them."""
_QUOTA_S = 10.0
_MOST_SAID = 200
_TOLD = re.compile(
    r"(ro|soft|hard|softerr|vers|nfsvers|proto|rsize|wsize|timeo|retrans|nconnect|lookupcache|noac"
    r"|actimeo|acregmax|acdirmax|sync|flock|cache|local_lock)(=|$)"
)
"""Options of a mount that are told: others may hold names of users and secrets."""


def look(folder: Path) -> dict[str, Any]:
    """What is there, without writing. OSError where it is no folder, or not ours to write to."""
    if not os.path.isdir(folder):  # noqa: PTH112  (tells a link that leads nowhere, too)
        os.stat(folder)  # noqa: PTH116
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    room = os.statvfs(folder)
    if room.f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    kind, source, options, mounted = _mount_of(folder)
    quota, unknown = _quota_left(mounted)
    return {
        "filesystem": kind,
        "source": source,
        "options": options,
        "total": room.f_blocks * room.f_frsize,
        "free": room.f_bavail * room.f_frsize,
        "inodes": room.f_files,
        "free_inodes": room.f_favail,
        "quota": quota,
        "quota_unknown": unknown,
    }


def _mount_of(folder: Path) -> tuple[str, str, str, str]:
    """(type, source, options, where) of the mount that holds it (proc_pid_mountinfo(5))."""
    path = os.path.realpath(folder)
    best = ("", "", "", "")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        words, what = before.split(), after.split(" ")  # the source may be empty
        where = re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), words[4])
        holds = path == where or path.startswith(where.rstrip("/") + "/")
        if holds and len(where) >= len(best[3]):  # of two on one point the later one is seen
            told = dict.fromkeys([*words[5].split(","), *what[2].split(",")])
            kept = ",".join(filter(_TOLD.match, told))
            best = what[0], redact_words([what[1]])[0], kept, where
    return best


def _quota_left(mounted: str) -> tuple[int | None, str]:
    """(bytes that quotas leave this user or its group, why that is not known)."""
    words = ["quota", "-w", "-p", "--show-mntpoint", "--hide-device", "-u", "-g", "-f", mounted]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_QUOTA_S, check=False
        )
    except FileNotFoundError:
        return None, "the program quota is not installed"
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"quota: {type(error).__name__}"
    left = quota_of(done.stdout.decode(errors="replace"), mounted)
    said = done.stderr.decode(errors="replace").strip()  # such as of a server that is not asked
    return left, said.partition("\n")[0][:_MOST_SAID] if left is None else ""


def quota_of(text: str, mounted: str) -> int | None:
    """Of what `quota -w -p --show-mntpoint --hide-device` prints, the least that is left in bytes.

    A line: mount point, KiB used (with * when over), soft limit, hard limit, …; 0: no limit.
    """
    left = []
    for line in text.splitlines():
        words = line.rsplit(maxsplit=8)
        if len(words) < 4 or words[0].strip() != mounted:
            continue
        with suppress(ValueError):
            used, soft, hard = (int(word.rstrip("*")) for word in words[1:4])
            if limit := hard or soft:
                left.append(max(0, limit - used) * 1024)
    return min(left, default=None)


def begin(
    folder: Path, own: Path, rank: int, tick: Callable[[], None], *, first: bool
) -> tuple[int, bool]:
    """Make the run's folder; (folders of dead runs that were removed, whether O_DIRECT works here).

    tick: called while there is progress. first: of its node; it looks after what others have left.
    """
    own.mkdir(mode=0o700, exist_ok=True)
    owner = {"boot": boot_id(), "space": pid_space(), "pid": os.getpid()}
    owner["started"] = started(os.getpid()) or 0
    (own / f"rank-{rank}.owner").write_text(json.dumps(owner))
    removed = _sweep(folder, own, tick) if first else 0
    return removed, _takes_direct(own / f"rank-{rank}.probe")


def _takes_direct(probe: Path) -> bool:
    try:
        handle = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return False
        raise
    finally:
        probe.unlink(missing_ok=True)
    os.close(handle)
    return True


def _sweep(folder: Path, own: Path, tick: Callable[[], None]) -> int:
    """Remove what dead runs of this user have left; how many folders."""
    mine, removed = own.stat(), 0
    paths = _alike(folder, tick)
    until = time.monotonic() + _LOOKED_S
    for path in paths:
        if time.monotonic() > until:
            break
        with suppress(OSError):
            there = path.lstat()
            if (there.st_uid, there.st_dev) != (mine.st_uid, mine.st_dev) or path == own:
                continue
            names = os.listdir(path)  # noqa: PTH208
            if all(map(_FILE.fullmatch, names)) and _is_dead(path, names, mine.st_mtime):
                for name in names:
                    discard(path / name, tick)
                path.rmdir()
                removed += 1
    return removed


def _alike(folder: Path, tick: Callable[[], None]) -> list[Path]:
    """What has the name of a run's folder there, as far as the time allows to look."""
    found, until = [], time.monotonic() + _LOOKED_S
    with os.scandir(folder) as entries:
        for one in entries:
            tick()
            if _OURS.fullmatch(one.name) and one.is_dir(follow_symlinks=False):
                found.append(Path(one.path))
            if len(found) > _MOST_FOLDERS or time.monotonic() > until:
                break
    return found


def discard(path: Path, tick: Callable[[], None] = lambda: None) -> None:
    """Remove a file, or a folder of files: nothing deeper, and nothing that is mounted there.

    Where it is gone already, or goes meanwhile, that is as well: other nodes may do the same.
    """
    with suppress(FileNotFoundError):
        there = path.lstat()
        if not stat.S_ISDIR(there.st_mode):
            path.unlink()
            return
        if there.st_dev != path.parent.stat().st_dev:
            raise OSError(errno.EXDEV, "something is mounted there")
        for name in os.listdir(path):  # noqa: PTH208
            tick()
            (path / name).unlink(missing_ok=True)
        path.rmdir()


def _is_dead(path: Path, names: list[str], now: float) -> bool:
    """now: by the clock of the file system."""
    owners = [_owner(path / name) for name in names if name.endswith(".owner")]
    known = boot_id() and (boot_id(), pid_space())
    here = [one for one in owners if (one.get("boot"), one.get("space")) == known]
    if any(started(one["pid"]) == one.get("started") for one in here):
        return False
    if here and len(here) == len(owners):
        return True
    newest = max([path.stat().st_mtime, *((path / name).stat().st_mtime for name in names)])
    return now - newest > _OLD_S


def _owner(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        with path.open("rb") as file:
            told = json.loads(file.read(_MOST_OWNER))
        if isinstance(told, dict) and isinstance(told.get("pid"), int):
            return told
    return {}


def clean(own: Path, rank: int, *, last: bool) -> list[str]:
    """Remove this rank's files and, `last`, the folder; what could not be removed.

    Not last it tries the folder, too, and leaves it where others' files are in it.
    """
    left = []
    with suppress(FileNotFoundError):
        # Whose they are goes last: what a removal that is killed leaves is a dead process's then.
        for name in sorted(os.listdir(own), key=lambda one: one.endswith(".owner")):  # noqa: PTH208
            if name.startswith(f"rank-{rank}."):
                path = own / name
                try:
                    discard(path)
                except OSError as error:
                    left.append(f"{path}: {error.strerror}")
    try:
        own.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        if last:
            left.append(f"{own}: {error.strerror}")
    return left
