"""What should be so on every node by itself: locked memory, /dev/shm, RDMA ports, GPUs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wirespeed.records import Finding, NodeFacts, Subject, World
from wirespeed.units import format_size

__all__ = ["health_findings"]

Gpu = dict[str, Any]

_GIB = 1 << 30
_DOCKER_SHM = 64 << 20
"""What docker and Kubernetes give a container that asks for nothing."""
_SLOWED = ("hardware slowdown", "thermal, by software", "thermal, by hardware", "power brake")
"""Reasons that are faults; a power cap is normal for a GPU at full load."""


def health_findings(world: World) -> list[Finding]:
    """NODE-006, NODE-007, NODE-009 and GPU-001 to GPU-004."""
    found = [*_ports(world), *_memlock(world), *_shm(world)]
    return found + [finding for check in _GPU_CHECKS for finding in _of_gpus(check, world)]


def _worse(
    id: str, status: Literal["warn", "fail"], node: NodeFacts, title: str, **said: Any
) -> Finding:
    return Finding(
        id=id,
        status=status,
        title=f"{node.host}: {title}",
        subject=Subject("node", node.host),
        next=f"wirespeed check --only {id}",
        **said,
    )


def _absent(id: str, title: str, because: str) -> Finding:
    return Finding(id=id, status="not_checked", title=title, because=because)


def _ports(world: World) -> list[Finding]:
    ports = [(node, port) for node in world.nodes for port in node.rdma]
    if not ports:
        return [_absent("NODE-009", "RDMA ports not checked", "no RDMA device on any node")]
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
    return _worse(
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
        return [_absent("NODE-006", title, "no RDMA device on any node")]
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
        return _absent("NODE-006", f"{node.host}: limit of locked memory not checked", because)
    return _worse(
        "NODE-006",
        "warn",
        node,
        f"locked memory limited to {format_size(limit)} though it has RDMA devices",
        saw=f"ulimit -l: {format_size(limit)}, without CAP_IPC_LOCK",
        expected="unlimited (NCCL's user guide asks for --ulimit memlock=-1 in containers)",
        because="an RDMA device reads and writes only memory that is locked",
        costs="NCCL fails to register buffers, or falls back to sockets: often ten times slower",
        fix="memlock unlimited in /etc/security/limits.conf, LimitMEMLOCK=infinity of the service, "
        "docker --ulimit memlock=-1, or the IPC_LOCK capability of a pod",
    )


def _shm(world: World) -> list[Finding]:
    known = [node for node in world.nodes if "shm.size_bytes" in node.facts]
    blind = [node for node in world.nodes if "shm.size_bytes" not in node.facts]
    small = [node for node in known if node.facts["shm.size_bytes"] < _GIB]
    found = [_small_shm(node, world.backend) for node in small]
    for node in blind:
        because = node.unknown.get("shm.size_bytes", "not reported")
        found.append(_absent("NODE-007", f"{node.host}: /dev/shm not checked", because))
    if found or not known:
        return found
    least = min(node.facts["shm.size_bytes"] for node in known)
    title = f"/dev/shm has at least {format_size(least)} on every node ({len(known)})"
    return [Finding(id="NODE-007", status="pass", title=title)]


def _small_shm(node: NodeFacts, backend: str) -> Finding:
    size = node.facts["shm.size_bytes"]
    # gloo does without /dev/shm, and so do ranks that are alone on their node.
    default = size <= _DOCKER_SHM * 1.02 and len(node.ranks) > 1 and backend != "gloo"
    return _worse(
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


# GPUs.


@dataclass(frozen=True, slots=True, kw_only=True)
class _GpuCheck:
    """One thing that can be wrong with a GPU."""

    id: str
    about: str
    good: str
    """What is so when no GPU has the fault."""
    fault: Callable[[Gpu], str]
    """What is wrong with a GPU in a few words, or nothing."""
    needs: tuple[str, ...] = ()
    """Without these a GPU is not checked."""
    status: Literal["warn", "fail"] = "warn"
    expected: str
    because: str
    costs: str
    fix: str


def _of_gpus(check: _GpuCheck, world: World) -> list[Finding]:
    """A finding a node whose GPUs have the fault; else pass, or not checked where none tells."""
    gpus = [gpu for node in world.nodes for gpu in node.gpus]
    blind = [gpu for gpu in gpus if any(need not in gpu for need in check.needs)]
    found = []
    for node in world.nodes:
        faults = [(gpu["index"], text) for gpu in node.gpus if (text := check.fault(gpu))]
        if faults:
            found.append(_faulty(check, node, faults))
    if blind or not gpus:
        share = f" on {len(blind)} of {len(gpus)} GPUs" if gpus else ""
        title = f"{check.about} not checked{share}"
        found.append(_absent(check.id, title, _why_blind(world, check.needs)))
    title = f"{check.good} on {len(gpus)} GPU(s)"
    return found or [Finding(id=check.id, status="pass", title=title)]


def _why_blind(world: World, needs: Sequence[str]) -> str:
    """The first reason why a GPU did not tell, or why there is none."""
    for node in world.nodes:
        if "gpus" in node.unknown:
            return node.unknown["gpus"]
        missing = [(gpu["index"], need) for gpu in node.gpus for need in needs if need not in gpu]
        for index, need in missing:
            return node.unknown.get(f"gpu.{index}.{need}", f"{need} not reported")
    return "no GPU on any node"


def _faulty(check: _GpuCheck, node: NodeFacts, faults: Sequence[tuple[int, str]]) -> Finding:
    lines = tuple(f"GPU{index}: {text}" for index, text in faults)
    return _worse(
        check.id,
        check.status,
        node,
        lines[0] if len(lines) == 1 else f"{lines[0]}, and {len(lines) - 1} more GPU(s)",
        saw="; ".join(lines),
        expected=check.expected,
        because=check.because,
        costs=check.costs,
        fix=check.fix,
        evidence=lines,
    )


def _pcie_fault(gpu: Gpu) -> str:
    """Width counts always; a GPU that is not in P0 may lower the generation to save power."""
    texts = []
    if "pcie_width" in gpu and gpu["pcie_width"] < gpu.get("pcie_width_max", 0):
        texts.append(f"PCIe x{gpu['pcie_width']} of x{gpu['pcie_width_max']}")
    busy = "pcie_gen" in gpu and gpu.get("performance_state") == 0
    if busy and gpu["pcie_gen"] < gpu.get("pcie_gen_max", 0):
        texts.append(f"PCIe generation {gpu['pcie_gen']} of {gpu['pcie_gen_max']}")
    return ", ".join(texts)


def _ecc_fault(gpu: Gpu) -> str:
    errors = gpu.get("ecc_uncorrected", 0)
    return f"{errors} uncorrected ECC error(s)" if errors else ""


def _slowdown(gpu: Gpu) -> str:
    reasons = ", ".join(why for why in gpu.get("slowed_by", ()) if why in _SLOWED)
    return f"clocks lowered: {reasons}" if reasons else ""


_GPU_CHECKS = (
    _GpuCheck(
        id="GPU-001",
        about="PCIe links",
        good="PCIe links at their full width",
        fault=_pcie_fault,
        needs=("pcie_width", "pcie_width_max", "pcie_gen", "pcie_gen_max"),
        expected="the width and generation that GPU and slot allow (NVML)",
        because="a riser, a slot or a card that is not seated, or a port set so in the BIOS",
        costs="copies to and from the host, and GPUDirect RDMA, at a part of the speed",
        fix="compare with nvidia-smi -q -d PCIE under load; reseat the card",
    ),
    _GpuCheck(
        id="GPU-002",
        about="GPU memory (ECC)",
        good="no uncorrected ECC errors",
        fault=_ecc_fault,
        needs=("ecc_uncorrected",),
        status="fail",
        expected="0 uncorrected errors since the driver was loaded (NVML)",
        because="memory of this GPU gave back what was not written to it",
        costs="wrong gradients, or a job that ends with Xid 48, 63, 64 or 94",
        fix="drain the node and reset the GPU; if errors come back, have it replaced",
    ),
    _GpuCheck(
        id="GPU-003",
        about="MIG mode",
        good="MIG mode not on",  # GPUs that have no MIG do not answer, and are good
        fault=lambda gpu: "MIG is on" if gpu.get("mig") else "",
        expected="off for training on several GPUs",
        because="MIG instances cannot reach each other by NVLink or PCIe peer access",
        costs="all traffic between GPUs goes through host memory",
        fix="nvidia-smi -mig 0, then reset the GPU",
    ),
    _GpuCheck(
        id="GPU-004",
        about="GPU clocks",
        good="clocks not lowered by heat or power supply",
        fault=_slowdown,
        needs=("slowed_by",),
        expected="no slowdown by heat or power supply (NVML clocks event reasons)",
        because="cooling or power supply of this GPU does not suffice",
        costs="one slow GPU slows every step of the whole job",
        fix="nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER; look at fans, inlet and power feeds",
    ),
)
