"""MPI's RDMA and libfabric back ends that cannot start."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_DOWN = ("mpi-init", "mpi-transport", "launcher-exit", "exit-code")

_FABRICS = (
    "https://docs.open-mpi.org/en/main/tuning-apps/networking/index.html",
    "https://www.open-mpi.org/faq/?category=openfabrics",
)
_MEMLOCK = (
    "docker run --ulimit memlock=-1 --cap-add IPC_LOCK (Kubernetes: in the container runtime's "
    "service); elsewhere ulimit -l unlimited for processes started over ssh and by Slurm "
    "(limits.conf, LimitMEMLOCK=infinity)"
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="MPI-043",
        category="mpi-wrong-interface",
        role="cause",
        stage="setup",
        anchors=("connect() to ", "peer_try_connect", "try_connect: connect to"),
        # The gateways of docker0, docker's further networks, virbr0, lxcbr0 and podman; loopback.
        pattern=r"connect(?:\(\))? to \[?(?P<address>172\.(?:1[7-9]|2\d|3[01])\.0\.1|192\.168\.122\.1"
        r"|10\.0\.3\.1|10\.88\.0\.1|127\.0\.\d\.1)\]?(?::\d+)? failed:? connection refused",
        unless=r"NCCL|gloo|\[c10d\]",
        sentence="Open MPI connects to {address}, which every node has for itself (docker0, another "
        "bridge or loopback), and reaches its own node",
        because="Open MPI offers every interface that is up; a bridge such as docker0 has the same "
        "address on every node, where nobody listens on this port; NCCL_SOCKET_IFNAME does not steer "
        "MPI",
        costs="the processes hang or abort in their first MPI communication",
        fix="--mca btl_tcp_if_include eth0 (or 10.0.0.0/16: the network that all nodes share), or "
        "--mca btl_tcp_if_exclude lo,docker0,virbr0 (lo must be in that list); likewise "
        "oob_tcp_if_include (PRTE: --prtemca prte_if_include)",
        next="on each node: ip -br address",
        explains=("MPI-031", "mpi-lost-node", "mpi-peer", *_DOWN),
        links=("https://docs.open-mpi.org/en/v5.0.x/tuning-apps/networking/tcp.html",),
        positive=(
            "[w10-21-4-206][[38417,1],2][btl_tcp_endpoint.c:796:"
            "mca_btl_tcp_endpoint_complete_connect] connect() to 172.17.0.1 failed: Connection "
            "refused (111)",
            "[n1][[5,1],0][btl_tcp_endpoint.c:803:mca_btl_tcp_endpoint_complete_connect] connect() "
            "to 192.168.122.1:1025 failed: Connection refused (111)",
            "[n1][[5,1],0][btl_tcp_endpoint.c:626:mca_btl_tcp_endpoint_complete_connect] connect() "
            "to 127.0.0.1 failed: Connection refused (111)",
            "[n1:09] [[5,0],1] mca_oob_tcp_peer_try_connect: connect to 172.18.0.1:35783 failed: "
            "Connection refused (111)",
        ),
        negative=(
            "[n1][[5,1],0][btl_tcp_endpoint.c:803:mca_btl_tcp_endpoint_complete_connect] connect() "
            "to 10.8.0.3 failed: Connection refused (111)",
            "[n1][[5,1],0][btl_tcp_endpoint.c:803:mca_btl_tcp_endpoint_complete_connect] connect() "
            "to 172.16.0.14 failed: Connection refused (111)",
            "NCCL WARN Connect to 172.17.0.1<45543> failed : Connection refused",
        ),
    ),
    Rule(
        id="MPI-050",
        category="ib-memlock",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("allocate some locked memory", "locked memory"),
        pattern=r"failed to initialize while trying to allocate some locked memory",
        sentence="the limit of locked memory (memlock, ulimit -l) is too small for MPI's RDMA",
        because="the openib BTL registers its buffers with the NIC, which locks them in memory",
        costs="MPI goes without RDMA or stops",
        fix="ulimit -l unlimited for processes started over ssh and by Slurm (limits.conf, "
        "PropagateResourceLimitsExcept=MEMLOCK, LimitMEMLOCK=infinity); docker --ulimit memlock=-1",
        next="ssh HOST ulimit -l; srun -N1 bash -c 'ulimit -l'",
        explains=_DOWN,
        links=_FABRICS,
        positive=(
            "The OpenFabrics (openib) BTL failed to initialize while trying to allocate some "
            "locked "
            "memory.",
        ),
        negative=("WARNING: There was an error initializing an OpenFabrics device.",),
    ),
    Rule(
        id="MPI-054",
        category="ib-memlock",
        role="symptom",
        stage="setup",
        anchors=(
            "create a completion queue",
            "create a queue pair",
            "register memory region (MR)",
            "trying to create an internal queue",
        ),
        pattern=r"failed to (?:create a (?:completion queue \(CQ\)|queue pair \(QP\))|register "
        r"memory region \(MR\)):?\s*$|BTL failed to initialize while trying to create an internal queue",
        sentence="Open MPI could not create what it needs on the InfiniBand device (a queue or a "
        "memory region)",
        checks=(
            f"whether locked memory (memlock, ulimit -l) is too small: {_MEMLOCK}",
            "whether the device has no more queues (errors in dmesg -T, many jobs on the node): end "
            "left-over processes",
            "whether InfiniBand is wanted at all: --mca oob ^ud --mca btl ^openib, or --mca pml ucx",
        ),
        explains=_DOWN,
        links=_FABRICS,
        positive=(
            "Failed to create a completion queue (CQ):",
            "Failed to create a queue pair (QP):",
            "The OpenFabrics (openib) BTL failed to initialize while trying to create an internal "
            "queue. This typically indicates a failed",
        ),
        negative=(
            "The OpenFabrics (openib) BTL failed to initialize while trying to allocate some locked "
            "memory.",
            "[ERROR] Failed to create a completion queue (cq), errno: -12",
            "failed to register memory region (MR): Cannot allocate memory (os error 12)",
        ),
    ),
    Rule(
        id="MPI-055",
        category="memory",
        role="fact",
        anchors=("Cannot allocate memory",),
        pattern=r"^\s*(?:Error: +)?cannot allocate memory(?: \(errno=12\))?\s*$",
        sentence="a help text of Open MPI that ends with 'Cannot allocate memory'",
        positive=(
            "Error:    Cannot allocate memory",
            "    Error:        Cannot allocate memory (errno=12)",
        ),
        negative=("OSError: [Errno 12] Cannot allocate memory",),
    ),
    Rule(
        id="MPI-056",
        category="ib-memlock",
        role="cause",
        stage="setup",
        needs=("MPI-054", "MPI-055"),
        sentence="the limit of locked memory (memlock, ulimit -l) is too small for MPI's InfiniBand: "
        "a completion queue (CQ) or another object could not be created (Cannot allocate memory)",
        because="queues and buffers of an InfiniBand device are locked in memory; a container's "
        "default limit is 64 kB",
        costs="MPI goes on without RDMA, or stops; NCCL then fails in the same way",
        fix=_MEMLOCK,
        next="through the same launcher: mpirun … bash -c 'ulimit -l' (must print unlimited)",
        explains=("MPI-054", *_DOWN),
        links=_FABRICS,
    ),
    Rule(
        id="MPI-051",
        category="mpi-transport",
        role="cause",
        stage="setup",
        anchors=(
            "OFI get address vector",
            "OFI endpoint open",
            "OFI domain",
            "provider not found",
            "OFI call tsend",
            "OFI call ",
        ),
        pattern=r"OFI (?:get address vector map|get universe size|domain open|create "
        r"provider|endpoint|ep enable"
        r"|call \w+) failed.{0,120}|no suitable provider|fi_getinfo.{0,60}provider not found",
        unless=r"NCCL|NET/OFI",
        sentence="MPICH or Intel MPI cannot reach the other ranks over libfabric (OFI)",
        because="the provider that libfabric chose does not work between these nodes: wrong "
        "interface or NIC, "
        "processes that were started as separate jobs, or a provider that is not installed",
        costs="MPI_Init fails",
        fix="choose a provider that all nodes have: FI_PROVIDER=tcp (Intel MPI: "
        "I_MPI_OFI_PROVIDER=tcp) for a "
        "try, FI_TCP_IFACE=eth0 for the interface; then verbs, psm3, efa or cxi; use the mpiexec "
        "of this MPI",
        next="fi_info -l; fi_pingpong between the two nodes",
        explains=_DOWN,
        links=("https://ofiwg.github.io/libfabric/main/man/fabric.7.html",),
        positive=(
            "MPIDI_OFI_mpi_init_hook(1557): OFI get address vector map failed",
            "MPIDI_OFI_send_handler(704)............: OFI call tsend failed (ofi_impl.h:704: No "
            "route)",
        ),
        negative=(
            "MPI startup(): libfabric provider: tcp",
            "NCCL WARN NET/OFI OFI fi_getinfo() call failed: provider not found",
        ),
    ),
    Rule(
        id="MPI-052",
        category="mpi-transport",
        role="fact",
        anchors=(
            "initializing an OpenFabrics device",
            "No preset parameters were found",
            "Open MPI 4.0 and later, infiniband",
        ),
        pattern=r"error initializing an OpenFabrics device|no preset parameters were found for "
        r"the device|for "
        r"Open MPI 4\.0 and later, infiniband ports",
        sentence="Open MPI's old openib BTL is not used (harmless; --mca btl ^openib hides it)",
        positive=(
            "WARNING: There was an error initializing an OpenFabrics device.",
            "By default, for Open MPI 4.0 and later, infiniband ports on a device",
        ),
        negative=("The OpenFabrics (openib) BTL failed to initialize while trying",),
    ),
    Rule(
        id="MPI-053",
        category="mpi-version-mismatch",
        role="cause",
        stage="setup",
        anchors=(
            "undefined symbol: ompi_",
            "undefined symbol: opal_",
            "undefined symbol: MPI",
            "undefined symbol: orte_",
            "undefined symbol: mca_",
            "undefined symbol: PMIx",
            "undefined symbol: pmix",
        ),
        pattern=r"undefined symbol: (?P<symbol>(?:ompi|opal|orte|mca|prte|pmix|MPI[RXD]?)_?\w*)",
        sentence="libraries of two MPI installations are mixed: {symbol} is in neither",
        because="the program was built with another MPI (or version) than the one that "
        "LD_LIBRARY_PATH or the "
        "module leads to",
        costs="the process does not start",
        fix="one MPI only: the same module at build and run time, mpi4py and Horovod built "
        "against it; clean "
        "LD_LIBRARY_PATH; conda's MPI and the system's do not mix",
        next="ldd PROGRAM | grep -i mpi; command -v mpirun mpicc",
        explains=("library-missing", *_DOWN),
        positive=(
            "mpirun: symbol lookup error: mpirun: undefined symbol: "
            "opal_libevent2022_event_base_loop",
            "ImportError: /opt/mpi4py/MPI.so: undefined symbol: ompi_mpi_logical8",
        ),
        negative=("undefined symbol: ncclCommWindowRegister",),
    ),
)
