"""How much slower is one side than the other, and how sure is that?

Everything is in logarithms of time: a ratio becomes a difference, and noise that is in proportion to
the time is alike for 10 µs and 10 s. **The run is the unit**: the samples of one run share its moment,
its placement and its connections, so their interval says little of what the next run will give.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from wirespeed.compare.student import quantile, two_sided_p
from wirespeed.records_comparison import Noise

__all__ = ["LEAST_RUNS", "LEVEL", "Estimate", "Figure", "Floor", "estimate", "runs_needed"]

LEAST_RUNS = 3
"""Runs a side that it takes to call something different, unless somebody states the noise. With one or
two, a run that was far off (a busy neighbour, the slower cores) passes for a change: measured in
docs/statistics.md. From here on each side's noise is its own (Welch); below, there is one for both."""
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

    @property
    def p(self) -> float:
        if math.isinf(self.error):
            return 1.0
        return two_sided_p(self.change / self.error, self.freedom)

    def reach(self, confidence: float) -> float:
        """Half the width of the interval of `change`."""
        if math.isinf(self.error):
            return math.inf
        return quantile(confidence, self.freedom) * self.error

    def same_within(self, margin: float) -> bool:
        """Both one-sided tests at 5 %: the 90 % interval lies within ±margin (D. J. Schuirmann, A
        comparison of the two one-sided tests procedure, 1987)."""
        return abs(self.change) + self.reach(1 - 2 * LEVEL) < margin


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
    """B. L. Welch, The generalization of `Student's' problem, 1947, with his degrees of freedom."""
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
    )


def _noise2(side: Sequence[Figure]) -> float:
    """Variance of a run: as the repeats show it, but not below what each run says of itself."""
    return max(variance(f.log for f in side), _within2(side), _LEAST_SPREAD**2)


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
    squares = sum(variance(f.log for f in s) * (len(s) - 1) for s in (before, after) if len(s) > 1)
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
    for count in range(LEAST_RUNS, _MOST_RUNS):
        if quantile(0.95, 2 * count - 2) * one.spread * math.sqrt(2 / count) <= margin:
            return count
    return _MOST_RUNS
