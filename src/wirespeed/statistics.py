"""Statistics without assumptions about the noise: order statistics of the samples themselves.

The interval of the median is the classical one from the binomial distribution (G. J. Hahn and
W. Q. Meeker, Statistical Intervals, 1991, section 5.2; J.-Y. Le Boudec, Performance Evaluation of
Computer and Communication Systems, 2010, section 2.2.2): of n independent samples, the number below
the true median is binomial (n, 1/2), whatever their distribution. Where whole order statistics hold
the median much more often than was asked, those next to them are interpolated (T. P. Hettmansperger
and S. J. Sheather, Confidence intervals based on interpolated order statistics, Statistics &
Probability Letters 4, 1986). docs/statistics.md says what is promised and what was measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean, median, stdev

from wirespeed.model.records import TimeStats

LEAST_SAMPLES = 6
"""Below this many samples no order statistics enclose the median with 95 %: 2 (1/2)^5 = 6 %."""
MAD_TO_SIGMA = 1.4826
"""The median absolute deviation of a normal distribution times this is its sigma."""
FAR = 0.25
"""Beyond the range of other runs: three that agree by luck have a narrow one."""
SAME = 0.05
"""Times that differ by less are as good as each other."""
_MANY = 1000
"""From this many samples on, numpy sorts."""
_TOO_SURE = 0.44
"""Whole order statistics that miss the median in fewer than this share of the cases that were
allowed (for 95 %: that hold it in more than 97.8 %) are drawn in. From 0.5 on, the interval at the
end of adaptive sampling breaks its promise of 93 % (benchmarks/adaptive_stop.py)."""
_AT_WORST = 1.5
"""Interpolation may miss the median in this many times the cases that were allowed (for 95 %: hold
it in 92.5 %), whatever the distribution."""


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float
    coverage: float
    """The probability that the true median lies within; below what was asked for when there are
    too few samples (fewer than 6 for 95 %), where the interval is (smallest, largest)."""


def has_interval(samples: int) -> bool:
    """Return whether so many samples give a 95 % interval of their median.

    Below that, `low` and `high` of a record are the range of the samples, which no view may call an
    interval and no verdict may rest on.
    """
    return samples >= LEAST_SAMPLES


def lacks_samples(samples: int) -> bool:
    """Return whether samples were counted and are too few for an interval; 0 stands for not counted."""
    return samples > 0 and not has_interval(samples)


def reach_of_ends(samples: int) -> float:
    """Return how many standard errors the ends of a median's interval lie off it.

    1.96 for a 95 % interval. The range of fewer samples holds the median less often (two samples:
    half of the time), so its ends stand for fewer standard errors.
    """
    confidence = 0.95 if has_interval(samples) else 1 - 2 * 0.5 ** max(samples, 2)
    return NormalDist().inv_cdf((1 + confidence) / 2)


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> Interval:
    """The interval of the median at `confidence`, from samples in any order (at least one).

    Interpolated where whole order statistics hold it much more often: about as often as was asked
    for is what an estimate needs. What decides takes `sure_interval`.
    """
    return _interval_of_sorted(_in_order(samples), confidence)


def sure_interval(samples: Sequence[float], confidence: float = 0.95) -> Interval:
    """From one sample to another: it holds the median at least as often as its coverage says,
    whatever the distribution, and is never narrower than `median_interval`."""
    return _sure_of_sorted(_in_order(samples), confidence)


def mean_interval(samples: Sequence[float], confidence: float = 0.95) -> Interval:
    """The interval of the mean by Student's t, for means of rounds, which are nearly normal.

    One sample tells nothing of the spread: the interval is then infinite, its coverage 0.
    """
    if len(samples) < 2:
        return Interval(-math.inf, math.inf, 0.0)
    middle = fmean(samples)
    reach = student_t(confidence, len(samples) - 1) * stdev(samples) / math.sqrt(len(samples))
    return Interval(middle - reach, middle + reach, confidence)


def paired_ratio(
    first: Sequence[float], second: Sequence[float], confidence: float = 0.95
) -> tuple[float, Interval]:
    """The median of first[i] / second[i] over rounds i, and its interval (whole order statistics).

    Pairs of one round share the machine's mood, so that drift cancels. All values above 0.
    """
    ratios = [a / b for a, b in zip(first, second, strict=True)]
    return median(ratios), sure_interval(ratios, confidence)


def paired_verdict(
    first: Sequence[float], second: Sequence[float], confidence: float = 0.95
) -> tuple[float, Interval, str]:
    """The paired ratio of times and its interval, with `same`, `slower`, `faster` (of the first) or
    `not enough rounds`.

    `same` needs the whole interval within SAME; the others need it wholly on one side of 1; neither
    is said of an interval that does not reach the confidence.
    """
    value, interval = paired_ratio(first, second, confidence)
    if interval.coverage < confidence:
        return value, interval, "not enough rounds"
    if interval.low > 1 / (1 + SAME) and interval.high < 1 + SAME:
        return value, interval, "same"
    if interval.low > 1:
        return value, interval, "slower"
    return value, interval, "faster" if interval.high < 1 else "not enough rounds"


def lies_outside(own: tuple[float, float], others: tuple[float, float], least: float = FAR) -> bool:
    """Return whether an interval lies off the range of all others by a wide margin.

    By more than that range is wide, and by `least`. All ends are above 0. It is no proof of a change:
    the next run may lie there too.
    """
    gap = max(own[0] / others[1], others[0] / own[1])
    return gap > max(1 + least, others[1] / others[0])


def student_t(confidence: float, freedom: float) -> float:
    """The two-sided quantile of Student's t distribution: 12.706 for 0.95 and 1 degree of freedom.

    freedom: at least 1, and no whole number where variances differ (Welch). Error below 1e-3. By G. W.
    Hill, Algorithm 396: Student's t-quantiles, Communications of the ACM 13 (1970), with the closed
    forms for 1 and 2 degrees of freedom.
    """
    tail = 1 - confidence
    if freedom < 1.0001:
        return 1 / math.tan(tail * math.pi / 2)
    if abs(freedom - 2) < 1e-4:
        return math.sqrt(2 / (tail * (2 - tail)) - 2)
    return _hill(tail, freedom)


def _hill(tail: float, n: float) -> float:
    """The quantile with `tail` on both sides together; n > 1."""
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    y = (d * tail) ** (2 / n)
    if y > 0.05 + a:
        x = NormalDist().inv_cdf(tail / 2)
        y = x * x
        if n < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        y = (
            (1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1
        ) * (n + 1) / (n + 2) + 1 / y
    return math.sqrt(n * y)


def time_stats(samples: Sequence[float]) -> TimeStats:
    """Median with its 95 % interval, mean, extremes and tail of times in seconds (at least one)."""
    ordered = _in_order(samples)
    interval = _interval_of_sorted(ordered, 0.95)
    return TimeStats(
        median=_middle(ordered),
        mean=fmean(ordered),
        low=interval.low,
        high=interval.high,
        min=ordered[0],
        p95=_nearest_rank(ordered, 0.95),
        p99=_nearest_rank(ordered, 0.99),
        max=ordered[-1],
    )


def relative_half_width(samples: Sequence[float]) -> float:
    """The wider side of the median's sure 95 % interval over the median; 0.05 means ±5 %.

    Of times in seconds, at least one. Infinite when the median is 0 (a clock too coarse) but the
    interval is not.
    """
    ordered = _in_order(samples)
    interval, middle = _sure_of_sorted(ordered, 0.95), _middle(ordered)
    side = max(interval.high - middle, middle - interval.low)
    if middle > 0:
        return side / middle
    return math.inf if side > 0 else 0.0


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` (0 to 1) of the samples do not exceed.

    The nearest-rank definition (R. J. Hyndman and Y. Fan, Sample quantiles in statistical packages,
    1996, definition 1): always a sample, never a value between two.
    """
    return _nearest_rank(_in_order(samples), share)


