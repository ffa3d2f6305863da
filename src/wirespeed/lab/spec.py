"""What a lab is: how many nodes, how fast their links are, and what is broken.

Rates are bits a second, times are seconds, shares are fractions of 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from wirespeed.errors import UsageError

__all__ = [
    "Bursts",
    "Cut",
    "Delay",
    "Fault",
    "Firewall",
    "LabSpec",
    "LoopbackName",
    "Lossy",
    "Mtu",
    "Quota",
    "Slow",
    "SlowLink",
    "Variable",
    "Way",
    "check_name",
    "node_name",
]

Way = Literal["both", "out", "in"]
"""Seen from the node: `out` is what it sends, `in` what it receives."""

HOST_MTU = 1500
_MOST_NODES = 64
_LONGEST_NAME = 24


def node_name(index: int) -> str:
    return f"node-{index}"


@dataclass(frozen=True, slots=True)
class Slow:
    """The link of one node is slow, in both ways or in one."""

    kind: ClassVar[str] = "slow"
    node: str
    rate: int
    way: Way = "both"

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class SlowLink:
    """Two nodes are slow with each other only."""

    kind: ClassVar[str] = "slow-link"
    first: str
    second: str
    rate: int

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.first, self.second)


@dataclass(frozen=True, slots=True)
class Lossy:
    """A share of the packets to and from the node is lost."""

    kind: ClassVar[str] = "lossy"
    node: str
    share: float

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class Delay:
    """Each packet to and from the node waits so long: twice that in a round trip."""

    kind: ClassVar[str] = "delay"
    node: str
    seconds: float

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class Mtu:
    """The switch port drops packets above so many bytes, while all hosts send up to 1500."""

    kind: ClassVar[str] = "mtu"
    node: str
    size: int

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class Cut:
    """The cable of the node is out of its switch port."""

    kind: ClassVar[str] = "cut"
    node: str

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class Quota:
    """All processes of the node together get this share of one core."""

    kind: ClassVar[str] = "straggler"
    node: str
    share: float

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class Bursts:
    """The processes of the node stand still for `stopped_s` in every `every_s`."""

    kind: ClassVar[str] = "straggler"
    node: str
    stopped_s: float
    every_s: float

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class Firewall:
    """The node takes no new TCP or UDP connection from other nodes, except to `ports`."""

    kind: ClassVar[str] = "firewall"
    node: str
    ports: tuple[int, ...] = ()
    """Empty: the master port of each run, as it is chosen."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class LoopbackName:
    """The node's own host name means 127.0.1.1 there; the others resolve it as before."""

    kind: ClassVar[str] = "loopback-name"
    node: str

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class Variable:
    """Commands that start on the node find this in their environment, whatever others set."""

    kind: ClassVar[str] = "env"
    node: str
    name: str
    value: str

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)


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
