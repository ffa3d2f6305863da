"""The program's own errors: GPU memory, CUDA, devices, and how torch.distributed is used."""

from wirespeed.diagnose.rule import Rule

__all__ = ["GONE", "RULES"]

GONE = (
    "watchdog-timeout",
    "watchdog-aftermath",
    "barrier-timeout-preprocessing",
    "missing-rank",
    "missing-ranks",
    "desync",
    "gloo-peer",
    "gloo-timeout",
    "store-peer",
    "store-timeout",
    "nccl-remote-error",
    "nccl-trace",
    "launcher-exit",
    "exit-code",
    "sigterm",
    "python-runtime",
)
"""What the other ranks, and the launcher, show when one rank ends by an error of its own."""
_CUDA_LINKS = ("https://docs.pytorch.org/docs/stable/notes/cuda.html",)
_DIST_LINKS = ("https://docs.pytorch.org/docs/stable/distributed.html",)
_ENDS = "this rank ends, and the others wait for it until their timeouts"

RULES: tuple[Rule, ...] = (
    Rule(
        id="PY-001",
        category="gpu-oom",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("CUDA out of memory", "HIP out of memory", "CUDA error: out of memory"),
        pattern=r"(?:cuda|hip) (?:error: )?out of memory(?:\. tried to allocate (?P<size>[\d.]+ "
        r"\w+))?(?:\.? \(?GPU (?P<gpu>\d+))?",
        sentence="a GPU has no memory left (CUDA out of memory)",
        because="the allocation failed in this process; other processes on the same GPU count too, "
        "the message tells how much is free and in use",
        costs=_ENDS,
        fix="smaller batch or sequence, gradient checkpointing, sharding (FSDP, ZeRO); "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragments; end other processes "
        "that hold the GPU (nvidia-smi); check that each rank uses its own GPU "
        "(torch.cuda.set_device(LOCAL_RANK))",
        next="nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv",
        explains=("NCCL-020", *GONE),
        links=_CUDA_LINKS,
        positive=(
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 "
            "has a total capacity of 79.15 GiB of which 1.2 GiB is free.",
            "RuntimeError: CUDA out of memory. Tried to allocate 36.00 MiB (GPU 0; 10.76 GiB total "
            "capacity; 996.23 MiB already allocated)",
            "RuntimeError: CUDA error: out of memory",
        ),
        negative=("Out of memory: Killed process 4121 (python)",),
    ),
    Rule(
        id="PY-002",
        category="cuda-assert",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("device-side assert", "Assertion `"),
        pattern=r"cuda error: device-side assert triggered|/(?P<file>[\w.]+\.cu):(?P<line>\d+): .{0,300}"
        r"assertion `(?P<what>[^`]{1,160})` failed",
        sentence="a GPU kernel's own check failed (device-side assert)",
        because="most often an index is out of range: a label or token number not below the number "
        "of classes or the vocabulary's size; the 'Assertion … failed' line tells which check",
        costs=_ENDS,
        fix="correct labels, vocabulary or embedding size (resize_token_embeddings); run with "
        "CUDA_LAUNCH_BLOCKING=1 to see the call",
        next="CUDA_LAUNCH_BLOCKING=1 on the failing rank",
        explains=("NCCL-020", "cuda-error", *GONE),
        links=_CUDA_LINKS,
        positive=(
            "RuntimeError: CUDA error: device-side assert triggered",
            "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1255: indexSelectSmallIndex: block: "
            "[0,0,0], thread: [0,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
        ),
        negative=("Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",),
    ),
    Rule(
        id="PY-003",
        category="cuda-error",
        role="cause",
        stage="program",
        anchors=("illegal memory access", "misaligned address", "unspecified launch failure"),
        pattern=r"(?:cuda error|cudaerror\w*)\b.{0,60}?(?P<what>an illegal memory access"
        r"|misaligned address|unspecified launch failure|an illegal instruction)",
        sentence="a GPU kernel failed: {what}",
        because="a kernel of this process touched memory it may not; later CUDA and NCCL calls of "
        "the process only repeat the error. With an Xid of memory or NVLink it is the hardware",
        costs=_ENDS,
        fix="find the kernel with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer; check custom "
        "kernels (flash-attention, apex, triton) built for other versions; if the kernel log shows "
        "Xid 48, 63, 74, 79 or 94, take the GPU out",
        next="dmesg -T | grep -i xid on that node",
        unless=r"NCCL WARN",
        explains=("NCCL-020", "NCCL-130", *GONE),
        links=_CUDA_LINKS,
        positive=("RuntimeError: CUDA error: an illegal memory access was encountered",),
        negative=(
            "NCCL WARN Cuda failure 700 'an illegal memory access was encountered'",
            "RuntimeError: CUDA error: out of memory",
        ),
    ),
    Rule(
        id="PY-004",
        category="gpu-visible",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("invalid device ordinal", "no CUDA-capable device", "No CUDA GPUs are available"),
        pattern=r"(?P<what>invalid device ordinal|no cuda-capable device is detected|no cuda gpus are "
        r"available)",
        unless=r"NCCL WARN|test cuda failure",
        sentence="a rank asks for a GPU that it cannot see ({what})",
        because="more ranks were started on the node than it has (visible) GPUs, or "
        "CUDA_VISIBLE_DEVICES hides them, or the container or job was given none",
        costs="this rank ends at its start",
        fix="start as many ranks a node as it has GPUs (--nproc-per-node, slots), use LOCAL_RANK "
        "and not RANK for the device, correct CUDA_VISIBLE_DEVICES, request GPUs (--gpus all, "
        "nvidia.com/gpu, --gres=gpu:8)",
        next="in the job: nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
        explains=("NCCL-020", *GONE),
        links=_CUDA_LINKS,
        positive=(
            "RuntimeError: CUDA error: invalid device ordinal",
            "RuntimeError: No CUDA GPUs are available",
            "RuntimeError: CUDA error: no CUDA-capable device is detected",
        ),
        negative=("n1: Test CUDA failure common.cu:892 'invalid device ordinal'",),
    ),
    Rule(
        id="PY-005",
        category="gpu-busy",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("devices are busy", "busy or unavailable"),
        pattern=r"cuda error:? .{0,40}?(?:busy or unavailable|all cuda-capable devices are busy)",
        sentence="the GPU is in use by another process, and in exclusive mode",
        because="in compute mode EXCLUSIVE_PROCESS a GPU takes one process",
        costs="this rank ends at its start",
        fix="end the other process, give each rank its own GPU, or nvidia-smi -c DEFAULT",
        next="nvidia-smi -q -d COMPUTE; nvidia-smi",
        explains=("NCCL-020", *GONE),
        links=_CUDA_LINKS,
        positive=("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",),
        negative=("CUDA error: invalid device ordinal",),
    ),
    Rule(
        id="PY-006",
        category="gpu-architecture",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("no kernel image is available",),
        pattern=r"no kernel image is available for execution",
        unless=r"NCCL WARN|test cuda failure",
        sentence="torch, or an extension, was not built for this GPU's architecture",
        because="the binary holds no kernels for the GPU's compute capability",
        costs="this rank ends at its first kernel",
        fix="install a torch build whose torch.cuda.get_arch_list() holds this GPU (a newer CUDA "
        "wheel), and rebuild extensions with TORCH_CUDA_ARCH_LIST",
        next="python -c 'import torch; print(torch.cuda.get_arch_list(), "
        "torch.cuda.get_device_capability())'",
        explains=("NCCL-020", *GONE),
        links=_CUDA_LINKS,
        positive=(
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        ),
        negative=("CUDA error: invalid device ordinal",),
    ),
    Rule(
        id="PY-010",
        category="group-not-initialised",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("process group has not been initialized", "process group is not initialized"),
        pattern=r"default process group (?:has not been|is not) initialized",
        sentence="a collective is called before init_process_group, or after it was destroyed",
        because="there is no default process group in this process",
        costs=_ENDS,
        fix="call torch.distributed.init_process_group() first on every rank, or guard the call "
        "with is_initialized() on all ranks alike; start with torchrun",
        next="the Python stack above that line",
        explains=GONE,
        links=_DIST_LINKS,
        positive=(
            "ValueError: Default process group has not been initialized, please make sure to call "
            "init_process_group.",
            "RuntimeError: Default process group has not been initialized, please make sure to "
            "call init_process_group.",
        ),
        negative=("RuntimeError: trying to initialize the default process group twice!",),
    ),
    Rule(
        id="PY-011",
        category="group-initialised-twice",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("default process group twice",),
        pattern=r"trying to initialize the default process group twice",
        sentence="init_process_group is called twice in a process",
        because="a framework (Lightning, accelerate, DeepSpeed) or the program made it already",
        costs="this rank ends",
        fix="call it once: guard it with torch.distributed.is_initialized()",
        next="the Python stack above that line",
        explains=GONE,
        links=_DIST_LINKS,
        positive=("ValueError: trying to initialize the default process group twice!",),
        negative=("Default process group has not been initialized",),
    ),
    Rule(
        id="PY-012",
        category="backend-device",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("No backend type associated", "Tensors must be CUDA and dense"),
        pattern=r"no backend type associated with device type (?P<device>\w+)|tensors must be cuda and "
        r"dense",
        sentence="a collective was given a tensor on a device that its back end does not serve (NCCL "
        "takes only CUDA tensors)",
        because="the process group has no back end for the tensor's device",
        costs=_ENDS,
        fix="move the tensor to the GPU (tensor.cuda()), or init_process_group('cpu:gloo,"
        "cuda:nccl') for both",
        next="the Python stack above that line",
        explains=GONE,
        links=_DIST_LINKS,
        positive=(
            "RuntimeError: No backend type associated with device type cpu",
            "RuntimeError: Tensors must be CUDA and dense",
        ),
        negative=("[Gloo] Rank 0 is connected to 1 peer ranks.",),
    ),
    Rule(
        id="PY-013",
        category="nccl-missing",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=(
            "doesn't have NCCL built in",
            "ProcessGroupNCCL is only supported with GPUs",
            "NCCL is not available",
            "Distributed package doesn't have",
        ),
        pattern=r"distributed package doesn't have (?P<backend>\w+) built in"
        r"|processgroupnccl is only supported with gpus",
        sentence="NCCL cannot be used: this torch was built without it, or no GPU is visible",
        because="the back end needs a CUDA (or ROCm) build of torch and a GPU",
        costs="the process group is not made",
        fix="install the CUDA build of torch, give the job GPUs, or use the gloo back end",
        next="python -c 'import torch; print(torch.__version__, torch.cuda.is_available(), "
        "torch.cuda.device_count())'",
        explains=GONE,
        links=_DIST_LINKS,
        positive=(
            "RuntimeError: Distributed package doesn't have NCCL built in",
            "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        ),
        negative=("NCCL version 2.27.5+cuda12.9",),
    ),
)
