"""NCCL and RCCL while they start: versions, ranks, devices and arguments that do not fit together."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_USAGE = ("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html",)
_TROUBLE = ("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",)
_DETAIL = (
    "NCCL's own message, which names the call that failed: run again with NCCL_DEBUG=INFO and "
    "read the first NCCL WARN of every rank"
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="NCCL-001",
        category="duplicate-gpu",
        role="cause",
        confidence="certain",
        # The second text is NCCL 2.30's, which does not say which ranks.
        anchors=("Duplicate GPU detected", "Ranks are using the same GPU"),
        pattern=r"(?P<who>rank (?P<rank>\d+) and rank \d+|multiple ranks) (?:both on|are using) "
        r"(?P<device>(?:CUDA|HIP|ROCm)? ?device \w+|the same GPU)",
        sentence="{who} use the same GPU (duplicate GPU: {device})",
        because="NCCL needs one GPU for each rank; the processes were not pinned to different "
        "GPUs, or there are more processes on the node than GPUs (from 2.30 on "
        "NCCL_MULTI_RANK_GPU_ENABLE=1 allows that, where it is meant)",
        costs="NCCL cannot be initialised (invalid usage)",
        fix="pin each process to the GPU of its local rank before NCCL starts: "
        'torch.cuda.set_device(int(os.environ["LOCAL_RANK"])), or a CUDA_VISIBLE_DEVICES of its own; '
        "run no more processes on a node than it has GPUs (--nproc_per_node, -np, "
        "--ntasks-per-node)",
        next="nvidia-smi -L; echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES",
        explains=("nccl-invalid-usage", "nccl-system-error", "nccl-trace", "nccl-peer-lost"),
        links=_USAGE,
        positive=(
            "init.cc:497 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device "
            "1000",
            "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 10",
            "init.cc:1057 NCCL WARN Multiple Ranks are using the same GPU/Partition. Set "
            "NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this configuration.",
        ),
        negative=(
            "NCCL INFO comm 0x55 rank 2 nranks 4 cudaDev 2 busId 1000 - Init START",
            "NCCL INFO NCCL_MULTI_RANK_GPU_ENABLE set by environment to 1.",
        ),
    ),
    Rule(
        id="NCCL-002",
        category="nccl-version-mismatch",
        role="cause",
        confidence="certain",
        anchors=("Mismatched NCCL version",),
        pattern=r"mismatched NCCL version detected ?: rank (?P<rank>\d+) version (?P<version>\d+) "
        r"rank (?P<other>\d+) version (?P<expected>\d+)",
        sentence="ranks run different NCCL versions: rank {rank} has {version}, rank {other} has "
        "{expected}",
        because="the nodes have different images, environments or LD_LIBRARY_PATH",
        costs="NCCL cannot be initialised",
        fix="install the same NCCL (the same torch wheel or image) on all nodes; compare "
        "LD_LIBRARY_PATH and LD_PRELOAD",
        next='python -c "import torch; print(torch.cuda.nccl.version())" on every node',
        explains=("nccl-invalid-usage", "nccl-trace", "nccl-peer-lost"),
        links=_USAGE,
        positive=(
            "init.cc:780 NCCL WARN Mismatched NCCL version detected : rank 1 version 22705 rank 0 "
            "version 22703",
        ),
        negative=("NCCL version 2.27.3+cuda12.9",),
    ),
    Rule(
        id="NCCL-003",
        category="world-mismatch",
        role="cause",
        confidence="certain",
        anchors=("mismatch in rank count", "has already checked in", "already checked in"),
        pattern=r"mismatch in rank count from procs (?P<one>\d+) ?: (?P<two>\d+)|rank "
        r"(?P<rank>\d+) of (?P<all>\d+) ranks has already checked in",
        sentence="ranks disagree on who belongs to the communicator (rank count or rank given "
        "twice)",
        because="processes of one job were started with different world sizes or with the same "
        "rank, or those of an earlier job are still alive",
        costs="NCCL cannot be initialised",
        fix="give every process its own RANK and the same WORLD_SIZE; end leftover processes; do "
        "not share NCCL_COMM_ID or the master's port between jobs",
        next="echo $RANK $WORLD_SIZE in every process; ps aux | grep python",
        explains=("nccl-trace", "nccl-peer-lost", "nccl-system-error"),
        links=_USAGE,
        positive=(
            "bootstrap.cc:121 NCCL WARN Bootstrap Root : mismatch in rank count from procs 2 : 4",
            "bootstrap.cc:126 NCCL WARN Bootstrap Root : rank 1 of 4 ranks has already checked in",
        ),
        negative=("NCCL INFO bootstrap: 4 nranks connected",),
    ),
    Rule(
        id="NCCL-004",
        category="collective-mismatch",
        role="cause",
        stage="program",
        anchors=("collective mismatch error", "message truncated", "mismatch in collective"),
        pattern=r"collective mismatch error, local size (?P<local>\d+) remote size (?P<remote>\d+)"
        r"|message truncated ?: ?(?:receiv(?:ing|ed)) (?P<got>\d+) bytes instead of (?P<want>\d+)"
        r"|mismatch in collective sizes",
        sentence="ranks send and receive different sizes (mismatch): their collectives or their "
        "settings differ",
        because="local size and remote size are not equal: ranks call different collectives, with "
        "other sizes or types, or NCCL's environment (NCCL_PROTO, NCCL_ALGO, NCCL_BUFFSIZE, "
        "channels, plugin) or version differs between nodes",
        costs="the collective fails, or data would be wrong",
        fix="give all ranks the same NCCL environment, configuration and version (env | grep NCCL "
        "on every node; mpirun -x); then check that all ranks call the same collectives with the "
        "same shapes: TORCH_DISTRIBUTED_DEBUG=DETAIL",
        next="env | grep -E 'NCCL|FI_' | sort on every node, compared",
        explains=("nccl-trace", "nccl-peer-lost", "nccl-invalid-usage"),
        links=(_ENV,),
        positive=(
            "transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer 10.0.23.6<58683> "
            "collective mismatch error, local size 496640 remote size 65536",
            "transport/net_socket.cc:493 NCCL WARN NET/Socket : peer 10.0.0.2<4000> message "
            "truncated : receiving 1048576 bytes instead of 65536. If you believe your socket "
            "network is in healthy state, there may be a mismatch in collective sizes",
        ),
        negative=("RuntimeError: Detected mismatch between collectives on ranks.",),
    ),
    Rule(
        id="NCCL-005",
        category="net-plugin",
        role="cause",
        anchors=("Failed to initialize any NET plugin", "Error: network "),
        pattern=r"failed to initialize any NET plugin|(?:error:|NCCL WARN) network "
        r"(?P<net>.{1,60}?) not found",
        sentence="NCCL could start no network plugin: the one that NCCL_NET or NCCL_NET_PLUGIN "
        "asks for is not usable here",
        because="with NCCL_NET set NCCL does not fall back to sockets; the plugin's library is not "
        "found, is built for another NCCL, or its devices are not in the container",
        costs="NCCL cannot be initialised (invalid usage)",
        fix="unset NCCL_NET and NCCL_NET_PLUGIN (or NCCL_NET=Socket for a try); else put the "
        "plugin on LD_LIBRARY_PATH, of a version for this NCCL, and give the container "
        "/dev/infiniband (--device /dev/infiniband --cap-add IPC_LOCK --ulimit memlock=-1)",
        next="env | grep NCCL_NET; NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET",
        explains=("nccl-invalid-usage", "nccl-trace", "nccl-peer-lost"),
        links=(f"{_ENV}#nccl-net",),
        positive=(
            "plugin/net.cc:331 NCCL WARN Failed to initialize any NET plugin",
            "net.cc:110 NCCL WARN Error: network AWS Libfabric not found.",
        ),
        negative=(
            "NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal "
            "implementation",
            "NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        ),
    ),
    Rule(
        id="NCCL-006",
        category="nccl-library",
        role="cause",
        confidence="certain",
        anchors=("undefined symbol: nccl", "libnccl.so", "librccl.so"),
        pattern=r"undefined symbol: (?P<symbol>nccl\w+)|(?P<library>lib[nr]ccl\.so[.\d]*): cannot "
        r"open shared object file",
        unless=r"libnccl-(?:net|tuner|profiler|env|gin)",
        sentence="the NCCL library does not fit the program, or is not found",
        because="the program was built with another NCCL than the one the loader finds (an older "
        "system NCCL before torch's own, through LD_LIBRARY_PATH or LD_PRELOAD)",
        costs="the program cannot start or load its NCCL part",
        fix="remove the other libnccl from LD_LIBRARY_PATH and LD_PRELOAD, or install the one the "
        "program needs (pip install -U nvidia-nccl-cu12 as torch asks; apt install libnccl2)",
        next="ldconfig -p | grep nccl; echo $LD_LIBRARY_PATH $LD_PRELOAD; pip list | grep nccl",
        explains=("library-missing", "exit-code", "launcher-exit"),
        links=_TROUBLE,
        positive=(
            "ImportError: /usr/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister",
            "./all_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open "
            "shared object file: No such file or directory",
        ),
        negative=(
            "NCCL INFO NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No "
            "such file or directory No plugin found (libnccl-net.so), using internal "
            "implementation",
        ),
    ),
    Rule(
        id="NCCL-007",
        category="net-mismatch",
        role="symptom",
        stage="network",
        anchors=("neither AF_INET",),
        pattern=r"connecting to address (?:\S* )?with family (?P<family>\d+) is neither AF_INET",
        sentence="a rank got an address that is none of sockets (family {family})",
        checks=(
            "whether some ranks use a plugin (EFA, IB) and others fell back to Socket, so that what "
            "they exchange is garbage to each other: grep 'Using network' in the logs of all ranks; "
            "repair the plugin of those that fell back, or NCCL_NET=Socket on all",
            "whether NCCL_SOCKET_IFNAME names an interface that a node (or container) does not have: "
            "ip -br addr on every node; NCCL 2.27 does not say so and uses an empty address",
            "whether all ranks got the same ncclUniqueId and run one version of NCCL",
        ),
        explains=("nccl-trace", "nccl-peer-lost", "nccl-system-error"),
        links=(f"{_ENV}#nccl-net",),
        positive=(
            "misc/socket.cc:717 NCCL WARN ncclSocketInit: connecting to address with family 33022 "
            "is neither AF_INET(2) nor AF_INET6(10)",
            "ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor "
            "AF_INET6(10)",
            "include/socket.h:455 NCCL WARN Net : connecting to address  with family 0 is neither "
            "AF_INET(2) nor AF_INET6(10)",
            "NCCL WARN Error : connecting to address with family 1 is neither AF_INET(2) nor "
            "AF_INET6(10)",
        ),
        negative=(
            "include/socket.h:311 WARN Socket creation failed : Address family not supported",
        ),
    ),
    Rule(
        id="NCCL-008",
        category="net-mismatch",
        role="cause",
        stage="network",
        needs=("NCCL-007", "FACT-002", "FACT-003"),
        sentence="ranks use different networks: some NCCL's sockets, others not, so one got an "
        "address that is none of sockets (family {family})",
        because="some ranks use a plugin (EFA, IB) and others fell back to Socket, so the handles "
        "they exchange are garbage to each other",
        costs="NCCL cannot connect the ranks",
        fix="find the rank that prints 'Using network Socket' while others do not and repair its "
        "plugin (memlock, devices, library); or NCCL_NET=Socket on all ranks",
        next="grep 'Using network' in the logs of all ranks",
        explains=("NCCL-007", "nccl-trace", "nccl-peer-lost", "nccl-system-error"),
        links=(f"{_ENV}#nccl-net",),
    ),
    Rule(
        id="NCCL-010",
        category="nccl-argument",
        role="cause",
        stage="program",
        anchors=("NCCL WARN", "RCCL WARN"),
        pattern=r"CCL WARN (?:(?P<call>\w+) ?: )?(?P<what>invalid (?:rank|root|device|reduction "
        r"operation|type|comm|nranks|argument)\b.{0,120}|.{0,40}argument is NULL|rank \S+ is not a "
        r"valid.{0,60}|.{0,60}pointer is not valid|.{0,20}is not a valid "
        r"(?:pointer|datatype).{0,40})",
        sentence="NCCL was called with a bad argument: {what}",
        because="NCCL checks what the program passes to it; this value cannot be right",
        costs="the call fails with 'invalid argument'",
        fix="correct the call in the program: ranks below nranks, root within the communicator, "
        "tensors on this process's GPU, the communicator alive",
        next="the program's stack trace at this call",
        explains=("nccl-invalid-usage", "nccl-trace", "nccl-peer-lost"),
        links=_USAGE,
        positive=(
            "misc/argcheck.cc:53 NCCL WARN Broadcast : invalid root 9 (root should be in the 0..8 "
            "range)",
            "init.cc:1920 NCCL WARN Invalid rank requested : 4/4",
        ),
        negative=("transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'",),
    ),
    Rule(
        id="NCCL-020",
        category="nccl-cuda-error",
        role="symptom",
        stage="program",
        anchors=("ncclUnhandledCudaError", "unhandled cuda error", "unhandled hip error"),
        pattern=r"ncclUnhandledCudaError|unhandled (?:cuda|hip) error",
        unless=r"NCCL failure \S+:\d+",
        sentence="NCCL reports that a CUDA call failed, and not which",
        checks=(
            _DETAIL,
            "whether the GPU's memory is full, or other processes hold it (nvidia-smi; fuser -v "
            "/dev/nvidia*): stop them, or leave NCCL some memory (smaller batch, "
            "gpu_memory_utilization, XLA_PYTHON_CLIENT_MEM_FRACTION)",
            "whether /dev/shm is too small in a container (df -h /dev/shm): --shm-size=1g or "
            "--ipc=host",
            "whether the driver is older than the CUDA that NCCL was built for (nvidia-smi against "
            "NCCL version ...+cuda): update the driver",
            "whether GPUs cannot reach each other (P2P): NCCL_P2P_DISABLE=1 for a try; NVLS and "
            "fabric manager: NCCL_NVLS_ENABLE=0, systemctl status nvidia-fabricmanager",
        ),
        links=_TROUBLE,
        positive=(
            "RuntimeError: NCCL error in: ../torch/lib/c10d/ProcessGroupNCCL.cpp:825, unhandled "
            "cuda error, NCCL version 2.7.8",
            "ncclUnhandledCudaError: Call to CUDA function failed.",
            "RuntimeError: NCCL Error 1: unhandled cuda error (run with NCCL_DEBUG=INFO for "
            "details)",
        ),
        negative=("Test NCCL failure common.cu:1294 'unhandled cuda error ...'",),
    ),
    Rule(
        id="NCCL-021",
        category="nccl-system-error",
        role="symptom",
        stage="network",
        anchors=(
            "ncclSystemError",
            "unhandled system error",
            "ncclInternalError",
            "internal error",
        ),
        pattern=r"ncclSystemError|ncclInternalError|NCCL.{0,160}(?:unhandled system error|internal "
        r"error)|unhandled system error",
        unless=r"NCCL failure \S+:\d+",
        sentence="NCCL reports that a system call or a check of its own failed, and not which",
        checks=(
            _DETAIL,
            "whether /dev/shm is too small in a container (df -h /dev/shm): docker run "
            "--shm-size=1g or --ipc=host; Kubernetes: emptyDir with medium: Memory at /dev/shm",
            "whether NCCL uses an interface that the nodes share: NCCL_SOCKET_IFNAME=eth0 (as ip "
            "-br addr names it); no firewall between the nodes",
            "whether RDMA is usable: ulimit -l unlimited, /dev/infiniband in the container; "
            "NCCL_IB_DISABLE=1 for a try",
            "whether another rank failed first: read its log",
        ),
        links=_TROUBLE,
        positive=(
            "RuntimeError: NCCL error in: "
            "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1201, internal error, NCCL "
            "version 2.14.3",
            "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or "
            "device error.",
        ),
        negative=("Test NCCL failure common.cu:777 'unhandled system error'",),
    ),
    Rule(
        id="NCCL-022",
        category="nccl-invalid-usage",
        role="symptom",
        stage="program",
        anchors=("ncclInvalidUsage", "ncclInvalidArgument", "invalid usage"),
        pattern=r"ncclInvalidUsage|ncclInvalidArgument|NCCL.{0,160}invalid usage",
        unless=r"NCCL failure \S+:\d+",
        sentence="NCCL says that it was used wrongly, and not how",
        checks=(
            "whether two ranks use one GPU: set_device(LOCAL_RANK); no more processes than GPUs",
            "whether the ranks run different NCCL versions: the same image on all nodes",
            "whether NCCL_NET names a plugin that is not there: unset NCCL_NET",
            _DETAIL,
        ),
        links=_USAGE,
        positive=(
            "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
            "torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.hpp:275, invalid "
            "usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.20.5",
        ),
        negative=("usage: train.py: invalid usage of --foo",),
    ),
    Rule(
        id="NCCL-023",
        category="nccl-trace",
        role="consequence",
        stage="aftermath",
        anchors=(".cc:", ".cu:", ".h:"),
        pattern=r"CCL INFO (?:\S*/)?[\w.]+\.(?:cc|cu|h|cpp):\d+ -> [1-9]\b",
        unless=r"misc/socket\.cc",
        sentence="NCCL passes an error up its calls",
        checks=(_DETAIL, "whether another rank failed first: read the logs of all ranks"),
        positive=(
            "NCCL INFO init.cc:903 -> 5",
            "NCCL INFO /usr/src/debug/rccl/build/hipify/src/group.cc:68 -> 1 [Async thread]",
        ),
        negative=(
            "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC",
            "NCCL INFO misc/socket.cc:47 -> 3",
        ),
    ),
    Rule(
        id="NCCL-024",
        category="nccl-trace",
        role="consequence",
        stage="aftermath",
        anchors=("before the previous operation returned",),
        pattern=r"attempt to use communicator before the previous operation returned ncclSuccess",
        sentence="the program uses a communicator that has already failed",
        checks=("NCCL's first error before it, on every rank",),
        positive=(
            "init.cc:290 NCCL WARN Attempt to use communicator before the previous operation "
            "returned ncclSuccess",
        ),
        negative=("NCCL INFO comm 0x55 rank 2 nranks 4 - Init START",),
    ),
)