def median_absolute_deviation(values: Sequence[float]) -> float:
    """The median distance from the median, in the values' unit; 1.4826 times it estimates sigma."""
    middle = median(values)
    return median(abs(value - middle) for value in values)


def drift(samples: Sequence[float]) -> float:
    """How far the median moved from the first half to the second, relative to the first.

    samples: in the order in which they were taken. 0 when the 95 % intervals of the two halves
    overlap, and below 12 samples; without any drift fewer than 0.6 % of the series give another.
    """
    half = len(samples) // 2
    if half < LEAST_SAMPLES:
        return 0.0
    first, second = samples[:half], samples[-half:]
    before, after = sure_interval(first), sure_interval(second)
    if before.low <= after.high and after.low <= before.high:
        return 0.0
    middle = median(first)
    return (median(second) - middle) / middle if middle else math.inf


def _in_order(samples: Sequence[float]) -> list[float]:
    """Sorted. numpy takes a fifth of the time for many samples, but is slow to import: only then."""
    if len(samples) < _MANY:
        return sorted(samples)
    import numpy as np

    ordered: list[float] = np.sort(np.array(samples, dtype=np.float64)).tolist()
    return ordered


def _middle(ordered: Sequence[float]) -> float:
    n = len(ordered)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def _sure_of_sorted(ordered: Sequence[float], confidence: float) -> Interval:
    n = len(ordered)
    rank, coverage = _rank(n, confidence)
    return Interval(ordered[rank - 1], ordered[n - rank], coverage)


