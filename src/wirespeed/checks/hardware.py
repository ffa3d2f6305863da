"""Whether links, devices and CPUs of a node are as fast and as free as they can be.

NODE-010 to NODE-016, and with them GPU-005 to GPU-013 (`wirespeed.checks.gpu_faults`). Every check
looks at one node by itself; what differs between nodes is told by NODE-001 to NODE-005.
"""

from wirespeed.checks.cpu_health import cpu_findings
from wirespeed.checks.gpu_faults import gpu_cuda_findings, gpu_fault_findings
from wirespeed.checks.gpu_health import gpu_state_findings
from wirespeed.checks.links import link_findings
from wirespeed.checks.peer_paths import peer_findings
from wirespeed.model.records import Finding, World

__all__ = ["hardware_findings"]


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
