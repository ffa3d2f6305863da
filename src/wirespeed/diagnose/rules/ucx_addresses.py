"""UCX and Open MPI that offer an address of a bridge which exists on every node."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_FOLLOWS = (
    "ucx-connection",
    "ucx-unreachable",
    "ucx-error",
    "mpi-peer",
    "mpi-init",
    "mpi-transport",
    "launcher-exit",
    "slurm-aborted",
    "exit-code",
)
_LINKS = ("https://openucx.readthedocs.io/en/master/faq.html",)

RULES: tuple[Rule, ...] = (
    Rule(
        id="UCX-020",
        category="mpi-wrong-interface",
        role="cause",
        anchors=("dest_addr=",),
        pattern=r"UCX "
        r"+(?:ERROR|DIAG|WARN).{0,10}connect\(.{0,40}dest_addr=(?P<address>172\.1[789]\.0\.1|"
        r"192\.168\.122\.1|10\.88\.0\.1|10\.0\.3\.1|(?:169\.254|127\.\d+)(?:\.\d+){2})(?::\d+)?\) "
        r"failed",
        sentence="UCX connects to {address}, the address of a virtual bridge (docker0, virbr0, "
        "podman or "
        "a link-local address) which every node has: the peer offers the wrong interface",
        because="UCX takes all interfaces that are up; the address of a bridge leads back to the "
        "own node, "
        "where nobody listens (Connection refused)",
        costs="MPI ranks on different nodes do not come together",
        fix="UCX_NET_DEVICES=the network that all nodes share (eth0, or mlx5_0:1 for RDMA) on all "
        "ranks; "
        "Open MPI's own: --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0; or remove "
        "the "
        "bridge (ip link set docker0 down)",
        next="on each node: ip -br addr; ucx_info -d | grep Device",
        explains=_FOLLOWS,
        links=_LINKS,
        positive=(
            "sock.c:323  UCX  ERROR connect(fd=87, dest_addr=172.17.0.1:47133) failed: Connection "
            "refused",
            "sock.c:323  UCX  ERROR connect(fd=9, dest_addr=192.168.122.1:47133) failed: "
            "Connection "
            "refused",
        ),
        negative=(
            "sock.c:323  UCX  ERROR connect(fd=87, dest_addr=10.0.0.7:47133) failed: Connection "
            "refused",
        ),
    ),
    Rule(
        id="UCX-021",
        category="ucx-version-mismatch",
        role="cause",
        anchors=("UCP version is incompatible", "UCX version", "undefined symbol: uc"),
        pattern=r"UCP version is incompatible, required: (?P<wanted>[\d.]+), actual: "
        r"(?P<found>[\d.]+)"
        r"|undefined symbol: (?P<symbol>uc[pst]_\w+)",
        sentence="programs and libraries of different UCX versions are mixed",
        because="Open MPI, NCCL's UCX plugin or the program was built with another UCX than the "
        "one that "
        "is loaded",
        costs="UCX does not start, or crashes",
        fix="one UCX in LD_LIBRARY_PATH: that of the MPI (HPC-X brings its own); build again "
        "where needed",
        next="ldd PROGRAM | grep -E 'uc[pst]'; ucx_info -v",
        explains=_FOLLOWS,
        links=_LINKS,
        positive=(
            "ucp_context.c:1200 UCX  WARN  UCP version is incompatible, required: 1.15, actual: "
            "1.10",
            "symbol lookup error: /opt/ompi/lib/mca_pml_ucx.so: undefined symbol: ucp_get_nbx",
        ),
        negative=("UCX  INFO  UCX version 1.17.0",),
    ),
    Rule(
        id="UCX-022",
        category="roce-gid-index",
        role="cause",
        stage="network",
        anchors=("UCX_IB_GID_INDEX", "no GID table", "invalid gid", "Invalid gid"),
        pattern=r"UCX +(?:ERROR|WARN).{0,60}(?:invalid gid|no gid table entry|gid index \d+ "
        r".{0,40}(?:not|"
        r"invalid)|UCX_IB_GID_INDEX.{0,60}(?:not|invalid))",
        sentence="UCX has a GID index that does not exist on a NIC",
        because="UCX_IB_GID_INDEX names an empty entry of the GID table",
        costs="RDMA between the nodes does not start",
        fix="unset UCX_IB_GID_INDEX (UCX chooses by itself), or the index of the RoCE v2 GID with "
        "the routed "
        "address (show_gids)",
        next="show_gids; ucx_info -d",
        explains=_FOLLOWS,
        links=_LINKS,
        positive=("ib_device.c:1100 UCX  ERROR invalid gid[3] on mlx5_0:1",),
        negative=("UCX  INFO  UCX_IB_GID_INDEX=3",),
    ),
    Rule(
        id="UCX-023",
        category="gdr-registration",
        role="symptom",
        stage="network",
        anchors=("failed to register address", "reg_mr(address"),
        pattern=r"UCX +ERROR.{0,40}(?:failed to register "
        r"address|(?:ibv|mlx5dv)_reg\w*mr\(address).{0,120}",
        unless=r"cannot allocate memory",
        sentence="UCX could not register memory with the NIC",
        checks=(
            "whether it is GPU memory and GPUDirect RDMA is not there: modprobe nvidia-peermem; "
            "UCX_TLS=^gdr_copy, UCX_IB_GPU_DIRECT_RDMA=n for a try",
            "whether memlock is too small: ulimit -l unlimited",
            "whether UCX was built for this CUDA: ucx_info -v, ucx_info -d | grep cuda",
        ),
        explains=("ucx-error", "mpi-peer", "launcher-exit", "exit-code"),
        links=_LINKS,
        positive=(
            "ib_md.c:330  UCX  ERROR ibv_reg_mr(address=0x7f, length=65536, access=0xf) failed: "
            "Bad "
            "address",
        ),
        negative=(
            "ib_md.c:330  UCX  ERROR ibv_reg_mr(address=0x7f, length=6) failed: Cannot allocate "
            "memory",
        ),
    ),
)
