"""Memory and the limits on it: total, available, locked memory, /dev/shm."""

import os
import resource
from pathlib import Path

from wirespeed.world.cgroups import UNLIMITED, memory_limit, memory_room
from wirespeed.world.reading import Notes, read_text

__all__ = ["gather_limits", "memory_available_bytes"]

_ROOT = Path("/")
_CAP_IPC_LOCK = 14
"""Bit of the capability (linux/capability.h)."""
_WHOLE_USER_SPACE = ["0", "0", "4294967295"]


def gather_limits(notes: Notes) -> None:
    """Note `memory.*`, `memlock.*` and `shm.*`; sizes are bytes."""
    memory = _meminfo(notes.root)
    notes.keep("memory.total_bytes", memory.get("MemTotal"), "/proc/meminfo has no MemTotal")
    notes.keep("memory.available_bytes", _available(notes.root, memory))
    limit = memory_limit(notes.root)
    notes.facts["memory.limit_bytes"] = UNLIMITED if limit is None else limit
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    notes.keep("memlock.soft", _limit(soft))
    notes.keep("memlock.hard", _limit(hard))
    notes.keep("memlock.exempt", _may_lock(notes.root), "/proc/self/status has no CapEff")
    _gather_shm(notes)


def memory_available_bytes(root: Path = _ROOT) -> int:
    """Bytes that can be taken without swapping: MemAvailable, or less where a cgroup leaves less.

    0 where /proc/meminfo cannot be read, so that nothing large is tried.
    """
    return _available(root, _meminfo(root)) or 0


def _available(root: Path, memory: dict[str, int]) -> int | None:
    room = memory_room(root)
    known = [size for size in (memory.get("MemAvailable"), room) if size is not None]
    return min(known, default=None)


def _meminfo(root: Path) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    sizes = {}
    for line in (read_text(root / "proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdecimal():
            sizes[name] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
    return sizes


def _limit(value: int) -> int | str:
    return UNLIMITED if value == resource.RLIM_INFINITY else value


def _may_lock(root: Path) -> bool | None:
    """Whether CAP_IPC_LOCK lifts the limit for us.

    The kernel asks for it in the first user namespace (`capable`, in ib_umem_get), so that what a
    rootless container shows in CapEff does not count.
    """
    for line in (read_text(root / "proc/self/status") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            users = (read_text(root / "proc/self/uid_map") or "").split()
            return users == _WHOLE_USER_SPACE and bool(int(value, 16) >> _CAP_IPC_LOCK & 1)
    return None


def _gather_shm(notes: Notes) -> None:
    try:
        found = os.statvfs(notes.root / "dev/shm")
    except OSError as error:
        notes.unknown["shm.size_bytes"] = f"/dev/shm: {error.strerror}"
        return
    notes.facts["shm.size_bytes"] = found.f_blocks * found.f_frsize
    notes.facts["shm.free_bytes"] = found.f_bavail * found.f_frsize
