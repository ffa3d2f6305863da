"""/etc/hosts of each node: what the names of the nodes mean there.

Debian's installer gives a machine's own name the address 127.0.1.1 (Debian Reference, chapter 5,
"The hostname resolution"); a program that tells others the address of its own name then tells
them one at which they find themselves.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wirespeed.errors import CannotMeasure
from wirespeed.lab import spec
from wirespeed.lab.processes import attempt, need, tool, where
from wirespeed.lab.spec import HOST_MTU, Fault
from wirespeed.lab.state import INTERFACE, Layout, State, space_path

_DEBIAN = "127.0.1.1"


def write_hosts(layout: Layout, node: str, faults: Iterable[Fault]) -> None:
    """In place, so that commands which run there already see it as well."""
    layout.hosts(node).write_text(_text(layout, node, faults), "utf-8")


def _text(layout: Layout, node: str, faults: Iterable[Fault]) -> str:
    """As Debian has it, a name that means loopback has no other address there."""
    loopback = any(isinstance(fault, spec.LoopbackName) and fault.node == node for fault in faults)
    others = [other for other in layout.nodes if other != node or not loopback]
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    lines += [f"{_DEBIAN} {node}"] if loopback else []
    lines += [f"{layout.address(other)} {other}" for other in others]
    # What a socket that speaks both IPv4 and IPv6 asks for when it wants the name of its partner.
    lines += [f"::ffff:{layout.address(other)} {other}" for other in others]
    return "\n".join(lines) + "\n"


BRIDGE = "bridge"


def plug(state: State, layout: Layout) -> None:
    """Make all of it. What is made stands in the state before; `unplug` takes it away again."""
    state.will_make("folder", str(layout.folder))
    layout.folder.mkdir(mode=0o755)
    for node in layout.nodes:
        write_hosts(layout, node, ())
    for space in layout.spaces():
        _add_space(state, space)
    _in(layout.switch, "link", "add", BRIDGE, "mtu", str(HOST_MTU), "type", "bridge")
    _in(layout.switch, "link", "set", BRIDGE, "up")
    for node in layout.nodes:
        _plug_node(layout, node)


def unplug(state: State) -> list[str]:
    """Remove the namespaces of the state that are still there; the names of those that stay."""
    named = [thing.name for thing in state.made if thing.kind == "namespace"]
    there = [space for space in named if space_path(space).exists()]
    return [space for space in there if not attempt("ip", "netns", "delete", space)]


def set_sysctl(space: str, key: str, value: str) -> bool:
    """Set `net/ipv4/…` of one namespace; False when the kernel refuses."""
    words = ("ip", "netns", "exec", space, "tee", f"/proc/sys/{key}")
    return attempt(*words, give=value)


def _add_space(state: State, space: str) -> None:
    if space_path(space).exists():
        raise CannotMeasure(
            f"a namespace {space} is there already, and no lab of ours made it",
            expected="a name that is free",
            next="give another --name",
        )
    state.will_make("namespace", space)
    if not attempt("ip", "netns", "add", space):
        raise CannotMeasure(
            "no network namespace can be made here",
            expected="CAP_SYS_ADMIN and a /run that can be written",
            next="as root on the machine itself, or: "
            "unshare -rnm sh -c 'mount -t tmpfs lab /run && exec sh'",
        )
    _in(space, "link", "set", "lo", "up")


def _plug_node(layout: Layout, node: str) -> None:
    space, port = layout.space(node), layout.port(node)
    peer = ("peer", "name", INTERFACE, "netns", space)
    _in(layout.switch, "link", "add", port, "type", "veth", *peer)
    _in(layout.switch, "link", "set", port, "master", BRIDGE, "up")
    # Without IPv6 nothing speaks on the link by itself, and gloo has one address to choose.
    set_sysctl(space, f"net/ipv6/conf/{INTERFACE}/disable_ipv6", "1")
    # A black hole stays one: else TCP may probe for a smaller packet after a while.
    set_sysctl(space, "net/ipv4/tcp_mtu_probing", "0")
    _in(space, "address", "add", f"{layout.address(node)}/24", "dev", INTERFACE)
    _in(space, "link", "set", INTERFACE, "mtu", str(HOST_MTU), "up")


def _in(space: str, *words: str) -> None:
    tool("ip", "-n", space, *words)


_TABLE = "wslab"
_SCALE = 100_000
_WHOLE_GSO, _SINGLE = "65535", "1"
_CONGESTION = "net/ipv4/tcp_congestion_control"


def cut_or_plug(layout: Layout, node: str, faults: Iterable[Fault]) -> None:
    """The switch port goes down, so that the node sees no carrier and its packets vanish."""
    cut = any(isinstance(fault, spec.Cut) for fault in faults)
    _in(layout.switch, "link", "set", layout.port(node), "down" if cut else "up")


def set_mtu(layout: Layout, node: str, faults: Iterable[Fault]) -> None:
    """Of the switch port only: that is what makes a black hole.

    A bridge looks at no MTU for packets of TCP that are still in one piece: see shaping.plan_in.
    """
    size = min([HOST_MTU, *(fault.size for fault in faults if isinstance(fault, spec.Mtu))])
    _in(layout.switch, "link", "set", layout.port(node), "mtu", str(size))


def lose(layout: Layout, node: str, faults: Iterable[Fault]) -> None:
    """Drop packets at random where they come in: from the node at the switch, and at the node.

    A packet dropped on its way out would be told to the sender's TCP at once, unlike on a wire.
    """
    kept = 1.0
    for fault in faults:
        kept *= 1 - fault.share if isinstance(fault, spec.Lossy) else 1.0
    if kept < 1:
        need("nft")
    table = f"{_TABLE}_{layout.index(node)}"
    for space, interface in ((layout.switch, layout.port(node)), (layout.space(node), INTERFACE)):
        enter = ("ip", "netns", "exec", space, "nft")
        if kept < 1:
            rules = _loss_rules(table, interface, 1 - kept)
            attempt(*enter, "delete", "table", "netdev", table)
            tool(*enter, "-f", "-", give=rules)
        elif where("nft"):
            attempt(*enter, "delete", "table", "netdev", table)


def set_congestion(layout: Layout, faults: Iterable[Fault], before: str) -> None:
    """While packets are lost, TCP takes a loss for congestion on every node, so that it costs.

    bbr hardly slows down at a few percent. cubic is what most machines have; reno is the one that
    every namespace may choose. Connections that exist keep theirs.
    """
    lossy = any(isinstance(fault, spec.Lossy) for fault in faults)
    for node in layout.nodes:
        wanted = ("cubic", "reno") if lossy else (before,)
        # The first that is accepted; the others are not tried.
        any(set_sysctl(layout.space(node), _CONGESTION, name) for name in wanted)


def single_packets(layout: Layout, node: str, faults: Iterable[Fault]) -> None:
    """Where an MTU or a loss is asked for, the link carries single packets, as a wire does.

    veth takes packets of up to 64 KiB from TCP, looks at no MTU then, and would lose 44 at once.
    Only this link is changed: a host that sends single packets to all is slower with all.
    """
    faults = list(faults)
    lossy = any(isinstance(fault, spec.Lossy) for fault in faults)
    small = any(isinstance(fault, spec.Mtu) for fault in faults)
    _segments(layout.space(node), INTERFACE, lossy or small)
    _segments(layout.switch, layout.port(node), lossy)


def detour(layout: Layout, node: str) -> tuple[str, str]:
    """Take the port off the bridge and put a second cable there, for a relay to join the two.

    Gives the two interfaces, in the namespace of the switch, that the relay must join.
    """
    port, wire, trunk = layout.port(node), *_cable(layout, node)
    _in(layout.switch, "link", "add", wire, "type", "veth", "peer", "name", trunk)
    _in(layout.switch, "link", "set", port, "nomaster")
    _in(layout.switch, "link", "set", trunk, "master", BRIDGE, "up")
    _in(layout.switch, "link", "set", wire, "up")
    return port, wire


def undo_detour(layout: Layout, node: str) -> None:
    wire, _ = _cable(layout, node)
    if attempt("ip", "-n", layout.switch, "link", "delete", wire):
        _in(layout.switch, "link", "set", layout.port(node), "master", BRIDGE)


def _segments(space: str, interface: str, single: bool) -> None:
    _in(space, "link", "set", interface, "gso_max_segs", _SINGLE if single else _WHOLE_GSO)


def _cable(layout: Layout, node: str) -> tuple[str, str]:
    index = layout.index(node)
    return f"wire-{index}", f"trunk-{index}"


def _loss_rules(table: str, interface: str, share: float) -> str:
    dropped = round(share * _SCALE)
    hook = f'type filter hook ingress device "{interface}" priority 0;'
    rule = f"numgen random mod {_SCALE} < {dropped} drop"
    # ARP gets through, as it would after a few tries: a lost one costs a whole second.
    return f"table netdev {table} {{ chain loss {{ {hook} meta protocol ip {rule}; }}; }}\n"


_BURST_S = 2e-3
_LEAST_BURST = 72 * 1024
"""Bytes; above the largest packet that a host hands to its interface (64 KiB with headers)."""
_QUEUE_S = 50e-3
_QUANTUM = 60_000
_ETHERNET = 14
"""Bytes of the header that an MTU does not count."""
_OWN, _REST, _FIRST_PAIR = "1:1", "1:2", 0x10


@dataclass(frozen=True, slots=True)
class Shape:
    """What one end of a link may send."""

    rate: int
    """Bits a second, to all together."""
    towards: Mapping[str, int] = field(default_factory=dict)
    """Bits a second by node, for those that are slower."""
    largest: int | None = None
    """Bytes of the largest frame that passes; None: whatever comes."""


def plan_out(node: str, rate: int, faults: Iterable[Fault]) -> Shape:
    """What `node` sends: the slowest of the faults that are about it."""
    faults = list(faults)
    own = min([rate, *_rates(node, faults, "in")])
    towards: dict[str, int] = {}
    for fault in faults:
        if isinstance(fault, spec.SlowLink) and node in fault.nodes:
            other = fault.second if node == fault.first else fault.first
            towards[other] = min(fault.rate, towards.get(other, own))
    return Shape(own, {other: limit for other, limit in towards.items() if limit < own})


def plan_in(node: str, rate: int, faults: Iterable[Fault]) -> Shape:
    """What the switch sends to `node`. A slow pair is shaped where it is sent, so not here."""
    faults = list(faults)
    sizes = [fault.size for fault in faults if isinstance(fault, spec.Mtu) and fault.node == node]
    largest = min(sizes) + _ETHERNET if sizes else None
    return Shape(min([rate, *_rates(node, faults, "out")]), {}, largest)


def shape_node(layout: Layout, node: str, rate: int, faults: Iterable[Fault]) -> None:
    """Put both ends of the node's link into the state that follows from `faults`."""
    faults = list(faults)
    addresses = {other: layout.address(other) for other in layout.nodes}
    ends = (
        (layout.space(node), INTERFACE, plan_out(node, rate, faults)),
        (layout.switch, layout.port(node), plan_in(node, rate, faults)),
    )
    for space, interface, shape in ends:
        attempt("tc", "-n", space, "qdisc", "delete", "dev", interface, "root")
        for words in tc_commands(interface, shape, addresses):
            tool("tc", "-n", space, *words)


