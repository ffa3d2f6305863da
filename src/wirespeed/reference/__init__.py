"""Expected figures, with their sources: the hook through which `check` grades speed.

A reference answers for one measurement on one world, or says that it does not know. Unknown is an
answer; it is never replaced by a guess.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from wirespeed.model.records import Choice, Measurement, World
from wirespeed.model.training_records import Training

Origin = Literal["baseline", "own", "reference", "fleet"]
Range = tuple[float, float]

ASSUMED_SPREAD = 0.04
"""Share to both sides within which a figure is near the only one known, whose spread nobody told. Such
clusters lie within it: 2 × H200 nodes at 447.5 and 456 GB/s, 2 × H100 at 440.6 and 445
(reference/data/busbw.csv)."""

STEADY_BYTES = 2**26
"""Size from which on bandwidth decides; below it a version of NCCL moves a figure by half."""

TOO_NOISY = 0.1
"""Share of their median that runs reach down to: where it is less, they tell no slow run."""

ORIGINS: dict[Origin, str] = {
    "baseline": "the baseline",
    "own": "your own figure",
    "reference": "the reference",
    "fleet": "the median of earlier runs",
}
"""By origin, in the order in which they are believed: what a share is a share of."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a healthy world reaches."""

    time_s: float | None
    """Time of the operation in seconds (for latency), where it is known."""
    busbw: float | None
    """Bytes a second (for bandwidth), where it is known."""
    source: str
    """Where the figure comes from, with its date."""
    origin: Origin = "reference"
    time_range: Range | None = None
    """Shortest and longest time among the figures that were joined to one, in seconds."""
    busbw_range: Range | None = None
    """Lowest and highest bandwidth among them, in bytes a second."""
    samples: int = 1
    """Figures or runs that were joined."""
    gate: float | None = None
    """Bytes a second below which the source itself warns."""
    outside_warn: float = 1.0
    outside_fail: float = 1.0
    """Shares of the expectation: only a figure whose whole interval lies below is outside the spread
    of the runs that the expectation comes from. 1: their spread is not known."""
    warn_below: float | None = None
    """Share below which it is low; None: what `check` takes."""
    may_fail: bool = True
    """False where the figure is from a world that is only like this one."""
    same_world: bool = False
    """Whether somebody measured such a world at about that size."""
    same_cards: bool = False
    """Whether the figures are of so many nodes, or of any number, with the very network cards told."""
    notes: tuple[str, ...] = ()
    """What was done to get here: another size, another number of nodes, which figures."""
    also: tuple["Expectation", ...] = ()
    """What ranks behind this expectation and is known too."""

    @property
    def lone(self) -> bool:
        """Whether one published figure is all, so that its spread can only be assumed."""
        return self.origin == "reference" and self.samples == 1 and self.busbw_range is None


class Reference(Protocol):
    def expect(self, world: World, measurement: Measurement) -> Expectation | None:
        """The expectation for this measurement, or None when there is no figure."""
        ...

    def expect_step(self, world: World, training: Training) -> Expectation | None:
        """Return the expected time of a training step, or None when there is no figure."""
        ...

    def choices(self) -> tuple[Choice, ...]:
        """What was chosen to compare with and why, after the last question."""
        ...


class OfCollectives:
    """The part of a reference that knows no training steps."""

    def expect_step(self, world: World, training: Training) -> Expectation | None:
        """Return None: only baselines know how long a step takes."""
        return None


class NoReference(OfCollectives):
    """Knows nothing; the ranks' own spread is judged then."""

    def expect(self, world: World, measurement: Measurement) -> Expectation | None:
        return None

    def choices(self) -> tuple[Choice, ...]:
        return ()


_SAME = 0.8
"""A fleet below this share of a baseline is of other runs than those that the user calls good."""


def _tells_the_spread_of(first: Expectation, other: Expectation) -> bool:
    """One run, or a figure from elsewhere, tells little of the spread from run to run; the fleet's
    tells more. Repeats of a baseline tell their own, and slow runs of the fleet must not widen it."""
    if other.origin != "fleet":
        return False
    if first.origin != "baseline" or not (first.time_s and other.time_s):
        return True
    return first.samples < 2 and first.time_s / other.time_s >= _SAME


class Chain:
    """Several references in the order in which they are believed; the first that knows answers."""

    def __init__(self, links: Sequence[Reference]) -> None:
        self._links = tuple(links)

    def expect(self, world: World, measurement: Measurement) -> Expectation | None:
        found = [one.expect(world, measurement) for one in self._links]
        known = [one for one in found if one is not None]
        if not known:
            return None
        first, rest = known[0], tuple(known[1:])
        spread = [one for one in rest if _tells_the_spread_of(first, one)]
        return replace(
            first,
            also=rest,
            outside_warn=min([first.outside_warn, *(one.outside_warn for one in spread)]),
            outside_fail=min([first.outside_fail, *(one.outside_fail for one in spread)]),
        )

    def expect_step(self, world: World, training: Training) -> Expectation | None:
        """Return the expectation of the first link that knows such a step."""
        found = (link.expect_step(world, training) for link in self._links)
        return next((one for one in found if one is not None), None)

    def choices(self) -> tuple[Choice, ...]:
        return tuple(choice for one in self._links for choice in one.choices())
