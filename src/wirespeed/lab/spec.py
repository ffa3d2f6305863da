"""What a lab is: how many nodes, how fast their links are, and what is broken.

Rates are bits a second, times are seconds, shares are fractions of 1.

Faults as they are written on the command line, `node-2=100mbit`, and back.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from wirespeed.errors import UsageError

Way = Literal["both", "out", "in"]
"""Seen from the node: `out` is what it sends, `in` what it receives."""

HOST_MTU = 1500
_MOST_NODES = 64
_LONGEST_NAME = 24


def node_name(index: int) -> str:
    return f"node-{index}"


@dataclass(frozen=True, slots=True)
class OfNode:
    """What is about one node."""

    node: str

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class Slow(OfNode):
    """The link of one node is slow, in both ways or in one."""

    rate: int
    way: Way = "both"


@dataclass(frozen=True, slots=True)
class SlowLink:
    """Two nodes are slow with each other only."""

    first: str
    second: str
    rate: int

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.first, self.second)


@dataclass(frozen=True, slots=True)
class Lossy(OfNode):
    """A share of the packets to and from the node is lost."""

    share: float


@dataclass(frozen=True, slots=True)
class Delay(OfNode):
    """Each packet to and from the node waits so long: twice that in a round trip."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Mtu(OfNode):
    """The switch port drops packets above so many bytes, while all hosts send up to 1500."""

    size: int


@dataclass(frozen=True, slots=True)
class Cut(OfNode):
    """The cable of the node is out of its switch port."""


@dataclass(frozen=True, slots=True)
class Quota(OfNode):
    """All processes of the node together get this share of one core."""

    share: float


@dataclass(frozen=True, slots=True)
class Bursts(OfNode):
    """The processes of the node stand still for `stopped_s` in every `every_s`."""

    stopped_s: float
    every_s: float


@dataclass(frozen=True, slots=True)
class Firewall(OfNode):
    """The node takes no new TCP or UDP connection from other nodes, except to `ports`."""

    ports: tuple[int, ...] = ()
    """Empty: the master port of each run, as it is chosen."""


@dataclass(frozen=True, slots=True)
class LoopbackName(OfNode):
    """The node's own host name means 127.0.1.1 there; the others resolve it as before."""


@dataclass(frozen=True, slots=True)
class Variable(OfNode):
    """Commands that start on the node find this in their environment, whatever others set."""

    name: str
    value: str


Broken = Slow | SlowLink | Lossy | Delay | Mtu | Cut | Quota | Bursts
"""The network or the processor."""
Misconfigured = Firewall | LoopbackName | Variable
"""A node that was set up in a wrong way."""
Fault = Broken | Misconfigured


@dataclass(frozen=True, slots=True)
class LabSpec:
    """A lab to be made. Raises UsageError when it contradicts itself."""

    nodes: int = 4
    name: str = "lab"
    rate: int = 1_000_000_000
    """Of every link, each way. Shaped, so that results depend on it and not on the CPU."""
    faults: Sequence[Fault] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        check_name(self.name)
        if not 1 <= self.nodes <= _MOST_NODES:
            raise UsageError(f"{self.nodes} nodes", expected=f"1 to {_MOST_NODES}")
        for fault in self.faults:
            self.check(fault)

    @property
    def names(self) -> list[str]:
        return [node_name(index) for index in range(self.nodes)]

    def check(self, fault: Fault) -> None:
        """Raises UsageError when `fault` is about a node that is not there."""
        for node in fault.nodes:
            self.check_node(node)
        if len(set(fault.nodes)) < len(fault.nodes):
            raise UsageError(f"a link from {fault.nodes[0]} to itself", expected="two nodes")

    def check_node(self, node: str) -> None:
        if node not in self.names:
            raise UsageError(
                f"there is no node {node!r} in lab {self.name}",
                expected=f"node-0 … {self.names[-1]}" if self.nodes > 1 else "node-0",
                next="name one of these, or make the lab with more --nodes",
            )


def check_name(name: str) -> None:
    """Raises UsageError for a name that could not be a part of a namespace's name."""
    plain = name.isascii() and name.replace("-", "").isalnum() and name == name.lower()
    if not plain or name.startswith("-") or len(name) > _LONGEST_NAME:
        raise UsageError(
            f"{name!r} is no name for a lab",
            expected=f"up to {_LONGEST_NAME} lower-case letters, digits and hyphens",
        )


