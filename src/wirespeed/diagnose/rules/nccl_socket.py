"""NCCL's TCP sockets: bootstrap, interfaces, connections that fail, peers that are gone."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_IFNAME = (
    f"{_ENV}#nccl-socket-ifname",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
    "#networking-issues",
)
_FOLLOWS = (
    "nccl-system-error",
    "nccl-remote-error",
    "nccl-trace",
    "nccl-peer-lost",
    "watchdog-timeout",
    "connection-refused",
    "connection-timeout",
    "launcher-exit",
    "exit-code",
)
_CONNECT = (
    r"(?:NCCL WARN|socketPollConnect|socketStartConnect|socketFinalizeConnect|\bNet ?:|call to "
    r"connect).{0,200}"
)
"""How the several versions of NCCL begin what they say of a connection."""
_RETRY = r"retrying"
"""Lines of attempts that NCCL repeats; the last one has no such word."""
_FIX = (
    "NCCL_SOCKET_IFNAME set on all ranks to an interface that all nodes share (ip -br addr; such "
    "as NCCL_SOCKET_IFNAME=eth0, or ^lo,docker,veth to exclude)"
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="NSOCK-001",
        category="ifname-no-match",
        role="cause",
        confidence="likely",
        anchors=(
            "no socket interface found",
            "no IP interface found",
            "No interface found",
            "no interface found",
            "No usable listening interface",
        ),
        pattern=r"bootstrap ?: no socket interface found|NET/(?:IB|Socket)\w* ?: no (?:IP "
        r")?interface found|no interface found in the same subnet|no usable listening interface",
        sentence="NCCL found no socket interface that it may use",
        because="NCCL_SOCKET_IFNAME matches no interface of this node (or of this container), or "
        "the node has none but loopback with an address",
        costs="NCCL cannot be initialised",
        fix="NCCL_SOCKET_IFNAME set to an interface that exists on every node (ip -br addr), or "
        "unset it; names may differ between nodes: give a common prefix or a list (eth,ens); lo is "
        "enough for a single node; in containers --network host or a CNI interface that is up",
        next="ip -br addr; echo $NCCL_SOCKET_IFNAME on every node",
        explains=_FOLLOWS,
        links=_IFNAME,
        positive=(
            "Bootstrap : no socket interface found",
            "bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found",
            "transport/net_ib.cc:159 NCCL WARN NET/IB : No IP interface found.",
            "bootstrap.cc:89 NCCL WARN No interface found in the same subnet as remote address "
            "10.0.0.1<0>",
        ),
        negative=(
            "NCCL INFO Bootstrap : Using eth0:10.10.0.1<0>",
            "NCCL INFO NET/IB : No device found.",
        ),
    ),
    Rule(
        id="NSOCK-002",
        category="settings",
        role="fact",
        anchors=("NCCL_SOCKET_IFNAME set",),
        pattern=r"NCCL_SOCKET_IFNAME set (?:by environment )?to (?P<ifname>\S+)",
        sentence="NCCL_SOCKET_IFNAME={ifname}",
        positive=("NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0",),
        negative=("NCCL INFO NCCL_IB_HCA set to mlx5_0",),
    ),
    Rule(
        id="NSOCK-003",
        category="ifname-no-match",
        role="cause",
        confidence="certain",
        needs=("NSOCK-001", "NSOCK-002"),
        sentence="NCCL found no socket interface: none matches NCCL_SOCKET_IFNAME set to {ifname}",
        because="this node (or container) has no interface of that name with an address",
        costs="NCCL cannot be initialised",
        fix="NCCL_SOCKET_IFNAME set to an interface that exists on every node (ip -br addr), or "
        "unset it; names may differ between nodes: give a common prefix or a list (eth,ens)",
        next="ip -br addr; echo $NCCL_SOCKET_IFNAME on every node",
        explains=("NSOCK-001", *_FOLLOWS),
        links=_IFNAME,
    ),
    Rule(
        id="NSOCK-005",
        category="interface",
        role="fact",
        anchors=(
            "Bootstrap : Using",
            "Bootstrap: Using",
            "NET/Socket : Using",
            "NET/Socket: Using",
        ),
        pattern=r"(?:bootstrap|NET/Socket) ?: using (?:\[\d\])?[^\s:]+:\S",
        sentence="NCCL found an interface for its sockets",
        positive=(
            "NCCL INFO Bootstrap : Using eth0:10.10.0.1<0>",
            "NCCL INFO NET/Socket : Using [0]eth0:10.0.0.37<0>",
            "NCCL INFO Bootstrap: Using eth0:10.10.0.1<0>",
        ),
        negative=("NCCL INFO Bootstrap : no socket interface found",),
    ),
    Rule(
        id="NSOCK-006",
        category="ifname-no-match",
        role="cause",
        needs=("NCCL-007", "NSOCK-002"),
        # Who found an interface has an address; then others are the reason.
        absent=("NSOCK-005", "NSOCK-001"),
        sentence="no interface matches NCCL_SOCKET_IFNAME, set to {ifname}: NCCL has no address to "
        "connect to (family {family})",
        because="no line tells an interface that NCCL uses, and the address is empty; NCCL 2.27 does "
        "not say that {ifname} does not exist on this node (or container) and goes on without one",
        costs="NCCL cannot be initialised",
        fix="NCCL_SOCKET_IFNAME set to an interface that exists on every node (ip -br addr), or "
        "unset it; names may differ between nodes: give a common prefix or a list (eth,ens)",
        next="ip -br addr; echo $NCCL_SOCKET_IFNAME on every node",
        explains=("net-mismatch", *_FOLLOWS),
        links=_IFNAME,
    ),
    Rule(
        id="NSOCK-004",
        category="no-interface",
        role="cause",
        confidence="certain",
        anchors=("Address family not supported",),
        pattern=r"(?:WARN|NCCL|socket creation failed).{0,80}address family not supported by "
        r"protocol",
        sentence="the container or node has no usable IP interface: NCCL's socket creation failed "
        "(Address family not supported by protocol)",
        because="NCCL took no address from any interface, or one of a family (IPv6) that the "
        "kernel has switched off",
        costs="NCCL cannot be initialised",
        fix="give the container a network: docker run --net host (hostNetwork: true in "
        "Kubernetes); else NCCL_SOCKET_IFNAME set to an interface with an IPv4 address, "
        "NCCL_SOCKET_FAMILY=AF_INET",
        next="in the container: ip -br addr",
        explains=_FOLLOWS,
        links=_IFNAME,
        positive=(
            "include/socket.h:311 WARN Socket creation failed : Address family not supported by "
            "protocol",
            "misc/socket.cc:620 NCCL WARN Call to socket failed : Address family not supported by "
            "protocol",
        ),
        negative=("[W socket.cpp:401] [c10d] The IPv6 network addresses cannot be retrieved",),
    ),
    Rule(
        id="NSOCK-010",
        category="interface",
        role="fact",
        anchors=(
            "Using interface lo:",
            "Using lo:",
            "Using [0]lo:",
            "lo:127.0.0.1",
        ),
        pattern=r"(?:NET|bootstrap|NET/Socket|OOB)\b.{0,60}\blo:(?P<address>127\.[\d.]+|::1)",
        sentence="NCCL uses the loopback interface lo",
        positive=(
            "NCCL INFO NET : Using interface lo:127.0.0.1<0>",
            "NCCL INFO Bootstrap : Using lo:127.0.0.1<0>",
            "NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0>",
        ),
        negative=("NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>",),
    ),
    Rule(
        id="NSOCK-011",
        category="interface",
        role="fact",
        anchors=("Bootstrap : Using", "Bootstrap: Using", "NET/Socket : Using", "Using interface "),
        pattern=r"(?:NET|bootstrap|NET/Socket|OOB)\b ?:? ?using (?:interface "
        r")?(?:\[\d\])?(?P<virtual>docker\w*|veth\w*|virbr\w*|cni\d+|flannel[\w.]*|br-\w+"
        r"|tailscale\d+|tun\d+|wg\d+):",
        sentence="NCCL uses the virtual interface {virtual}",
        positive=(
            "NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>",
            "NCCL INFO NET/Socket : Using [0]veth12ab:fe80::1%veth12ab<0>",
        ),
        negative=("NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>",),
    ),
    Rule(
        id="NSOCK-012",
        category="connection-refused",
        role="symptom",
        stage="network",
        anchors=("Connection refused",),
        pattern=_CONNECT + r"connection refused",
        unless=_RETRY + r"|127\.0\.|\[c10d\]|gloo",
        sentence="NCCL's connection to another rank was refused (Connection refused)",
        checks=(
            f"whether NCCL offers an address that others cannot use (lo, docker0, veth): {_FIX}",
            "whether the other rank ended, or never started: read the earliest error in its log",
            "whether a firewall rejects NCCL's ports: open all TCP ports between the nodes, or fix "
            "them (net.ipv4.ip_local_port_range, NCCL_SOCKET_PORT_RANGE where known)",
        ),
        explains=("nccl-system-error", "nccl-trace", "nccl-peer-lost"),
        links=_IFNAME,
        positive=(
            "include/socket.h:361 NCCL WARN Call to connect timeout : Connection refused",
            "misc/socket.cc:540 NCCL WARN socketPollConnect: connect to 10.0.0.3<33513> returned "
            "Connection refused, exceeded error retry count after 35 attempts",
            "include/socket.h:403 NCCL WARN Connect to 10.0.0.2<45543> failed : Connection refused",
        ),
        negative=(
            "NCCL INFO socketPollConnect: connect to 10.0.0.3<33513> returned Connection refused, "
            "retrying (1/34) after sleep for 100 msec",
            "[W socket.cpp:697] [c10d] The client socket has failed to connect (errno: 111 - "
            "Connection refused).",
        ),
    ),
    Rule(
        id="NSOCK-013",
        category="wrong-interface-lo",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("Connection refused",),
        pattern=_CONNECT + r"\b(?P<address>127\.0\.\d+\.\d+|::1|localhost)<?\d*>?.{0,80}connection "
        r"refused",
        unless=_RETRY + r"|\[c10d\]|gloo",
        sentence="a rank of another node offers its loopback address: NCCL connects to {address} "
        "and is refused (Connection refused)",
        because="NCCL took the interface lo (127.0.0.1), because NCCL_SOCKET_IFNAME allows it, or "
        "the node has no other; other nodes reach themselves there",
        costs="the ranks of different nodes cannot connect",
        fix=_FIX,
        next="ip -br addr; grep 'Bootstrap : Using' in the logs of all ranks",
        explains=_FOLLOWS,
        links=_IFNAME,
        positive=(
            "misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 127.0.0.1<45763> failed : "
            "Connection refused",
            "include/socket.h:409 NCCL WARN Net : Connect to 127.0.0.1<54263> failed : Connection "
            "refused",
        ),
        negative=(
            "include/socket.h:403 NCCL WARN Connect to 10.0.0.2<45543> failed : Connection refused",
        ),
    ),
    Rule(
        id="NSOCK-014",
        category="wrong-interface-lo",
        role="cause",
        stage="setup",
        needs=("NSOCK-012", "NSOCK-010"),
        sentence="NCCL uses the loopback interface lo ({address}) in a job of several nodes, and "
        "connections are refused (Connection refused)",
        because="a rank that offers an address of lo can be reached from its own node only",
        costs="the ranks of different nodes cannot connect",
        fix=_FIX,
        next="ip -br addr; grep 'Using' in the logs of all ranks",
        explains=_FOLLOWS,
        links=_IFNAME,
    ),
    Rule(
        id="NSOCK-015",
        category="no-route-to-host",
        role="cause",
        stage="network",
        confidence="certain",
        anchors=("No route to host", "Network is unreachable", "Host is unreachable"),
        pattern=_CONNECT + r"(?:\b(?P<address>[\da-f.:]*[.:][\da-f.:]+)(?:%\w+)?<\d+>.{0,60})?"
        r"(?P<error>no route to host|network is unreachable|host is unreachable)",
        unless=_RETRY + r"|\[c10d\]|gloo|ibv_",
        sentence="another node cannot be reached on NCCL's ports: {error}",
        because="a firewall on the other node rejects the ports (NCCL uses any free port), the "
        "address belongs to a network without a route between the nodes, or the node is down",
        costs="the ranks of different nodes cannot connect",
        fix=f"open all TCP ports between the nodes (firewall-cmd --zone=trusted "
        f"--add-source=SUBNET); choose a network that is routed: {_FIX}",
        next="ip route get ADDRESS; nc -vz ADDRESS PORT; firewall-cmd --list-all",
        explains=_FOLLOWS,
        links=_IFNAME,
        positive=(
            "include/socket.h:409 NCCL WARN Net : Connect to 192.168.1.9<54263> failed : No route "
            "to host",
            "misc/socket.cc:533 NCCL WARN socketPollConnect: Connect to 128::1d<40861> returned "
            "113(No route to host) errno 11(Resource temporarily unavailable)",
            "socketStartConnect: Connect to fe80::1%eth0<4000> failed : Network is unreachable",
        ),
        negative=(
            "NCCL INFO socketPollConnect: connect to 10.0.0.3<33513> returned No route to host, "
            "retrying (1/34) after sleep for 100 msec",
            "connect() to 192.168.118.0 failed: No route to host (113)",
        ),
    ),
    Rule(
        id="NSOCK-016",
        category="connection-timeout",
        role="cause",
        stage="network",
        anchors=(
            "Connection timed out",
            "exceeded retries",
            "exceeded timeouts",
            "connect timeout",
        ),
        pattern=_CONNECT
        + r"(?:connection timed out|exceeded (?:retries|timeouts)|connect timeout)",
        unless=_RETRY + r"|refused|no route|\[c10d\]|gloo|ibv_",
        sentence="another rank does not answer NCCL's connection (timed out)",
        because="packets to it are dropped: a firewall or security group, or an address of a "
        "network that the nodes do not share",
        costs="the ranks of different nodes cannot connect",
        fix=f"open all TCP ports between the nodes; {_FIX}",
        next="nc -vz ADDRESS PORT from the other node; iptables -L -n; ip route get ADDRESS",
        explains=_FOLLOWS,
        links=_IFNAME,
        positive=(
            "misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<45763> failed : "
            "Connection timed out",
            "misc/socket.cc:440 NCCL WARN socketStartConnect: exceeded retries (20000)",
        ),
        negative=(
            "NCCL INFO Call to connect returned Connection timed out, retrying",
            "ibvwrap.cc:160 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out",
        ),
    ),
    Rule(
        id="NSOCK-017",
        category="wrong-interface",
        role="cause",
        stage="setup",
        needs=("NSOCK-011", "NSOCK-019"),
        sentence="NCCL uses the virtual interface {virtual} between nodes, and cannot connect",
        because="addresses of docker0, veth, virbr and other bridges lead to the own node only",
        costs="the ranks of different nodes cannot connect",
        fix=_FIX,
        next="ip -br addr; grep 'Using' in the logs of all ranks",
        explains=("no-route-to-host", *_FOLLOWS),
        links=_IFNAME,
    ),
    Rule(
        id="NSOCK-019",
        category="connections",
        role="fact",
        anchors=(
            "Connection refused",
            "No route to host",
            "Network is unreachable",
            "Connection timed out",
            "exceeded retries",
        ),
        pattern=_CONNECT + r"(?:refused|no route to host|unreachable|timed out|exceeded retries)",
        unless=_RETRY + r"|\[c10d\]|gloo|ibv_",
        sentence="a connection of NCCL failed",
        positive=(
            "include/socket.h:403 NCCL WARN Connect to 172.17.0.1<45543> failed : Connection "
            "refused",
        ),
        negative=("NCCL INFO connect returned Connection refused, retrying",),
    ),
)
