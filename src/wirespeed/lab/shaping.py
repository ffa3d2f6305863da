"""How fast each end of each link sends: from the faults to a plan, from the plan to tc.

tc-tbf(8) limits an interface; where one destination is slower than the others, tc-htb(8) with a
class for it. Both are in every kernel we met, unlike netem.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wirespeed.lab.layout import INTERFACE, Layout
from wirespeed.lab.spec import Fault, Mtu, Slow, SlowLink
from wirespeed.lab.tools import attempt, tool

__all__ = ["Shape", "plan_in", "plan_out", "shape_node", "tc_commands"]

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
        if isinstance(fault, SlowLink) and node in fault.nodes:
            other = fault.second if node == fault.first else fault.first
            towards[other] = min(fault.rate, towards.get(other, own))
    return Shape(own, {other: limit for other, limit in towards.items() if limit < own})


def plan_in(node: str, rate: int, faults: Iterable[Fault]) -> Shape:
    """What the switch sends to `node`. A slow pair is shaped where it is sent, so not here."""
    faults = list(faults)
    sizes = [fault.size for fault in faults if isinstance(fault, Mtu) and fault.node == node]
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
        tbf = ["tbf", *_rate(shape.rate), *burst, "latency", "50ms"]
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
    slow = [fault for fault in faults if isinstance(fault, Slow) and fault.node == node]
    return [fault.rate for fault in slow if fault.way != other_way]


def _leaf(interface: str, name: str, rate: int) -> list[list[str]]:
    """A class with a queue as long as tbf's: the default one, of 1000 packets, waits seconds."""
    limit = int(rate / 8 * _QUEUE_S) + _burst_bytes(rate)
    queue = ["qdisc", "add", "dev", interface, "parent", name, "bfifo", "limit", str(limit)]
    return [_class(interface, _OWN, name, rate, rate), queue]


def _class(interface: str, parent: str, name: str, rate: int, most: int) -> list[str]:
    words = ["class", "add", "dev", interface, "parent", parent, "classid", name, "htb"]
    words += [*_rate(rate), "ceil", f"{most}bit", "quantum", str(_QUANTUM)]
    return [*words, *_burst("burst", rate), *_burst("cburst", most)]


def _rate(rate: int) -> list[str]:
    return ["rate", f"{rate}bit"]


def _burst(word: str, rate: int) -> list[str]:
    return [word, str(_burst_bytes(rate))]


def _burst_bytes(rate: int) -> int:
    return max(_LEAST_BURST, int(rate / 8 * _BURST_S))
