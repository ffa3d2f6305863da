"""What is wrong with a link apart from its rate: cut, a smaller MTU, losses, a delay.

Each function brings one node into the state that follows from its faults, also back to healthy.
"""

from collections.abc import Iterable

from wirespeed.lab.layout import INTERFACE, Layout
from wirespeed.lab.nodes import BRIDGE, set_sysctl
from wirespeed.lab.spec import HOST_MTU, Cut, Fault, Lossy, Mtu
from wirespeed.lab.tools import attempt, need, tool

__all__ = [
    "cut_or_plug",
    "detour",
    "lose",
    "set_congestion",
    "set_mtu",
    "single_packets",
    "undo_detour",
]

_TABLE = "wslab"
_SCALE = 100_000
_WHOLE_GSO, _SINGLE = "65535", "1"
_CONGESTION = "net/ipv4/tcp_congestion_control"


def cut_or_plug(layout: Layout, node: str, faults: Iterable[Fault]) -> None:
    """The switch port goes down, so that the node sees no carrier and its packets vanish."""
    cut = any(isinstance(fault, Cut) for fault in faults)
    tool("ip", "-n", layout.switch, "link", "set", layout.port(node), "down" if cut else "up")


def set_mtu(layout: Layout, node: str, faults: Iterable[Fault]) -> None:
    """Of the switch port only: that is what makes a black hole.

    A bridge looks at no MTU for packets of TCP that are still in one piece: see shaping.plan_in.
    """
    size = min([HOST_MTU, *(fault.size for fault in faults if isinstance(fault, Mtu))])
    tool("ip", "-n", layout.switch, "link", "set", layout.port(node), "mtu", str(size))


def lose(layout: Layout, node: str, faults: Iterable[Fault]) -> None:
    """Drop packets at random where they come in: from the node at the switch, and at the node.

    A packet dropped on its way out would be told to the sender's TCP at once, unlike on a wire.
    """
    kept = 1.0
    for fault in faults:
        kept *= 1 - fault.share if isinstance(fault, Lossy) else 1.0
    if kept < 1:
        need("nft")
    table = f"{_TABLE}_{layout.index(node)}"
    for space, interface in ((layout.switch, layout.port(node)), (layout.space(node), INTERFACE)):
        enter = ("ip", "netns", "exec", space, "nft")
        if kept < 1:
            rules = _loss_rules(table, interface, 1 - kept)
            attempt(*enter, "delete", "table", "netdev", table)
            tool(*enter, "-f", "-", give=rules)
        elif _has_nft():
            attempt(*enter, "delete", "table", "netdev", table)


def set_congestion(layout: Layout, faults: Iterable[Fault], before: str) -> None:
    """While packets are lost, TCP takes a loss for congestion on every node, so that it costs.

    bbr hardly slows down at a few percent. cubic is what most machines have; reno is the one that
    every namespace may choose. Connections that exist keep theirs.
    """
    lossy = any(isinstance(fault, Lossy) for fault in faults)
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
    lossy = any(isinstance(fault, Lossy) for fault in faults)
    small = any(isinstance(fault, Mtu) for fault in faults)
    _segments(layout.space(node), INTERFACE, lossy or small)
    _segments(layout.switch, layout.port(node), lossy)


def detour(layout: Layout, node: str) -> tuple[str, str]:
    """Take the port off the bridge and put a second cable there, for a relay to join the two.

    Gives the two interfaces, in the namespace of the switch, that the relay must join.
    """
    port, wire, trunk = layout.port(node), *_cable(layout, node)
    words = ("link", "add", wire, "type", "veth", "peer", "name", trunk)
    tool("ip", "-n", layout.switch, *words)
    tool("ip", "-n", layout.switch, "link", "set", port, "nomaster")
    tool("ip", "-n", layout.switch, "link", "set", trunk, "master", BRIDGE, "up")
    tool("ip", "-n", layout.switch, "link", "set", wire, "up")
    return port, wire


def undo_detour(layout: Layout, node: str) -> None:
    wire, _ = _cable(layout, node)
    if attempt("ip", "-n", layout.switch, "link", "delete", wire):
        tool("ip", "-n", layout.switch, "link", "set", layout.port(node), "master", BRIDGE)


def _segments(space: str, interface: str, single: bool) -> None:
    words = ("link", "set", interface, "gso_max_segs", _SINGLE if single else _WHOLE_GSO)
    tool("ip", "-n", space, *words)


def _cable(layout: Layout, node: str) -> tuple[str, str]:
    index = layout.index(node)
    return f"wire-{index}", f"trunk-{index}"


def _loss_rules(table: str, interface: str, share: float) -> str:
    dropped = round(share * _SCALE)
    hook = f'type filter hook ingress device "{interface}" priority 0;'
    rule = f"numgen random mod {_SCALE} < {dropped} drop"
    # ARP gets through, as it would after a few tries: a lost one costs a whole second.
    return f"table netdev {table} {{ chain loss {{ {hook} meta protocol ip {rule}; }}; }}\n"


def _has_nft() -> bool:
    from wirespeed.errors import CannotMeasure

    try:
        need("nft")
    except CannotMeasure:
        return False
    return True
