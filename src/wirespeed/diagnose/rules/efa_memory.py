"""EFA and libfabric: memory that could not be registered."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = (
    "https://github.com/aws/aws-ofi-nccl",
    "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html",
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="OFI-040",
        category="efa-error",
        role="symptom",
        stage="network",
        anchors=("to register memory", "to bind MR", "to register MR", "MR key allocation failed"),
        pattern=r"NET/OFI.{0,80}?(?P<what>(?:unable|failed) to (?:register (?:memory|MR\b)|bind MR)"
        r".{0,120}|MR key allocation failed)",
        # That one is told by memlock's rule.
        unless=r"cannot allocate memory",
        sentence="the OFI plugin could not register memory with the NIC: {what}",
        checks=(
            "for GPU memory (type = 2) and 'Invalid argument': whether the EFA installer is older "
            "than 1.29.1 with NCCL 2.19 or later: upgrade it on all nodes, or "
            "FI_EFA_SET_CUDA_SYNC_MEMOPS=0",
            "whether GPUDirect RDMA can work: the kernel modules efa and nvidia of one installer "
            "(lsmod | grep -E 'efa|peermem'), DMA-BUF in the kernel, an instance type that has it; "
            "OFI_NCCL_DISABLE_DMABUF=1 for a try",
            "whether locked memory (memlock, ulimit -l) is limited in the container: it must be "
            "unlimited",
            "for 'Permission denied': whether the container has the device and the hook of this "
            "network (/dev/infiniband, or /dev/cxi0 with the host's libfabric)",
        ),
        explains=(
            "nccl-system-error",
            "nccl-remote-error",
            "nccl-trace",
            "nccl-peer-lost",
            "launcher-exit",
            "exit-code",
        ),
        links=_LINKS,
        positive=(
            "register_mr_buffers:544 NCCL WARN NET/OFI Unable to register memory (type = 2) for "
            "device 0. RC: -22, Error: Invalid argument",
            "register_rail_mr_buffer:617 NCCL WARN NET/OFI Unable to register memory (type = 2) for "
            "device 4. RC: -22, Error: Invalid argument",
            "NCCL WARN NET/OFI Unable to register memory (type = 1) for device 0. RC: -13, Error: "
            "Permission denied",
            "NCCL WARN NET/OFI rail 0: Failed to register memory: Invalid argument",
            "NCCL WARN NET/OFI Unable to bind MR to EP. RC: -22, Error: Invalid argument",
            "NCCL WARN NET/OFI MR key allocation failed",
        ),
        negative=(
            "register_mr_buffers:465 NCCL WARN NET/OFI Unable to register memory (type = 1) for "
            "device 0. RC: 12, Error: Cannot allocate memory",
            "WARNING agent: Failed to register memory forget tool: timeout",
            "NCCL INFO NET/OFI Global registrations supported",
        ),
    ),
)
