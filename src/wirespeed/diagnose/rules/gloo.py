"""gloo: the back end of torch.distributed for CPU tensors, and of control messages beside NCCL."""

from collections.abc import Iterator

from wirespeed.diagnose.evidence import Evidence
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.scan import Hit

__all__ = ["RULES"]

_LINKS = (
    "https://docs.pytorch.org/docs/stable/distributed.html#common-environment-variables",
    "https://github.com/pytorch/gloo",
)
_FIX = (
    "set GLOO_SOCKET_IFNAME (and NCCL_SOCKET_IFNAME) to the interface between the nodes, such as "
    "eth0, on every rank; or let each host name resolve to that interface's address and not to "
    "127.0.0.1 or 127.0.1.1 in /etc/hosts"
)
_FOLLOWS = ("gloo-interface", "gloo-timeout", "gloo-peer", "missing-ranks", "launcher-exit")
_COSTS = "ranks of other nodes cannot connect: no process group is made"
_INTERFACE = (
    "whether gloo took an interface on which the nodes cannot reach each other (docker0, a virtual "
    "or "
    "management network): set GLOO_SOCKET_IFNAME to the interface between the nodes, such as eth0, "
    "on "
    "every rank"
)
_FIREWALL = (
    "whether a firewall or security group closes the ports between the nodes: gloo listens on free "
    "ports of its own beside MASTER_PORT; open them, or set net.ipv4.ip_local_port_range and open "
    "that range"
)
_DEAD = "whether another rank ended first (its exception, OOM kill): read the earliest error of all"
_LOCAL = r"\[?(?:::ffff:)?127\.\d+\.\d+\.\d+\]?|\[?::1\]"


def _over_hosts(evidence: Evidence) -> Iterator[Hit]:
    """The refused loopback addresses of a job that is known to have several hosts."""
    if len(evidence.hosts) < 2:
        return
    rule = next(one for one in RULES if one.id == "GLOO-007")
    for hit in evidence.seen["GLOO-002"].hits:
        yield Hit(rule, hit.line, {**hit.groups, "hosts": str(len(evidence.hosts))})