def tc_commands(interface: str, shape: Shape, addresses: Mapping[str, str]) -> list[list[str]]:
    """The words after `tc`, in order, on an interface that has no qdisc of its own."""
    if not shape.towards:
        # tbf drops what is larger than its burst, also by the pieces of what is still in one.
        burst = ["burst", str(shape.largest or _burst_bytes(shape.rate))]
        tbf = ["tbf", "rate", f"{shape.rate}bit", *burst, "latency", "50ms"]
        return [["qdisc", "add", "dev", interface, "root", *tbf]]
    commands = [
        ["qdisc", "add", "dev", interface, "root", "handle", "1:", "htb", "default", "2"],
        _class(interface, "1:", _OWN, shape.rate, shape.rate),
        *_leaf(interface, _REST, shape.rate),
    ]
    for number, (node, rate) in enumerate(sorted(shape.towards.items()), _FIRST_PAIR):
        own = f"1:{number:x}"
        match = ["u32", "match", "ip", "dst", f"{addresses[node]}/32", "flowid", own]
        on = ["parent", "1:", "protocol", "ip", "prio", "1"]
        commands += _leaf(interface, own, rate)
        commands.append(["filter", "add", "dev", interface, *on, *match])
    return commands


def _rates(node: str, faults: Iterable[Fault], other_way: str) -> list[int]:
    slow = [fault for fault in faults if isinstance(fault, spec.Slow) and fault.node == node]
    return [fault.rate for fault in slow if fault.way != other_way]


