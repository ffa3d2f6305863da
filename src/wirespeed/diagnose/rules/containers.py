"""Containers without their GPUs, and CUDA that cannot start."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_TOOLKIT = (
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
)
_CUDA = ("https://docs.nvidia.com/deploy/cuda-compatibility/",)
_DOWN = (
    "python-runtime",
    "python-error",
    "nccl-cuda-error",
    "nccl-missing",
    "launcher-exit",
    "exit-code",
    "k8s-restarting",
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="CONT-001",
        category="container-gpu",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=(
            "could not select device driver",
            "unknown runtime specified nvidia",
            "unknown or invalid runtime name: nvidia",
            "nvidia-container-cli",
            "nvidia-container-runtime",
        ),
        pattern=r"could not select device driver .{0,20}with capabilities: \[\[gpu|unknown (?:or "
        r"invalid )?"
        r"runtime(?: name| specified):? nvidia|nvidia-container-cli: (?P<what>(?!.{0,60}driver "
        r"not loaded)"
        r".{1,120})|nvidia-container-runtime.{0,40}(?:not found|no such file)",
        unless=r"driver/library version mismatch",
        sentence="the container cannot be given its GPUs: the NVIDIA container toolkit is missing "
        "or fails",
        because="docker, containerd or podman needs the toolkit installed and registered; with "
        "the message "
        "of nvidia-container-cli the toolkit ran, and the driver or its rights are the trouble",
        costs="the container does not start",
        fix="install nvidia-container-toolkit, run nvidia-ctk runtime configure and restart "
        "docker or "
        "containerd; in rootless containers set no-cgroups = true in "
        "/etc/nvidia-container-runtime/config.toml; check nvidia-smi on the host first",
        next="on the host: nvidia-smi; docker info | grep -i runtime; nvidia-container-cli info",
        explains=("k8s-container-start", *_DOWN),
        links=_TOOLKIT,
        positive=(
            'docker: Error response from daemon: could not select device driver "" with capabilities: '
            "[[gpu]].",
            "nvidia-container-cli: initialization error: nvml error: insufficient permissions: "
            "unknown",
            "docker: Error response from daemon: Unknown runtime specified nvidia.",
        ),
        negative=(
            "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
        ),
    ),
    Rule(
        id="CONT-002",
        category="container-gpu",
        role="cause",
        stage="machine",
        anchors=("Failed to initialize NVML: Unknown Error",),
        pattern=r"failed to initialize NVML: unknown error",
        sentence="a running container lost its GPUs (Failed to initialize NVML: Unknown Error)",
        because="systemd reloaded its units (systemctl daemon-reload) and set the container's "
        "device rights "
        "anew, without the GPUs that the toolkit had added",
        costs="new processes in this container see no GPU",
        fix="start the container again; for good: name the devices (--device /dev/nvidia0 …, CDI) "
        "or set "
        "docker's cgroup driver to cgroupfs (native.cgroupdriver=cgroupfs)",
        next="in the container: ls -l /dev/nvidia*; nvidia-smi",
        explains=("gpu-visible", *_DOWN),
        links=_TOOLKIT,
        positive=("Failed to initialize NVML: Unknown Error",),
        negative=("Failed to initialize NVML: Driver/library version mismatch",),
    ),
    Rule(
        id="CUDA-001",
        category="driver-mismatch",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("unsupported display driver", "forward compatibility was attempted"),
        pattern=r"(?:error 803: )?system has unsupported display driver|forward compatibility was "
        r"attempted "
        r"on non ?supported HW",
        sentence="the container's libcuda does not fit the host's driver (CUDA error 803 or 804)",
        because="a libcuda of the image (cuda-compat in LD_LIBRARY_PATH, or a driver installed "
        "into the "
        "image) is loaded instead of the host's; forward compatibility works on data-centre GPUs "
        "only",
        costs="no CUDA program runs",
        fix="take cuda-compat out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, and any libcuda.so "
        "out of the "
        "image; or update the host's driver",
        next="ldconfig -p | grep libcuda; ls -l /usr/local/cuda/compat; nvidia-smi",
        explains=_DOWN,
        links=_CUDA,
        positive=(
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has "
            "unsupported "
            "display driver / cuda driver combination",
            "CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 804: forward "
            "compatibility was attempted on non supported HW",
        ),
        negative=("Error 802: system not yet initialized",),
    ),
    Rule(
        id="CUDA-002",
        category="cuda-fork",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("Cannot re-initialize CUDA in forked subprocess",),
        pattern=r"cannot re-initialize CUDA in forked subprocess",
        sentence="CUDA was used before processes were forked, and a child uses it again",
        because="a CUDA context does not survive fork()",
        costs="the child process fails",
        fix="start processes with spawn (mp.set_start_method('spawn'), DataLoader "
        "multiprocessing_context="
        "'spawn'), or use no CUDA before the fork",
        next="read the Python stack above that line",
        explains=_DOWN,
        links=("https://docs.pytorch.org/docs/stable/notes/multiprocessing.html",),
        positive=(
            "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with",
        ),
        negative=("RuntimeError: CUDA error: initialization error",),
    ),
    Rule(
        id="CUDA-003",
        category="cuda-missing",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("not compiled with CUDA enabled", "without CUDA support"),
        pattern=r"torch not compiled with CUDA enabled|pytorch (?:was )?(?:built|compiled) "
        r"without CUDA support",
        sentence="this torch is a build without CUDA",
        because="pip or conda took the CPU build (another index, an ARM machine, a dependency that "
        "replaced it)",
        costs="no GPU can be used",
        fix="install the CUDA build (pip install torch --index-url "
        "https://download.pytorch.org/whl/cu128) in the environment that the job uses",
        next="python -c 'import torch; print(torch.__version__, torch.version.cuda)'",
        explains=_DOWN,
        links=("https://pytorch.org/get-started/locally/",),
        positive=("AssertionError: Torch not compiled with CUDA enabled",),
        negative=("torch 2.8.0+cu128 with CUDA enabled",),
    ),
    Rule(
        id="CUDA-004",
        category="gpu-oom",
        role="cause",
        stage="program",
        anchors=(
            "CUBLAS_STATUS_ALLOC_FAILED",
            "CUBLAS_STATUS_NOT_INITIALIZED",
            "CUDNN_STATUS_ALLOC_FAILED",
            "CUDNN_STATUS_NOT_INITIALIZED",
            "CUSOLVER_STATUS_ALLOC",
        ),
        pattern=r"(?P<what>(?:CUBLAS|CUDNN|CUSOLVER|HIPBLAS)_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED))",
        sentence="a CUDA library could not start ({what}): nearly always the GPU's memory is full",
        because="cuBLAS and cuDNN allocate memory at their first use, outside torch's own pool",
        costs="the process ends; the others wait for it",
        fix="use less GPU memory (smaller batch, "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, a lower "
        "gpu-memory-utilization) and look for other processes on the GPU; an error before it in a "
        "kernel "
        "gives the same: CUDA_LAUNCH_BLOCKING=1",
        next="nvidia-smi",
        explains=_DOWN,
        links=("https://docs.nvidia.com/cuda/cublas/index.html#cublasstatus-t",),
        positive=(
            "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling "
            "`cublasCreate(handle)`",
            "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        ),
        negative=("RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling",),
    ),
    Rule(
        id="CUDA-005",
        category="cuda-error",
        role="symptom",
        stage="program",
        anchors=("CUBLAS_STATUS_", "CUDNN_STATUS_"),
        pattern=r"(?P<what>(?:CUBLAS|CUDNN)_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE|"
        r"MAPPING_ERROR|ARCH_MISMATCH|NOT_SUPPORTED))",
        sentence="a kernel of a CUDA library failed: {what}",
        checks=(
            "whether a kernel before it failed (illegal address, index out of range): "
            "CUDA_LAUNCH_BLOCKING=1, compute-sanitizer",
            "whether torch, CUDA, cuBLAS and cuDNN fit (a second copy in LD_LIBRARY_PATH): a fresh "
            "environment",
            "whether this GPU is broken: dmesg (Xid), dcgmi diag -r 3",
        ),
        explains=("python-runtime", "launcher-exit", "exit-code"),
        positive=(
            "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx",
        ),
        negative=("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",),
    ),
)
