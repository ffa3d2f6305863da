"""RDMA under NCCL and RCCL: calls of libibverbs that fail, devices, GPUDirect."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_RDMA = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
    "#networking-issues",
)
_GDR = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
    "#gpu-direct-rdma",
    "https://docs.nvidia.com/cuda/gpudirect-rdma/",
)
_FOLLOWS = (
    "nccl-system-error",
    "nccl-remote-error",
    "nccl-trace",
    "nccl-peer-lost",
    "nccl-cuda-error",
    "launcher-exit",
    "exit-code",
)
_MEMLOCK = (
    "set memlock to unlimited where the ranks run: docker run --ulimit memlock=-1 --cap-add "
    "IPC_LOCK; '* soft memlock unlimited' and '* hard memlock unlimited' in "
    "/etc/security/limits.conf, and a new login (sshd, mpirun's daemons); LimitMEMLOCK=infinity "
    "for slurmd and containerd"
)
_MEMLOCK_NEXT = "through the same launcher: mpirun … bash -c 'ulimit -l' (must print unlimited)"
_GID_FIX = (
    "NCCL_IB_GID_INDEX set to the index of the RoCE v2 GID with the IPv4 address that is routed "
    "between the nodes (show_gids; often NCCL_IB_GID_INDEX=3), on all ranks; NCCL 2.21 and later "
    "choose it when the variable is unset"
)
_GID_NEXT = "show_gids (or ibv_devinfo -v); ib_write_bw -d DEVICE -x INDEX between the two nodes"

RULES: tuple[Rule, ...] = (
    Rule(
        id="NIB-001",
        category="ib-memlock",
        role="cause",
        confidence="certain",
        anchors=("Call to ibv_",),
        pattern=r"NCCL.{0,40}call to (?P<call>ibv_(?:reg_mr\w*|create_cq|create_qp|alloc_pd|"
        r"create_srq|reg_dmabuf_mr)) failed with error cannot allocate memory|Last "
        r"error.{0,5}(?:call to )(?P<call2>ibv_\w+) failed with error cannot allocate memory|^call "
        r"to (?P<call3>ibv_\w+) failed with error cannot allocate memory",
        unless=r"NCCL INFO",
        sentence="the limit of locked memory (memlock, ulimit -l) is too small for RDMA: a call of "
        "libibverbs failed with 'Cannot allocate memory'",
        because="RDMA locks the memory that it registers; the default limit is 64 kB to 8 MB, and "
        "daemons (sshd, slurmd, containerd) keep their own",
        costs="NCCL cannot use RDMA and fails",
        fix=_MEMLOCK,
        next=_MEMLOCK_NEXT,
        explains=_FOLLOWS,
        links=_RDMA,
        positive=(
            "misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot "
            "allocate memory",
            "misc/ibvwrap.cc:300 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate "
            "memory",
            "Call to ibv_create_qp failed with error Cannot allocate memory errno 12",
        ),
        negative=(
            "misc/ibvwrap.cc:153 NCCL WARN Call to ibv_reg_mr failed with error Bad address",
        ),
    ),
    Rule(
        id="NIB-002",
        category="ib-memlock",
        role="cause",
        anchors=("Call to ibv_",),
        pattern=r"call to (?P<call>ibv_(?:reg_mr\w*|create_cq|create_qp|alloc_pd|create_srq)) "
        r"failed\s*$",
        sentence="RDMA resources could not be made ({call} failed): mostly the limit of locked "
        "memory (memlock, ulimit -l) is too small",
        because="old versions of NCCL do not print the reason; with a small memlock exactly this "
        "call fails",
        costs="NCCL cannot use RDMA and fails",
        fix=_MEMLOCK,
        next=_MEMLOCK_NEXT,
        explains=_FOLLOWS,
        links=_RDMA,
        positive=(
            "misc/ibvwrap.cc:268 NCCL WARN Call to ibv_create_cq failed",
            "misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr failed",
            "NCCL WARN Call to ibv_create_qp failed",
        ),
        negative=("misc/ibvwrap.cc:212 NCCL WARN Call to ibv_open_device failed",),
    ),
    Rule(
        id="NIB-003",
        category="ib-memlock",
        role="cause",
        anchors=("RLIMIT_MEMLOCK", "max locked memory", "memlock limit"),
        pattern=r"libibverbs: warning: RLIMIT_MEMLOCK is (?P<bytes>\d+) "
        r"bytes|(?:set|increase|raise).{0,30}(?:max locked memory|memlock limit)",
        unless=r"UCX|EFA|efa",
        sentence="the limit of locked memory (memlock, ulimit -l) is too small for RDMA",
        because="libibverbs says so",
        costs="memory cannot be registered for RDMA",
        fix=_MEMLOCK,
        next=_MEMLOCK_NEXT,
        explains=_FOLLOWS,
        links=_RDMA,
        positive=("libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.",),
        negative=("max locked memory       (kbytes, -l) unlimited",),
    ),
    Rule(
        id="NIB-004",
        category="gdr-registration",
        role="symptom",
        stage="network",
        anchors=("ibv_reg_",),
        pattern=r"call to (?P<call>ibv_reg_\w+) failed with error (?P<error>(?!cannot "
        r"allocate)[A-Za-z ]+)",
        unless=r"NCCL INFO",
        sentence="memory could not be registered for RDMA: {call} failed with '{error}'",
        checks=(
            "whether GPU memory cannot be registered (GPUDirect RDMA; 'Bad address', 'Invalid "
            "argument'): NCCL_NET_GDR_LEVEL=LOC for a try; load nvidia-peermem (modprobe "
            "nvidia-peermem), reinstall it after a driver or OFED update; NCCL_DMABUF_ENABLE=0",
            "whether relaxed ordering is refused (virtual machines): "
            "NCCL_IB_PCI_RELAXED_ORDERING=0",
            "whether memlock is too small: ulimit -l unlimited",
            "whether the device is out of memory regions: ibv_devinfo -v (max_mr), other jobs on "
            "it",
        ),
        explains=_FOLLOWS,
        links=_GDR,
        positive=(
            "misc/ibvwrap.cc:153 NCCL WARN Call to ibv_reg_mr failed with error Bad address",
            "NCCL WARN Call to ibv_reg_mr_iova2 failed with error Invalid argument",
        ),
        negative=(
            "misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot "
            "allocate memory",
        ),
    ),
    Rule(
        id="NIB-005",
        category="roce-gid-index",
        role="cause",
        stage="network",
        anchors=("ibv_modify_qp",),
        pattern=r"call to ibv_modify_qp failed(?: with (?:error )?(?:\d+ )?(?P<error>invalid "
        r"argument|no such device|network is unreachable|connection timed out|no data available|no "
        r"route to host|\w[\w ]+))?",
        unless=r"NCCL INFO|retrying|cannot allocate",
        sentence="the NICs cannot be connected over RDMA (ibv_modify_qp failed): mostly the GID "
        "index (NCCL_IB_GID_INDEX) does not fit on RoCE",
        because="the GID of this index is empty, of the other RoCE version or of a network that is "
        "not routed to the peer ('Connection timed out': its hardware address is not found); NICs "
        "of different rails need not reach each other",
        costs="NCCL cannot connect the nodes",
        fix=f"{_GID_FIX}; where only NICs of one rail reach each other NCCL_CROSS_NIC=0; "
        "NCCL_IB_HCA to exclude NICs of other networks",
        next=_GID_NEXT,
        explains=_FOLLOWS,
        links=(f"{_ENV}#nccl-ib-gid-index", *_RDMA),
        positive=(
            "misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error Network is "
            "unreachable",
            "ibvwrap.c:160 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out "
            "errno 110",
            "ibvwrap.c:262 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, "
            "on dev mlx_x:1, curr state INIT, next state RTR, local GID index 3",
            "misc/ibvwrap.cc:198 NCCL WARN Call to ibv_modify_qp failed with error No such device",
        ),
        negative=(
            "NCCL INFO Call to ibv_modify_qp failed with 110 Connection timed out, on dev "
            "mlx5_0:1, retrying 1/34 after 100 msec of sleep",
        ),
    ),
    Rule(
        id="NIB-006",
        category="roce-gid-index",
        role="cause",
        stage="network",
        anchors=("ibv_query_gid", "GID index"),
        pattern=r"call to ibv_query_gid failed|NCCL WARN.{0,80}(?:invalid|no valid|unable to "
        r"find).{0,20}\bGID\b",
        unless=r"NCCL INFO",
        sentence="the GID index (NCCL_IB_GID_INDEX) does not exist on a NIC",
        because="the port has fewer GIDs than the index says, as after an address was removed or "
        "in a container with its own network",
        costs="NCCL cannot connect the nodes over RoCE",
        fix=_GID_FIX,
        next=_GID_NEXT,
        explains=_FOLLOWS,
        links=(f"{_ENV}#nccl-ib-gid-index", *_RDMA),
        positive=("misc/ibvwrap.cc:150 NCCL WARN Call to ibv_query_gid failed with error Invalid",),
        negative=("NCCL INFO NCCL_IB_GID_INDEX set by environment to 3.",),
    ),
    Rule(
        id="NIB-010",
        category="gdr-disabled",
        role="cause",
        stage="network",
        anchors=("GPU Direct RDMA Disabled for HCA",),
        pattern=r"GPU ?Direct RDMA disabled for HCA (?P<index>\d+) '(?P<hca>[^']+)'",
        absent=("FACT-011",),
        sentence="GPUDirect RDMA is off (GPU Direct RDMA Disabled for HCA '{hca}'): data between "
        "nodes go through host memory",
        because="NCCL does not find the kernel module nvidia-peermem (or nv_peer_mem), nor DMA-BUF "
        "support; NCCL up to 2.22 looks for the module under other names than some drivers give "
        "it; GeForce GPUs and some cloud NICs have no GPUDirect at all",
        costs="bandwidth between nodes is several times lower",
        fix="modprobe nvidia-peermem on all nodes (and at boot: /etc/modules-load.d); or the open "
        "kernel modules of the driver with kernel 5.12 and later (DMA-BUF); with Libfabric on EFA "
        "FI_EFA_USE_DEVICE_RDMA=1; on AMD ib_peer_mem of amdgpu-dkms; where the module is loaded, "
        "a newer NCCL (2.23)",
        next="lsmod | grep peermem; ls /sys/kernel/mm/memory_peers/",
        links=_GDR,
        positive=(
            "NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
            "NCCL INFO NET/Libfabric : GPU Direct RDMA Disabled for HCA 0 'rdmap0s29'",
        ),
        negative=("NCCL INFO GPU Direct RDMA Disabled for GPU 40000 / HCA 1 (distance 8 > 4)",),
    ),
    Rule(
        id="NIB-011",
        category="nic-link-down",
        role="cause",
        stage="network",
        anchors=("async event", "async fatal event", "port event", "port error"),
        pattern=r"NET/IB\w* ?:.{0,80}(?:async (?:fatal )?event|event).{0,60}: port error",
        sentence="the link of an RDMA port went down during the job (async event: port error)",
        because="the driver told NCCL that the port lost its link: cable, transceiver, switch, or "
        "a reset",
        costs="transfers over this port time out (error 12) and the job stops",
        fix="check and replace cable or transceiver, look at the switch port; exclude the port "
        "meanwhile (NCCL_IB_HCA=^mlx5_3); NCCL_IB_TIMEOUT=22 and NCCL_IB_RETRY_CNT=7 outlive short "
        "losses",
        next="ibstat; mlxlink -d DEVICE -c; dmesg | grep -iE 'mlx5|link down'; ibqueryerrors",
        explains=("roce-gid-index", "ib-retry-exceeded", "ib-flush", "watchdog-timeout", *_FOLLOWS),
        links=_RDMA,
        positive=(
            "transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port error",
            "transport/net_ib.cc:101 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
        ),
        negative=(
            "transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : GID table change",
            "transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port active",
        ),
    ),
    Rule(
        id="NIB-012",
        category="nic-failed",
        role="cause",
        stage="machine",
        anchors=("catastrophic error", "async fatal event:"),
        pattern=r"NET/IB\w* ?:.{0,80}(?:async event ?: local catastrophic error|async fatal event: "
        r"(?!port error))",
        sentence="an RDMA device failed during the job (local catastrophic error)",
        because="the driver reports a fatal error of the device: firmware, PCIe or a reset",
        costs="all transfers over this device fail",
        fix="look for mlx5 errors in dmesg, update the NIC's firmware, reset or reboot the node",
        next="dmesg | grep -iE 'mlx5|pcie|aer'",
        explains=("roce-gid-index", "ib-retry-exceeded", "ib-flush", "watchdog-timeout", *_FOLLOWS),
        links=_RDMA,
        positive=(
            "transport/net_ib.cu:80 NCCL WARN NET/IB : Got async event : local catastrophic error",
            "net_ib/common.cc:180 NCCL WARN NET/IB : mlx5_0:1 async fatal event: local "
            "catastrophic error",
        ),
        negative=(
            "NCCL WARN NET/IB : mlx5_0:1 async fatal event on QP (0x7f): local access violation "
            "work queue error",
        ),
    ),
    Rule(
        id="NIB-013",
        category="ib-access",
        role="symptom",
        stage="network",
        anchors=("work queue", "async fatal event on"),
        pattern=r"NET/IB\w* ?:.{0,90}(?:event).{0,60}: (?P<event>(?:local access violation|invalid "
        r"request local|local) work queue[\w ]*error|CQ error|path migration request failed)",
        sentence="an RDMA queue failed: {event}",
        because="the device refused an access to memory: an address that is not registered, or "
        "that it could not reach",
        checks=(
            "whether PCIe ACS or the IOMMU breaks GPUDirect: NCCL_NET_GDR_LEVEL=LOC for a try; "
            "then disable ACS (setpci), iommu=pt",
            "whether NCCL uses a NIC that is no network (an NVSwitch-internal device): NCCL_IB_HCA "
            "names the right ones",
            "whether ranks run different plugins or NCCL versions",
            "whether the other end failed first: its log",
        ),
        explains=_FOLLOWS,
        links=_GDR,
        positive=(
            "transport/net_ib.cc:101 NCCL WARN NET/IB : mlx5_0:1 Got async event : local access "
            "violation work queue error",
            "NCCL WARN NET/IB : mlx5_0:1 async fatal event on QP (0x7f0): local access violation "
            "work queue error",
        ),
        negative=("transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : GID table change",),
    ),
    Rule(
        id="NIB-014",
        category="ib-call",
        role="symptom",
        stage="network",
        anchors=("Call to ibv_",),
        pattern=r"NCCL WARN call to (?P<call>ibv_(?!open_device|get_device_list|reg_|modify_qp|"
        r"query_gid|get_async_event|destroy|dealloc|dereg|close|fork)\w+) failed with "
        r"(?:error )?(?P<error>\w[\w ]+)",
        unless=r"cannot allocate",
        sentence="a call of libibverbs failed: {call}, '{error}'",
        checks=(
            "whether memlock is too small: ulimit -l unlimited",
            "whether the device or its user-space driver is broken or another version than the "
            "kernel's: ibv_devinfo; ib_write_bw between two nodes",
            "whether the container has /dev/infiniband and IPC_LOCK",
        ),
        explains=_FOLLOWS,
        links=_RDMA,
        positive=("NCCL WARN Call to ibv_create_qp failed with error Invalid argument errno 22",),
        negative=("NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory",),
    ),
    Rule(
        id="NIB-015",
        category="gdr-disabled",
        role="symptom",
        stage="network",
        needs=("NIB-016", "FACT-012"),
        absent=("FACT-011",),
        sentence="NCCL has GPUDirect RDMA switched off for this job ({name}={value}): data between "
        "nodes go through host memory",
        checks=(
            "whether the setting is meant: unset NCCL_NET_GDR_LEVEL (and NCCL_NET_GDR_READ) and "
            "compare bandwidth; GPUDirect RDMA needs nvidia-peermem or DMA-BUF",
        ),
        links=(f"{_ENV}#nccl-net-gdr-level",),
    ),
    Rule(
        id="NIB-016",
        category="settings",
        role="fact",
        anchors=("NCCL_NET_GDR_LEVEL set", "NCCL_IB_CUDA_SUPPORT set"),
        pattern=r"(?P<name>NCCL_NET_GDR_LEVEL|NCCL_IB_CUDA_SUPPORT) set by environment to "
        r"(?P<value>0|LOC)\b",
        sentence="{name}={value}",
        positive=("NCCL INFO NCCL_NET_GDR_LEVEL set by environment to LOC",),
        negative=("NCCL INFO NCCL_NET_GDR_LEVEL set by environment to PHB",),
    ),
)
