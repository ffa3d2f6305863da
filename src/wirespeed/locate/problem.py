"""What is asked of the readings, and what was found in them: the words between the search and the
explaining. All figures are natural logarithms; more is better."""

from dataclasses import dataclass, field
from typing import Literal

from wirespeed.locate.model import CulpritKind, Pair
from wirespeed.locate.table import Floats, Ints

__all__ = ["GONE", "SMALL", "UNEVEN", "Blame", "Findings", "Problem"]

SMALL = 24
"""Up to so many nodes every pair is measured, and repeated."""
UNEVEN = 0.02
"""Sigma of the differences between healthy pairs that no repeating takes away (small worlds)."""
GONE = -12.0
"""ln of the share of the rate below which nothing came through."""


@dataclass(frozen=True, slots=True)
class Blame:
    """One part that is slow: which, by how much in each of its rounds, and how sure that is."""

    kind: CulpritKind
    nodes: tuple[int, ...]
    rail: int
    towards: Literal["", "out", "in"]
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

    blames: list[Blame] = field(default_factory=list)
    unsettled: set[int] = field(default_factory=set)
    inside: set[int] = field(default_factory=set)
    """Groups whose inner pairs must still be seen."""
    odd_pairs: set[Pair] = field(default_factory=set)
    """Pairs that looked slow each time, with both ends healthy."""
