"""Host names that mean a wrong address, or none, to gloo and to MPI's launchers."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_HOSTS = (
    "a line in /etc/hosts (or DNS) on every node with the host name and the address of the network "
    "that the nodes share"
)
_GLOO_FOLLOWS = (
    "gloo-interface",
    "python-runtime",
    "python-error",
    "python-aftermath",
    "launcher-exit",
    "exit-code",
)
_GLOO = ("https://docs.pytorch.org/docs/stable/distributed.html#common-environment-variables",)
_MPICH = ("https://github.com/pmodels/mpich/blob/main/doc/wiki/faq/Frequently_Asked_Questions.md",)
_NO_START = "the job does not start"

RULES: tuple[Rule, ...] = (
    Rule(
        id="HOST-001",
        category="dns-unresolvable",
        role="cause",
        confidence="certain",
        anchors=("interface for: [0.", "address for: [0.", "remote=[0."),
        pattern=r"(?:unable to find (?:address|interface) for: "
        r"?|remote=)\[(?P<address>0\.(?!0\.0\.0\])"
        r"[\d.]+)\]",
        sentence="the host name of this machine is a number, which the resolver takes for the IPv4 "
        "address {address}; no interface has it",
        because="getaddrinfo reads a name of digits alone as a 32-bit address: host name 189 "
        "becomes "
        "0.0.0.189, without asking DNS or /etc/hosts",
        costs="the process group is not made on this node",
        fix="give the machine a host name with a letter (hostnamectl set-hostname gpu-189; docker "
        "--hostname, or the Pod's hostname), or set GLOO_SOCKET_IFNAME=eth0 so that the name is "
        "not "
        "looked up",
        next="hostname; getent ahosts $(hostname)",
        explains=_GLOO_FOLLOWS,
        links=_GLOO,
        positive=(
            "RuntimeError: [enforce fail at "
            "/pytorch/third_party/gloo/gloo/transport/tcp/device.cc:212] "
            "ifa != nullptr. Unable to find interface for: [0.0.0.189]",
            "Gloo connectFullMesh failed with SO_ERROR: Connection refused, "
            "remote=[0.104.99.143]:4123",
        ),
        negative=(
            "ifa != nullptr. Unable to find interface for: [0.0.0.0]",
            "ifa != nullptr. Unable to find interface for: [10.0.0.189]",
        ),
    ),
    Rule(
        id="HOST-002",
        category="dns-unresolvable",
        role="cause",
        confidence="certain",
        anchors=("Unable to find interface for: [", "Unable to find address for: ["),
        pattern=r"unable to find (?:address|interface) for: ?\[(?P<address>(?!0\.(?!0\.0\.0\]))"
        r"[0-9a-f.:%]+)\]",
        sentence="this machine's host name resolves to {address}, which no interface here has",
        because="gloo binds to the address of the host name; an old line in /etc/hosts, a DNS "
        "entry of "
        "another machine, or 127.0.1.1 gives a wrong one",
        costs="the process group is not made on this node",
        fix=f"correct {_HOSTS}, or set GLOO_SOCKET_IFNAME to the interface (ip -br addr)",
        next="hostname; getent ahosts $(hostname); ip -br addr",
        explains=_GLOO_FOLLOWS,
        links=_GLOO,
        positive=(
            "[enforce fail at device.cc:212] ifa != nullptr. Unable to find interface for: "
            "[0.0.0.0]",
            "[enforce fail at device.cc:113] ifa != nullptr. Unable to find interface for: "
            "[127.0.1.1]",
        ),
        negative=(
            "ifa != nullptr. Unable to find interface for: [0.0.0.189]",
            "ifa != nullptr. Unable to find address for: ib0",
        ),
    ),
    Rule(
        id="HOST-003",
        category="launcher-dns",
        role="cause",
        confidence="certain",
        anchors=("unable to get host address for", "unable to translate host"),
        pattern=r"unable to (?:get host address for|translate host(?:name)?) (?P<name>[^\s()]+)",
        sentence="a node cannot resolve the host name {name}, by which mpiexec's machine calls "
        "itself",
        because="hydra's proxies connect back to mpiexec under the launcher's own host name, which "
        "means nothing on that node (the firewall that the next line mentions is a general hint)",
        costs=_NO_START,
        fix=f"{_HOSTS}; or mpiexec -localhost ADDRESS, or -iface eth0 so that an address is given",
        next="on that node: getent hosts {name}",
        explains=("mpi-wrong-interface", "mpi-daemon", "launcher-exit", "exit-code"),
        links=_MPICH,
        positive=(
            "[proxy:0:1@n2] HYDU_sock_connect (utils/sock/sock.c:113): unable to get host address "
            "for "
            "manager-15",
            "[proxy:0:1@n2] HYDU_sock_connect (utils/sock/sock.c:171): unable to get host address "
            "for "
            "n1 (1)",
        ),
        negative=("[proxy:0:1@n2] HYDU_sock_connect: unable to connect from n2 to n1 (refused)",),
    ),
    Rule(
        id="HOST-004",
        category="launcher-dns",
        role="cause",
        confidence="certain",
        anchors=("gethostbyname failed", "gethostbyname error", "h_errno"),
        pattern=r"gethostbyname (?:failed|error)[,:]? ?(?P<name>[\w.-]+)?",
        sentence="MPI cannot resolve a host name (gethostbyname failed)",
        because="MPICH and Intel MPI look up the machine's own name and the names of the others",
        costs=_NO_START,
        fix=_HOSTS,
        next="hostname; getent hosts $(hostname)",
        explains=("mpi-init", "launcher-exit", "exit-code"),
        links=_MPICH,
        positive=(
            "MPIDU_Sock_get_interface_addr: gethostbyname failed, node7 (errno 1)",
            "MPID_nem_tcp_init_business_card(246): gethostbyname failed, localhost (errno 3)",
        ),
        negative=("gethostbyname returned 10.0.0.7",),
    ),
    Rule(
        id="HOST-005",
        category="dns-unresolvable",
        role="cause",
        anchors=(
            "Temporary failure in name resolution",
            "Name or service not known",
            "nodename nor servname",
            "No address associated with hostname",
        ),
        pattern=r"(?:host not found|NCCL WARN|bootstrap|MASTER_ADDR|rendezvous|rdzv|etcd|redis|\bray\b)"
        r".{0,160}(?P<error>temporary failure in name resolution|name or service not "
        r"known|nodename nor "
        r"servname provided|no address associated with hostname)",
        unless=r"getting address info|ssh: could not resolve|network addresses of "
        r"\(|huggingface|https?://|wandb|pypi",
        sentence="a host name that the job uses cannot be resolved ({error})",
        because="'Temporary failure' means that no DNS server answered; 'not known' that the name "
        "does "
        "not exist there (a pod that is not up yet, another namespace, a short name)",
        costs=_NO_START,
        fix=f"{_HOSTS}; in Kubernetes the full name (POD.SERVICE.NAMESPACE.svc.cluster.local) of a "
        "headless service with publishNotReadyAddresses: true; or give the address itself",
        next="getent ahosts $MASTER_ADDR; cat /etc/resolv.conf",
        explains=_GLOO_FOLLOWS,
        positive=(
            "RuntimeError: rendezvous failed: etcd host: Temporary failure in name resolution",
            "NCCL WARN bootstrap: Name or service not known",
        ),
        negative=(
            "ssh: Could not resolve hostname n7: Name or service not known",
            "requests: https://huggingface.co Temporary failure in name resolution",
        ),
    ),
    Rule(
        id="HOST-006",
        category="gloo-loopback",
        role="cause",
        confidence="certain",
        anchors=("connect [127.", "connect [::1]", "connect [::ffff:127."),
        pattern=r"\] connect \[(?P<address>(?:::ffff:)?127\.[\d.]+|::1)\]:\d+: (?P<error>[\w ]+)",
        sentence="gloo connects to a peer at the loopback address {address} ({error}): a "
        "machine's host name "
        "means loopback on it",
        because="gloo offers the address to which its own host name resolves; /etc/hosts of "
        "Debian and Ubuntu "
        "says 127.0.1.1",
        costs="ranks on different nodes do not come together",
        fix="GLOO_SOCKET_IFNAME=eth0 (the network that the nodes share) on every node, or correct "
        "/etc/hosts: the host name with the machine's real address",
        next="getent ahosts $(hostname); ip -br addr",
        explains=_GLOO_FOLLOWS,
        links=_GLOO,
        positive=(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:799] connect "
            "[127.0.1.1]:34567: Connection refused",
        ),
        negative=(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:799] connect "
            "[10.0.0.7]:34567: Connection refused",
        ),
    ),
    Rule(
        id="HOST-007",
        category="gloo-interface",
        role="symptom",
        stage="network",
        anchors=("] connect [",),
        pattern=r"pair\.cc:\d+\] connect "
        r"\[(?P<address>(?!127\.|::1|::ffff:127\.)[0-9a-f.:]+)\]:\d+: "
        r"(?P<error>[\w ]+)",
        sentence="gloo could not connect to {address}: {error}",
        checks=(
            "whether {address} is on the network that the nodes share: GLOO_SOCKET_IFNAME=eth0 on "
            "every node",
            "whether a firewall is between the nodes: open all ports among them",
            "whether the other rank ended first: its log",
        ),
        explains=("python-runtime", "launcher-exit", "exit-code"),
        links=_GLOO,
        positive=(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:799] connect "
            "[10.0.0.7]:34567: Connection refused",
        ),
        negative=(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:799] connect "
            "[127.0.1.1]:34567: Connection refused",
        ),
    ),
)
