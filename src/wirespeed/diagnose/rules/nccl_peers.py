"""NCCL without the RDMA that was wanted, and NCCL whose peers are gone."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_RDMA = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
    "#networking-issues",
)
_CONTAINER = (
    "in a container mount the devices: docker run --device /dev/infiniband --cap-add IPC_LOCK "
    "--ulimit memlock=-1 --network host (or --privileged); in Kubernetes an RDMA device plugin and "
    "its resource in the pod"
)
_COSTS = "NCCL works over TCP (NET/Socket): several to many times slower between nodes"
_FIRST = (
    "which rank ended first: read the earliest error or exit code in the logs of all ranks",
    "whether it was killed for memory (OOM): dmesg | grep -i 'out of memory'; kubectl describe "
    "pod; exit code 137 or signal 9: give the host more memory",
    "whether its node or network failed: dmesg | grep -iE 'xid|link'",
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="NSOCK-030",
        category="network",
        role="fact",
        anchors=(
            "NCCL_IB_DISABLE set",
            "NCCL_IB_HCA set",
            "NCCL_IB_GID_INDEX set",
            "NCCL_NET set",
            "NCCL_NET_GDR_LEVEL set",
            "NCCL_IB_TC set",
            "NCCL_IB_TIMEOUT set",
            "NET/Socket : Using [0]ib",
            "libibverbs: Warning",
        ),
        pattern=r"NCCL_IB_DISABLE set (?:by environment )?to "
        r"0|NCCL_(?:IB_(?:HCA|GID_INDEX|TC|TIMEOUT|SL|RETRY_CNT|QPS_PER_CONNECTION)|NET_GDR_LEVEL) "
        r"set (?:by environment )?to|NCCL_NET set by environment to IB|NET/Socket : using \[0\]ib",
        sentence="RDMA is wanted in this job",
        positive=(
            "NCCL INFO NCCL_IB_DISABLE set by environment to 0.",
            "NCCL INFO NCCL_IB_HCA set to mlx5_0,mlx5_1",
            "NCCL INFO NET/Socket : Using [0]ibp60s0:10.5.0.13<0>",
        ),
        negative=(
            "NCCL INFO NCCL_IB_DISABLE set by environment to 1.",
            "NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>",
        ),
    ),
    Rule(
        id="NSOCK-031",
        category="net-socket-fallback",
        role="cause",
        needs=("FACT-004", "FACT-003", "NSOCK-030"),
        sentence="NCCL fell back to TCP sockets (Using network Socket) though RDMA is wanted: it "
        "found no RDMA device (NET/IB : No device found)",
        because="libibverbs lists no device with an active port: /dev/infiniband is not in the "
        "container, the port is down, NCCL_IB_HCA matches nothing, or the user-space driver "
        "(libmlx5, libibverbs-providers) is missing",
        costs=_COSTS,
        fix=f"{_CONTAINER}; check the port (ibv_devinfo: PORT_ACTIVE) and NCCL_IB_HCA",
        next="in the container: ls -l /dev/infiniband; ibv_devinfo",
        stage="network",
        links=_RDMA,
    ),
    Rule(
        id="NSOCK-032",
        category="net-socket-fallback",
        role="cause",
        stage="network",
        anchors=("ibv_open_device", "Unable to open device"),
        pattern=r"ibv_open_device failed|NET/IB\w* ?: unable to open device (?P<device>\w+)",
        needs=("FACT-003",),
        sentence="NCCL may not open an RDMA device (ibv_open_device failed, Unable to open device) "
        "and fell back to TCP sockets (Using network Socket)",
        because="the device is visible in /sys and its file in /dev/infiniband is missing or not "
        "permitted: a container without the device or rights, or a user-space driver that is "
        "missing",
        costs=_COSTS,
        fix=_CONTAINER,
        next="in the container: ls -l /dev/infiniband; ibv_devinfo",
        explains=("net-socket-fallback",),
        links=_RDMA,
        positive=(
            "misc/ibvwrap.cc:212 NCCL WARN Call to ibv_open_device failed",
            "transport/net_ib.cc:148 NCCL WARN NET/IB : Unable to open device mlx5_bond_0",
        ),
        negative=("NCCL INFO NET/IB : No device found.",),
    ),
    Rule(
        id="NSOCK-033",
        category="library",
        role="fact",
        anchors=("open libibverbs", "libibverbs.so"),
        pattern=r"failed to open libibverbs\.so|libibverbs\.so\S*: cannot open shared object",
        sentence="libibverbs is not installed here",
        positive=("misc/ibvwrap.cu:61 WARN Failed to open libibverbs.so[.1]",),
        negative=("libibverbs: Warning: couldn't open config directory '/etc/libibverbs.d'.",),
    ),
    Rule(
        id="NSOCK-034",
        category="net-socket-fallback",
        role="cause",
        stage="network",
        needs=("NSOCK-033", "FACT-003", "NSOCK-030"),
        sentence="NCCL fell back to TCP sockets (Using network Socket) though RDMA is wanted: "
        "libibverbs is not installed in this image or container (Failed to open libibverbs.so)",
        because="NCCL's InfiniBand and RoCE support loads libibverbs.so.1 while it starts",
        costs=_COSTS,
        fix="install libibverbs1 and the provider (apt install libibverbs1 ibverbs-providers; "
        "rdma-core "
        f"on RHEL); {_CONTAINER}",
        next="ldconfig -p | grep ibverbs; ibv_devinfo",
        links=_RDMA,
    ),
    Rule(
        id="NSOCK-035",
        category="ib-open-device",
        role="symptom",
        anchors=("ibv_open_device", "Unable to open device", "ibv_get_device_list"),
        pattern=r"(?:ibv_open_device|ibv_get_device_list) failed|NET/IB\w* ?: unable to open "
        r"device (?P<device>\w+)",
        absent=("FACT-003",),
        sentence="NCCL may not open an RDMA device",
        checks=(
            f"whether the container has the device and the rights: {_CONTAINER}",
            "whether the user-space driver is installed: ibv_devinfo",
            "whether NCCL fell back to sockets: grep 'Using network' in the log",
        ),
        links=_RDMA,
        positive=("transport/net_ib.cc:148 NCCL WARN NET/IB : Unable to open device mlx5_bond_0",),
        negative=("NCCL INFO NET/IB : No device found.",),
    ),
    Rule(
        id="NSOCK-040",
        category="nccl-peer-lost",
        role="consequence",
        stage="aftermath",
        anchors=(
            "Connection closed by remote peer",
            "Connection reset by peer",
            "Broken pipe",
            "Software caused connection abort",
        ),
        pattern=r"(?:socketProgress\w*|NCCL WARN|\bNet ?:).{0,200}(?:connection closed by remote "
        r"peer ?(?P<peer>\S*)|connection reset by peer|broken pipe|software caused connection "
        r"abort)",
        unless=r"\[c10d\]|gloo",
        sentence="the connection to another rank was closed",
        checks=_FIRST,
        positive=(
            "misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer "
            "node1<57557>",
            "include/socket.h:435 NCCL WARN Net : Call to recv from 10.0.0.2<45543> failed : "
            "Connection reset by peer",
        ),
        negative=("NCCL INFO [Service thread] Connection closed by localRank 0",),
    ),
    Rule(
        id="NSOCK-041",
        category="nccl-peer-lost",
        role="consequence",
        stage="aftermath",
        anchors=("proxy.cc:", "Proxy Service", "Proxy Call to rank", "Socket recv failed"),
        pattern=r"proxy\.cc:\d+ NCCL WARN|\[Proxy Service \d*\] failed to execute|proxy call to "
        r"rank \d+ failed|NCCL WARN socket (?:recv|send) failed",
        sentence="NCCL's proxy thread lost its connection or passes an error on",
        checks=_FIRST,
        positive=(
            "proxy.cc:1326 NCCL WARN Socket recv failed",
            "proxy.cc:1519 NCCL WARN [Proxy Service 0] Failed to execute operation Connect from "
            "rank 0, retcode 3",
        ),
        negative=("NCCL INFO [Proxy Service] Device 0 CPU core 3",),
    ),
    Rule(
        id="NSOCK-042",
        category="nccl-remote-error",
        role="consequence",
        stage="aftermath",
        anchors=("ncclRemoteError", "remote process exited", "exited prematurely"),
        pattern=r"ncclRemoteError|remote process exited or there was a network error|remote "
        r"process exited prematurely",
        unless=r"NCCL failure \S+:\d+",
        sentence="NCCL lost another rank, or the network to it (remote process exited)",
        checks=_FIRST,
        links=_RDMA,
        positive=(
            "ncclRemoteError: A call failed possibly due to a network error or a remote process "
            "exiting prematurely.",
            "NCCL error in: ../NCCLUtils.hpp:121, remote process exited or there was a network "
            "error, NCCL version 2.18.1",
        ),
        negative=(
            "n1: Test NCCL failure common.cu:958 'remote process exited or there was a network "
            "error / '",
        ),
    ),
    Rule(
        id="NSOCK-043",
        category="nccl-name",
        role="cause",
        anchors=("error encountered when getting address info", "error resolving"),
        pattern=r"\bNet ?: error encountered when getting address info ?: ?(?P<error>.{1,200})",
        sentence="the host name in NCCL_COMM_ID or NCCL's address cannot be resolved: {error}",
        because="DNS or /etc/hosts does not know the name on this node",
        costs="NCCL cannot be initialised",
        fix="use an IP address in NCCL_COMM_ID (ADDRESS:PORT), or add the name to DNS or "
        "/etc/hosts",
        next="getent hosts NAME",
        explains=("nccl-system-error", "nccl-trace"),
        links=(f"{_ENV}#nccl-comm-id",),
        positive=(
            "misc/socket.cc:330 NCCL WARN Net : error encountered when getting address info : Name "
            "or service not known",
        ),
        negative=("[W socket.cpp:767] [c10d] The IPv6 network addresses cannot be retrieved",),
    ),
    Rule(
        id="NSOCK-044",
        category="open-files",
        role="cause",
        confidence="certain",
        anchors=("Too many open files",),
        pattern=r"(?:NCCL|socket|accept|UCX).{0,160}too many open files",
        sentence="a process reached its limit of open files: NCCL cannot make a socket",
        because="each pair of ranks and channel needs sockets and files; ulimit -n is too small",
        costs="NCCL cannot connect all ranks",
        fix="ulimit -n 65536 (limits.conf, LimitNOFILE= of the service, --ulimit "
        "nofile=65536:65536 of docker)",
        next="ulimit -n; ls /proc/PID/fd | wc -l",
        explains=("nccl-system-error", "nccl-trace", "nccl-peer-lost"),
        links=_RDMA,
        positive=(
            "misc/socket.cc:600 NCCL WARN Call to socket failed : Too many open files",
            "NCCL WARN Call to accept failed : Too many open files",
        ),
        negative=("OSError: [Errno 24] Too many open files: 'data/1.npy'",),
    ),
    Rule(
        id="NSOCK-036",
        category="net-socket-fallback",
        role="cause",
        stage="network",
        anchors=("no userspace device-specific driver",),
        pattern=r"libibverbs: warning: no userspace device-specific driver found for "
        r"(?P<device>\S+)",
        needs=("FACT-003",),
        sentence="NCCL fell back to TCP sockets (Using network Socket): libibverbs has no "
        "user-space driver for the RDMA device {device}",
        because="the image or container lacks the provider library of this NIC (libmlx5, libefa, "
        "libbnxt_re, libirdma)",
        costs=_COSTS,
        fix="install the provider in the image (apt install ibverbs-providers; libibverbs on RHEL; "
        "the "
        f"vendor's OFED, of the host's version); {_CONTAINER}",
        next="in the container: ibv_devinfo; ls /etc/libibverbs.d",
        explains=("net-socket-fallback",),
        links=_RDMA,
        positive=(
            "libibverbs: Warning: no userspace device-specific driver found for "
            "/sys/class/infiniband_verbs/uverbs0",
        ),
        negative=("libibverbs: Warning: couldn't open config directory '/etc/libibverbs.d'.",),
    ),
    Rule(
        id="NSOCK-045",
        category="wrong-address",
        role="cause",
        confidence="certain",
        anchors=("Cannot assign requested address",),
        pattern=r"(?:NCCL|bind).{0,120}cannot assign requested address",
        unless=r"btl_tcp|oob_tcp|\[c10d\]|gloo",
        sentence="NCCL was given an address that this node does not have (Cannot assign requested "
        "address)",
        because="NCCL_COMM_ID or NCCL_SOCKET_IFNAME names an address of another node, or one that "
        "was removed",
        costs="NCCL cannot be initialised",
        fix="NCCL_COMM_ID with an address of the node of rank 0, the same on all ranks (or unset "
        "it)",
        next="ip -br addr; echo $NCCL_COMM_ID",
        explains=("nccl-system-error", "nccl-trace", "nccl-peer-lost"),
        links=(f"{_ENV}#nccl-comm-id",),
        positive=(
            "misc/socket.cc:380 NCCL WARN Call to bind failed : Cannot assign requested address",
        ),
        negative=("bind: Cannot assign memory",),
    ),
    Rule(
        id="NSOCK-046",
        category="port-in-use",
        role="cause",
        confidence="certain",
        anchors=("Address already in use",),
        pattern=r"NCCL WARN.{0,80}address already in use",
        sentence="the port that NCCL was told to use is taken (Address already in use)",
        because="another job or an earlier run still holds the port of NCCL_COMM_ID",
        costs="NCCL cannot be initialised",
        fix="another port in NCCL_COMM_ID, end the process that holds it (ss -ltnp), or unset it",
        next="ss -ltnp",
        explains=("nccl-system-error", "nccl-trace", "nccl-peer-lost"),
        links=(f"{_ENV}#nccl-comm-id",),
        positive=("misc/socket.cc:380 NCCL WARN Call to bind failed : Address already in use",),
        negative=(
            "[W socket.cpp:401] [c10d] failed to bind to [::]:29500 (errno: 98 - Address already "
            "in use).",
        ),
    ),
)
