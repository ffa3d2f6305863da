"""CPUs that a process may use, their caches, and how fast memory is copied."""

import mmap
import os
import platform
import re
import time
from collections.abc import Callable
from pathlib import Path

from wirespeed.node.limits import UNLIMITED, cpu_quota, memory_available_bytes
from wirespeed.node.reading import Notes, numbered, read_number, read_text

_CPUS = "sys/devices/system/cpu"
_ROOT = Path("/")
_CPUSETS = ("cpuset.cpus.effective", "cpuset/cpuset.effective_cpus", "cpuset/cpuset.cpus")
"""cgroup v2, and v1 with and without the effective list."""
_CPU_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def gather_cpus(notes: Notes) -> None:
    """Note `cpu.*`, `numa.nodes` and `llc_bytes`. About 60 µs a logical CPU."""
    notes.keep("cpu.model", _model(notes.root))
    cpus = list(numbered(notes.root / _CPUS, "cpu"))
    notes.keep("cpu.logical", len(cpus) or os.cpu_count())
    notes.keep("cpu.physical", _physical(cpus), f"/{_CPUS}/cpu*/topology is not there")
    notes.keep("cpu.allowed", len(os.sched_getaffinity(0)))
    notes.keep("cpu.shared", _shared(notes.root), "neither a launcher nor a cpuset is visible")
    notes.keep("cpu.quota", cpu_quota(notes.root) or UNLIMITED)
    notes.keep("numa.nodes", _numa_nodes(notes.root), "/sys/devices/system/node is not there")
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
        try:
            return len(os.sched_getaffinity(parent) | os.sched_getaffinity(0))
        except OSError:  # it has ended, or is of another user in a hardened system
            return _cpuset_size(root)
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
    cpus = list(numbered(root / _CPUS, "cpu"))
    if not cpus:
        return None
    levels = [
        (level, index.name)
        for index in numbered(cpus[0] / "cache", "index")
        if (level := read_number(index / "level")) is not None
    ]
    if not levels:
        return None
    name = max(levels)[1]
    # sysfs writes `32768K`; some virtual machines write nothing.
    sizes = [(read_text(cpu / "cache" / name / "size") or "").removesuffix("K") for cpu in cpus]
    return max((int(size) * 1024 for size in sizes if size.isdecimal()), default=None)


def _model(root: Path) -> str | None:
    """The name, or on ARM, whose kernel gives none, implementer and part in hexadecimal."""
    fields: dict[str, str] = {}
    for line in (read_text(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    if fields.get("model name"):
        return fields["model name"]
    if "CPU part" in fields:
        return f"{platform.machine()} {fields.get('CPU implementer', '?')}:{fields['CPU part']}"
    return None


def _physical(cpus: list[Path]) -> int | None:
    """Cores without their hyper-threads."""
    siblings = set()
    for cpu in cpus:
        topology = cpu / "topology"
        # An older kernel's name of the same list comes second.
        found = read_text(topology / "core_cpus_list") or read_text(
            topology / "thread_siblings_list"
        )
        siblings.add(found)
    siblings.discard(None)
    return len(siblings) or None


def _numa_nodes(root: Path) -> int | None:
    return len(list(numbered(root / "sys/devices/system/node", "node"))) or None


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
    if memory_available_bytes() < _ROOM * 2 * _LARGEST:
        notes.unknown[name] = "not measured: less than 1 GiB of memory is available"
        return
    try:
        rate = _copy_rate(clock, clock() + BUDGET_S)
    except (OSError, MemoryError) as error:
        notes.unknown[name] = f"not measured: {error}"
        return
    why = f"not measured: this machine is too busy to do it in {BUDGET_S * 1e3:.0f} ms"
    notes.keep(name, rate and round(rate / 1e9, 2), why)


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