RULES: tuple[Rule, ...] = (
    Rule(
        id="GLOO-001",
        category="gloo-loopback",
        role="fact",
        anchors=("using the loopback address as fallback",),
        pattern=r"unable to resolve hostname to a \(local\) address",
        sentence="gloo found no local address for the host name and took loopback (127.0.0.1)",
        positive=(
            "[W ProcessGroupGloo.cpp:694] Warning: Unable to resolve hostname to a (local) "
            "address. "
            "Using the loopback address as fallback. Manually set the network interface to bind "
            "to with "
            "GLOO_SOCKET_IFNAME. (function operator())",
        ),
        negative=("NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0>",),
    ),
    Rule(
        id="GLOO-002",
        category="gloo-loopback",
        role="cause",
        absent=("END-001", "END-003"),
        anchors=("connectFullMesh failed", "SO_ERROR", "Connect timeout", "Connection refused"),
        pattern=r"(?:connectfullmesh failed|so_error|connect timeout|connection refused)"
        rf".{{0,200}}remote=(?P<remote>{_LOCAL})",
        sentence="gloo connects to a peer at a loopback address ({remote}): the peer's host name "
        "resolves to itself, 127.0.0.1, and not to an address that other nodes reach",
        because="the remote address that the peer published is loopback, so this rank calls its "
        "own machine, where nobody listens. (On one node loopback is right: there the peer had ended "
        "before, see the earliest error)",
        costs=_COSTS,
        fix=_FIX,
        next="on each node: getent ahosts $(hostname); ip -br addr",
        explains=(*_FOLLOWS, "GLOO-003"),
        links=_LINKS,
        positive=(
            "RuntimeError: Gloo connectFullMesh failed with "
            "[/pytorch/third_party/gloo/gloo/transport/"
            "tcp/pair.cc:152] timed out connecting: SO_ERROR: Connection refused, "
            "remote=[127.0.0.1]:41235 (rank=8, size=16, local=[127.0.0.1])",
            "Gloo connectFullMesh failed with timed out connecting: SO_ERROR: Connection refused, "
            "remote=[127.0.1.1]:14215",
            "RuntimeError: [/opt/pytorch/gloo/transport/tcp/pair.cc:799] connect "
            "[127.0.1.1]:29543: Connection refused, remote=[127.0.1.1]:29543",
            "RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] "
            "Connect timeout, remote=[127.0.0.1]:3455",
        ),
        negative=(
            "Gloo connectFullMesh failed with timed out connecting: SO_ERROR: Connection refused, "
            "remote=[10.0.0.7]:14215",
            "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:10161.",
        ),
    ),
    Rule(
        id="GLOO-007",
        category="gloo-loopback",
        role="cause",
        confidence="certain",
        needs=("GLOO-002",),
        derive=_over_hosts,
        sentence="gloo connects to a peer at a loopback address ({remote}) in a job of {hosts} hosts: "
        "the peer's host name resolves to itself, 127.0.0.1, and not to an address that other nodes "
        "reach",
        because="the remote address that the peer published is loopback; a rank of another node that "
        "calls it calls its own machine, where nobody listens",
        costs=_COSTS,
        fix=_FIX,
        next="on each node: getent ahosts $(hostname); ip -br addr",
        explains=(*_FOLLOWS, "GLOO-002", "GLOO-003", "python-error"),
        links=_LINKS,
    ),
    Rule(
        id="GLOO-003",
        category="gloo-loopback",
        role="cause",
        needs=("GLOO-001", "GLOO-010"),
        sentence="gloo could not map the host name to a local address, fell back to loopback "
        "(127.0.0.1), and ranks of other nodes cannot connect to it",
        because="the warning about the fallback comes before connectFullMesh failed",
        costs=_COSTS,
        fix=_FIX,
        next="on each node: getent ahosts $(hostname); ip -br addr",
        explains=_FOLLOWS,
        links=_LINKS,
    ),
    Rule(
        id="GLOO-004",
        category="gloo-ifname-no-match",
        role="cause",
        confidence="certain",
        anchors=("Unable to find address for", "Unable to find interface for"),
        pattern=r"unable to find (?:address|interface) for: ?(?P<interface>[\w.@:-]+)",
        unless=r"rp != nullptr",
        sentence="gloo found no interface {interface} with an address on this node: "
        "GLOO_SOCKET_IFNAME names one that does not exist here, or has no IP address",
        because="gloo takes the name exactly as given and looks it up among the node's interfaces",
        costs="the process group is not made on this node",
        fix="set GLOO_SOCKET_IFNAME to an interface that has an IP address on every node (ip -br "
        "addr), such as eth0, or unset it; names may differ between nodes",
        next="on that node: ip -br addr show",
        explains=_FOLLOWS,
        links=_LINKS,
        positive=(
            "RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:"
            "84] ifa != nullptr. Unable to find address for: ib0",
            "RuntimeError: [enforce fail at ../gloo/transport/tcp/device.cc:83] ifa != nullptr. "
            "Unable to find interface for: 10.0.0.3",
        ),
        negative=("Unable to find a proxy executor to run custom ops.",),
    ),
    Rule(
        id="GLOO-005",
        category="dns-unresolvable",
        role="cause",
        confidence="certain",
        anchors=("rp != nullptr",),
        pattern=r"rp != nullptr\. unable to find address for:? (?P<name>\S+)",
        sentence="gloo finds no usable local address for the host name {name}",
        because="the name resolves to no address that this node can bind",
        costs="the process group is not made on this node",
        fix=_FIX,
        next="getent ahosts {name}; ip -br addr",
        explains=_FOLLOWS,
        links=_LINKS,
        positive=(
            "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:208] "
            "rp != nullptr. Unable to find address for: gpu-7",
        ),
        negative=(
            "[enforce fail at device.cc:84] ifa != nullptr. Unable to find address for: ib0",
        ),
    ),
    Rule(
        id="GLOO-006",
        category="collective-mismatch",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("op.preamble.length", "distributed collective mismatch"),
        pattern=r"op\.preamble\.length <= op\.nbytes\.\s*(?P<got>\d+) vs (?P<wanted>\d+)",
        sentence="ranks call a collective with different sizes: a mismatch, {got} bytes came where "
        "{wanted} were expected",
        because="gloo received a message that is longer than the buffer of the collective that "
        "this rank is in: another rank passed a larger tensor or is in another collective",
        costs="this rank aborts; the others see a closed connection",
        fix="call the same collectives in the same order with the same tensor sizes and types on "
        "all ranks (pad, or gather the sizes first)",
        next="run again with TORCH_DISTRIBUTED_DEBUG=DETAIL: it names ranks, operations and shapes",
        explains=("gloo-peer", "gloo-timeout", "launcher-exit", "crash", "exit-code"),
        links=(
            "https://docs.pytorch.org/docs/stable/distributed.html#debugging-torch-distributed-"
            "applications",
        ),
        positive=(
            "  what():  [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:456] "
            "op.preamble.length <= op.nbytes. 8 vs 4. Received data size doesn't match expected "
            "size. "
            "Is there a distributed collective mismatch in your code?",
            "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/pair.cc:446] "
            "op.preamble.length <= op.nbytes. 4096 vs 1024",
        ),
        negative=(
            "[enforce fail at device.cc:84] ifa != nullptr. Unable to find address for: ib0",
        ),
    ),
    Rule(
        id="GLOO-010",
        category="gloo-interface",
        role="symptom",
        stage="network",
        anchors=("connectFullMesh failed", "connectFullMesh"),
        pattern=r"connectfullmesh (?:failed|timed out)|connectfullmesh.{0,120}connect timeout",
        sentence="gloo could not connect every rank with every other (connectFullMesh failed)",
        checks=(
            _INTERFACE,
            "whether a host name resolves to loopback (getent ahosts $(hostname) gives 127.0.x.1): "
            "correct /etc/hosts, or set GLOO_SOCKET_IFNAME",
            _FIREWALL,
            _DEAD,
            "whether open files are too few for so many ranks (ulimit -n): raise it to 65535",
        ),
        explains=("gloo-peer", "launcher-exit", "exit-code"),
        links=_LINKS,
        positive=(
            "RuntimeError: Gloo connectFullMesh failed with "
            "[../third_party/gloo/gloo/transport/tcp/"
            "pair.cc:144] no error",
            "RuntimeError: Gloo connectFullMesh failed",
        ),
        negative=("[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of peers is 1",),
    ),
    Rule(
        id="GLOO-011",
        category="gloo-firewall",
        role="cause",
        stage="network",
        anchors=("connectFullMesh failed", "SO_ERROR: "),
        pattern=r"(?:connectfullmesh failed|so_error).{0,200}(?:no route to host|network is "
        r"unreachable|connection timed out)(?:.{0,40}remote=(?P<remote>\S+))?",
        sentence="gloo cannot reach a peer's address: no route to it, or a firewall drops the "
        "packets",
        because="the connection to the address that the peer published ended with this error, so "
        "that address is on a network that this node does not reach",
        costs=_COSTS,
        fix="set GLOO_SOCKET_IFNAME to the interface that joins the nodes, and open the firewall "
        "or security group between them for all TCP ports",
        next="from this node: ping, and nc -vz, the remote address named",
        explains=("gloo-interface", "gloo-peer", "launcher-exit"),
        links=_LINKS,
        positive=(
            "RuntimeError: Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: "
            "SO_ERROR: No route to host, remote=[172.17.0.3]:4123",
        ),
        negative=("Gloo connectFullMesh failed with [pair.cc:144] no error",),
    ),
    Rule(
        id="GLOO-020",
        category="gloo-timeout",
        role="symptom",
        stage="wait",
        anchors=("Timed out waiting", "Wait timeout", "Application timeout caused pair closure"),
        pattern=r"(?:gloo|unbound_buffer|timed out waiting).{0,120}?(?:\b(?P<ms>\d+)ms for "
        r"(?P<what>recv|send) operation)|application timeout caused pair closure",
        sentence="a gloo {what} waited {ms} ms for another rank, in vain",
        checks=(
            "which rank did not report this timeout: it is stopped (SIGSTOP, debugger), busy "
            "(loading "
            "data, writing a checkpoint) or dead; look at its log and py-spy dump --pid PID",
            "whether the network between the nodes is cut or a firewall drops packets: ip -br "
            "link, "
            "ping with full-size packets (ping -M do -s 1472) between all nodes",
            "whether all ranks call the same collectives in the same order: "
            "TORCH_DISTRIBUTED_DEBUG="
            "DETAIL finds a mismatch",
            "whether the work between two collectives takes longer than the timeout: raise "
            "init_process_group(timeout=…)",
        ),
        explains=("gloo-peer", "launcher-exit", "exit-code", "sigterm"),
        links=_LINKS,
        positive=(
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] "
            "Timed "
            "out waiting 15000ms for recv operation to complete",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:136] Timed "
            "out "
            "waiting 1800000ms for send operation to complete",
            "RuntimeError: [pair.cc:598] Application timeout caused pair closure",
        ),
        negative=("Timed out waiting for pending OwnerRRefs to be deleted.",),
    ),
    Rule(
        id="GLOO-021",
        category="gloo-peer",
        role="consequence",
        stage="aftermath",
        anchors=("Connection closed by peer", "Connection reset by peer", "Socket closed"),
        pattern=r"(?:pair\.cc|gloo|read error|write error).{0,160}(?:connection closed by peer|"
        r"connection reset by peer|broken pipe|socket closed)(?: \[(?P<peer>[\d.:a-f]+)\])?",
        sentence="gloo lost the connection to a rank that had ended",
        positive=(
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection "
            "closed by peer [10.0.0.7]:10161. This is typically caused by a remote worker crashing.",
            "RuntimeError: [pair.cc:537] Read error [127.0.0.1]:31885: Connection reset by peer.",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed "
            "by "
            "peer [10.0.0.1]:4431",
        ),
        negative=("NCCL WARN Net : Connection closed by remote peer host<4123>",),
    ),
    Rule(
        id="GLOO-022",
        category="world",
        role="fact",
        anchors=("is connected to",),
        pattern=r"\[gloo\] rank (?P<rank>\d+) is connected to (?P<peers>\d+) peer ranks",
        sentence="gloo connected with {peers} peers",
        positive=(
            "[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is "
            ": 1",
        ),
        negative=("Gloo connectFullMesh failed",),
    ),
)
