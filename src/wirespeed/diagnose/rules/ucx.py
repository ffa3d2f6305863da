"""UCX, under Open MPI, MPICH, NCCL's UCX plugin and others."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_FAQ = ("https://openucx.readthedocs.io/en/master/faq.html",)
_FOLLOWS = (
    "ucx-error",
    "ucx-unreachable",
    "mpi-transport",
    "mpi-init",
    "mpi-peer",
    "launcher-exit",
    "exit-code",
)

_ANCHORS = ("UCX  ERROR", "UCX ERROR", "UCX  WARN", "UCX WARN", "UCX  DIAG")

RULES: tuple[Rule, ...] = (
    Rule(
        id="UCX-001",
        category="ib-memlock",
        role="cause",
        confidence="certain",
        anchors=_ANCHORS,
        pattern=r"UCX +(?:ERROR|WARN|DIAG).{0,200}(?:set max locked memory|max locked "
        r"memory|ibv_\w+\(.{0,80}\) failed: cannot allocate memory)(?:.{0,60}current: "
        r"(?P<limit>[\w ]+))?",
        sentence="the limit of locked memory (memlock, ulimit -l) is too small for UCX's RDMA (now "
        "{limit})",
        because="UCX names it: RDMA queues and buffers are locked memory",
        costs="UCX cannot use InfiniBand or RoCE; MPI fails or uses TCP",
        fix="set memlock to unlimited where the ranks run: docker run --ulimit memlock=-1 "
        "--cap-add IPC_LOCK; '* soft memlock unlimited' and '* hard memlock unlimited' in "
        "/etc/security/limits.conf and a new login; LimitMEMLOCK=infinity for slurmd",
        next="through the same launcher: bash -c 'ulimit -l' (must print unlimited)",
        explains=_FOLLOWS,
        links=_FAQ,
        positive=(
            "ib_log.c:246  UCX  ERROR mlx5_0: ibv_create_cq() failed: Cannot allocate memory. "
            "Please set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)",
            "ib_iface.c:1035 UCX  ERROR ibv_create_cq(cqe=4096) failed: Cannot allocate memory",
        ),
        negative=("rc_iface.c:499  UCX  ERROR ibv_create_srq() failed: Operation not supported",),
    ),
    Rule(
        id="UCX-002",
        category="ucx-device",
        role="cause",
        confidence="certain",
        anchors=_ANCHORS,
        pattern=r"UCX +(?:ERROR|WARN).{0,40}network devices? (?P<device>'[^']+'(?:,'[^']+')*) "
        r"(?:is|are) not available",
        sentence="UCX has no network device {device} here",
        because="UCX_NET_DEVICES names a device that this node or container does not have, or "
        "whose port is down",
        costs="UCX uses another network, or MPI fails",
        fix="UCX_NET_DEVICES set to a device of ucx_info -d on every node, or unset it; in "
        "containers /dev/infiniband",
        next="ucx_info -d | grep -i device; ibv_devinfo",
        explains=_FOLLOWS,
        links=_FAQ,
        positive=(
            "ucp_context.c:735  UCX  WARN  network device 'mlx5_9:1' is not available, please use "
            "one or more of: 'eth0'(tcp), 'lo'(tcp)",
        ),
        negative=(
            "UCX  WARN  transport 'cuda_copy' is not available, please use one or more of: cma",
        ),
    ),
    Rule(
        id="UCX-003",
        category="ucx-transport",
        role="symptom",
        anchors=(
            "UCX  WARN  transport",
            "UCX WARN transport",
            "UCX  ERROR transport",
            "usable transports",
        ),
        pattern=r"UCX +(?:WARN|ERROR) +(?:transports? (?P<transport>'[^']+'(?:,'[^']+')*) "
        r"(?:is|are) not available|no usable transports/devices)",
        sentence="UCX lacks a transport that UCX_TLS asks for ({transport})",
        checks=(
            "whether UCX was built with it: ucx_info -v, ucx_info -d; cuda_copy, cuda_ipc and "
            "gdr_copy need a build with CUDA (load that module, or unset UCX_TLS)",
            "whether the device for rc, dc or ud is there: ibv_devinfo, /dev/infiniband, port "
            "active",
            "whether UCX_TLS is spelled right: unset UCX_TLS for a try",
        ),
        links=_FAQ,
        positive=(
            "ucp_context.c:1321 UCX  WARN  transport 'cuda_copy' is not available, please use one "
            "or more of: cma, dc",
            "UCX  WARN  transports 'cuda_copy','cuda_ipc' are not available, please use one or "
            "more of: cma",
        ),
        negative=(
            "UCX  WARN  network device 'mlx5_9:1' is not available, please use one or more of",
        ),
    ),
    Rule(
        id="UCX-004",
        category="ucx-retry-exceeded",
        role="symptom",
        stage="network",
        anchors=("retry count exceeded", "Transport retry", "RNR retry"),
        pattern=r"(?:transport|remote OP|RNR|receiver-not-ready).{0,12}retry count exceeded on "
        r"(?P<port>[\w:./]+)",
        sentence="an RDMA transfer of UCX got no answer (retry count exceeded on {port})",
        checks=(
            "whether the other rank or node ended first: the earliest error in its log, dmesg "
            "(OOM)",
            "whether link or fabric are bad: ibstat, ibqueryerrors, mlxlink; ib_write_bw between "
            "the nodes",
            "with RoCE, whether the GID leads to the peer: UCX_IB_GID_INDEX (show_gids), lossless "
            "settings of the switch",
            "whether the fabric is congested: UCX_RC_TIMEOUT, UCX_RC_RETRY_COUNT larger; a newer "
            "UCX",
        ),
        explains=_FOLLOWS,
        links=_FAQ,
        positive=(
            "ib_mlx5_log.c:177  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 "
            "hw_synd 0/0)",
            "ib_mlx5_log.c:139  Transport retry count exceeded on mlx5_1:1/RoCE (synd 0x15 vend "
            "0x81)",
        ),
        negative=("rpc: retry count exceeded, giving up",),
    ),
    Rule(
        id="UCX-005",
        category="ucx-access",
        role="symptom",
        stage="network",
        anchors=("access error on", "protection on", "operation error on", "protection error on"),
        pattern=r"(?P<what>remote access error|local protection(?: error)?|remote operation "
        r"error|remote invalid request|local length(?: error)?) on (?P<port>[\w:./]+) \(synd",
        sentence="an RDMA transfer of UCX was refused: {what} on {port}",
        checks=(
            "whether memory was freed or the other rank ended while it was read: its log",
            "whether GPU memory cannot be reached (GPUDirect): UCX_IB_GPU_DIRECT_RDMA=n for a try; "
            "ACS, nvidia-peermem",
            "whether the memory cache is confused: UCX_MEMTYPE_CACHE=n; a newer UCX",
        ),
        explains=_FOLLOWS,
        links=_FAQ,
        positive=("Remote access error on mlx5_0:1/IB (synd 0x13 vend 0x88)",),
        negative=(
            "Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)",
        ),
    ),
    Rule(
        id="UCX-006",
        category="ucx-unreachable",
        role="symptom",
        stage="network",
        anchors=(
            "no active messages transport",
            "no remote ep address",
            "Destination is unreachable",
        ),
        pattern=r"UCX +ERROR.{0,20}no (?:active messages|auxiliary|remote registered memory access|"
        r"tag-?matching|am) \w*.{0,60}|ucp_ep_create\(.{0,40}failed: destination is "
        r"unreachable|failed to resolve UCX endpoint",
        sentence="UCX found no transport that reaches another rank (Destination is unreachable)",
        checks=(
            "whether UCX_TLS or UCX_NET_DEVICES leave out what the nodes share: unset both; "
            "UCX_TLS=tcp,self,sm for a try",
            "whether some node lacks its InfiniBand device or port: ibstat on all nodes; "
            "/dev/infiniband in the container",
            "whether nodes are in different subnets or fabrics (UCX_IB_SUBNET_PREFIX, "
            "UCX_IB_GID_INDEX)",
            "whether UCX takes docker0 or another virtual interface: UCX_NET_DEVICES=eth0",
        ),
        explains=("mpi-transport", "mpi-init", "mpi-peer", "launcher-exit", "exit-code"),
        links=_FAQ,
        positive=(
            "select.c:438  UCX  ERROR no active messages transport to <no debug data>: "
            "posix/memory - Destination is unreachable",
            "pml_ucx.c:419 Error: ucp_ep_create(proc=9) failed: Destination is unreachable",
        ),
        negative=("UCX  INFO  ep_cfg[1]: rma(cuda_copy/cuda);",),
    ),
    Rule(
        id="UCX-007",
        category="ucx-connection",
        role="symptom",
        stage="network",
        anchors=("sock.c:", "tcp_sockcm", "tcp_ep.c", "UCX  ERROR connect"),
        pattern=r"UCX +(?:ERROR|DIAG"
        r"|WARN).{0,10}connect\(.{0,40}dest_addr=(?P<address>[\w.:\[\]]+)\) failed: (?P<error>[\w "
        r"]+)",
        sentence="UCX's TCP connection to {address} failed: {error}",
        checks=(
            "whether UCX takes an interface that the nodes do not share (docker0 172.17.0.1, "
            "virbr0): UCX_NET_DEVICES=eth0, or the RDMA device (mlx5_0:1)",
            "whether a firewall is between the nodes: open all TCP ports",
            "whether the other rank ended first: its log",
        ),
        explains=_FOLLOWS,
        links=_FAQ,
        positive=(
            "sock.c:323 UCX ERROR connect(fd=87, dest_addr=172.17.0.1:47133) failed: Connection "
            "refused",
        ),
        negative=("sock.c:400 UCX  ERROR recv(fd=87) failed: Connection reset by peer",),
    ),
    Rule(
        id="UCX-008",
        category="shm-too-small",
        role="cause",
        confidence="certain",
        anchors=_ANCHORS,
        pattern=r"UCX +ERROR.{0,120}(?:shm_open|posix_fallocate|ftruncate|mm_posix|/dev/shm|shared "
        r"memory).{0,160}(?:no space left on device|not enough|please check|insufficient)",
        sentence="/dev/shm is too small or full: UCX could not make its shared memory",
        because="docker and Kubernetes give a container 64 MB of /dev/shm unless told otherwise",
        costs="ranks of one node cannot talk to each other",
        fix="docker run --shm-size=1g or --ipc=host; in Kubernetes an emptyDir with medium: Memory "
        "mounted at /dev/shm",
        next="in the container: df -h /dev/shm",
        explains=_FOLLOWS,
        links=_FAQ,
        positive=(
            "mm_posix.c:206  UCX  ERROR shared memory error: "
            "posix_fallocate(file_name=/ucx_shm_posix_1) failed: No space left on device",
        ),
        negative=("UCX  ERROR ibv_create_srq() failed: Operation not supported",),
    ),
    Rule(
        id="UCX-009",
        category="ucx-error",
        role="symptom",
        stage="network",
        anchors=("UCX  ERROR", "UCX ERROR"),
        pattern=r"UCX +ERROR +(?P<error>.{3,160})",
        unless=r"max locked memory|cannot allocate memory|not available|no active "
        r"messages|connect\(|no space left|no usable|no auxiliary|no remote",
        sentence="UCX reports an error: {error}",
        checks=(
            "whether another rank ended first (connection reset, endpoint timeout): its log",
            "whether the device is usable: ibv_devinfo, ucx_info -d, ulimit -l unlimited",
            "whether processes may not read each other's memory in a container (cma, 'Operation "
            "not permitted'): --cap-add SYS_PTRACE, or UCX_TLS=^cma",
            "whether it goes without RDMA: UCX_TLS=tcp,self,sm",
        ),
        explains=("mpi-transport", "mpi-init", "mpi-peer", "launcher-exit", "exit-code"),
        links=_FAQ,
        positive=(
            "rc_iface.c:499  UCX  ERROR ibv_create_srq() failed: Operation not supported",
            "cma_ep.c:87   process_vm_readv UCX  ERROR process_vm_readv(pid=1) returned -1: "
            "Operation not permitted",
        ),
        negative=("UCX  WARN  transport 'cuda_copy' is not available",),
    ),
)
