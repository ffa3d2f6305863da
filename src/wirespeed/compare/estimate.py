"""Estimates of a change: Student's t, intervals, correction for many comparisons, changes of level."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, Any

from wirespeed.model.derived_records import Noise
from wirespeed.statistics import student_t

if TYPE_CHECKING:
    import numpy as np

_NORMAL = 1e6
"""From so many degrees of freedom on it is the normal distribution."""
_STEPS = 300
_TINY, _ENOUGH = 1e-300, 1e-14


def quantile(confidence: float, freedom: float) -> float:
    """The two-sided quantile; freedom may be infinite."""
    if freedom >= _NORMAL:
        return NormalDist().inv_cdf((1 + confidence) / 2)
    return student_t(confidence, freedom)


def two_sided_p(t: float, freedom: float) -> float:
    """P(|T| > |t|): 0.05 for 12.706 and 1 degree of freedom; freedom above 0, or infinite.

    It is the regularized incomplete beta function I_x(freedom/2, 1/2) at x = freedom/(freedom + t²)
    (M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions, 26.5.27 and 26.7.1).
    """
    if math.isinf(t):
        return 0.0
    if freedom >= _NORMAL:
        return math.erfc(abs(t) / math.sqrt(2))
    x = freedom / (freedom + t * t)
    a, b = freedom / 2, 0.5
    # The continued fraction converges quickly below the mean only; beyond it, by symmetry.
    if x < (a + 1) / (a + b + 2):
        return _front(a, b, x) * _fraction(a, b, x) / a
    return 1 - _front(a, b, x) * _fraction(b, a, 1 - x) / b


def _front(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return 0.0
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta)


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function (26.5.8), by W. J. Lentz's method."""
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < _ENOUGH:
            break
    return value


def _away(value: float) -> float:
    """Not zero, by which would be divided."""
    return value if abs(value) > _TINY else _TINY


def benjamini_hochberg(values: Sequence[float]) -> list[float]:
    """The p-values, adjusted: calling those below 0.05 makes at most 5 % of what is called wrong.

    Where nothing differs at all, the probability to call anything is at most 5 %. (Y. Benjamini and
    Y. Hochberg, Controlling the false discovery rate, 1995; for figures that vary together, as those of
    one run do: Y. Benjamini and D. Yekutieli, 2001, theorem 1.2.)
    """
    n = len(values)
    adjusted, least = [1.0] * n, 1.0
    for rank, index in zip(range(n, 0, -1), _falling(values), strict=True):
        least = min(least, values[index] * n / rank)
        adjusted[index] = least
    return adjusted


def _falling(values: Sequence[float]) -> list[int]:
    return sorted(range(len(values)), key=lambda i: values[i], reverse=True)


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


# Where the level of one figure changes, over many runs.

LEAST = 8
"""Below this many runs no order is rare enough: of 3 and 4 runs there are 35 orders."""
_SHORTEST = 3
"""Runs of a level; two that differ from the rest may be one bad day."""
_ORDERS = 1999


@dataclass(frozen=True, slots=True)
class Cut:
    at: int
    """Index of the first value after it."""
    p: float


def cuts(values: Sequence[float], *, level: float = 0.05, seed: int = 1) -> list[Cut]:
    """The changes of level, in order; their p-values allow for the cuts within parts.

    The same values always give the same answer.
    """
    import numpy as np

    found: list[Cut] = []
    parts = [(0, len(values))]
    while parts:
        start, end = parts.pop()
        if end - start < LEAST:
            continue
        cut = _strongest(np.asarray(values[start:end], dtype=np.float64), seed)
        adjusted = min(1.0, cut.p * len(values) / (end - start))
        if adjusted < level:
            found.append(Cut(start + cut.at, adjusted))
            parts += [(start, start + cut.at), (start + cut.at, end)]
    return sorted(found, key=lambda cut: cut.at)


def _strongest(values: "np.ndarray[Any, Any]", seed: int) -> Cut:
    """The strongest cut and its probability among random orders of the same values."""
    import numpy as np

    ranks = _ranks(values)
    if np.ptp(ranks) == 0:
        return Cut(0, 1.0)
    own = _scores(ranks[None, :])[0]
    best = int(np.argmax(own))
    strongest = _strongest_of_orders(np.sort(ranks).tobytes(), seed)
    as_strong = int(np.count_nonzero(strongest >= own[best] - 1e-9))
    return Cut(best + _SHORTEST, (1 + as_strong) / (1 + _ORDERS))


@lru_cache(maxsize=256)
def _strongest_of_orders(ranks: bytes, seed: int) -> "np.ndarray[Any, Any]":
    """Return the strongest score of each random order of these ranks (sorted float64).

    Series of equally many different values have the same ranks, so that a family of hundreds needs
    few of these, which take nearly all of the time.
    """
    import numpy as np

    values = np.frombuffer(ranks)
    rng = np.random.default_rng(seed)
    orders = rng.permuted(np.tile(values, (_ORDERS, 1)), axis=1)
    strongest: np.ndarray[Any, Any] = _scores(orders).max(axis=1)
    return strongest


def _scores(ranks: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """How far the rank sum before each cut is from its mean, in its standard deviations.

    ranks: shape (orders, n); the answer (orders, n - 2 * shortest + 1), a column a cut.
    """
    import numpy as np

    n = ranks.shape[1]
    sizes = np.arange(_SHORTEST, n - _SHORTEST + 1)
    sums = np.cumsum(ranks, axis=1)[:, sizes - 1]
    spread = np.sqrt(sizes * (n - sizes) / n)
    scores: np.ndarray[Any, Any] = np.abs(sums - sizes * (n + 1) / 2) / spread
    return scores


def _ranks(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """1 for the smallest; equal values share the mean of their ranks."""
    import numpy as np

    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: np.ndarray[Any, Any] = (ends - (counts - 1) / 2)[inverse]
    return ranks
