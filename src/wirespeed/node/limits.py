"""CPUs and memory that a process may use, the limits on them, and how many ranks this machine holds."""

import mmap
import os
import platform
import re
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from wirespeed.errors import CannotMeasure
from wirespeed.model.records import Choice
from wirespeed.model.units import format_size
from wirespeed.node.reading import Notes, numbered, read_fields, read_number, read_text

UNLIMITED = "unlimited"
"""How a limit that is not there is noted among the facts."""

_MOUNT = "sys/fs/cgroup"
_NO_LIMIT = 1 << 60
"""v1 writes "no limit" as the largest multiple of a page below 2^63."""


def cpu_quota(root: Path) -> float | None:
    """CPUs' worth of time that we may use, such as 3.5; None without a limit."""
    return min((*_quotas_v2(root), *_quotas_v1(root)), default=None)


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
    value = read_fields(path, " ").get(name, "")
    return int(value) if value.isdecimal() else 0


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
    for name, value in (("memlock.soft", soft), ("memlock.hard", hard)):
        notes.keep(name, UNLIMITED if value == resource.RLIM_INFINITY else value)
    notes.keep("memlock.exempt", _may_lock(notes.root), "/proc/self/status has no CapEff")
    _gather_shm(notes)


def memory_available_bytes(root: Path = _ROOT) -> int:
    """Bytes that can be taken without swapping: MemAvailable, or less where a cgroup leaves less.

    0 where /proc/meminfo cannot be read, so that nothing large is tried.
    """
    return _available(root, _meminfo(root)) or 0


def _available(root: Path, memory: dict[str, int]) -> int | None:
    sizes = memory.get("MemAvailable"), memory_room(root)
    return min((size for size in sizes if size is not None), default=None)


def _meminfo(root: Path) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    told = {name: value.split() for name, value in read_fields(root / "proc/meminfo").items()}
    return {
        name: int(words[0]) * (1024 if words[-1] == "kB" else 1)
        for name, words in told.items()
        if words and words[0].isdecimal()
    }


def _may_lock(root: Path) -> bool | None:
    """Whether CAP_IPC_LOCK lifts the limit for us.

    The kernel asks for it in the first user namespace (`capable`, in ib_umem_get), so that what a
    rootless container shows in CapEff does not count.
    """
    bits = read_fields(root / "proc/self/status").get("CapEff")
    if bits is None:
        return None
    users = (read_text(root / "proc/self/uid_map") or "").split()
    return users == _WHOLE_USER_SPACE and bool(int(bits, 16) >> _CAP_IPC_LOCK & 1)


def _gather_shm(notes: Notes) -> None:
    try:
        found = os.statvfs(notes.root / "dev/shm")
    except OSError as error:
        notes.unknown["shm.size_bytes"] = f"/dev/shm: {error.strerror}"
        return
    size, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    notes.facts = replace(notes.facts, shm_size_bytes=size, shm_free_bytes=free)


_CPUS = "sys/devices/system/cpu"
_CPUSETS = ("cpuset.cpus.effective", "cpuset/cpuset.effective_cpus", "cpuset/cpuset.cpus")
"""cgroup v2, and v1 with and without the effective list."""
_CPU_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def gather_cpus(notes: Notes) -> None:
    """Note `cpu.*`, `numa.nodes` and `llc_bytes`. About 60 µs a logical CPU."""
    notes.keep("cpu.model", _model(notes.root))
    cpus = numbered(notes.root / _CPUS, "cpu")
    notes.keep("cpu.logical", len(cpus) or os.cpu_count())
    notes.keep("cpu.physical", _physical(cpus), f"/{_CPUS}/cpu*/topology is not there")
    notes.keep("cpu.allowed", len(os.sched_getaffinity(0)))
    notes.keep("cpu.shared", _shared(notes.root), "neither a launcher nor a cpuset is visible")
    notes.keep("cpu.quota", cpu_quota(notes.root) or UNLIMITED)
    nodes = len(numbered(notes.root / "sys/devices/system/node", "node")) or None
    notes.keep("numa.nodes", nodes, "/sys/devices/system/node is not there")
    notes.keep("llc_bytes", llc_bytes(notes.root), f"/{_CPUS}/cpu0/cache is not there")
    notes.text("cpu.governor", f"{_CPUS}/cpu0/cpufreq/scaling_governor")
    notes.text("cpu.scaling_driver", f"{_CPUS}/cpu0/cpufreq/scaling_driver")


def _shared(root: Path) -> int | None:
    """CPUs that the ranks of this node have together.

    A launcher may bind each rank to some of them, so our own affinity tells too little: that of the
    launcher, our parent process, counts, and where it is not visible (0: another PID namespace) or
    is the system itself (1) our cgroup's cpuset.
    """
    parent = os.getppid()
    if parent > 1:
        with suppress(OSError):  # it has ended, or is of another user in a hardened system
            return len(os.sched_getaffinity(parent) | os.sched_getaffinity(0))
    return _cpuset_size(root)


