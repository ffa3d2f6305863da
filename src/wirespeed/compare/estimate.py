"""How much slower is one side than the other, and how sure is that?

Everything is in logarithms of time: a ratio becomes a difference, and noise that is in proportion to
the time is alike for 10 µs and 10 s. **The run is the unit**: the samples of one run share its moment,
its placement and its connections, so their interval says little of what the next run will give.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from wirespeed.compare.student import quantile, two_sided_p
from wirespeed.records_comparison import Noise

__all__ = ["LEAST_RUNS", "LEVEL", "Estimate", "Figure", "Floor", "estimate", "runs_needed"]

LEAST_RUNS = 3
"""Runs a side that it takes to call something different, unless somebody states the noise. With one or
two, a run that was far off (a busy neighbour, the slower cores) passes for a change: measured in
docs/statistics.md. From here on each side may have noise of its own (Welch); below, both have one."""
_LEAST_SPREAD = 1e-9
_MOST_RUNS = 100
LEVEL = 0.05
"""Probability of a wrong call that is accepted, of each kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One run's figure."""

    log: float
    """Of seconds."""
    within: float | None
    """Standard error of `log` by the run's own interval; None: it shows none."""
    busbw: float = 0.0
    samples: int = 0
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Floor:
    """Noise between runs that is known from elsewhere."""

    variance: float
    """Of a run's `log`."""
    freedom: float
    """Degrees of freedom behind it; infinite where somebody stated it."""
    source: Noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    change: float
    """Difference of the logarithms, after minus before."""
    error: float
    """Its standard error; infinite where nothing is known of the noise between runs."""
    freedom: float
    spread: float
    """Standard deviation of one run's `log`."""
    source: Noise
    alike: tuple[float, float] | None = None
    """Standard error and degrees of freedom if both sides had the same noise, where `error` allows
    each its own. What is said has to hold either way."""

    @property
    def p(self) -> float:
        """The larger of both."""
        return max(_p(self.change, *one) for one in self._errors)

    def reach(self, confidence: float) -> float:
        """Half the width of the interval of `change`, the wider of both."""
        return max(_reach(confidence, *one) for one in self._errors)

    @property
    def _errors(self) -> tuple[tuple[float, float], ...]:
        own = (self.error, self.freedom)
        return (own,) if self.alike is None else (own, self.alike)

    def same_within(self, margin: float) -> bool:
        """Both one-sided tests at 5 %: the 90 % interval lies within ±margin (D. J. Schuirmann, A
        comparison of the two one-sided tests procedure, 1987)."""
        return abs(self.change) + self.reach(1 - 2 * LEVEL) < margin


def _p(change: float, error: float, freedom: float) -> float:
    return 1.0 if math.isinf(error) else two_sided_p(change / error, freedom)


def _reach(confidence: float, error: float, freedom: float) -> float:
    return math.inf if math.isinf(error) else quantile(confidence, freedom) * error


def estimate(
    before: Sequence[Figure], after: Sequence[Figure], floor: Floor | None = None
) -> Estimate:
    """The change from one side to the other; at least one run on each."""
    change = fmean(f.log for f in after) - fmean(f.log for f in before)
    if min(len(before), len(after)) >= LEAST_RUNS:
        return _welch(change, before, after)
    spread2, freedom, source = _pooled(before, after, floor)
    error = math.sqrt(spread2 * (1 / len(before) + 1 / len(after)))
    return Estimate(
        change=change, error=error, freedom=freedom, spread=math.sqrt(spread2), source=source
    )


def _welch(change: float, before: Sequence[Figure], after: Sequence[Figure]) -> Estimate:
    """B. L. Welch, The generalization of `Student's' problem, 1947, with his degrees of freedom.

    Of sides of unequal numbers the smaller one decides in it: three runs that agree by luck make 3
    against 20 look sure (up to 29 % of A/A comparisons called different, docs/statistics.md). So
    Student's test with one noise for both stands beside it. With equal numbers the two errors are
    the same, and Welch's has fewer degrees of freedom.
    """
    sides = [(_noise2(side), len(side)) for side in (before, after)]
    parts = [noise2 / count for noise2, count in sides]
    error2 = sum(parts)
    below = sum(part**2 / (count - 1) for part, (_, count) in zip(parts, sides, strict=True))
    return Estimate(
        change=change,
        error=math.sqrt(error2),
        freedom=max(1.0, error2**2 / below),
        spread=math.sqrt(fmean(noise2 for noise2, _ in sides)),
        source="repeats",
        alike=_alike(sides),
    )


def _alike(sides: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Student's error and degrees of freedom, from (variance of a run, runs) of both sides."""
    freedom = sum(count - 1 for _, count in sides)
    noise2 = sum(noise2 * (count - 1) for noise2, count in sides) / freedom
    return math.sqrt(noise2 * sum(1 / count for _, count in sides)), freedom


def _noise2(side: Sequence[Figure]) -> float:
    """Variance of a run: as the repeats show it, but not below what each run says of itself."""
    squares = _squares(side) / (len(side) - 1)
    return max(squares, _within2(side), _LEAST_SPREAD**2)


def _squares(side: Sequence[Figure]) -> float:
    """Sum of the squared distances from the mean. (`statistics.variance` takes 10 times as long.)"""
    middle = fmean([f.log for f in side])
    return math.fsum([(f.log - middle) ** 2 for f in side])


def _within2(figures: Sequence[Figure]) -> float:
    known = [f.within**2 for f in figures if f.within is not None]
    return fmean(known) if known else 0.0


def _pooled(
    before: Sequence[Figure], after: Sequence[Figure], floor: Floor | None
) -> tuple[float, float, Noise]:
    """(variance of one run, degrees of freedom, from where): one noise for both sides."""
    within2 = max(_within2((*before, *after)), _LEAST_SPREAD**2)
    if floor is not None and math.isinf(floor.freedom):
        return floor.variance + within2, math.inf, floor.source
    freedom: float = len(before) + len(after) - 2
    squares = _squares(before) + _squares(after)
    source: Noise = "repeats"
    if floor is not None and floor.freedom > 0:
        freedom, squares = freedom + floor.freedom, squares + floor.variance * floor.freedom
        source = floor.source
    if freedom < 1:
        return math.inf, math.inf, "unknown"
    return max(squares / freedom, within2), freedom, source


def runs_needed(one: Estimate, fail_on: float) -> int:
    """The least number of runs a side whose 95 % interval reaches no farther than `fail_on`.

    At least 3; 100 for more than that; 0 where nothing is known of the noise.
    """
    if one.source == "unknown":
        return 0
    margin = math.log1p(fail_on)

    def enough(count: int) -> bool:
        return quantile(0.95, 2 * count - 2) * one.spread * math.sqrt(2 / count) <= margin

    return LEAST_RUNS + bisect_left(range(LEAST_RUNS, _MOST_RUNS), True, key=enough)
