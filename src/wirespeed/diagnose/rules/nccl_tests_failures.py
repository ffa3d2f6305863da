"""nccl-tests: the errors with which they end."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = ("https://github.com/NVIDIA/nccl-tests",)

RULES: tuple[Rule, ...] = (
    Rule(
        id="NT-020",
        category="gpu-oom",
        role="symptom",
        stage="program",
        anchors=("NCCL failure ",),
        pattern=r"nccl failure \S+:\d+ '(?:unhandled cuda error)",
        sentence="nccl-tests ended with NCCL's 'unhandled cuda error', which does not name the "
        "error",
        checks=(
            "whether other processes hold the GPUs' memory (nvidia-smi; fuser -v /dev/nvidia*): "
            "stop "
            "them, or use an idle node: NCCL cannot allocate where memory is in use",
            "the CUDA error itself: run again with NCCL_DEBUG=INFO (mpirun -x NCCL_DEBUG=INFO)",
            "whether the driver is older than the CUDA that NCCL was built for, or NCCL is built "
            "for "
            "another CUDA version (nvidia-smi; ldd): install matching versions",
            "whether fabric manager runs (nvidia-smi -q | grep -A2 Fabric) on machines with "
            "NVSwitch",
        ),
        links=_LINKS,
        positive=(
            "Test NCCL failure common.cu:1294 'unhandled cuda error ...'",
            "HCA-14: Test NCCL failure common.cu:1204 'unhandled cuda error (run with "
            "NCCL_DEBUG=INFO "
            "for details) / '",
            "NCCL failure all_reduce.cu:95 'unhandled cuda error'",
        ),
        negative=("n1: Test NCCL failure common.cu:1204 'invalid usage / '",),
    ),
    Rule(
        id="NT-021",
        category="nccl-system-error",
        role="symptom",
        stage="network",
        anchors=("NCCL failure ",),
        pattern=r"nccl failure \S+:\d+ '(?:unhandled system error|internal error|invalid (?:usage|"
        r"argument))",
        sentence="nccl-tests ended with an NCCL error that does not name the reason",
        checks=(
            "NCCL's own message: run again with NCCL_DEBUG=INFO (mpirun -x NCCL_DEBUG=INFO)",
            "whether /dev/shm is too small in a container (df -h /dev/shm): --shm-size=1g or "
            "--ipc=host",
            "whether NCCL uses an interface that the nodes share: NCCL_SOCKET_IFNAME=eth0; "
            "firewall "
            "open between the nodes",
            "whether RDMA is usable: ulimit -l unlimited, /dev/infiniband in the container; "
            "NCCL_IB_DISABLE=1 for a try",
            "whether -t times -g is more than the GPUs of the node, or two ranks use one GPU",
        ),
        links=_LINKS,
        positive=(
            "fastmoe: Test NCCL failure common.cu:777 'unhandled system error'",
            "n1: Test NCCL failure common.cu:958 'internal error - please report this issue to the "
            "NCCL developers / '",
        ),
        negative=(
            "n1: Test NCCL failure common.cu:958 'remote process exited or there was a network "
            "error'",
        ),
    ),
    Rule(
        id="NT-022",
        category="nccl-remote-error",
        role="symptom",
        stage="aftermath",
        anchors=("NCCL failure ",),
        pattern=r"nccl failure \S+:\d+ '(?:remote process exited|connection|.{0,40}network error)",
        sentence="nccl-tests lost a remote process or the network to it",
        checks=(
            "whether another rank failed first: read the earliest error in the other ranks' logs",
            "whether the network between the nodes broke: link counters, dmesg, NCCL_DEBUG=WARN",
        ),
        links=_LINKS,
        positive=(
            "n1: Test NCCL failure common.cu:958 'remote process exited or there was a network "
            "error / '",
        ),
        negative=("n1: Test NCCL failure common.cu:958 'unhandled system error / '",),
    ),
    Rule(
        id="NT-023",
        category="nccl-tests-gpus",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("CUDA failure ",),
        pattern=r"cuda failure \S+:\d+ '(?P<error>invalid device ordinal|no cuda-capable "
        r"device[^']*)",
        sentence="nccl-tests uses a GPU that is not there: {error}",
        because="-g times -t is more than the GPUs this process may see (nvidia-smi -L, "
        "CUDA_VISIBLE_DEVICES), or more processes run on the node than it has GPUs",
        costs="the test does not start",
        fix="one process a GPU with -g 1, or -g no larger than the GPUs; give the container all "
        "GPUs "
        "(--gpus all; nvidia.com/gpu in Kubernetes; --gpus-per-node in Slurm)",
        next="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
        explains=("launcher-exit", "exit-code"),
        links=_LINKS,
        positive=(
            "n1: Test CUDA failure common.cu:892 'invalid device ordinal'",
            "n1: Test CUDA failure common.cu:892 'no CUDA-capable device is detected'",
        ),
        negative=("gpu: Test CUDA failure common.cu:1030 'system not yet initialized'",),
    ),
    Rule(
        id="NT-024",
        category="fabric-manager",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=("CUDA failure ",),
        pattern=r"cuda failure \S+:\d+ 'system not yet initialized",
        sentence="CUDA cannot start (system not yet initialized): fabric manager does not run",
        because="on machines with NVSwitch the GPUs are usable only when nvidia-fabricmanager of "
        "the "
        "driver's version has set up NVLink",
        costs="no CUDA program runs on this node",
        fix="systemctl enable --now nvidia-fabricmanager, of exactly the driver's version; then "
        "reset "
        "the GPUs or reboot",
        next="systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric",
        explains=("launcher-exit", "exit-code"),
        links=("https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",),
        positive=("gpu: Test CUDA failure common.cu:1030 'system not yet initialized'",),
        negative=("n1: Test CUDA failure common.cu:892 'invalid device ordinal'",),
    ),
    Rule(
        id="NT-025",
        category="gpu-oom",
        role="cause",
        stage="program",
        anchors=("CUDA failure ",),
        pattern=r"cuda failure \S+:\d+ '(?P<error>out of memory|all cuda-capable devices are busy)",
        sentence="a GPU has no memory left for nccl-tests ({error}): other processes use it, or "
        "the "
        "sizes are too large",
        because="nccl-tests holds several buffers of the largest size (-e) on each GPU",
        costs="the test does not run",
        fix="stop the processes that hold the GPUs (nvidia-smi), use an idle node, or a smaller -e",
        next="nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv",
        explains=("launcher-exit", "exit-code"),
        links=_LINKS,
        positive=("n1: Test CUDA failure common.cu:602 'out of memory'",),
        negative=("n1: Test CUDA failure common.cu:892 'invalid device ordinal'",),
    ),
    Rule(
        id="NT-026",
        category="cuda-mismatch",
        role="cause",
        confidence="certain",
        anchors=("CUDA failure ",),
        pattern=r"cuda failure \S+:\d+ '(?P<error>no kernel image[^']*|named symbol not found)",
        sentence="nccl-tests was built for another GPU or CUDA than this node has: {error}",
        because="the binary holds no code for this GPU, or needs a newer driver",
        costs="the test does not run",
        fix="build it here with NVCC_GENCODE for this GPU (such as "
        "-gencode=arch=compute_90,code=sm_90) "
        "and a CUDA no newer than the driver's (nvidia-smi), or update the driver",
        next="nvidia-smi; nvcc --version",
        explains=("launcher-exit", "exit-code"),
        links=_LINKS,
        positive=(
            "n1: Test CUDA failure common.cu:303 'no kernel image is available for execution on "
            "the "
            "device'",
            "n1: Test CUDA failure common.cu:303 'named symbol not found'",
        ),
        negative=("n1: Test CUDA failure common.cu:892 'invalid device ordinal'",),
    ),
    Rule(
        id="NT-028",
        category="driver-too-old",
        role="cause",
        confidence="certain",
        anchors=("CUDA failure ",),
        pattern=r"cuda failure \S+:\d+ '(?P<error>the provided ptx[^']*|cuda driver version is "
        r"insufficient[^']*|api call is not supported in the installed[^']*)",
        sentence="the GPU driver is too old for the CUDA that nccl-tests was built with: {error}",
        because="a program needs a driver at least as new as its CUDA release (within one major "
        "release "
        "the first driver of it is enough, except for PTX)",
        costs="the test does not run",
        fix="update the NVIDIA driver, or build nccl-tests with a CUDA no newer than the driver's "
        "(nvidia-smi names it), or install the cuda-compat package",
        next="nvidia-smi; nvcc --version",
        explains=("launcher-exit", "exit-code"),
        links=("https://docs.nvidia.com/deploy/cuda-compatibility/",),
        positive=(
            "n1: Test CUDA failure common.cu:303 'CUDA driver version is insufficient for CUDA "
            "runtime "
            "version'",
        ),
        negative=("n1: Test CUDA failure common.cu:303 'named symbol not found'",),
    ),
    Rule(
        id="NT-027",
        category="launcher-exit",
        role="consequence",
        stage="aftermath",
        anchors=(": Test failure ",),
        pattern=r"\.\. \S+ (?:pid \d+)?: test failure \S+:\d+",
        sentence="nccl-tests ends after an error above",
        positive=(" .. HCA-63 pid 1883216: Test failure common.cu:915",),
        negative=("n1: Test NCCL failure common.cu:958 'internal error / '",),
    ),
)