def _cpuset_size(root: Path) -> int | None:
    """CPUs of the cpuset at the root of what we see of the cgroups: `0-3,8` has five."""
    texts = (read_text(root / "sys/fs/cgroup" / name) for name in _CPUSETS)
    text = next(filter(None, texts), None)
    if text is None or not _CPU_LIST.fullmatch(text):
        return None
    ends = (part.split("-") for part in text.split(","))
    return sum(int(end[-1]) - int(end[0]) + 1 for end in ends)


def llc_bytes(root: Path = _ROOT) -> int | None:
    """Bytes of the largest last-level cache of this machine, or None where it does not say.

    CPUs of one machine can differ (stacked cache on one chiplet only), hence all are asked.
    """
    cpus = numbered(root / _CPUS, "cpu")
    if not cpus:
        return None
    indexes = numbered(cpus[0] / "cache", "index")
    levels = [(level, one.name) for one in indexes if (level := read_number(one / "level"))]
    name = max(levels, default=(0, ""))[1]
    # sysfs writes `32768K`; some virtual machines write nothing.
    sizes = [(read_text(cpu / "cache" / name / "size") or "").removesuffix("K") for cpu in cpus]
    return max((int(size) * 1024 for size in sizes if size.isdecimal()), default=None)


def _model(root: Path) -> str | None:
    """The name, or on ARM, whose kernel gives none, implementer and part in hexadecimal."""
    fields = read_fields(root / "proc/cpuinfo")
    if fields.get("model name"):
        return fields["model name"]
    if "CPU part" in fields:
        return f"{platform.machine()} {fields.get('CPU implementer', '?')}:{fields['CPU part']}"
    return None


def _physical(cpus: list[Path]) -> int | None:
    """Cores without their hyper-threads."""
    # The second is an older kernel's name of the same list.
    siblings = {
        read_text(cpu / "topology/core_cpus_list")
        or read_text(cpu / "topology/thread_siblings_list")
        for cpu in cpus
    }
    siblings.discard(None)
    return len(siblings) or None


BUDGET_S = 0.1
_LARGEST = 32 << 20
_LEAST = 8 << 20
"""With less, the caches of one core would be measured."""
_STEP = 2 << 20
_COPIES = 3
_MAPPING_SHARE = 0.6
"""Of the time, for having the pages mapped; copies need the rest."""
_ROOM = 16
"""Times what is taken must be free, so that nobody is pushed out of memory by it."""

Clock = Callable[[], float]


def note_copy_rate(notes: Notes, *, clock: Clock = time.monotonic) -> None:
    """Note `memory.copy_GBps`: 10⁹ bytes a second that one core copies. Nothing raises.

    Not measured where `notes` are of other files than this machine's.
    """
    name = "memory.copy_GBps"
    if notes.root != Path("/"):
        notes.unknown[name] = "not measured: these facts are not read from this machine"
        return
    rate, why = None, f"this machine is too busy to do it in {BUDGET_S * 1e3:.0f} ms"
    if memory_available_bytes() < _ROOM * 2 * _LARGEST:
        why = "less than 1 GiB of memory is available"
    else:
        try:
            rate = _copy_rate(clock, clock() + BUDGET_S)
        except (OSError, MemoryError) as error:
            why = str(error)
    notes.keep(name, rate and round(rate / 1e9, 2), f"not measured: {why}")


def _copy_rate(clock: Clock, deadline: float) -> float | None:
    """Bytes a second; None: no time for it."""
    with mmap.mmap(-1, _LARGEST) as source, mmap.mmap(-1, _LARGEST) as target:
        size = _map(source, target, clock, deadline - (1 - _MAPPING_SHARE) * BUDGET_S)
        if size < _LEAST:
            return None
        best = None
        with memoryview(source)[:size] as read, memoryview(target)[:size] as written:
            for _ in range(_COPIES):
                if clock() >= deadline:
                    break
                start = time.thread_time()
                written[:] = read
                spent = time.thread_time() - start
                best = min(best or spent, spent)
    return size / best if best else None


def _map(source: mmap.mmap, target: mmap.mmap, clock: Clock, deadline: float) -> int:
    """Write to both step by step, so that their pages are there; how many bytes of each are."""
    pattern = bytes([0x55]) * _STEP
    done = 0
    while done < _LARGEST and clock() < deadline:
        source[done : done + _STEP] = pattern
        target[done : done + _STEP] = pattern
        done += _STEP
    return done


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
        from wirespeed.typed_command import TYPED

        raise CannotMeasure(
            f"--ranks {ranks} would take {format_size(need)} of memory before the "
            f"first operation; {format_size(available)} are available here",
            expected=f"at most {most} ranks on this machine",
            next=f"{TYPED:--ranks {most}}",
        )


def require_torch() -> None:
    """CannotMeasure when torch is not installed; ranks import it, this process does not."""
    if find_spec("torch") is None:
        raise CannotMeasure(
            "torch is not installed in this environment, and the ranks need it",
            expected="torch 2.6 or later",
            next="pip install 'wirespeed[torch]'  (or your site's build of torch)",
        )