T = TypeVar("T")
_NUMBER = r"(\d+(?:\.\d+)?)"
_RATE = re.compile(_NUMBER + r"\s*([kmg])bit", re.IGNORECASE)
_TIME = re.compile(_NUMBER + r"\s*(us|ms|s)", re.IGNORECASE)
_SHARE = re.compile(_NUMBER + r"\s*%")
_BITS = {"k": 1e3, "m": 1e6, "g": 1e9}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_SLOWEST, _FASTEST = 64_000, 100_000_000_000
_LONGEST_S = 60.0
_SMALLEST_MTU = 576
_SHORTEST_STOP_S = 1e-3
_LAST_PORT = 65_535
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = "WIRESPEED_LAB"
"""Variables by which the lab finds its processes again begin so."""


def parse_rate(text: str) -> int:
    """Bits a second from `100mbit`, `1gbit` or `500kbit` (powers of ten); else UsageError."""
    match = _RATE.fullmatch(text.strip())
    rate = int(float(match[1]) * _BITS[match[2].lower()]) if match else 0
    if not _SLOWEST <= rate <= _FASTEST:
        raise UsageError(
            f"{text!r} is not a rate",
            expected="bits a second from 64kbit to 100gbit, such as 100mbit or 2.5gbit",
            next="a rate in bytes times 8 is the rate in bits: 125 MB/s is 1gbit",
        )
    return rate


def parse_time(text: str) -> float:
    """Seconds from `5ms`, `200us` or `1s`; else UsageError."""
    match = _TIME.fullmatch(text.strip())
    seconds = float(match[1]) * _SECONDS[match[2].lower()] if match else 0.0
    if not 0 < seconds <= _LONGEST_S:
        raise UsageError(
            f"{text!r} is not a time", expected="up to a minute, such as 200us, 5ms or 1s"
        )
    return seconds


def parse_share(text: str) -> float:
    """A fraction from `5%`; else UsageError."""
    match = _SHARE.fullmatch(text.strip())
    share = float(match[1]) / 100 if match else 0.0
    if not 0 < share <= 1:
        raise UsageError(f"{text!r} is not a share", expected="above 0% up to 100%, such as 5%")
    return share


def parse_fault(kind: str, text: str) -> Fault:
    """One fault from an option's name without hyphens and its value: `slow`, `node-2=100mbit`."""
    parser = _PARSERS.get(kind)
    if parser is None:
        raise UsageError(f"{kind!r} is no fault", expected=", ".join(sorted(_PARSERS)))
    return parser(text)


def each_node(text: str, nodes: Sequence[str]) -> list[str]:
    """The texts of one fault each: `all=5ms` is `node-0=5ms`, `node-1=5ms`, …; else just `text`."""
    first, equals, value = text.partition("=")
    return [node + equals + value for node in nodes] if first.strip() == "all" else [text]


def format_rate(rate: float) -> str:
    """`100mbit`; parse_rate reads it back."""
    for unit in ("g", "m"):
        if rate >= _BITS[unit]:
            return f"{rate / _BITS[unit]:.12g}{unit}bit"
    return f"{rate / 1e3:.12g}kbit"


def format_fault(fault: Fault) -> tuple[str, str]:
    """The option and the value from which parse_fault makes this fault again."""
    match fault:
        case Slow():
            kind, way = ("slow", "") if fault.way == "both" else ("one-way", f":{fault.way}")
            return kind, f"{fault.node}={format_rate(fault.rate)}{way}"
        case SlowLink():
            return "slow-link", f"{fault.first}:{fault.second}={format_rate(fault.rate)}"
        case Lossy():
            return "lossy", f"{fault.node}={_percent(fault.share)}"
        case Delay():
            return "delay", f"{fault.node}={_milliseconds(fault.seconds)}"
        case Mtu():
            return "mtu", f"{fault.node}={fault.size}"
        case Cut():
            return "cut", fault.node
        case Quota():
            return "straggler", f"{fault.node}={_percent(fault.share)}"
        case Bursts():
            times = f"{_milliseconds(fault.stopped_s)}/{_milliseconds(fault.every_s)}"
            return "straggler", f"{fault.node}=stop:{times}"
        case Firewall():
            ports = ",".join(str(port) for port in fault.ports)
            return "firewall", f"{fault.node}={ports}" if ports else fault.node
        case LoopbackName():
            return "loopback-name", fault.node
        case Variable():
            return "env", f"{fault.node}={fault.name}={fault.value}"


