"""CPUs: model, cores, what of them we may use, NUMA nodes, last-level cache, governor."""

import os
import platform
import re
from pathlib import Path

from wirespeed.world.cgroups import UNLIMITED, cpu_quota
from wirespeed.world.reading import Notes, numbered, read_number, read_text

__all__ = ["gather_cpus", "llc_bytes"]

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
    notes.facts["cpu.quota"] = cpu_quota(notes.root) or UNLIMITED
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
