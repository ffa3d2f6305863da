"""Whether ranks have CPUs, clocks and memory enough: NODE-014 to NODE-016."""

from wirespeed.checks.per_node import Blind, absent, judge_nodes, worse
from wirespeed.records import Finding, NodeFacts, World
from wirespeed.units import format_size

__all__ = ["cpu_findings"]

_SLOW_GOVERNORS = ("powersave", "ondemand", "conservative")
_OWN_GOVERNORS = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
"""Drivers in active mode: their `powersave` is a balance that the processor itself keeps."""
_LEAST_SHARE, _LEAST_BYTES = 0.05, 1 << 30


def cpu_findings(world: World) -> list[Finding]:
    """NODE-014, NODE-015, NODE-016."""
    return [*_governors(world), *_cpus(world), *_memory(world)]


# NODE-014.


def _governors(world: World) -> list[Finding]:
    known = {_governor(node) for node in world.nodes if "cpu.governor" in node.facts}
    return judge_nodes(
        "NODE-014",
        world.nodes,
        _judge_governor,
        about="CPU governor",
        good="CPU governor not one that lowers clocks",
        none="no node",
        saw=", ".join(sorted(known)),
    )


def _governor(node: NodeFacts) -> str:
    return (
        f"{node.facts['cpu.governor']} ({node.facts.get('cpu.scaling_driver', 'driver unknown')})"
    )


def _judge_governor(node: NodeFacts) -> Finding | Blind | None:
    governor = node.facts.get("cpu.governor")
    if governor is None:
        if node.facts.get("machine.virtual"):
            return Blind("virtual machine: the host sets the clocks")
        return Blind(node.unknown.get("cpu.governor", "not reported"))
    if governor not in _SLOW_GOVERNORS or node.facts.get("cpu.scaling_driver") in _OWN_GOVERNORS:
        return None
    return worse(
        "NODE-014",
        "warn",
        node,
        f"CPU governor is {governor}",
        saw=f"{_governor(node)} (/sys/devices/system/cpu/cpu0/cpufreq)",
        expected="performance",
        because="the default of the distribution or of a power profile (tuned, BIOS)",
        costs="ranks that wait for messages let the clock fall: higher latency, and more spread",
        fix="cpupower frequency-set -g performance, or tuned-adm profile hpc-compute",
    )


# NODE-015.


def _cpus(world: World) -> list[Finding]:
    short = [node for node in world.nodes if (_visible(node) or len(node.ranks)) < len(node.ranks)]
    limited = [node for node in world.nodes if _quota(node) is not None]
    if len(world.nodes) == 1 and world.backend == "gloo" and short and not limited:
        title = f"{len(short[0].ranks)} ranks share {_visible(short[0])} CPUs, as asked for"
        return [absent("NODE-015", title, "gloo ranks on one machine: times include the waiting")]
    told = (_tell_quota(node) for node in limited)
    return judge_nodes(
        "NODE-015",
        world.nodes,
        _judge_cpus,
        about="CPUs of the ranks",
        good="at least one CPU a rank",
        none="no node",
        saw="; ".join(text for text in told if text),
    )


def _quota(node: NodeFacts) -> float | None:
    quota = node.facts.get("cpu.quota")
    return float(quota) if isinstance(quota, int | float) else None


def _visible(node: NodeFacts) -> int | None:
    """CPUs of all ranks here; a rank's own affinity (`cpu.allowed`) may be its binding only."""
    return node.facts.get("cpu.shared") or node.facts.get("cpu.logical")


def _tell_quota(node: NodeFacts) -> str:
    quota, visible = _quota(node), _visible(node)
    if quota is None or visible is None or quota >= visible:
        return ""
    return (
        f"{node.host}: a quota of {quota:g} of {visible} visible CPUs; libraries that start a thread "
        "a visible CPU use it up and are stopped for the rest of each 100 ms (OMP_NUM_THREADS)"
    )


def _judge_cpus(node: NodeFacts) -> Finding | Blind | None:
    ranks, quota, visible = len(node.ranks), _quota(node), _visible(node)
    if quota is not None and quota < ranks:
        return _few_cpus(node, f"a CPU quota of {quota:g} for {ranks} ranks", quota=True)
    if visible is None:
        return Blind(node.unknown.get("cpu.shared", "number of CPUs not reported"))
    if visible < ranks:
        return _few_cpus(node, f"{visible} CPUs for {ranks} ranks", quota=False)
    return None


def _few_cpus(node: NodeFacts, text: str, *, quota: bool) -> Finding:
    return worse(
        "NODE-015",
        "warn",
        node,
        text,
        saw=text,
        expected="at least one CPU a rank, better some more for its threads",
        because="the CPU limit of a container, a pod or a service (cgroup cpu.max)"
        if quota
        else "the launcher, the scheduler or a cpuset gives the job few CPUs of this node",
        costs="every rank is stopped for the rest of each 100 ms once the quota is used up, and all "
        "others wait for it"
        if quota
        else "ranks wait for each other's turn: latencies of milliseconds, and much spread",
        fix="raise the limit (resources.limits.cpu, --cpus, CPUQuota=)"
        if quota
        else "more CPUs for the job (--cpus-per-task, a larger cpuset), or fewer ranks a node",
    )


# NODE-016.


def _memory(world: World) -> list[Finding]:
    known = [node.facts["memory.available_bytes"] for node in world.nodes if _available(node)]
    return judge_nodes(
        "NODE-016",
        world.nodes,
        _judge_memory,
        about="free memory",
        good=f"at least {format_size(min(known, default=0))} of memory free",
        none="no node",
    )


def _available(node: NodeFacts) -> bool:
    return "memory.available_bytes" in node.facts


def _judge_memory(node: NodeFacts) -> Finding | Blind | None:
    available, total = (node.facts.get(f"memory.{name}_bytes") for name in ("available", "total"))
    if available is None or total is None:
        missing = "memory.total_bytes" if total is None else "memory.available_bytes"
        return Blind(node.unknown.get(missing, f"{missing} not reported"))
    limit = node.facts.get("memory.limit_bytes")
    total = min(total, limit) if isinstance(limit, int) else total
    if available >= max(_LEAST_BYTES, _LEAST_SHARE * total):
        return None
    said = f"{format_size(available)} of {format_size(total)} free"
    return worse(
        "NODE-016",
        "warn",
        node,
        f"memory: {said}",
        saw=f"{said} (MemAvailable, and what our cgroup leaves)",
        expected="more than 5 % and than 1 GiB before a job starts",
        because="other processes, leftovers of an earlier job, or files in /dev/shm hold it",
        costs="the job swaps, or the kernel kills a rank in the middle of a run",
        fix="ps aux --sort=-rss | head; ls -la /dev/shm; end what is left over",
    )
