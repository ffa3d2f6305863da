"""What is located: the fleet, pair figures, the table of residuals, the least-squares problem."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

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


Towards = Literal["", "out", "in"]
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
    towards: Towards = ""
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


Floats = NDArray[Any]
"""Of numbers or of truths: numpy types do not say which through its functions."""
Ints = NDArray[np.int32]

LOST = -30.0
"""Stands for the logarithm of nothing (0.0 came through); e**-30 of any rate is nothing."""


class Table:
    """partner: [rounds, nodes], -1 where a node rested; figures: [rounds, nodes, rails], NaN there."""

    def __init__(self, nodes: int, rails: int) -> None:
        self.nodes, self.rails = nodes, rails
        self._rounds: list[tuple[Ints, Floats, Floats]] = []

    @property
    def rounds(self) -> int:
        return len(self._rounds)

    @property
    def partner(self) -> Ints:
        return np.stack([partner for partner, _, _ in self._rounds])

    @property
    def sent(self) -> Floats:
        """ln of the rate from the node to its partner."""
        return np.stack([sent for _, sent, _ in self._rounds])

    @property
    def latency(self) -> Floats:
        """-ln of the latency between the node and its partner, the median of the rails: one column."""
        return np.stack([latency for _, _, latency in self._rounds])

    def add(self, readings: Sequence[Reading]) -> None:
        """One more round."""
        partner = np.full(self.nodes, -1, np.int32)
        sent = np.full((self.nodes, self.rails), np.nan, np.float32)
        latency = np.full((self.nodes, 1), np.nan, np.float32)
        if readings:
            a, b = np.array([reading.pair for reading in readings], np.int32).T
            partner[a], partner[b] = b, a
            sent[a] = _log([reading.forth for reading in readings])
            sent[b] = _log([reading.back for reading in readings])
            latency[a] = latency[b] = _latencies(readings)
        self._rounds.append((partner, sent, latency))


def middle(values: Floats) -> Floats:
    """Median over the last axis without the NaN; NaN where there is nothing else."""
    return _at(values, lambda count: ((count - 1) // 2, count // 2))


def upper(values: Floats, share: float = 0.5) -> Floats:
    """The value that at least `share` of those on the last axis do not exceed, the upper of two.

    "Upper" because a slow part can only lower a figure: of two that differ, the higher one is right.
    """
    return _at(values, lambda count: (np.minimum((count * share).astype(int), count - 1),) * 2)


def _at(values: Floats, places: Callable[[Floats], tuple[Floats, Floats]]) -> Floats:
    if values.shape[-1] == 1:
        return values[..., 0]
    ordered = np.sort(values, axis=-1)
    count = (~np.isnan(values)).sum(axis=-1)
    low, high = (np.maximum(place, 0)[..., None] for place in places(count))
    picked = np.take_along_axis(ordered, low, -1) + np.take_along_axis(ordered, high, -1)
    result: Floats = (picked[..., 0] / 2).astype(np.float32)
    return result


def _log(rates: Sequence[Sequence[float]]) -> Floats:
    values = np.array(rates, np.float64)
    logs = np.log(np.where(values > 0, values, 1.0))
    return np.where(values > 0, logs, LOST).astype(np.float32)


def _latencies(readings: Sequence[Reading]) -> Floats:
    """-ln of the seconds: LOST where none came back, NaN where it was not measured."""
    if not all(reading.latency for reading in readings):
        return np.full((len(readings), 1), np.nan, np.float32)
    seconds = np.median(np.array([reading.latency for reading in readings], np.float64), axis=1)
    usable = np.isfinite(seconds) & (seconds > 0)
    logs = np.where(usable, -np.log(np.where(usable, seconds, 1.0)), LOST)
    return logs[:, None].astype(np.float32)


SMALL = 24
"""Up to so many nodes every pair is measured, and repeated."""
UNEVEN = 0.02
"""Sigma of the differences between healthy pairs that no repeating takes away (small worlds)."""
GONE = -12.0
"""ln of the share of the rate below which nothing came through."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """One part that is slow: which, by how much in each of its rounds, and how sure that is."""

    kind: CulpritKind
    nodes: tuple[int, ...]
    rail: int
    towards: Towards
    level: float
    """ln of the share of the rate that is left, in the slow rounds."""
    share: float
    samples: tuple[float, ...]
    """ln, of the rounds in which it is slow."""
    nats: float
    """Evidence beyond the price."""


@dataclass(frozen=True, slots=True)
class Problem:
    """figures: ln [rounds, nodes, rails], towards the partner; more is better."""

    partner: Ints
    figures: Floats
    groups: tuple[tuple[int, ...], ...]
    least: float
    both_ways: bool
    """False where sending and receiving are one figure (latency)."""
    cycle: int
    """Rounds after which the schedule repeats (small worlds); 0 where it does not."""
    doubtful: frozenset[int] = frozenset()
    """Nodes that say nothing of what is healthy (stragglers)."""
    check: frozenset[Pair] = frozenset()
    """Pairs that were measured again because they looked slow."""

    @property
    def small(self) -> bool:
        return self.nodes <= SMALL

    @property
    def repeats(self) -> float:
        """How often each pair was measured in a small world."""
        return max(1.0, float(self.partner.shape[0]) / max(self.cycle, 1))

    @property
    def nodes(self) -> int:
        return int(self.partner.shape[1])

    @property
    def rails(self) -> int:
        return int(self.figures.shape[2])


@dataclass(slots=True)
class Findings:
    """Who is to blame, and what the next rounds should look at."""

    blames: list[Attribution] = field(default_factory=list)
    unsettled: set[int] = field(default_factory=set)
    inside: set[int] = field(default_factory=set)
    """Groups whose inner pairs must still be seen."""
    odd_pairs: set[Pair] = field(default_factory=set)
    """Pairs that looked slow each time, with both ends healthy."""
