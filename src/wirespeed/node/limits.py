"""Memory and the limits on it, control groups, and how many ranks this machine holds."""

import os
import resource
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from wirespeed.errors import CannotMeasure
from wirespeed.model.records import Choice
from wirespeed.model.units import format_size
from wirespeed.node.reading import Notes, read_number, read_text

UNLIMITED = "unlimited"
"""How a limit that is not there is noted among the facts."""

_MOUNT = "sys/fs/cgroup"
_NO_LIMIT = 1 << 60
"""v1 writes "no limit" as the largest multiple of a page below 2^63."""


def cpu_quota(root: Path) -> float | None:
    """CPUs' worth of time that we may use, such as 3.5; None without a limit."""
    quotas = [*_quotas_v2(root), *_quotas_v1(root)]
    return min(quotas, default=None)


def throttled_s(root: Path) -> float:
    """Seconds for which a quota has stopped us so far, by the cgroup that was stopped longest."""
    v2 = (_statistic(at / "cpu.stat", "throttled_usec") / 1e6 for at in _folders(root, ""))
    v1 = (_statistic(at / "cpu.stat", "throttled_time") / 1e9 for at in _folders(root, "cpu"))
    return max(*v2, *v1, 0.0, 0.0)


def memory_limit(root: Path) -> int | None:
    """Bytes that our cgroups allow, or None without a limit."""
    return min((limit for limit, _ in _memory(root)), default=None)


def memory_room(root: Path) -> int | None:
    """Bytes that our cgroups leave us: limit less usage, page cache that can be dropped not counted."""
    return min((max(0, limit - used) for limit, used in _memory(root)), default=None)


def _quotas_v2(root: Path) -> Iterator[float]:
    for folder in _folders(root, ""):
        quota, _, period = (read_text(folder / "cpu.max") or "max").partition(" ")
        if quota.isdecimal() and period.isdecimal():
            yield int(quota) / int(period)


def _quotas_v1(root: Path) -> Iterator[float]:
    for folder in _folders(root, "cpu"):
        quota = read_number(folder / "cpu.cfs_quota_us")
        period = read_number(folder / "cpu.cfs_period_us")
        if quota is not None and period and quota > 0:
            yield quota / period


def _memory(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use in bytes of each of our cgroups that has a limit."""
    names = (
        ("", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    )
    for controller, limit_name, usage_name, cache_name in names:
        for folder in _folders(root, controller):
            limit = read_number(folder / limit_name)
            if limit is None or limit >= _NO_LIMIT:
                continue
            used = read_number(folder / usage_name) or 0
            yield limit, used - _statistic(folder / "memory.stat", cache_name)


def _statistic(path: Path, name: str) -> int:
    for line in (read_text(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdecimal():
            return int(value)
    return 0


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """Our cgroup and those above it; `controller` is empty for v2."""
    mount = root / _MOUNT / controller
    path = _own_path(root, controller)
    if path is None or not mount.is_dir():
        return
    folder = mount / path
    while folder != mount and mount in folder.parents:
        if folder.is_dir():
            yield folder
        folder = folder.parent
    yield mount


def _own_path(root: Path, controller: str) -> str | None:
    """Our path from lines such as `0::/user.slice/x` (v2) and `4:memory:/x` (v1)."""
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller in names.split(","):
            return path.strip("/").replace("../", "")  # /../x: outside of our cgroup namespace
    return None


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
    notes.keep("memory.limit_bytes", UNLIMITED if limit is None else limit)
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
    size, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    notes.facts = replace(notes.facts, shm_size_bytes=size, shm_free_bytes=free)


DEFAULT_RANKS = 4
TORCH_BYTES = 145 << 20
"""Memory that a process takes by importing torch (2.13 for CPUs: psutil's `uss`)."""
RANK_BYTES = 24 << 20
"""Memory of its own that each rank takes that is forked from such a process."""


def count_gpus(root: Path = Path("/")) -> int:
    """GPUs that a process here may use: device files, cut by CUDA_VISIBLE_DEVICES."""
    devices = list((root / "dev").glob("nvidia[0-9]*"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not devices:
        return len(devices)
    return min(len(devices), len([part for part in visible.split(",") if part.strip("- ")]))


def choose_ranks(asked: int | None, backend: str) -> Choice:
    """How many local ranks: one a GPU; without GPUs 4, or the cores if those are more (to 8).

    CannotMeasure for more than the memory holds: better than the kernel ending some of them.
    """
    if asked is not None:
        _refuse_beyond_memory(asked, memory_available_bytes())
        return Choice("ranks", str(asked), "asked for")
    gpus = count_gpus()
    if gpus and backend != "gloo":
        return Choice("ranks", str(gpus), f"{gpus} GPUs on this machine")
    cores = len(os.sched_getaffinity(0))
    if cores > DEFAULT_RANKS:
        return Choice("ranks", str(min(cores, 8)), f"no GPU; {cores} cores")
    return Choice("ranks", str(DEFAULT_RANKS), f"no GPU; 4 is the default on {cores} cores")


def _refuse_beyond_memory(ranks: int, available: int) -> None:
    """`available`: bytes, 0 where that is not known."""
    need = TORCH_BYTES + ranks * RANK_BYTES
    if available and ranks > 1 and need > available:
        most = max(1, (available - TORCH_BYTES) // RANK_BYTES)
        raise CannotMeasure(
            f"--ranks {ranks} would take {format_size(need)} of memory before the "
            f"first operation; {format_size(available)} are available here",
            expected=f"at most {most} ranks on this machine",
            next=f"the same command with --ranks {most}",
        )


def require_torch() -> None:
    """CannotMeasure when torch is not installed; ranks import it, this process does not."""
    if find_spec("torch") is None:
        raise CannotMeasure(
            "torch is not installed in this environment, and the ranks need it",
            expected="torch 2.6 or later",
            next="pip install 'wirespeed[torch]'  (or your site's build of torch)",
        )
