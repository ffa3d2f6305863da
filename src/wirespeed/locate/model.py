"""The vocabulary of locating: what a fabric is asked, what it answers, and who is to blame.

Nodes are numbered from 0; names come in with the findings. Rates are bytes a second, times seconds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["Culprit", "CulpritKind", "Diagnosis", "Fabric", "Pair", "Reading", "Worked"]

Pair = tuple[int, int]
"""Two nodes; the first is the smaller number."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one pair showed in one round, one figure a rail (one for all where there is one rail)."""

    pair: Pair
    forth: tuple[float, ...]
    """Rate from the first to the second node; 0.0: nothing came through in time."""
    back: tuple[float, ...]
    """Rate from the second to the first."""
    both: tuple[float, ...] = ()
    """Sum of both directions at once, where it was measured."""
    latency: tuple[float, ...] = ()
    """Half of a small message's round trip (median); infinite where none came back."""


@dataclass(frozen=True, slots=True)
class Worked:
    """How long each node took for the same work without traffic."""

    seconds: list[float]
    """By the clock; infinite: no answer."""
    own: list[float]
    """Without what other work of the machine took: the time on a core, and what a quota stopped."""


class Fabric(Protocol):
    """Nodes that can be told to talk, pair by pair. Real or simulated."""

    @property
    def nodes(self) -> int: ...

    @property
    def rails(self) -> int:
        """NICs (local ranks) of a node that talk to the same one of every other node."""
        ...

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Nodes behind one switch, where that is known beforehand; empty where it is not."""
        ...

    def round(self, pairs: Sequence[Pair]) -> list[Reading]:
        """Run disjoint pairs at once, one way and then the other. In the order of `pairs`.

        Every other pair (odd sum of its nodes) should start with its way back: if all started with
        the smaller node, the first leaves of the fabric would all send at once, and an
        oversubscribed uplink would look slow.
        A node that died gives readings of 0.0; the call itself returns within a bound.
        """
        ...

    def compute(self) -> Worked:
        """Let each node do the same work without any traffic."""
        ...


CulpritKind = Literal["node", "rail", "nic", "direction", "uplink", "link", "straggler", "dead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """Who is to blame, how sure that is, and what it costs."""

    kind: CulpritKind
    """`node` (both directions, all rails), `rail` (one rail on every node), `nic` (one rail of one
    node), `direction` (one node, only sending or only receiving), `uplink` (a group towards all
    others), `link` (one pair only), `straggler` (slow without traffic), `dead` (no answer)."""
    nodes: tuple[int, ...]
    """The node, the two of a link, all of the group behind an uplink; empty for a rail."""
    rail: int = -1
    towards: Literal["", "out", "in"] = ""
    """For a direction: what the node does slowly (sending is `out`)."""
    factor: float
    """How many times slower than the fleet's median; infinite where nothing comes through."""
    low: float
    high: float
    """The 95 % interval of `factor`."""
    confidence: float
    """0 to 1: how likely it is that this is so and not noise."""
    samples: int
    """Readings behind it."""
    share: float = 1.0
    """Of its rounds in which it is slow; `factor` is that of these rounds."""
    what: Literal["rate", "latency", "time"] = "rate"
    """What is worse: the rate, the latency, or the time of the work without traffic."""

    @property
    def cost(self) -> float:
        """Share by which a job is slower that waits for its slowest part: 0.2 is 20 % longer."""
        return self.factor - 1 if math.isfinite(self.factor) else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What the localiser found, and what it cannot have seen."""

    culprits: tuple[Culprit, ...]
    """Costliest first."""
    readings: tuple[Reading, ...]
    compute: tuple[float, ...]
    """Seconds by node."""
    rounds: int
    """Rounds of pairs; `compute` not counted."""
    pairs_measured: int
    pairs: int
    """Of all n (n-1) / 2. A fault of one pair alone shows only where that pair was measured."""
    stopped: str
    """Why it needed no more rounds, in words."""
