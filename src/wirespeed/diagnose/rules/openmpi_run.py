"""Open MPI and PRTE: a job that started and lost its network or a process."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = (
    "https://docs.open-mpi.org/en/v5.0.x/tuning-apps/networking/tcp.html",
    "https://www.open-mpi.org/faq/?category=tcp",
)
_INTERFACE = (
    "tell Open MPI the network that all nodes share: --mca btl_tcp_if_include eth0 (or "
    "10.0.0.0/16), "
    "or exclude the others: --mca btl_tcp_if_exclude lo,docker0,virbr0; likewise "
    "--mca oob_tcp_if_include (PRTE: --prtemca prte_if_include), and NCCL_SOCKET_IFNAME for NCCL"
)
_GONE = ("mpi-lost-node", "launcher-exit", "mpi-peer", "exit-code")
_NOTICED = (
    r"noticed that process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) exited on signal "
)
_OOM = (
    "whether the kernel killed it because host memory (RAM) ran out (OOM): dmesg -T | grep -i 'out "
    "of memory'; in a container the limit: kubectl describe pod, memory.events. Use less host "
    "memory "
    "(fewer loader workers, less offload) or raise the limit"
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="MPI-030",
        category="mpi-wrong-interface",
        role="cause",
        stage="setup",
        anchors=("connect() to ",),
        pattern=r"connect\(\) to (?P<address>[0-9a-f.:]+?)(?::\d+)? failed"
        r"(?:$|:? (?:no route to host|network is unreachable|connection timed out))",
        sentence="Open MPI (btl_tcp) connects over an interface whose network {address} does not "
        "lead "
        "to the other node",
        because="btl_tcp uses every interface that is up, also bridges of docker0, virbr0 and "
        "other "
        "virtual ones, whose addresses are not routed between nodes",
        costs="the processes hang or abort in their first MPI communication",
        fix=_INTERFACE,
        next="on that node: ip -br address; ip route get {address}",
        explains=_GONE,
        links=_LINKS,
        positive=(
            "[train04][[9281,1],1][btl_tcp_endpoint.c:796:mca_btl_tcp_endpoint_complete_connect] "
            "connect() to 192.168.118.0 failed: No route to host (113)",
            "[n1][[5,1],0][btl_tcp_endpoint.c:803:mca_btl_tcp_endpoint_complete_connect] "
            "connect() to "
            "10.8.0.3:1024 failed: Connection timed out (110)",
            "  Message:    connect() to 169.254.140.13:1026 failed",
        ),
        negative=(
            "[n1][[5,1],0][btl_tcp_endpoint.c:803:mca_btl_tcp_endpoint_complete_connect] "
            "connect() to "
            "10.8.0.3 failed: Connection refused (111)",
        ),
    ),
    Rule(
        id="MPI-031",
        category="mpi-wrong-interface",
        role="symptom",
        stage="network",
        anchors=("connect() to ", "failed to TCP connect to a peer", "failed to handshake with"),
        pattern=r"connect\(\) to (?P<address>\S+?)(?::\d+)? failed: connection refused"
        r"|failed to tcp connect to a peer mpi process|failed to handshake with a connecting peer",
        sentence="one MPI process cannot connect to another over TCP",
        checks=(
            "whether the address is that of a bridge that every node has (docker0 172.17.0.1, "
            "virbr0 "
            "192.168.122.1): " + _INTERFACE,
            "whether the other process ended before: look for the first error in its log",
            "whether a firewall closes the ports: open them, or --mca btl_tcp_port_min_v4 10000",
        ),
        links=_LINKS,
        positive=(
            "[n1][[5,1],0][btl_tcp_endpoint.c:803:mca_btl_tcp_endpoint_complete_connect] "
            "connect() to "
            "172.17.0.1 failed: Connection refused (111)",
            "WARNING: Open MPI failed to TCP connect to a peer MPI process.  This",
            "WARNING: Open MPI failed to handshake with a connecting peer MPI",
        ),
        negative=("  Message:    did not receive entire connect ACK from peer",),
    ),
    Rule(
        id="MPI-032",
        category="mpi-wrong-interface",
        role="cause",
        anchors=("what appears to be a", "unexpected process identifier"),
        pattern=r"open mpi accepted a tcp connection from what appears to be a"
        r"|received unexpected process identifier",
        sentence="an MPI process was reached by one it does not expect: two nodes have the same "
        "address on some interface",
        because="bridges such as docker0 (172.17.0.1) and virbr0 have the same address on every "
        "node, "
        "so that a connection meant for another node ends on this one; or two jobs share ports",
        costs="the job hangs or aborts in its first MPI communication",
        fix=_INTERFACE,
        next="on each node: ip -br address",
        explains=_GONE,
        links=_LINKS,
        positive=(
            "WARNING: Open MPI accepted a TCP connection from what appears to be a",
            "[n1][[9840,2],1][btl_tcp_endpoint.c:653:mca_btl_tcp_endpoint_recv_connect_ack] "
            "received "
            "unexpected process identifier [[9840,2],0]",
        ),
        negative=("another Open MPI process but cannot find a corresponding process",),
    ),
    Rule(
        id="MPI-033",
        category="mpi-wrong-interface",
        role="cause",
        confidence="certain",
        anchors=(
            "specified to be included for",
            "Unknown interface name",
            "value was given for btl",
            "No network interfaces were found for out",
        ),
        pattern=r"none of the tcp networks specified to be included|unknown interface name"
        r"|no network interfaces were found for out-of-band"
        r"|invalid value was given for btl_tcp_if",
        sentence="the interface that Open MPI was told to use (if_include) does not exist on a "
        "node, or is loopback",
        because="names of interfaces differ between nodes and containers; Open MPI's daemons refuse lo",
        costs="Open MPI has no network: it aborts, or uses another",
        fix=_INTERFACE,
        next="on each node: ip -br address",
        explains=(*_GONE, "mpi-transport"),
        links=_LINKS,
        positive=(
            "None of the TCP networks specified to be included for out-of-band communications",
            "WARNING: An invalid value was given for btl_tcp_if_include.  This",
            "No network interfaces were found for out-of-band communications. We require",
        ),
        negative=("--mca btl_tcp_if_include eth0",),
    ),
    Rule(
        id="MPI-034",
        category="mpi-firewall",
        role="cause",
        stage="network",
        anchors=("unable to complete a TCP connection",),
        pattern=r"a process or daemon was unable to complete a tcp connection",
        sentence="a daemon of Open MPI cannot connect over TCP to the other node (lines below "
        "name both)",
        because="a firewall closes the ports, or the address given is of an interface that the "
        "other "
        "node cannot reach",
        costs="the job does not start",
        fix="open all TCP ports between the nodes (security group, iptables, firewalld), or fix "
        "them: "
        "--mca oob_tcp_dynamic_ipv4_ports 10000-10100. " + _INTERFACE,
        next="on that node: nc -vz LAUNCHER PORT",
        explains=("mpi-daemon", *_GONE),
        links=_LINKS,
        positive=("A process or daemon was unable to complete a TCP connection",),
        negative=("able to execute, but was unable to complete a TCP connection",),
    ),
    Rule(
        id="MPI-035",
        category="mpi-lost-node",
        role="symptom",
        stage="network",
        anchors=("lost communication with a remote daemon", "TERMINATED WITHOUT CALLING"),
        pattern=r"(?:orte|prte) has lost communication with a remote daemon",
        sentence="mpirun lost its daemon on another node (the lines below name it)",
        checks=(
            "whether ssh to that node was refused in the lines above: mend it first",
            "whether the node went down or was restarted: uptime, last -x, scheduler events",
            "whether the kernel killed the daemon or the program for memory (OOM): dmesg -T there",
            "whether the daemons use a network that breaks or is filtered: --prtemca "
            "prte_if_include "
            "eth0 (Open MPI 4: --mca oob_tcp_if_include eth0)",
        ),
        explains=("launcher-exit",),
        links=_LINKS,
        positive=(
            "ORTE has lost communication with a remote daemon.",
            "PRTE has lost communication with a remote daemon.",
        ),
        negative=("Remote daemon: [[16919,0],3] on node anode127",),
    ),
    Rule(
        id="MPI-036",
        category="host-oom-kill",
        role="symptom",
        stage="machine",
        anchors=("noticed that process rank", "signal 9 (Killed)"),
        pattern=_NOTICED + r"9\b",
        sentence="rank {rank} on {host} was killed with SIGKILL (signal 9): most often host "
        "memory ran "
        "out (OOM)",
        checks=(
            f"on {{host}}: {_OOM}",
            "whether the scheduler ended the job (memory or time limit): sacct -j JOB; ask for "
            "more",
            "whether somebody or a script killed it (kill -9): start it again",
        ),
        explains=("exit-code", *_GONE),
        positive=(
            "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).",
            "prterun noticed that process rank 3 with PID 811 on node n2 exited on signal 9.",
        ),
        negative=("mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 15",),
    ),
    Rule(
        id="MPI-037",
        category="crash",
        role="symptom",
        stage="program",
        anchors=("noticed that process rank",),
        pattern=_NOTICED + r"(?P<signal>4|8|11)\b",
        sentence="rank {rank} on {host} crashed (signal {signal})",
        checks=(
            "this rank's last lines: its own error message or stack names the function",
            "whether libraries fit together (ldd PROGRAM: one MPI, one NCCL, one CUDA): rebuild",
            "a core file: ulimit -c unlimited, then gdb PROGRAM core",
        ),
        explains=_GONE,
        positive=(
            "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 11 "
            "(Segmentation fault).",
        ),
        negative=("mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9",),
    ),
    Rule(
        id="MPI-038",
        category="shm-too-small",
        role="symptom",
        anchors=("noticed that process rank",),
        pattern=_NOTICED + r"7\b",
        sentence="rank {rank} on {host} ended with a bus error (SIGBUS, signal 7): most often "
        "/dev/shm, "
        "the shared memory, is full",
        checks=(
            "on {host}: whether /dev/shm is too small (df -h /dev/shm): docker run --shm-size=1g "
            "or "
            "--ipc=host; in Kubernetes an emptyDir with medium: Memory at /dev/shm",
            "whether a mapped file was cut short or its file system is full: free space",
        ),
        explains=_GONE,
        positive=(
            "mpirun noticed that process rank 2 with PID 7 on node n exited on signal 7 (Bus",
        ),
        negative=("mpirun noticed that process rank 2 with PID 7 on node n exited on signal 11",),
    ),
    Rule(
        id="MPI-039",
        category="launcher-exit",
        role="symptom",
        stage="aftermath",
        anchors=(
            "noticed that process rank",
            "exited due to process rank",
            "1 process returned",
            "processes exited with non-zero status",
            "MPI_ABORT was invoked on rank",
            "prun:proc-aborted",
            "prun:non-zero-exit",
        ),
        pattern=r"noticed that process rank (?P<rank>\d+) .{0,80}exited on(?: signal "
        r"(?:15|6|2|1)\b|$)"
        r"|exited due to process rank \d+|job\s+terminated normally, but \d+ process"
        r"|one or more processes exited with non-zero status|MPI_ABORT was invoked on rank \d+"
        r"|^prun:(?:proc-aborted|non-zero-exit)",
        sentence="a process ended with an error, and mpirun ended all others",
        checks=(
            "the first error message in the log of the rank that ended first (the lines here "
            "name the "
            "rank or process, and the exit code or signal: 9 is a kill, most often for memory)",
            "NCCL_DEBUG=WARN, if the log has nothing: the program may have failed in NCCL",
        ),
        positive=(
            "Primary job  terminated normally, but 1 process returned",
            "mpirun detected that one or more processes exited with non-zero status, thus causing",
            "mpirun.openmpi has exited due to process rank 1 with PID 0 on",
            "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD",
            "    prun:proc-aborted-strsignal",
            "prterun noticed that process rank 1 with PID 123 on node vm exited on",
            "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 15",
        ),
        negative=(
            "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).",
            "NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.",
        ),
    ),
    Rule(
        id="MPI-040",
        category="mpi-peer",
        role="consequence",
        stage="aftermath",
        anchors=("has unexpectedly disconnected", "mca_btl_tcp_frag", "mca_btl_tcp_recv_blocking"),
        pattern=r"peer process has unexpectedly "
        r"disconnected|mca_btl_tcp_frag_(?:recv|send).{0,80}failed"
        r"|mca_btl_tcp_recv_blocking.{0,60}(?:failed|unexpectedly closed)",
        sentence="an MPI process lost the connection to one that ended",
        positive=(
            "An MPI communication peer process has unexpectedly disconnected.  This",
            "[n1][[5,1],0][btl_tcp_frag.c:241:mca_btl_tcp_frag_recv] mca_btl_tcp_frag_recv: readv "
            "failed: Connection reset by peer (104)",
        ),
        negative=("mca: base: components_open: found loaded component tcp",),
    ),
    Rule(
        id="MPI-041",
        category="mpi-transport",
        role="cause",
        anchors=(
            "opened in the pml framework",
            "unable to reach each other",
            "cannot be selected",
            "at least one MPI process is unreachable",
        ),
        pattern=r"no components were able to be opened in the pml framework"
        r"|pair of mpi processes are unable to reach each other|PML \w+ cannot be selected"
        r"|because at least one mpi process is unreachable",
        sentence="Open MPI has no transport between two processes: the pml or btl asked for "
        "cannot be "
        "used here",
        because="it was not built in, its libraries are missing (UCX), its devices are not "
        "there, or "
        "an interface list excludes all",
        costs="MPI_Init fails",
        fix="for NCCL jobs MPI only starts the ranks: --mca pml ob1 --mca btl tcp,self (and "
        "vader, in "
        "version 5 sm) is enough; else install UCX, or remove --mca pml ucx, OMPI_MCA_pml",
        next="ompi_info | grep -E 'MCA (pml|btl)'",
        explains=("mpi-init", *_GONE),
        links=("https://docs.open-mpi.org/en/v5.0.x/tuning-apps/networking/index.html",),
        positive=(
            "No components were able to be opened in the pml framework.",
            "At least one pair of MPI processes are unable to reach each other for",
            "[vm:23470] PML ucx cannot be selected",
            "MPI_INIT has failed because at least one MPI process is unreachable",
        ),
        negative=(
            "WARNING: No preset parameters were found for the device that Open MPI",
            "WARNING: There was an error initializing an OpenFabrics device.",
            "By default, for Open MPI 4.0 and later, infiniband ports on a device",
        ),
    ),
    Rule(
        id="MPI-042",
        category="mpi-init",
        role="symptom",
        stage="aftermath",
        anchors=(
            "MPI_INIT failed for some reason",
            "_init failed for some reason",
            "component was not found, or was unable",
            "An error occurred in MPI_Init",
        ),
        pattern=r"it looks like \w+_init failed for some reason|an error occurred in mpi_init"
        r"|requested component was not found, or was unable to be opened",
        sentence="MPI_Init failed",
        checks=(
            "the lines below: Framework and Component name what is missing: remove the --mca (or "
            "OMPI_MCA_) setting that asks for it, or install it",
            "whether the program was built with another MPI than the mpirun: ldd PROGRAM | grep "
            "mpi",
            "whether /tmp is writable and has space",
        ),
        links=_LINKS,
        positive=(
            "It looks like MPI_INIT failed for some reason; your parallel process is",
            "It looks like opal_init failed for some reason; your parallel process is",
            "A requested component was not found, or was unable to be opened.  This",
        ),
        negative=("[vm:1] mca: base: components_open: component tcp open function successful",),
    ),
)
