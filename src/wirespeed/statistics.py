"""Statistics without assumptions about the noise: order statistics of the samples themselves.

The interval of the median is the classical one from the binomial distribution (G. J. Hahn and
W. Q. Meeker, Statistical Intervals, 1991, section 5.2; J.-Y. Le Boudec, Performance Evaluation of
Computer and Communication Systems, 2010, section 2.2.2): of n independent samples, the number below
the true median is binomial (n, 1/2), whatever their distribution. docs/statistics.md says what is
promised and what was measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from wirespeed.records import TimeStats

__all__ = [
    "Interval",
    "drift",
    "median_interval",
    "percentile",
    "relative_half_width",
    "robust_scores",
    "time_stats",
]

MAD_TO_SIGMA = 1.4826
"""The median absolute deviation of a normal distribution times this is its sigma."""


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float
    coverage: float
    """The probability that the true median lies within; below what was asked for when there are
    too few samples (fewer than 6 for 95 %), where the interval is (smallest, largest)."""


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> Interval:
    """The interval of the median at `confidence`, from samples in any order (at least one)."""
    return _interval_of_sorted(sorted(samples), confidence)


def time_stats(samples: Sequence[float]) -> TimeStats:
    """Median with its 95 % interval, extremes and tail of times in seconds (at least one)."""
    ordered = sorted(samples)
    interval = _interval_of_sorted(ordered, 0.95)
    return TimeStats(
        median=median(ordered),
        low=interval.low,
        high=interval.high,
        min=ordered[0],
        p95=_nearest_rank(ordered, 0.95),
        p99=_nearest_rank(ordered, 0.99),
        max=ordered[-1],
    )


def relative_half_width(stats: TimeStats) -> float:
    """The wider side of the median's interval over the median; 0.05 means ±5 %."""
    if stats.median <= 0:
        return 0.0
    return max(stats.high - stats.median, stats.median - stats.low) / stats.median


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` of the samples do not exceed (nearest rank)."""
    return _nearest_rank(sorted(samples), share)


def robust_scores(values: Sequence[float]) -> list[float]:
    """Distance from the median in robust sigmas (1.4826 times the median absolute deviation).

    Where more than half of the values are equal, the others' score is infinite.
    """
    middle = median(values)
    spread = median(abs(value - middle) for value in values) * MAD_TO_SIGMA
    if spread > 0:
        return [(value - middle) / spread for value in values]
    return [math.copysign(math.inf, v - middle) if v != middle else 0.0 for v in values]


def drift(samples: Sequence[float]) -> float:
    """How far the median moved from the first half to the second, relative to the first.

    0 when the 95 % intervals of the two halves overlap, that is, when noise alone explains it.
    """
    half = len(samples) // 2
    if half < 6:
        return 0.0
    first, second = median_interval(samples[:half]), median_interval(samples[half:])
    if first.low <= second.high and second.low <= first.high:
        return 0.0
    before = median(samples[:half])
    return (median(samples[half:]) - before) / before if before else 0.0


def _interval_of_sorted(ordered: Sequence[float], confidence: float) -> Interval:
    n = len(ordered)
    rank, coverage = _rank(n, confidence)
    return Interval(ordered[rank - 1], ordered[n - rank], coverage)


def _nearest_rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@lru_cache(maxsize=4096)
def _rank(n: int, confidence: float) -> tuple[int, float]:
    """(k, coverage): the interval runs from the k-th smallest to the k-th largest of n samples.

    The largest k with P(fewer than k below the median) at most (1 - confidence) / 2; at least 1.
    The binomial terms are summed exactly in logarithms, from the tail inwards.
    """
    allowed = (1 - confidence) / 2
    tail, k = 0.0, 0
    log_half_n = n * math.log(0.5)
    while k < n // 2:
        log_term = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + log_half_n
        if tail + math.exp(log_term) > allowed:
            break
        tail += math.exp(log_term)
        k += 1
    if k == 0:
        return 1, max(0.0, 1 - 2 * 0.5**n)
    return k, 1 - 2 * tail
