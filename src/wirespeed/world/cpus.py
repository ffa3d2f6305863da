"""CPUs: model, cores, what of them we may use, NUMA nodes, last-level cache, governor."""

import os
import platform
from pathlib import Path

from wirespeed.world.cgroups import UNLIMITED, cpu_quota
from wirespeed.world.reading import Notes, numbered, read_number, read_text

__all__ = ["gather_cpus", "llc_bytes"]

_CPUS = "sys/devices/system/cpu"
_ROOT = Path("/")


def gather_cpus(notes: Notes) -> None:
    """Note `cpu.*`, `numa.nodes` and `llc_bytes`. About 60 µs a logical CPU."""
    notes.keep("cpu.model", _model(notes.root))
    cpus = list(numbered(notes.root / _CPUS, "cpu"))
    notes.keep("cpu.logical", len(cpus) or os.cpu_count())
    notes.keep("cpu.physical", _physical(cpus), f"/{_CPUS}/cpu*/topology is not there")
    notes.keep("cpu.allowed", len(os.sched_getaffinity(0)))
    notes.facts["cpu.quota"] = cpu_quota(notes.root) or UNLIMITED
    notes.keep("numa.nodes", _numa_nodes(notes.root), "/sys/devices/system/node is not there")
    notes.keep("llc_bytes", llc_bytes(notes.root), f"/{_CPUS}/cpu0/cache is not there")
    notes.text("cpu.governor", f"{_CPUS}/cpu0/cpufreq/scaling_governor")


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
