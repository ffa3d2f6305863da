"""GPU errors that NCCL and RCCL meet and did not make; what RCCL says of AMD machines."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_CUDA = r"(?:cuda|hip) failure (?:\d+ )?'"
_TROUBLE = ("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",)
_FOLLOWS = ("nccl-cuda-error", "nccl-trace", "nccl-peer-lost", "exit-code", "launcher-exit")

RULES: tuple[Rule, ...] = (
    Rule(
        id="NCCL-130",
        category="gpu-program-error",
        role="symptom",
        stage="program",
        anchors=("Cuda failure ", "HIP failure "),
        pattern=_CUDA
        + r"(?P<error>an illegal memory access was encountered|unspecified launch failure|"
        r"device-side assert triggered|misaligned address|illegal instruction|invalid program "
        r"counter|the launch timed out and was terminated)",
        sentence="NCCL met an error of a kernel that ran before: {error}",
        because="CUDA gives such an error to whoever calls next; NCCL's own kernels seldom make it",
        checks=(
            "whether a kernel of the program is wrong (index out of range, freed tensor): run with "
            "CUDA_LAUNCH_BLOCKING=1, compute-sanitizer",
            "whether the GPU failed: dmesg | grep -i xid; nvidia-smi -q -d ECC",
            "whether a tensor was freed while NCCL used it on another stream: record_stream, or "
            "TORCH_NCCL_AVOID_RECORD_STREAMS unset",
        ),
        explains=_FOLLOWS,
        links=_TROUBLE,
        positive=(
            "enqueue.cc:1024 NCCL WARN Cuda failure 700 'an illegal memory access was encountered'",
            "NCCL WARN Cuda failure 'unspecified launch failure'",
        ),
        negative=("NCCL WARN Cuda failure 1 'invalid argument'",),
    ),
    Rule(
        id="NCCL-131",
        category="gpu-failed",
        role="cause",
        stage="machine",
        anchors=("uncorrectable NVLink", "hardware stack error"),
        pattern=r"(?:cuda|hip|nccl).{0,60}(?P<error>uncorrectable NVLink error[^']*|hardware "
        r"stack error)",
        sentence="a GPU failed: {error}",
        because="CUDA reports a hardware error",
        costs="every process on this GPU ends",
        fix="drain the node, reset the GPU (nvidia-smi --gpu-reset) or reboot; replace it when it "
        "comes again",
        next="nvidia-smi -q -d ECC,PAGE_RETIREMENT; dmesg | grep -i xid",
        explains=_FOLLOWS,
        links=("https://docs.nvidia.com/deploy/xid-errors/",),
        positive=(
            "NCCL WARN Cuda failure 220 'uncorrectable NVLink error detected during the execution'",
        ),
        negative=("NCCL WARN Cuda failure 214 'uncorrectable ECC error encountered'",),
    ),
    Rule(
        id="NCCL-135",
        category="gpu-memory-error",
        role="cause",
        stage="machine",
        anchors=("uncorrectable ECC",),
        pattern=r"(?:cuda|hip|nccl).{0,60}(?P<error>uncorrectable ECC error[^']*)",
        sentence="a GPU's memory has errors (ECC) that could not be corrected: {error}",
        because="CUDA reports a hardware error; the kernel's log has Xid 48, 63, 94 or 95 for it",
        costs="every process on this GPU ends",
        fix="drain the node, reset the GPU (nvidia-smi --gpu-reset) or reboot; replace it when it "
        "comes again",
        next="nvidia-smi -q -d ECC,PAGE_RETIREMENT; dmesg | grep -i xid",
        explains=_FOLLOWS,
        links=("https://docs.nvidia.com/deploy/xid-errors/",),
        positive=("NCCL WARN Cuda failure 214 'uncorrectable ECC error encountered'",),
        negative=("ECC errors: 0 uncorrectable",),
    ),
    Rule(
        id="NCCL-132",
        category="gpu-visible",
        role="cause",
        stage="program",
        anchors=("invalid device ordinal", "no CUDA-capable device", "busy or unavailable"),
        pattern=_CUDA + r"(?P<error>invalid device ordinal|no CUDA-capable device[^']*|all "
        r"CUDA-capable devices are busy[^']*|no ROCm-capable device[^']*)",
        unless=r"Test CUDA failure",
        sentence="a process uses a GPU that it does not have: {error}",
        because="the local rank is not below the number of visible GPUs, or each process sees "
        "other GPUs than the rest",
        costs="NCCL cannot start",
        fix="no more processes on a node than GPUs; CUDA_VISIBLE_DEVICES that fits LOCAL_RANK; all "
        "GPUs of the node in the container (--gpus all)",
        next="nvidia-smi -L; echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES",
        explains=_FOLLOWS,
        links=_TROUBLE,
        positive=(
            "init.cc:1470 NCCL WARN Cuda failure 101 'invalid device ordinal'",
            "NCCL WARN Cuda failure 'no CUDA-capable device is detected'",
        ),
        negative=("Test CUDA failure common.cu:892 'invalid device ordinal'",),
    ),
    Rule(
        id="NCCL-133",
        category="nccl-cuda-error",
        role="consequence",
        stage="aftermath",
        anchors=("driver shutting down",),
        pattern=_CUDA + r"driver shutting down",
        sentence="NCCL still ran while its process was ending (driver shutting down)",
        checks=(
            "whether the process ended by an error above, or left without destroy_process_group",
        ),
        positive=("NCCL WARN Cuda failure 4 'driver shutting down'",),
        negative=("NCCL WARN Cuda failure 'initialization error'",),
    ),
    Rule(
        id="NCCL-134",
        category="nccl-cuda-error",
        role="symptom",
        stage="program",
        anchors=("Cuda failure ", "HIP failure "),
        pattern=r"(?:^|NCCL WARN |Last error:\s*)" + _CUDA + r"(?P<error>[^']+)'",
        unless=r"transport/(?:nvls|p2p|shm)\.c|out of memory|peer access is not "
        r"supported|installed CUDA driver|driver version is insufficient|unsupported toolchain|no "
        r"kernel image|named symbol|illegal memory|unspecified "
        r"launch|device-side|misaligned|illegal instruction|invalid program|launch timed "
        r"out|uncorrectable|hardware stack|device ordinal|capable device|driver shutting|system "
        r"not yet",
        sentence="a CUDA call of NCCL failed: '{error}'",
        checks=(
            "which call it is, and before it: NCCL_DEBUG=INFO",
            "'initialization error': CUDA was used before fork(): start processes with spawn",
            "'invalid argument' or 'operation not permitted' while memory is allocated or shared: "
            "NCCL_CUMEM_ENABLE=0, NCCL_CUMEM_HOST_ENABLE=0; in containers --cap-add SYS_NICE, "
            "SYS_PTRACE",
            "'invalid argument' with NVSwitch: fabric manager; NCCL_NVLS_ENABLE=0 for a try",
            "'operation not supported': P2P or a virtual GPU: NCCL_P2P_DISABLE=1",
            "'unknown error', 'invalid resource handle': dmesg | grep -i xid; a GPU that failed",
        ),
        explains=("NCCL-020", "nccl-trace", "nccl-peer-lost"),
        links=_TROUBLE,
        positive=(
            "include/alloc.h:102 NCCL WARN Cuda failure 1 'invalid argument'",
            "Cuda failure 'initialization error'",
            "NCCL WARN Cuda failure 800 'operation not permitted'",
        ),
        negative=(
            "NCCL WARN Cuda failure 2 'out of memory'",
            "transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'",
        ),
    ),
    Rule(
        id="NCCL-140",
        category="amd-setup",
        role="fact",
        anchors=("from kernel command line", "HSA_FORCE_FINE_GRAIN_PCIE=1", "NUMA auto balancing"),
        pattern=r"NCCL WARN (?P<what>Missing \"[^\"]+\"|NUMA auto balancing enabled)",
        sentence="RCCL advises other settings of this machine ({what})",
        positive=(
            'init.cc:127 NCCL WARN Missing "iommu=pt" from kernel command line which can lead to '
            "system instablity or hang!",
            "NCCL WARN NUMA auto balancing enabled which can lead to variability in the RCCL "
            "performance!",
        ),
        negative=("NCCL INFO kernel version: 5.15",),
    ),
    Rule(
        id="NCCL-141",
        category="gpu-visible",
        role="cause",
        anchors=("HSA_STATUS_ERROR", "/dev/kfd"),
        pattern=r"HSA_STATUS_ERROR_(?P<error>OUT_OF_RESOURCES|NOT_INITIALIZED)|(?:unable to "
        r"open|no such file|permission denied).{0,40}/dev/kfd|/dev/kfd.{0,60}(?:permission "
        r"denied|no such file|read and write)",
        sentence="the AMD GPUs cannot be used by this process (/dev/kfd, ROCm runtime)",
        because="the container lacks /dev/kfd and /dev/dri, the user is not in the groups video "
        "and render, or shared memory and locked memory are too small",
        costs="no GPU program runs",
        fix="docker run --device /dev/kfd --device /dev/dri --group-add video --group-add render "
        "--ipc=host --ulimit memlock=-1",
        next="rocminfo; ls -l /dev/kfd /dev/dri",
        explains=_FOLLOWS,
        links=("https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html",),
        positive=(
            "Unable to open /dev/kfd read-write: Permission denied",
            "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary "
            "resources.",
        ),
        negative=("HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION",),
    ),
)
