"""Findings about the nodes: how they differ, and what is wrong with one by itself."""

from wirespeed.checks.node_differences import difference_findings
from wirespeed.checks.node_health import health_findings
from wirespeed.records import Finding, World

__all__ = ["EXPLANATIONS", "node_findings"]

EXPLANATIONS: dict[str, str] = {
    "NODE-001": "Software is the same on every node. Versions of torch, NCCL, CUDA and the NVIDIA "
    "driver must agree, because the ranks of one collective speak a protocol that changes between "
    "versions; kernel, Python and operating system should. Use one image everywhere.",
    "NODE-002": "CPUs and memory are the same on every node. Model, number, quota and governor of "
    "the CPUs, NUMA nodes, memory and its limit: synchronous training runs at the pace of the "
    "slowest node. Look for a node of another kind, a missing memory module or another BIOS setting.",
    "NODE-003": "GPUs are the same on every node. Count, model, memory, ECC mode and power limit. A "
    "GPU that is missing has often fallen off the bus (Xid 79 in dmesg); a lower power limit slows "
    "every step of the job.",
    "NODE-004": "Network interfaces are the same on every node. Speed and MTU of the interfaces "
    "that have an address. One interface at 10 of 100 Gbit/s holds back every ring; unequal MTUs "
    "let small messages pass and stall large ones.",
    "NODE-005": "RDMA ports are the same on every node. Number of ports and rate of the active ones, "
    "from /sys/class/infiniband. A port that is missing or slower holds back a rail of NCCL, mostly "
    "on all nodes; check card, cable and switch port.",
    "NODE-006": "Locked memory is unlimited where there is RDMA. RDMA devices use locked memory "
    "only; with the usual limit of some MiB, and without CAP_IPC_LOCK, NCCL fails or falls back to "
    "sockets. Set memlock to unlimited for the service, the container or the user.",
    "NODE-007": "Shared memory (/dev/shm) is large enough. Ranks of one node and DataLoader workers "
    "exchange data there, and NCCL's user guide asks for 1 GiB. Containers get 64 MiB unless told "
    "otherwise: use --shm-size=1g, --ipc=host or an emptyDir in memory.",
    "NODE-008": "Environment variables that steer communication are the same on every node. NCCL_*, "
    "GLOO_*, UCX_* and the like, without secrets. Ranks that choose different transports or "
    "algorithms are slow at best and hang at worst; set them in one place for the whole job.",
    "NODE-009": "RDMA ports are ACTIVE. A port in another state (DOWN, INIT, ARMED) carries nothing, "
    "and its rail is lost to NCCL. Check cable and switch port, and for InfiniBand's INIT the subnet "
    "manager; exclude a port that is unused on purpose with NCCL_IB_HCA.",
    "GPU-001": "PCIe links run at the width and generation that they can. A link at half width "
    "halves copies to the host and GPUDirect RDMA: one below its siblings, or at half of its maximum "
    "or less, fails. The generation is judged only in performance state P0, because an idle GPU "
    "lowers it to save power. Reseat the card or look at the riser.",
    "GPU-002": "GPU memory has no uncorrected ECC errors since the driver was loaded. Such an error "
    "means wrong data or a job that ends with an Xid; on-chip memory (SRAM) above its threshold means "
    "that the GPU is to be replaced. Drain the node, reset the GPU, and have it replaced if errors "
    "come back.",
    "GPU-003": "MIG mode is off. Instances of a GPU in MIG mode cannot reach other GPUs by NVLink "
    "or peer access, so that all traffic goes through host memory. Switch it off for training on "
    "several GPUs.",
    "GPU-004": "GPU clocks are not lowered by heat or power supply. NVML tells why clocks are below "
    "what was asked for: a power cap at full load is normal, a slowdown by hardware (heat, power "
    "brake) fails, one by software is a warning. Look at cooling and power feeds of the named node.",
}
"""What `--explain ID` says; the first sentence is the title of the check."""


def node_findings(world: World) -> list[Finding]:
    """Every finding about the nodes of `world`, by id; pure. A world without nodes has none."""
    if not world.nodes:
        return []
    findings = difference_findings(world) + health_findings(world)
    order = list(EXPLANATIONS)
    return sorted(findings, key=lambda finding: order.index(finding.id))