def _percent(share: float) -> str:
    return f"{share * 100:.10g}%"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.10g}ms"


def _halves(text: str, example: str) -> tuple[str, str]:
    node, equals, value = text.partition("=")
    if not (node and equals and value):
        raise UsageError(f"{text!r} does not say node=value", expected=f"such as {example}")
    return node.strip(), value.strip()


def _one_way(text: str) -> Fault:
    node, value = _halves(text, "node-0=200mbit:out")
    rate, _, way = value.partition(":")
    ways: dict[str, Way] = {"": "out", "out": "out", "in": "in"}
    if way not in ways:
        raise UsageError(f"{way!r} is no way", expected="out (what the node sends) or in")
    return Slow(node, parse_rate(rate), ways[way])


def _slow_link(text: str) -> Fault:
    pair, value = _halves(text, "node-0:node-2=100mbit")
    first, colon, second = pair.partition(":")
    if not (first and colon and second):
        raise UsageError(f"{pair!r} is not a pair", expected="such as node-0:node-2=100mbit")
    return SlowLink(first, second, parse_rate(value))


def _mtu(text: str) -> Fault:
    node, value = _halves(text, "node-1=1400")
    size = int(value) if value.isascii() and value.isdecimal() else 0
    if not _SMALLEST_MTU <= size < HOST_MTU:
        raise UsageError(
            f"{value!r} is not a smaller MTU",
            expected=f"bytes from {_SMALLEST_MTU} to {HOST_MTU - 1}: hosts have {HOST_MTU}",
        )
    return Mtu(node, size)


def _straggler(text: str) -> Fault:
    node, value = _halves(text, "node-1=30%")
    if not value.startswith("stop:"):
        return Quota(node, parse_share(value))
    stopped, slash, every = value.removeprefix("stop:").partition("/")
    if not slash:
        raise UsageError(f"{value!r} has no period", expected="such as stop:200ms/1s")
    stopped_s, every_s = parse_time(stopped), parse_time(every)
    if not _SHORTEST_STOP_S <= stopped_s < every_s:
        raise UsageError(
            f"{value!r}: stopped for {stopped} in every {every}",
            expected="at least 1ms, and less than the period, such as stop:200ms/1s",
        )
    return Bursts(node, stopped_s, every_s)


def _firewall(text: str) -> Fault:
    if "=" not in text:
        return Firewall(text.strip())
    node, value = _halves(text, "node-2=29500,29501")
    ports = {_port(word.strip()) for word in value.split(",")}
    return Firewall(node, tuple(sorted(ports)))


def _port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdecimal() else 0
    if not 0 < port <= _LAST_PORT:
        raise UsageError(f"{text!r} is not a port", expected=f"1 to {_LAST_PORT}, such as 29500")
    return port


def _env(text: str) -> Fault:
    node, setting = _halves(text, "node-2=GLOO_SOCKET_IFNAME=ib0")
    name, equals, value = setting.partition("=")
    if not equals or not _VARIABLE.fullmatch(name) or "\0" in value:
        raise UsageError(
            f"{setting!r} does not say NAME=VALUE", expected="such as GLOO_SOCKET_IFNAME=ib0"
        )
    if name.startswith(_OURS):
        raise UsageError(f"{name} is the lab's own", expected=f"a name without {_OURS} in front")
    return Variable(node, name, value)


def _of_value(
    kind: Callable[[str, T], Fault], parse: Callable[[str], T], example: str
) -> Callable[[str], Fault]:
    """The parser of a fault that is a node and one value."""

    def parser(text: str) -> Fault:
        node, value = _halves(text, example)
        return kind(node, parse(value))

    return parser


_PARSERS: dict[str, Callable[[str], Fault]] = {
    "slow": _of_value(Slow, parse_rate, "node-2=100mbit"),
    "one-way": _one_way,
    "slow-link": _slow_link,
    "lossy": _of_value(Lossy, parse_share, "node-1=5%"),
    "delay": _of_value(Delay, parse_time, "node-3=5ms"),
    "mtu": _mtu,
    "cut": lambda text: Cut(text.strip()),
    "straggler": _straggler,
    "firewall": _firewall,
    "loopback-name": lambda text: LoopbackName(text.strip()),
    "env": _env,
}