def _interval_of_sorted(ordered: Sequence[float], confidence: float) -> Interval:
    sure, n = _sure_of_sorted(ordered, confidence), len(ordered)
    share, coverage = _drawn_in(n, confidence)
    if share == 0:
        return sure
    rank, _ = _rank(n, confidence)
    low = _towards(sure.low, ordered[rank], share)
    return Interval(low, _towards(sure.high, ordered[n - rank - 1], share), coverage)


def _towards(outer: float, inner: float, share: float) -> float:
    """Never beyond the inner one by rounding; the outer one where their distance is no number."""
    distance = inner - outer
    if not math.isfinite(distance):
        return outer
    value = outer + share * distance
    return min(value, inner) if inner > outer else max(value, inner)


def _nearest_rank(ordered: Sequence[float], share: float) -> float:
    # Rounded first: 0.07 * 100 is 7.000000000000001 in floating point.
    return ordered[max(0, math.ceil(round(share * len(ordered), 9)) - 1)]


@lru_cache(maxsize=4096)
def _rank(n: int, confidence: float) -> tuple[int, float]:
    """(k, coverage): the interval runs from the k-th smallest to the k-th largest of n samples.

    The largest k with P(fewer than k below the median) at most (1 - confidence) / 2; at least 1.
    The binomial terms are summed in logarithms from 10 sigma below the middle on; what lies further
    out is less than 1e-22, so that no approximation is needed for any n.
    """
    allowed = (1 - confidence) / 2
    k = max(0, int(n / 2 - 5 * math.sqrt(n)))
    tail, term = 0.0, _binomial_half(n, k)
    while k < n // 2 and tail + term <= allowed:
        tail += term
        k += 1
        term *= (n - k + 1) / k
    if k == 0:
        return 1, max(0.0, 1 - 2 * 0.5**n)
    return k, 1 - 2 * tail


@lru_cache(maxsize=4096)
def _drawn_in(n: int, confidence: float) -> tuple[float, float]:
    """(share, coverage): how far each end lies from its order statistic towards the next one within.

    0 unless whole order statistics are too sure. The share is exact where the samples on either
    side of the median lie off it by an exponential distribution each, and near it elsewhere. A
    share up to 1/2 costs at most half of what the whole step to the next pair would, whatever the
    distribution, a larger one up to all of it (docs/statistics.md): it is as large as that allows.
    """
    k, sure = _rank(n, confidence)
    missed = 1 - confidence
    if 2 * k >= n or sure < confidence or 1 - sure >= _TOO_SURE * missed:
        return 0.0, sure
    step = 2 * _binomial_half(n, k)
    part = (sure - confidence) / step
    spare = _AT_WORST * missed - (1 - sure)
    most = 1.0 if step <= spare else 0.5 if step / 2 <= spare else 0.0
    share = min(most, (n - k) * part / (k + (n - 2 * k) * part))
    cost = step * share * k / (n - k - share * (n - 2 * k))
    return share, max(confidence, sure - cost)


def _binomial_half(n: int, k: int) -> float:
    """P(exactly k of n) at probability 1/2."""
    log_ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(log_ways - n * math.log(2))