def _leaf(interface: str, name: str, rate: int) -> list[list[str]]:
    """A class with a queue as long as tbf's: the default one, of 1000 packets, waits seconds."""
    limit = int(rate / 8 * _QUEUE_S) + _burst_bytes(rate)
    queue = ["qdisc", "add", "dev", interface, "parent", name, "bfifo", "limit", str(limit)]
    return [_class(interface, _OWN, name, rate, rate), queue]


def _class(interface: str, parent: str, name: str, rate: int, most: int) -> list[str]:
    words = ["class", "add", "dev", interface, "parent", parent, "classid", name, "htb"]
    words += ["rate", f"{rate}bit", "ceil", f"{most}bit", "quantum", str(_QUANTUM)]
    return [*words, "burst", str(_burst_bytes(rate)), "cburst", str(_burst_bytes(most))]


def _burst_bytes(rate: int) -> int:
    return max(_LEAST_BURST, int(rate / 8 * _BURST_S))


_FIREWALL_TABLE = "wslab_firewall"
_SET = "open_ports"


def close_ports(layout: Layout, node: str, faults: Iterable[Fault]) -> None:
    """Bring the node into the state that follows from its faults, also back to open."""
    own = [fault for fault in faults if isinstance(fault, spec.Firewall) and fault.node == node]
    if own:
        tool(*_nft(layout, node), "-f", "-", give=_rules(own[-1].ports))
    else:
        attempt(*_nft(layout, node), "delete", "table", "inet", _FIREWALL_TABLE)


