"""What should be so on every node by itself: locked memory, /dev/shm, RDMA ports; and its GPUs."""

from collections.abc import Sequence
from typing import Any

from wirespeed.checks.gpu_health import gpu_findings
from wirespeed.checks.per_node import absent, worse
from wirespeed.records import Finding, NodeFacts, World
from wirespeed.units import format_size

__all__ = ["health_findings"]

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
        expected="ACTIVE, LinkUp (/sys/class/infiniband/*/ports/*/state)",
        because="no cable, a switch port that is off, or (InfiniBand, state INIT) no subnet manager",
        costs="this rail is lost to NCCL, on all nodes if rails are matched",
        fix="ibstatus and dmesg on this node; a port that is unused on purpose: NCCL_IB_HCA=^NAME",
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
    limit = node.facts.get("memlock.soft")
    return limit == "unlimited" or node.facts.get("memlock.exempt") is True


def _short_memlock(node: NodeFacts) -> Finding:
    limit = node.facts.get("memlock.soft")
    if limit is None:
        because = node.unknown.get("memlock.soft", "not reported")
        return absent("NODE-006", f"{node.host}: limit of locked memory not checked", because)
    return worse(
        "NODE-006",
        "warn",
        node,
        f"locked memory limited to {format_size(limit)} though it has RDMA devices",
        saw=f"ulimit -l: {format_size(limit)}, without CAP_IPC_LOCK",
        expected="unlimited (NCCL's user guide asks for --ulimit memlock=-1 in containers)",
        because="an RDMA device reads and writes only memory that is locked",
        costs="NCCL fails to register buffers, or falls back to sockets: often ten times slower",
        fix="memlock unlimited in /etc/security/limits.conf, LimitMEMLOCK=infinity of the service, "
        "docker --ulimit memlock=-1, or IPC_LOCK for a pod of root's",
    )


def _shm(world: World) -> list[Finding]:
    known = [node for node in world.nodes if "shm.size_bytes" in node.facts]
    blind = [node for node in world.nodes if "shm.size_bytes" not in node.facts]
    small = [node for node in known if node.facts["shm.size_bytes"] < _GIB]
    found = [_small_shm(node, world.backend) for node in small]
    for node in blind:
        because = node.unknown.get("shm.size_bytes", "not reported")
        found.append(absent("NODE-007", f"{node.host}: /dev/shm not checked", because))
    if found or not known:
        return found
    least = min(node.facts["shm.size_bytes"] for node in known)
    title = f"/dev/shm has at least {format_size(least)} on every node ({len(known)})"
    return [Finding(id="NODE-007", status="pass", title=title)]


def _small_shm(node: NodeFacts, backend: str) -> Finding:
    size = node.facts["shm.size_bytes"]
    # gloo does without /dev/shm, and so do ranks that are alone on their node.
    default = size <= _DOCKER_SHM * 1.02 and len(node.ranks) > 1 and backend != "gloo"
    return worse(
        "NODE-007",
        "fail" if default else "warn",
        node,
        f"/dev/shm has only {format_size(size)}",
        saw=f"{format_size(size)} for {len(node.ranks)} rank(s)",
        expected="at least 1 GiB (NCCL's user guide asks for --shm-size=1g in containers)",
        because="64 MiB is what docker and Kubernetes give unless told otherwise"
        if size <= _DOCKER_SHM * 1.02
        else "the container or the mount limits it",
        costs="NCCL's ranks of one node and DataLoader workers share data there: "
        "`No space left on device`, or a bus error in the middle of a run",
        fix="docker --shm-size=1g or --ipc=host; in Kubernetes an emptyDir with medium: Memory "
        "mounted at /dev/shm",
    )
