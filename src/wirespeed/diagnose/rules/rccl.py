"""RCCL and AMD GPUs: faults, IPC between GPUs, xGMI, versions."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = ("https://rocm.docs.amd.com/projects/rccl/en/latest/how-to/troubleshooting-rccl.html",)
_SYSTEM = ("https://rocm.docs.amd.com/en/latest/how-to/system-optimization/index.html",)
_FOLLOWS = (
    "python-runtime",
    "crash",
    "nccl-cuda-error",
    "nccl-system-error",
    "nccl-remote-error",
    "nccl-trace",
    "nccl-peer-lost",
    "watchdog-timeout",
    "launcher-exit",
    "exit-code",
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="RCCL-001",
        category="gpu-program-error",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("Memory access fault by GPU",),
        pattern=r"memory access fault by GPU node-(?P<node>\d+)(?: \(agent handle: \S+\))? on "
        r"address "
        r"(?P<address>0x[0-9a-f]+|\(nil\))(?:\. reason: (?P<why>[^.]{1,80}))?",
        sentence="a kernel on an AMD GPU (node-{node}) used an address that is not its own "
        "({address})",
        because="'Page not present' is an illegal memory access of a kernel; with several GPUs "
        "and no "
        "error in the code, peer access (IOMMU, ACS, large BAR) is broken",
        costs="the process is ended; the others wait for it",
        fix="find the kernel: AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1; where it comes only "
        "with "
        "several GPUs: iommu=pt on the kernel's command line, NCCL_P2P_DISABLE=1 for a try",
        next="dmesg -T | grep -i amdgpu; rocm-bandwidth-test",
        explains=_FOLLOWS,
        links=_LINKS,
        positive=(
            "Memory access fault by GPU node-2 (Agent handle: 0x55d0) on address 0x7f1c00000000. "
            "Reason: "
            "Page not present or supervisor privilege.",
        ),
        negative=("HW Exception by GPU node-4 (Agent handle: 0x4f) reason :GPU Hang",),
    ),
    Rule(
        id="RCCL-002",
        category="gpu-failed",
        role="cause",
        stage="machine",
        anchors=("HW Exception by GPU", "HSA_STATUS_ERROR_EXCEPTION"),
        pattern=r"HW exception by GPU node-(?P<node>\d+).{0,60}reason ?: ?(?P<why>[\w ]{2,60})",
        sentence="an AMD GPU (node-{node}) raised a hardware exception: {why}",
        because="the driver reset the GPU or took it away while a kernel ran",
        costs="every process on this GPU ends",
        fix="look at dmesg (amdgpu: reset, RAS, ring timeout); update ROCm and firmware; if it "
        "comes back "
        "on this GPU only, reset it (amd-smi reset) or have it replaced",
        next="dmesg -T | grep -i amdgpu; amd-smi bad-pages",
        explains=_FOLLOWS,
        links=_LINKS,
        positive=("HW Exception by GPU node-4 (Agent handle: 0x4f9a) reason :GPU Hang",),
        negative=(
            "Memory access fault by GPU node-2 (Agent handle: 0x5) on address 0x7f. Reason: x",
        ),
    ),
    Rule(
        id="RCCL-003",
        category="p2p-failed",
        role="cause",
        stage="setup",
        anchors=("hipIpcGetMemHandle", "hipIpcOpenMemHandle"),
        pattern=r"(?P<call>hipIpc(?:Get|Open)MemHandle) failed ?: (?P<error>[\w ]{2,60})",
        sentence="AMD GPUs of this node cannot share memory between processes: {call} failed: "
        "{error}",
        because="the processes are in containers that do not share IPC and /dev/kfd, see "
        "different GPUs "
        "(HIP_VISIBLE_DEVICES), or the IOMMU is on without passthrough",
        costs="RCCL cannot be initialised on this node",
        fix="docker run --ipc=host --device=/dev/kfd --device=/dev/dri --security-opt "
        "seccomp=unconfined; "
        "iommu=pt on the kernel's command line; HSA_FORCE_FINE_GRAIN_PCIE=1 without xGMI; "
        "NCCL_P2P_DISABLE=1 for a try",
        next="cat /proc/cmdline; rocm-smi --showtopo",
        explains=_FOLLOWS,
        links=_LINKS,
        positive=(
            "hipify/src/transport/p2p.cc:220 NCCL WARN hipIpcGetMemHandle failed : invalid "
            "argument",
        ),
        negative=("NCCL INFO P2P/IPC between GPU 0 and 1",),
    ),
    Rule(
        id="RCCL-004",
        category="nvlink-error",
        role="cause",
        stage="machine",
        anchors=("xgmi", "XGMI"),
        pattern=r"amdgpu.{0,80}xgmi.{0,60}(?P<what>fail\w*|error\w*|link (?:down|lost))",
        unless=r"errors?[: =]+0\b|no error",
        sentence="the link between AMD GPUs (xGMI) reports trouble: {what}",
        because="xGMI joins the GPUs of a node as NVLink does",
        costs="RCCL falls back to PCIe or stops",
        fix="look at amd-smi xgmi and dmesg; reboot the node; if it comes back, have the GPU or "
        "its bridge "
        "replaced",
        next="amd-smi xgmi; rocm-smi --showxgmierr; dmesg -T | grep -i xgmi",
        explains=_FOLLOWS,
        links=_SYSTEM,
        positive=("amdgpu 0000:43:00.0: amdgpu: XGMI: Failed to add device to hive",),
        negative=("amdgpu 0000:43:00.0: amdgpu: XGMI: Add node 1, hive 0x1, errors: 0",),
    ),
    Rule(
        id="RCCL-005",
        category="gpu-architecture",
        role="cause",
        confidence="certain",
        anchors=(
            "hipErrorNoBinaryForGpu",
            "invalid device function",
            "no kernel image is available",
        ),
        pattern=r"hipErrorNoBinaryForGpu|hip error.{0,20}(?:invalid device function|no kernel "
        r"image)",
        sentence="torch or RCCL holds no code for this AMD GPU (hipErrorNoBinaryForGpu)",
        because="it was built for other gfx targets than this GPU's",
        costs="no kernel runs on this GPU",
        fix="install the build for this ROCm and GPU (rocminfo | grep gfx); "
        "HSA_OVERRIDE_GFX_VERSION for a "
        "GPU of the same family",
        next="rocminfo | grep gfx; python -c 'import torch; print(torch.cuda.get_arch_list())'",
        explains=_FOLLOWS,
        links=_SYSTEM,
        positive=(
            '"hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"',
            "RuntimeError: HIP error: invalid device function",
        ),
        negative=("HIP error: out of memory",),
    ),
    Rule(
        id="RCCL-006",
        category="gpu-visible",
        role="cause",
        anchors=(
            "No HIP GPUs are available",
            "hipErrorNoDevice",
            "no ROCm-capable device",
        ),
        pattern=r"no HIP GPUs are available|hipErrorNoDevice|no ROCm-capable device is detected",
        sentence="no AMD GPU is visible to this process",
        because="the container lacks /dev/kfd and /dev/dri, the user is not in the groups video "
        "and render, "
        "or HIP_VISIBLE_DEVICES (or ROCR_VISIBLE_DEVICES) hides them",
        costs="the program cannot start on this node",
        fix="docker run --device=/dev/kfd --device=/dev/dri --group-add video --group-add render; "
        "unset "
        "HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES or correct them",
        next="ls -l /dev/kfd /dev/dri; rocminfo | head; id",
        explains=_FOLLOWS,
        links=_SYSTEM,
        positive=("RuntimeError: No HIP GPUs are available",),
        negative=("HIP_VISIBLE_DEVICES=0,1,2,3",),
    ),
)
