"""What should be so on every node by itself: locked memory, /dev/shm, RDMA ports; and its GPUs."""

from collections.abc import Sequence
from typing import Any

from wirespeed.checks.gpu_health import gpu_findings
from wirespeed.checks.per_node import absent, worse
from wirespeed.model.records import Finding, NodeFacts, World
from wirespeed.model.units import format_size

_GIB = 1 << 30
_DOCKER_SHM = 64 << 20
"""What docker and Kubernetes give a container that asks for nothing."""


def health_findings(world: World) -> list[Finding]:
    """NODE-006, NODE-007, NODE-009 and GPU-001 to GPU-004."""
    return [*_ports(world), *_memlock(world), *_shm(world), *gpu_findings(world)]


def _ports(world: World) -> list[Finding]:
    ports = [(node, port) for node in world.nodes for port in node.rdma]
    if not ports:
        return [absent("NODE-009", "RDMA ports not checked", "no RDMA device on any node")]
    idle = [(node, port) for node, port in ports if port.get("state") != "ACTIVE"]
    if not idle:
        return [Finding(id="NODE-009", status="pass", title=f"{len(ports)} RDMA ports ACTIVE")]
    hosts = {node.host: node for node, _ in idle}
    return [_idle_ports(node, [port for at, port in idle if at is node]) for node in hosts.values()]


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
        title = "limit of locked memory not checked"
        return [absent("NODE-006", title, "no RDMA device on any node")]
    found = [_short_memlock(node) for node in nodes if not _may_lock(node)]
    return found or [
        Finding(
            id="NODE-006",
            status="pass",
            title=f"locked memory unlimited on every node with RDMA ({len(nodes)})",
        )
    ]


def _may_lock(node: NodeFacts) -> bool:
    limit = node.facts.memlock_soft
    return limit == "unlimited" or node.facts.memlock_exempt is True


def _short_memlock(node: NodeFacts) -> Finding:
    limit = node.facts.memlock_soft
    if not isinstance(limit, int):
        because = node.unknown.get("memlock.soft", "not reported")
        return absent("NODE-006", f"{node.host}: limit of locked memory not checked", because)
    return worse(
        "NODE-006",
        "warn",
        node,
        f"locked memory limited to {format_size(limit)} though it has RDMA devices",
        saw=f"ulimit -l: {format_size(limit)}, without CAP_IPC_LOCK",
    )


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
    default = size <= _DOCKER_SHM * 1.02 and len(node.ranks) > 1 and backend != "gloo"
    return worse(
        "NODE-007",
        "fail" if default else "warn",
        node,
        f"/dev/shm has only {format_size(size)}",
        saw=f"{format_size(size)} for {len(node.ranks)} rank(s)",
        because="64 MiB is what docker and Kubernetes give unless told otherwise"
        if size <= _DOCKER_SHM * 1.02
        else "the container or the mount limits it",
    )
