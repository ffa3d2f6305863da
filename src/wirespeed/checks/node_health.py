"""What should be so on every node by itself: locked memory, /dev/shm, RDMA ports, CPUs, memory."""

from collections.abc import Sequence
from typing import Any

from wirespeed.checks.gpu_health import gpu_findings
from wirespeed.checks.registry import Blind, absent, judge_nodes, on_node, tell, without_rdma, worse
from wirespeed.model.records import Finding, NodeFacts, World
from wirespeed.model.units import format_size

_SLOW_GOVERNORS = ("powersave", "ondemand", "conservative")
_OWN_GOVERNORS = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
"""Drivers in active mode: their `powersave` is a balance that the processor itself keeps."""
_LEAST_SHARE, _LEAST_BYTES = 0.05, 1 << 30
_GIB = 1 << 30
_DOCKER_SHM = 64 << 20
"""What docker and Kubernetes give a container that asks for nothing."""


def health_findings(world: World) -> list[Finding]:
    """NODE-006, NODE-007, NODE-009 and GPU-001 to GPU-004."""
    return [*_ports(world), *_memlock(world), *_shm(world), *gpu_findings(world)]


def _ports(world: World) -> list[Finding]:
    ports = [(node, port) for node in world.nodes for port in node.rdma]
    if not ports:
        return [without_rdma("NODE-009", "RDMA ports", world.nodes)]
    idle = [(node, port) for node, port in ports if port.get("state") != "ACTIVE"]
    if not idle:
        return [Finding(id="NODE-009", status="pass", title=f"{len(ports)} RDMA ports ACTIVE")]
    nodes = {node.host: node for node, _ in idle}.values()
    return [_idle_ports(node, [port for at, port in idle if at is node]) for node in nodes]


def _idle_ports(node: NodeFacts, ports: Sequence[dict[str, Any]]) -> Finding:
    said = [
        f"{port['device']} port {port['port']}: {port.get('state', 'state unknown')}"
        + (f", {port['phys_state']}" if "phys_state" in port else "")
        for port in ports
    ]
    return worse(
        "NODE-009",
        "warn",
        node,
        f"{len(ports)} of {len(node.rdma)} RDMA ports not ACTIVE",
        saw="; ".join(said),
    )


def _memlock(world: World) -> list[Finding]:
    nodes = [node for node in world.nodes if node.rdma]
    if not nodes:
        return [without_rdma("NODE-006", "limit of locked memory", world.nodes)]
    found = [_short_memlock(node) for node in nodes if not _may_lock(node)]
    return found or [tell("NODE-006", "good", nodes=len(nodes))]


def _may_lock(node: NodeFacts) -> bool:
    limit = node.facts.memlock_soft
    return limit == "unlimited" or node.facts.memlock_exempt is True


def _short_memlock(node: NodeFacts) -> Finding:
    limit = node.facts.memlock_soft
    if not isinstance(limit, int):
        because = node.unknown.get("memlock.soft", "not reported")
        return absent("NODE-006", f"{node.host}: limit of locked memory not checked", because)
    return on_node("NODE-006", "short", node, limit=format_size(limit))


def _shm(world: World) -> list[Finding]:
    sizes = [(node, node.facts.shm_size_bytes) for node in world.nodes]
    known = [(node, size) for node, size in sizes if size is not None]
    found = [_small_shm(node, size, world.backend) for node, size in known if size < _GIB]
    for node, size in sizes:
        if size is None:
            because = node.unknown.get("shm.size_bytes", "not reported")
            found.append(absent("NODE-007", f"{node.host}: /dev/shm not checked", because))
    if found or not known:
        return found
    least = min(size for _, size in known)
    title = f"/dev/shm has at least {format_size(least)} on every node ({len(known)})"
    return [Finding(id="NODE-007", status="pass", title=title)]


def _small_shm(node: NodeFacts, size: int, backend: str) -> Finding:
    # gloo does without /dev/shm, and so do ranks that are alone on their node.
    default, needed = size <= _DOCKER_SHM * 1.02, len(node.ranks) > 1 and backend != "gloo"
    return on_node(
        "NODE-007",
        "default" if default else "limited",
        node,
        status="fail" if default and needed else "warn",
        size=format_size(size),
        ranks=len(node.ranks),
    )