def open_port(layout: Layout, faults: Iterable[Fault], port: int) -> None:
    """The master port of a run, on every node whose firewall names no ports of its own.

    It stays open until the firewall goes: another run may use it still.
    """
    for fault in faults:
        if isinstance(fault, spec.Firewall) and not fault.ports:
            words = ("add", "element", "inet", _FIREWALL_TABLE, _SET, f"{{ {port} }}")
            tool(*_nft(layout, fault.node), *words)


def _rules(ports: Sequence[int]) -> str:
    listed = ", ".join(str(port) for port in ports)
    elements = f"elements = {{ {listed} }};" if ports else ""
    rules = (
        "type filter hook input priority 0; policy accept;",
        'iif "lo" accept;',
        f"tcp dport @{_SET} accept;",
        f"udp dport @{_SET} accept;",
        "tcp flags & (syn | ack) == syn drop;",
        "meta l4proto udp ct state established,related accept;",
        "meta l4proto udp drop;",
    )
    body = f"set {_SET} {{ type inet_service; {elements} }}; chain input {{ {' '.join(rules)} }};"
    # One transaction that takes the place of a table from before.
    table = f"table inet {_FIREWALL_TABLE}"
    return f"{table}\ndelete {table}\n{table} {{ {body} }}\n"


def _nft(layout: Layout, node: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", layout.space(node), "nft")
