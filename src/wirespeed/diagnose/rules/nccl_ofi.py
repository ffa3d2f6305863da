"""aws-ofi-nccl, libfabric and EFA."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_EFA = ("https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html",)
_START = ("https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html",)
_PLUGIN = ("https://github.com/aws/aws-ofi-nccl",)
_FOLLOWS = (
    "nccl-system-error",
    "nccl-remote-error",
    "nccl-invalid-usage",
    "nccl-trace",
    "nccl-peer-lost",
    "net-mismatch",
    "launcher-exit",
    "exit-code",
)
_TCP = "NCCL falls back to TCP sockets (NET/Socket) on this rank: far slower between nodes"
_MEMLOCK = (
    "set memlock to unlimited where the ranks run (ulimit -l unlimited): docker run --ulimit "
    "memlock=-1; '* soft memlock unlimited' and '* hard memlock unlimited' in "
    "/etc/security/limits.conf and a new login; LimitMEMLOCK=infinity for slurmd and containerd; "
    "then check that the container has all EFA devices (/dev/infiniband/uverbs*) and that huge "
    "pages are free"
)
_DEVICE = (
    "use an instance type with EFA and attach its EFA interfaces; in containers --device "
    "/dev/infiniband/uverbs0 (all of them), in Kubernetes the aws-efa-k8s-device-plugin and "
    "vpc.amazonaws.com/efa in the pod; or accept sockets (unset FI_PROVIDER; NCCL_NSOCKS_PERTHREAD "
    "and NCCL_SOCKET_NTHREADS tune them)"
)
_GROUP = (
    "the security group of the instances needs an inbound and an outbound (egress) rule that "
    "allows all traffic from and to the security group itself: 0.0.0.0/0 does not cover EFA; the "
    "instances must be in one subnet"
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="OFI-001",
        category="efa-memlock",
        role="cause",
        confidence="certain",
        anchors=("Libfabric error: (-12)", "post internal receive buffers", "(4112)"),
        pattern=r"libfabric error: \(-12\) cannot allocate memory|EFA internal error: "
        r"\(4112\)|failure to post internal receive buffers",
        sentence="EFA cannot lock its memory (libfabric: Cannot allocate memory): max locked "
        "memory (memlock, ulimit -l) is too small",
        because="libfabric's EFA provider registers its receive buffers when it starts; the "
        "default limit of 64 kB is not enough",
        costs="the process aborts",
        fix=_MEMLOCK,
        next="through the same launcher: bash -c 'ulimit -l' (must print unlimited)",
        explains=("efa-error", *_FOLLOWS),
        links=_EFA,
        positive=(
            "Libfabric error: (-12) Cannot allocate memory",
            "EFA internal error: (4112) Failure to post internal receive buffers",
        ),
        negative=("Libfabric error: (-113) No route to host",),
    ),
    Rule(
        id="OFI-002",
        category="efa-memlock",
        role="cause",
        anchors=("Cannot allocate memory",),
        pattern=r"(?:libfabric:\S{0,60}?efa|NET/OFI).{0,200}(?:cannot allocate memory|ERROR: out "
        r"of memory)",
        sentence="libfabric could not create EFA's resources (Cannot allocate memory): mostly max "
        "locked memory (memlock, ulimit -l) is too small",
        because="completion queues (CQ), endpoints and memory of EFA are locked; a small memlock, "
        "or queues that other processes hold, make it fail",
        costs=f"the OFI plugin fails; {_TCP}, while other ranks may use EFA and cannot talk to it",
        fix=_MEMLOCK,
        next="in the container: ulimit -l; ls /dev/infiniband; fi_info -p efa",
        explains=("efa-not-used", "efa-error", *_FOLLOWS),
        links=_EFA,
        positive=(
            "libfabric:778:1732::efa:cq:efa_cq_ibv_cq_ex_open_with_ibv_create_cq_ex():92<warn> "
            "Unable to create extended CQ: Cannot allocate memory",
            "NCCL WARN NET/OFI Couldn't open CQ. RC: -12, ERROR: Cannot allocate memory",
        ),
        negative=(
            "libfabric:778:1732::efa:cq:efa_rdm_cq_open():688<warn> Unable to create extended CQ: "
            "Invalid argument",
        ),
    ),
    Rule(
        id="OFI-003",
        category="efa-not-used",
        role="cause",
        stage="network",
        anchors=(
            "Only EFA provider is supported",
            "No eligible providers were found",
            "find a protocol that worked",
            "failed. Falling back",
            "No supported Libfabric provider",
            "NET/OFI aws-ofi-nccl init",
            "Failed to initialize rdma protocol",
            "Failed to initialize sendrecv protocol",
        ),
        pattern=r"NET/OFI (?:only EFA provider is supported|no eligible providers were "
        r"found|unable to find a protocol that worked|.{0,60}aws-ofi-nccl initialization "
        r"failed|.{0,40}no supported libfabric provider|failed to initialize (?:rdma|sendrecv) "
        r"protocol)",
        sentence="EFA is not used: the OFI plugin (aws-ofi-nccl) found no usable libfabric "
        "provider on this rank",
        because="the instance or the container has no EFA device, or the libfabric that is loaded "
        "has no efa provider; the plugin needs it",
        costs=_TCP,
        fix=f"{_DEVICE}; LD_LIBRARY_PATH with /opt/amazon/efa/lib first",
        next="fi_info -p efa; ls /dev/infiniband; lspci | grep -i efa",
        links=_START,
        positive=(
            "ofi_init:700 NCCL WARN NET/OFI Only EFA provider is supported",
            "NCCL INFO NET/OFI No eligible providers were found",
            "nccl_net_ofi_create_plugin:259 NCCL WARN NET/OFI Unable to find a protocol that "
            "worked.  Failing initialization.",
            "nccl_net_ofi_create_plugin:259 NCCL WARN NET/OFI aws-ofi-nccl initialization failed",
        ),
        negative=("NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)",),
    ),
    Rule(
        id="OFI-004",
        category="efa-not-used",
        role="fact",
        anchors=("provider efa output empty list", "fi_getinfo"),
        pattern=r"provider efa (?:output empty list|returned -61)|fi_getinfo.{0,60}no data "
        r"available",
        sentence="libfabric finds no EFA device",
        positive=(
            "libfabric:85:1747438790::core:core:fi_getinfo_():1392<warn> fi_getinfo: provider efa "
            "output empty list",
        ),
        negative=("NCCL INFO NET/OFI Selected Provider is efa",),
    ),
    Rule(
        id="OFI-005",
        category="efa-security-group",
        role="symptom",
        stage="network",
        anchors=("insert remote address", "insert address", "av_insert"),
        pattern=r"NET/OFI.{0,40}unable to insert (?:remote )?address into address vector.{0,30}",
        sentence="the OFI plugin could not address another node over EFA",
        because="the EFA device refused the address of the peer",
        checks=(
            f"whether the security group lets EFA traffic out: {_GROUP}",
            "whether some ranks fell back to sockets, so their addresses mean nothing: grep 'Using "
            "network' in the logs of all ranks; repair their EFA (memlock, devices)",
            "whether nodes run different versions of aws-ofi-nccl or libfabric: the same image "
            "everywhere",
            "whether instances are in different subnets or availability zones",
        ),
        explains=_FOLLOWS,
        links=_START,
        positive=(
            "NET/OFI Unable to insert remote address into address vector for device 1.",
            "NCCL WARN NET/OFI Unable to insert remote address into address vector for device 0. "
            "RC: 0",
        ),
        negative=("NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument",),
    ),
    Rule(
        id="OFI-006",
        category="efa-security-group",
        role="cause",
        stage="network",
        anchors=("nresponsive receiver", "nreachable remote", "Unresponsive remote"),
        pattern=r"unresponsive receiver|unreachable remote|unresponsive remote",
        sentence="EFA's packets get no answer from another node (unresponsive receiver): mostly "
        "the security group does not let them through",
        because="EFA needs its own rule, inbound and outbound; a peer process that ended or a "
        "failed node give the same after the job has run for a while",
        costs="NCCL stops; the other ranks wait",
        fix=_GROUP + "; else look for the rank that ended first",
        next="fi_pingpong -p efa between the two nodes; aws ec2 describe-security-groups",
        explains=("efa-error", "watchdog-timeout", *_FOLLOWS),
        links=_START,
        positive=(
            "NCCL WARN NET/OFI Request 0x7f completed with error. RC: 107. Error: Unresponsive "
            "receiver. This error is typically caused by a peer hardware failure or incorrect "
            "inbound/outbound rules",
            "EFA internal error: (4122) Unreachable remote",
        ),
        negative=("NCCL WARN NET/OFI Couldn't open CQ. RC: -22, ERROR: Invalid argument",),
    ),
    Rule(
        id="OFI-007",
        category="efa-error",
        role="symptom",
        stage="network",
        anchors=("NET/OFI",),
        pattern=r"NCCL WARN NET/OFI (?P<what>couldn't open .{0,80}|.{0,80}completed with "
        r"error.{0,120}|creating new endpoint.{0,80}|unexpected .{0,80}|error .{0,100}|failed to "
        r".{0,80})",
        unless=r"initialize (?:rdma|sendrecv)|find a protocol|initialization failed|cannot "
        r"allocate|unresponsive|unreachable|disabling shared memory|to (?:register|bind) ",
        sentence="the OFI plugin failed: {what}",
        checks=(
            "whether memlock is too small or EFA devices are missing in the container: ulimit -l, "
            "fi_info -p efa",
            "whether libfabric, the plugin and the EFA driver fit together: the newest EFA "
            "installer on all nodes, the same image everywhere (an old plugin with a new libfabric "
            "fails so)",
            f"whether traffic passes: {_GROUP}",
            "whether another rank ended first: its log",
        ),
        explains=_FOLLOWS,
        links=_PLUGIN,
        positive=(
            "nccl_ofi_ofiutils_init_connection:274 NCCL WARN NET/OFI Couldn't open CQ. RC: -22, "
            "ERROR: Invalid argument",
            "create_nccl_ofi_component:459 NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: "
            "Invalid argument",
            "get_req_from_imm_data:1411 NCCL WARN NET/OFI Unexpected status (0) for message 246",
        ),
        negative=(
            "NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)",
            "NCCL WARN NET/OFI Disabling shared memory failed: Protocol not available",
        ),
    ),
    Rule(
        id="OFI-008",
        category="efa-error",
        role="symptom",
        stage="network",
        anchors=("EFA internal error", "Libfabric error:"),
        pattern=r"EFA internal error: \((?!4112\))(?P<code>-?\d+)\) (?P<error>.{1,200})",
        unless=r"unresponsive|unreachable",
        sentence="libfabric's EFA provider aborts: {error} ({code})",
        checks=(
            "whether the other rank or node ended first: its log, dmesg",
            f"whether traffic passes: {_GROUP}",
            "whether versions differ between nodes: fi_info --version, the EFA installer's version",
        ),
        explains=_FOLLOWS,
        links=_EFA,
        positive=("EFA internal error: (4105) Remote operation error",),
        negative=("EFA internal error: (4112) Failure to post internal receive buffers",),
    ),
    Rule(
        id="OFI-009",
        category="efa-fork",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("fork()", "FI_EFA_FORK_SAFE"),
        pattern=r"(?:EFA|libfabric).{0,160}\bfork\b|a process has executed an operation involving "
        r"a call to the \"?fork",
        unless=r"set by environment|Setting FI_EFA_FORK_SAFE|NCCL INFO|Open MPI",
        sentence="the program called fork() while EFA is in use, which libfabric does not allow "
        "here",
        because="memory that EFA registered would be lost in the parent; a data loader or "
        "subprocess forks",
        costs="the process aborts, or data go wrong",
        fix="FI_EFA_FORK_SAFE=1 (RDMAV_FORK_SAFE=1 with old libfabric), or start workers with "
        "spawn; a kernel of 5.13 or later needs neither",
        next="uname -r; env | grep FORK_SAFE",
        explains=_FOLLOWS,
        links=_EFA,
        positive=(
            "Libfabric EFA provider: fork() was called after memory was registered. Set "
            "FI_EFA_FORK_SAFE=1",
        ),
        negative=("NCCL INFO NET/OFI Setting FI_EFA_FORK_SAFE environment variable to 1",),
    ),
    Rule(
        id="OFI-020",
        category="network",
        role="fact",
        anchors=("elected provider is", "elected Provider is"),
        pattern=r"NET/OFI selected provider is (?P<provider>[\w;,-]+)(?:.{0,80}\(found "
        r"(?P<nics>\d+) nics?\))?",
        sentence="libfabric provider {provider}, {nics} NICs",
        positive=(
            "NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)",
            "NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 1 nics)",
        ),
        negative=("NCCL INFO NET/OFI Setting provider_filter to efa",),
    ),
    Rule(
        id="OFI-021",
        category="efa-not-used",
        role="cause",
        stage="network",
        anchors=("elected provider is", "elected Provider is"),
        pattern=r"NET/OFI selected provider is (?P<provider>tcp|sockets|udp)\b",
        sentence="EFA is not used: the OFI plugin works over the libfabric provider {provider}",
        because="libfabric found no EFA device for this process, so it took the next provider",
        costs="as slow as TCP sockets (NET/Socket) between nodes",
        fix=_DEVICE,
        next="fi_info -p efa; ls /dev/infiniband",
        links=_START,
        positive=("NCCL INFO NET/OFI Selected Provider is tcp (found 2 nics)",),
        negative=("NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)",),
    ),
    Rule(
        id="OFI-026",
        category="efa-not-used",
        role="cause",
        stage="network",
        # Another protocol of the plugin may work after the first failed; elsewhere than on AWS
        # NCCL's own transport for InfiniBand is the better one.
        absent=("OFI-020", "FACT-005", "FACT-006"),
        anchors=("fi_getinfo() call failed", "initialize NET plugin"),
        pattern=r"NET/OFI.{0,40}fi_getinfo\(\) call failed|failed to initialize NET plugin (?:AWS "
        r")?(?:libfabric|OFI)",
        sentence="EFA is not used: libfabric finds no device or provider for the OFI plugin "
        "(aws-ofi-nccl)",
        because="the plugin asks libfabric (fi_getinfo) for EFA; 'No data available' means that this "
        "process sees no EFA device: none is attached, or the container was not given "
        "/dev/infiniband",
        costs=_TCP,
        fix=f"{_DEVICE}; LD_LIBRARY_PATH with /opt/amazon/efa/lib first",
        next="in the container: ls /dev/infiniband; fi_info -p efa",
        explains=("net-socket-fallback",),
        links=_START,
        positive=(
            "nccl_net_ofi_rdma_init:7978 NCCL WARN NET/OFI OFI fi_getinfo() call failed: No data "
            "available",
            "NCCL WARN NET/OFI fi_getinfo() call failed: Function not implemented",
            "NCCL INFO Failed to initialize NET plugin AWS Libfabric",
            "NCCL INFO Failed to initialize NET plugin Libfabric",
        ),
        negative=(
            "MPIDI_OFI_mpi_init_hook(667): OFI fi_getinfo() failed (ofi_init.c:667:open:No data)",
            "NCCL INFO Initialized NET plugin AWS Libfabric",
            "NCCL INFO Failed to initialize NET plugin IB",
        ),
    ),
    Rule(
        id="OFI-022",
        category="version",
        role="fact",
        anchors=("aws-ofi-nccl",),
        pattern=r"(?:initializing|using) aws-ofi-nccl (?P<version>[\w.-]+)",
        sentence="aws-ofi-nccl {version}",
        positive=("NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.13.2-aws",),
        negative=("NCCL WARN NET/OFI aws-ofi-nccl initialization failed",),
    ),
    Rule(
        id="OFI-023",
        category="transport",
        role="fact",
        anchors=("Libfabric/",),
        pattern=r"via NET/(?:AWS )?Libfabric/(?P<nic>\d+)\s*$",
        sentence="NET/Libfabric through host memory",
        positive=(
            "NCCL INFO Channel 01 : 9[101d0] -> 0[101c0] [send] via NET/AWS Libfabric/0",
            "NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libfabric/0",
        ),
        negative=("NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/1/GDRDMA",),
    ),
    Rule(
        id="OFI-024",
        category="algorithms",
        role="fact",
        anchors=(" coll channels",),
        pattern=r"\b(?P<coll>[1-4]) coll channels",
        sentence="{coll} coll channels",
        positive=("NCCL INFO 2 coll channels, 2 p2p channels, 1 p2p channels per peer",),
        negative=("NCCL INFO 16 coll channels, 16 p2p channels, 2 p2p channels per peer",),
    ),
    Rule(
        id="OFI-025",
        category="gdr-disabled",
        role="symptom",
        stage="network",
        needs=("OFI-023", "OFI-024"),
        absent=("FACT-011",),
        sentence="traffic between nodes goes over EFA (Libfabric) without GPUDirect RDMA (no "
        "GDRDMA) and with only {coll} coll channels: bandwidth is far below what several EFA NICs "
        "give",
        checks=(
            "whether GPUDirect RDMA is off: FI_EFA_USE_DEVICE_RDMA=1, the EFA and NVIDIA kernel "
            "modules (efa_nv_peermem or DMA-BUF) loaded, a new EFA installer; it needs p4d, p5 or "
            "newer instances",
            "whether only one NIC is used (Libfabric/0 on all channels): attach all EFA interfaces "
            "of the instance and give the container all of /dev/infiniband; the plugin's topology "
            "file (NCCL_TOPO_FILE) for p4d",
            "whether bandwidth is what the instance has: nccl-tests between two nodes",
        ),
        links=_START,
    ),
)