def cpu_findings(world: World) -> list[Finding]:
    """NODE-014, NODE-015, NODE-016."""
    known = {_governor(node) for node in world.nodes if node.facts.cpu_governor is not None}
    free = [node.facts.memory_available_bytes for node in world.nodes]
    least = min((size for size in free if size is not None), default=0)
    good = f"at least {format_size(least)} of memory free"
    return [
        *judge_nodes("NODE-014", world.nodes, _judge_governor, saw=", ".join(sorted(known))),
        *_cpus(world),
        *judge_nodes("NODE-016", world.nodes, _judge_memory, good=good),
    ]


# NODE-014.


def _governor(node: NodeFacts) -> str:
    return f"{node.facts.cpu_governor} ({node.facts.cpu_scaling_driver or 'driver unknown'})"


def _judge_governor(node: NodeFacts) -> Finding | Blind | None:
    governor = node.facts.cpu_governor
    if governor is None:
        if node.facts.machine_virtual:
            return Blind("virtual machine: the host sets the clocks", applies=False)
        return Blind(node.unknown.get("cpu.governor", "not reported"))
    if governor not in _SLOW_GOVERNORS or node.facts.cpu_scaling_driver in _OWN_GOVERNORS:
        return None
    return worse(
        "NODE-014",
        "warn",
        node,
        f"CPU governor is {governor}",
        saw=f"{_governor(node)} (/sys/devices/system/cpu/cpu0/cpufreq)",
    )


# NODE-015.


def shared_cpus(world: World, origin: str = "") -> Finding | None:
    """Return that gloo ranks of one machine share its CPUs; None where they do not.

    origin: who chose the number of ranks, as ` (default)`.
    """
    short = [
        node for node in world.nodes if (visible_cpus(node) or len(node.ranks)) < len(node.ranks)
    ]
    limited = any(_quota(node) is not None for node in world.nodes)
    if len(world.nodes) != 1 or world.backend != "gloo" or not short or limited:
        return None
    ranks, cpus = len(short[0].ranks), visible_cpus(short[0])
    return tell("NODE-015", "shared", ranks=ranks, cpus=cpus, origin=origin)


def _cpus(world: World) -> list[Finding]:
    shared = shared_cpus(world)
    if shared is not None:
        return [shared]
    limited = [node for node in world.nodes if _quota(node) is not None]
    told = (_tell_quota(node) for node in limited)
    return judge_nodes(
        "NODE-015", world.nodes, _judge_cpus, saw="; ".join(text for text in told if text)
    )


def _quota(node: NodeFacts) -> float | None:
    quota = node.facts.cpu_quota
    return float(quota) if isinstance(quota, int | float) else None


def visible_cpus(node: NodeFacts) -> int | None:
    """CPUs of all ranks here; a rank's own affinity (`cpu.allowed`) may be its binding only."""
    return node.facts.cpu_shared or node.facts.cpu_logical


def _tell_quota(node: NodeFacts) -> str:
    quota, visible = _quota(node), visible_cpus(node)
    if quota is None or visible is None or quota >= visible:
        return ""
    return (
        f"{node.host}: a quota of {quota:g} of {visible} visible CPUs; libraries that start a thread "
        "a visible CPU use it up and are stopped for the rest of each 100 ms (OMP_NUM_THREADS)"
    )


def _judge_cpus(node: NodeFacts) -> Finding | Blind | None:
    ranks, quota, visible = len(node.ranks), _quota(node), visible_cpus(node)
    if quota is not None and quota < ranks:
        return on_node("NODE-015", "quota", node, quota=quota, ranks=ranks)
    if visible is None:
        return Blind(node.unknown.get("cpu.shared", "number of CPUs not reported"))
    return on_node("NODE-015", "few", node, cpus=visible, ranks=ranks) if visible < ranks else None


# NODE-016.


def _judge_memory(node: NodeFacts) -> Finding | Blind | None:
    available, total = node.facts.memory_available_bytes, node.facts.memory_total_bytes
    if available is None or total is None:
        missing = "memory.total_bytes" if total is None else "memory.available_bytes"
        return Blind(node.unknown.get(missing, f"{missing} not reported"))
    limit = node.facts.memory_limit_bytes
    total = min(total, limit) if isinstance(limit, int) else total
    if available >= max(_LEAST_BYTES, _LEAST_SHARE * total):
        return None
    said = f"{format_size(available)} of {format_size(int(total))} free"
    return worse(
        "NODE-016",
        "warn",
        node,
        f"memory: {said}",
        saw=f"{said} (MemAvailable, and what our cgroup leaves)",
    )
