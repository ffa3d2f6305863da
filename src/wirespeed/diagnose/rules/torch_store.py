"""torch.distributed's store and rendezvous: how ranks find each other before the first collective."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = (
    "https://docs.pytorch.org/docs/stable/elastic/run.html",
    "https://docs.pytorch.org/docs/stable/distributed.html#initialization",
)
_PORT_FIX = (
    "give the job another port (torchrun --master-port / --master_port=29501, MASTER_PORT, or "
    "--rdzv-endpoint=localhost:0 for a free one on a single node), or end the process that holds it"
)
_PORT_NEXT = "on that node: ss -ltnp 'sport = :{port}'"
_ADDRESS = (
    "set MASTER_ADDR (--master-addr, --rdzv-endpoint) to an IP address or a host name that every "
    "node resolves; else correct DNS or add the hosts to /etc/hosts (Kubernetes: a headless service "
    "with publishNotReadyAddresses, dnsPolicy ClusterFirst or ClusterFirstWithHostNet)"
)
_GAI = (
    r"network addresses of \((?P<host_name>[^,()\s]+), (?P<port>\d+)\) cannot be retrieved \(gai "
    r"error: (?P<code>-\d+)"
)
_DNS_FOLLOWS = ("master-unreachable", "missing-ranks", "rendezvous", "store-peer", "launcher-exit")
_GAI_LINES = (
    "[W1008 23:00:22.781961348 socket.cpp:767] [c10d] The IPv6 network addresses of "
    "(job-example-01.internal, 50745) cannot be retrieved (gai error: -2 - Name or service not "
    "known).",
    "[W socket.cpp:601] [c10d] The IPv4 network addresses of (node-0, 29500) cannot be retrieved "
    "(gai error: -3 - Temporary failure in name resolution).",
)


_NOT_REACHED = (
    "[E socket.cpp:793] [c10d] The client socket has timed out after 60s while trying to "
    "connect to (IP1, 2222).",
    "[E1121 12:46:26.035803262 socket.cpp:1028] [c10d] The client socket has timed out "
    "after 6000ms while trying to connect to (node-0, 29615).",
    "[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to "
    "connect to 192.0.0.1:1234",
    "[E socket.cpp:753] [c10d] The client socket has failed to connect to any network "
    "address of (node-0, 47389).",
)
_MET = ("FACT-002", "FACT-003", "FACT-020", "FACT-033", "GLOO-022")
"""Lines that come only after the ranks have met."""


def _unresolved(
    id: str, needs: tuple[str, ...] = (), least: int = 1, absent: tuple[str, ...] = ()
) -> Rule:
    """Names are looked up again and again: one refusal alone is no failure."""
    return Rule(
        id=id,
        category="dns-unresolvable",
        role="cause",
        confidence="certain" if needs else "likely",
        anchors=("cannot be retrieved (gai error",),
        pattern=_GAI,
        needs=needs,
        absent=absent,
        least=least,
        sentence="this node cannot resolve the host name {host_name}, the job's MASTER_ADDR or "
        "rendezvous endpoint (gai error {code})",
        because="the name service does not know the name, so the address to connect to is unknown",
        costs="this rank never meets the others",
        fix=_ADDRESS,
        next="on that node: getent ahosts {host_name}",
        explains=_DNS_FOLLOWS,
        links=_LINKS,
        positive=_GAI_LINES,
        negative=(
            "[c10d] The hostname of the client socket cannot be retrieved. err=-3",
            "[c10d] The client socket has failed to connect to [node-0]:29500 (errno: 111 - "
            "Connection refused).",
        ),
    )


RULES: tuple[Rule, ...] = (
    Rule(
        id="STORE-001",
        category="port-in-use",
        role="cause",
        confidence="certain",
        anchors=("EADDRINUSE", "errno: 98", "errno: 48", "Address already in use"),
        pattern=r"server socket has failed to listen on any local network address.{0,80}?"
        r"(?:bind to \S*:|\bport: )(?P<port>\d+).{0,60}?(?:errno: [49]8|eaddrinuse)",
        sentence="port {port}, where the job's master should listen, is already in use on this "
        "node (EADDRINUSE, errno 98)",
        because="another process listens there: a second job with the same (default) port, one "
        "left over from an earlier run, or another service",
        costs="the store cannot start: no rank joins",
        fix=_PORT_FIX,
        next=_PORT_NEXT,
        explains=(*_DNS_FOLLOWS, "STORE-002", "STORE-003"),
        links=_LINKS,
        positive=(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any "
            "local network address. The server socket has failed to bind to [::]:29500 (errno: 98 "
            "- Address already in use). The server socket has failed to bind to ?UNKNOWN? (errno: "
            "98 - Address already in use).",
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any "
            "local network address. port: 29614, useIpv6: false, code: -98, name: EADDRINUSE, "
            "message: address already in use",
        ),
        negative=(
            "The server socket has failed to listen on any local network address. The server "
            "socket has failed to bind to [::]:80 (errno: 13 - Permission denied).",
            "[W socket.cpp:436] [c10d] The server socket cannot be initialized on [::]:29500 "
            "(errno: 97 - Address family not supported by protocol).",
        ),
    ),
    Rule(
        id="STORE-002",
        category="port-in-use",
        role="cause",
        # The agents of one node race for the rendezvous port: the loser goes on as a client.
        absent=("STORE-090",),
        anchors=("failed to bind to",),
        pattern=r"^(?:\[[^\]]*\]\s*){0,3}the server socket has failed to bind to "
        r"\S*:(?P<port>\d+) \(errno: [49]8",
        sentence="port {port}, where the job's master should listen, is already in use on this "
        "node (errno 98)",
        because="another process listens there: a second job with the same (default) port, one "
        "left over from an earlier run, or another service (22 is ssh)",
        costs="the store cannot start: no rank joins",
        fix=_PORT_FIX,
        next=_PORT_NEXT,
        explains=(*_DNS_FOLLOWS, "STORE-003"),
        links=_LINKS,
        positive=(
            "[W socket.cpp:401] [c10d] The server socket has failed to bind to [::]:22 (errno: 98 "
            "- Address already in use).",
            "[W socket.cpp:426] [c10d] The server socket has failed to bind to 0.0.0.0:29500 "
            "(errno: 98 - Address already in use).",
        ),
        negative=(
            "[W socket.cpp:401] [c10d] The server socket has failed to bind to [::]:80 (errno: 13 "
            "- Permission denied).",
        ),
    ),
    Rule(
        id="STORE-003",
        category="port-in-use",
        role="cause",
        confidence="certain",
        anchors=("Address already in use", "EADDRINUSE"),
        pattern=r"^(?:\w+error: )?(?:\w+error: )?(?:\[errno [49]8\] )?(?:error while attempting to "
        r"bind on address.{0,60})?address already in use|tcpstore.{0,60}address already in use",
        sentence="a port that the job wants to listen on is already in use (errno 98)",
        because="another process listens there: a second job with the same (default) port, or one "
        "left over from an earlier run",
        costs="the store or service cannot start",
        fix=_PORT_FIX,
        next="on that node: ss -ltnp",
        explains=_DNS_FOLLOWS,
        links=_LINKS,
        positive=(
            "RuntimeError: Address already in use",
            "OSError: [Errno 98] Address already in use",
        ),
        negative=("NCCL INFO Bootstrap : Using eth0:10.0.0.3<0>",),
    ),
    Rule(
        id="STORE-004",
        category="port-not-allowed",
        role="cause",
        confidence="certain",
        anchors=("errno: 13",),
        pattern=r"server socket has failed to bind to \S*:(?P<port>\d+) \(errno: 13",
        sentence="this user may not listen on port {port}",
        because="ports below 1024 need root or CAP_NET_BIND_SERVICE",
        costs="the store cannot start: no rank joins",
        fix="choose a port above 1024 (MASTER_PORT, --master-port)",
        next="sysctl net.ipv4.ip_unprivileged_port_start",
        explains=_DNS_FOLLOWS,
        links=_LINKS,
        positive=(
            "[W socket.cpp:401] [c10d] The server socket has failed to bind to [::]:80 (errno: 13 "
            "- Permission denied).",
        ),
        negative=(
            "[c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address "
            "already in use).",
        ),
    ),
    _unresolved("STORE-010", ("STORE-020",)),
    _unresolved("STORE-011", ("STORE-021",)),
    # A name that is known only later (a pod that was not ready) does no harm: the ranks met then.
    _unresolved("STORE-012", least=4, absent=_MET),
    Rule(
        id="STORE-013",
        category="dns-unresolvable",
        role="cause",
        confidence="certain",
        anchors=("gaierror", "Name or service not known", "failure in name resolution"),
        pattern=r"(?:socket\.)?gaierror: \[errno -?\d+\]|getaddrinfo.{0,80}(?:not known|failure)"
        r"|(?:runtimeerror|disterror|distnetworkerror).{0,160}(?:name or service not known"
        r"|temporary failure in name resolution)",
        unless=r"huggingface|urllib|requests\.|https?://|s3\.|wandb|pip|gai error",
        sentence="this node cannot resolve a host name that the job uses, such as MASTER_ADDR",
        because="the name service does not know the name",
        costs="this rank never meets the others",
        fix=_ADDRESS,
        next="on that node: getent ahosts $MASTER_ADDR",
        explains=_DNS_FOLLOWS,
        links=_LINKS,
        positive=(
            "socket.gaierror: [Errno -2] Name or service not known",
            "RuntimeError: getaddrinfo: Name or service not known",
            "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        ),
        negative=(
            "urllib3.exceptions.NameResolutionError: <urllib3.connection.HTTPSConnection object>: "
            "Failed to resolve 'huggingface.co' ([Errno -3] Temporary failure in name resolution)",
        ),
    ),
    Rule(
        id="STORE-014",
        category="dns-unresolvable",
        role="cause",
        stage="wait",
        least=3,
        absent=("GLOO-020", "WD-001", "GLOO-010", "STORE-020"),
        anchors=("hostname of the client socket cannot be retrieved",),
        pattern=r"hostname of the client socket cannot be retrieved\. err=(?P<code>-\d+)",
        sentence="reverse DNS of the ranks' addresses fails (err={code}): each connection to the "
        "store waits for the resolver, so the start is slow",
        because="torch asks the name service for the client's hostname at each connection, and "
        "with no answer this takes seconds each time",
        costs="about 5 to 10 s a connection before training starts; nothing else is wrong",
        fix="add the nodes' addresses to /etc/hosts or to reverse DNS (PTR records), or use "
        "a newer PyTorch (see the link)",
        next="time getent hosts ADDRESS-OF-A-NODE",
        links=("https://github.com/pytorch/pytorch/issues/159007",),
        positive=(
            "[W724 18:00:38.909218572 socket.cpp:200] [c10d] The hostname of the client socket "
            "cannot be retrieved. err=-3",
        ),
        negative=_GAI_LINES,
    ),
    Rule(
        id="STORE-015",
        category="dns-unresolvable",
        role="cause",
        confidence="certain",
        anchors=("trying to connect to (", "network address of ("),
        pattern=r"(?:trying to connect to|any network address of) \((?P<host_name>\d{1,12}), "
        r"(?P<port>\d+)\)",
        sentence="the host name {host_name} is all digits, so the resolver takes it for an IPv4 "
        "number (a wrong address), and the connection timed out",
        because="getaddrinfo reads a name of digits alone as a 32-bit address, such as 0.104.99.143 "
        "for 6841231; the connection goes to a machine that does not exist",
        costs="not even the ranks of this node meet",
        fix="give the machine a hostname with a letter (hostnamectl set-hostname gpu-{host_name}), "
        "or start with --rdzv-endpoint=127.0.0.1:29500 and --local-addr=127.0.0.1",
        next="getent ahosts $(hostname)",
        explains=_DNS_FOLLOWS,
        links=_LINKS,
        positive=(
            "[E socket.cpp:753] [c10d] The client socket has failed to connect to any network "
            "address of (6841231, 47389).",
        ),
        negative=(
            "[E socket.cpp:753] [c10d] The client socket has failed to connect to any network "
            "address of (10.0.0.7, 47389).",
        ),
    ),
    Rule(
        id="STORE-020",
        category="master-unreachable",
        role="cause",
        stage="network",
        absent=_MET,
        anchors=("client socket has timed out", "connect to any network address", "TCP client"),
        pattern=r"(?:client socket has timed out after \w+ while trying to connect to \(?"
        r"|failed to connect to any network address of \()"
        r"(?P<master>[\w.:\[\]-]+?)(?:, |:)(?P<port>\d+)\b",
        sentence="a rank could not connect to the master {master}, port {port} "
        "(MASTER_ADDR:MASTER_PORT), in time: connection timed out",
        because="nobody answered there: rank 0 was not started, or started later or with another "
        "port; the address is not the master's; or a firewall closes the port",
        costs="the job cannot start",
        fix="start rank 0 on that host with the same MASTER_ADDR and MASTER_PORT (--rdzv-endpoint) "
        "on all nodes, use an address on the network between them, and open the port in the "
        "firewall or security group; if nodes start at different times, raise the timeout",
        next="from this node: getent ahosts $MASTER_ADDR && nc -vz $MASTER_ADDR $MASTER_PORT; on "
        "the master: ss -ltnp",
        explains=(
            "STORE-023",
            "missing-ranks",
            "rendezvous",
            "store-peer",
            "launcher-exit",
            "exit-code",
        ),
        links=_LINKS,
        positive=_NOT_REACHED,
        negative=(
            "[W socket.cpp:697] [c10d] The client socket has failed to connect to "
            "[localhost]:29500 (errno: 97 - Address family not supported by protocol).",
            "[W socket.cpp:697] [c10d] The client socket has failed to connect to [node-0]:29500 "
            "(errno: 111 - Connection refused).",
        ),
    ),
    Rule(
        id="STORE-023",
        category="master-unreachable",
        role="symptom",
        stage="network",
        anchors=("client socket has timed out", "connect to any network address", "TCP client"),
        pattern=r"(?:client socket has timed out after \w+ while trying to connect to \(?"
        r"|failed to connect to any network address of \()"
        r"(?P<master>[\w.:\[\]-]+?)(?:, |:)(?P<port>\d+)\b",
        sentence="a rank could not connect to the master {master}, port {port}, though ranks met in "
        "these logs: the master is gone since, or this was another attempt",
        checks=(
            "what ended rank 0 or its node: the earliest error, kill or Xid in its log; later attempts "
            "of the launcher then find nobody",
            "whether the ranks that met did so in a later attempt: then this tells only of a slow start",
        ),
        links=_LINKS,
        positive=_NOT_REACHED,
        negative=("[c10d] The client socket has connected to [node-0]:29500.",),
    ),
    Rule(
        id="STORE-021",
        category="master-retry",
        role="fact",
        anchors=("client socket has failed to connect to",),
        pattern=r"client socket has failed to connect to \S+:\d+ \(errno: (?P<code>22|110|113|101)\b",
        sentence="a connection to the master failed and was tried again (errno {code})",
        positive=(
            "[W1008 23:00:22.836678340 socket.cpp:767] [c10d] The client socket has failed to "
            "connect to [job-example-01.internal]:50745 (errno: 22 - Invalid argument).",
        ),
        negative=(
            "[W socket.cpp:697] [c10d] The client socket has failed to connect to [node-0]:29500 "
            "(errno: 111 - Connection refused).",
        ),
    ),
    Rule(
        id="STORE-022",
        category="master-unreachable",
        role="cause",
        stage="network",
        least=2,
        anchors=("client socket has failed to connect to",),
        pattern=r"client socket has failed to connect to \[?(?P<master>[\w.:-]+?)\]?:(?P<port>\d+) "
        r"\(errno: (?:113|110|101) - (?P<why>[\w ]+)",
        sentence="a rank cannot reach the master at {master}, port {port}: {why}",
        because="the address is not routed from this node, its link is down, or a firewall drops the "
        "packets",
        costs="the job cannot start",
        fix="see whether this node's network works (ip -br link, ping the master); use the master's "
        "address on the network between the nodes (MASTER_ADDR, --rdzv-endpoint), and open the port "
        "in the firewall or security group",
        next="from this node: ip route get {master}; nc -vz {master} {port}",
        explains=("STORE-020", "missing-ranks", "rendezvous", "launcher-exit"),
        links=_LINKS,
        positive=(
            "[W socket.cpp:697] [c10d] The client socket has failed to connect to [node-0]:29500 "
            "(errno: 113 - No route to host).",
            "[W socket.cpp:697] [c10d] The client socket has failed to connect to 10.0.0.1:47389 "
            "(errno: 110 - Connection timed out).",
        ),
        negative=(
            "[c10d] The client socket has failed to connect to [localhost]:29500 (errno: 97 - "
            "Address family not supported by protocol).",
        ),
    ),
    Rule(
        id="STORE-090",
        category="world",
        role="fact",
        ends=True,
        anchors=("Rendezvous complete for workers",),
        pattern=r"rendezvous complete for workers",
        sentence="torchrun's rendezvous completed",
        positive=("[INFO] [default] Rendezvous complete for workers. Result:",),
        negative=("Rendezvous'ing worker group",),
    ),
)
