"""Whether links, devices and CPUs of a node are as fast and as free as they can be.

NODE-010 to NODE-016, and with them GPU-005 to GPU-013 (`wirespeed.checks.gpu_faults`). Every check
looks at one node by itself; what differs between nodes is told by NODE-001 to NODE-005.
"""

from wirespeed.checks.cpu_health import cpu_findings
from wirespeed.checks.gpu_faults import gpu_cuda_findings, gpu_fault_findings
from wirespeed.checks.gpu_health import gpu_state_findings
from wirespeed.checks.links import link_findings
from wirespeed.checks.peer_paths import peer_findings
from wirespeed.records import Finding, World

__all__ = ["EXPLANATIONS", "hardware_findings"]

EXPLANATIONS: dict[str, str] = {
    "NODE-010": "Network interfaces and cards run at their full speed. The speed of every real "
    "interface that has an address, against the fastest mode that its driver supports "
    "(ETHTOOL_GLINKSETTINGS); and the PCIe link of network and RDMA devices against what device and "
    "slot allow (sysfs), and against what its port carries. Look at cable, transceiver, switch port "
    "and slot.",
    "NODE-011": "RDMA ports run at full width and at the rate of their siblings. ACTIVE ports of one "
    "kind of card on a node should have one rate, and InfiniBand ports four lanes (4X); two lanes "
    "(2X) are right for split cables, and are told only where other ports of the same kind have four. "
    "Look at cable, transceiver and switch port.",
    "NODE-012": "GPUDirect RDMA is possible where there are GPUs and RDMA devices. The device reads GPU "
    "memory itself, through the module nvidia-peermem, or through dma-buf with Linux 5.12 or newer and "
    "NVIDIA's open kernel modules. Without it NCCL copies through host memory. Load it with modprobe "
    "nvidia-peermem.",
    "NODE-013": "Neither PCIe ACS nor the IOMMU redirects traffic between devices. Both can send what "
    "GPUs and network cards write to each other up to the CPU and back, which is slow and may hang "
    "(NCCL's user guide, PCI Access Control Services). On bare metal switch ACS off on the bridges, "
    "and use iommu=pt. Virtual machines need ACS and are not checked.",
    "NODE-014": "CPUs are not held at a low clock. The governors powersave, ondemand and conservative "
    "of a driver other than intel_pstate or amd-pstate lower the clock of a CPU that waits, as ranks "
    "often do. Use cpupower frequency-set -g performance.",
    "NODE-015": "Every local rank has a CPU of its own. Fewer CPUs than ranks, or a CPU quota (cgroup) "
    "of fewer, makes ranks wait for each other; under a quota all of them stop for the rest of each "
    "100 ms once it is used up. Give the job more CPUs, or start fewer ranks.",
    "NODE-016": "Memory is free. Less than 5 % of the memory that we may use, or than 1 GiB, is left "
    "before anything was started: a job will swap or be killed. Look for leftovers of other jobs.",
    "GPU-005": "No GPU memory waits to be repaired. Memory with errors is replaced by spare rows "
    "(or, before Ampere, retired pages) when the GPU is reset; until then errors can come back, and "
    "where the replacement failed the GPU must go. Reset the GPU or replace it.",
    "GPU-006": "The kernel log has no critical Xid. Xid is how NVIDIA's driver reports errors of a GPU, "
    "SXid of an NVSwitch; the numbers are judged by NVIDIA's Xid catalog. Those that a faulty program "
    "causes are counted and not blamed on the GPU. Reading the kernel log needs root or CAP_SYSLOG.",
    "GPU-007": "The NVLink fabric is up. On systems with NVSwitches a GPU must register with "
    "nvidia-fabricmanager, else CUDA does not start; its routes and partition must be right; and every "
    "GPU of one model should have the same number of active NVLinks. Degraded bandwidth is a warning. "
    "Start the fabric manager, then look at Xid 74 and reset the GPU.",
    "GPU-008": "Every GPU on the PCI bus answers. A GPU whose configuration space reads as ones only "
    "has fallen off the bus, one without a driver could not be started, and one that NVML does not show "
    "is lost to every job. GPUs that a container or a scheduler withholds are no fault.",
    "GPU-009": "Every GPU answers NVML. What a GPU or its MIG mode does not support is not checked; "
    "but a GPU that answers lost, unknown error, reset required or time-out, or not at all, is lost to "
    "jobs. Drain the node, look for Xid in dmesg, and reset the GPU or restart the node.",
    "GPU-010": "NVLink errors do not grow. The error counters of every active NVLink are read twice, "
    "some tenths of a second apart: a healthy link counts none. Errors are mended by sending again "
    "until the link fails. Reset the GPU, then have board or switch looked at.",
    "GPU-011": "GPUs are below the temperature at which they slow down. NVML tells the temperature and "
    "that threshold. Look at fans, airflow and inlet temperature of the named node.",
    "GPU-012": "GPU clocks are as high as those of their siblings. Of GPUs of one model, in one state "
    "and without a power cap or heat as a reason, one whose clock is lower was locked there or lacks "
    "power. Unlock its clocks with nvidia-smi -rgc.",
    "GPU-013": "CUDA shows the GPUs that NVML shows. CUDA numbers GPUs in an order of its own, so both "
    "are joined by UUID. GPUs outside of CUDA_VISIBLE_DEVICES are told and are no fault; that CUDA does "
    "not start (error 802: the fabric manager) or leaves out another GPU is one. See dmesg.",
}


def hardware_findings(world: World) -> list[Finding]:
    """NODE-010 to NODE-016 and GPU-005 to GPU-013, in the order of their ids."""
    return [
        *link_findings(world),
        *peer_findings(world),
        *cpu_findings(world),
        *gpu_fault_findings(world),
        *gpu_state_findings(world),
        *gpu_cuda_findings(world),
    ]
