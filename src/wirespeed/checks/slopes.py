"""Does a series go up? Theil and Sen's slope with its interval; no normal noise is assumed.

The interval comes from Kendall's statistic (P. K. Sen, Estimates of the regression coefficient based on
Kendall's tau, 1968). Neighbours in time resemble each other, which makes that interval too narrow: its
variance is enlarged by the autocorrelation that the residuals' ranks show (K. H. Hamed and A. R. Rao, A
modified Mann-Kendall trend test for autocorrelated data, 1998; the first lag, as for an AR(1) series).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, median

__all__ = ["LEAST", "Slope", "slope"]

LEAST = 10
"""Below this many points no slope is told."""
_MOST = 120
"""More are put together, neighbour by neighbour: pairs grow with the square."""


@dataclass(frozen=True, slots=True)
class Slope:
    """Change of the value for each unit of time."""

    value: float
    low: float
    high: float
    points: int


def slope(times: Sequence[float], values: Sequence[float], confidence: float) -> Slope | None:
    """The slope and its two-sided interval; None for fewer than LEAST points.

    times: rising, as long as values.
    """
    while len(values) > _MOST:
        times, values = _thinned(times), _thinned(values)
    n = len(values)
    if n < LEAST:
        return None
    slopes = sorted(
        (values[j] - values[i]) / (times[j] - times[i])
        for i in range(n)
        for j in range(i + 1, n)
        if times[j] > times[i]
    )
    middle = median(slopes)
    rest = [value - middle * at for at, value in zip(times, values, strict=True)]
    spread = math.sqrt(n * (n - 1) * (2 * n + 5) / 18 * _inflation(rest))
    reach = NormalDist().inv_cdf(0.5 + confidence / 2) * spread
    count = len(slopes)
    low, high = math.floor((count - reach) / 2), math.ceil((count + reach) / 2)
    inside = low >= 0 and high < count
    return Slope(
        middle,
        slopes[low] if inside else -math.inf,
        slopes[high] if inside else math.inf,
        n,
    )


def _thinned(values: Sequence[float]) -> list[float]:
    pairs = zip(values[::2], values[1::2], strict=False)
    return [(a + b) / 2 for a, b in pairs]


def _inflation(rest: Sequence[float]) -> float:
    """How many times larger the variance is for their autocorrelation; at least 1."""
    n = len(rest)
    order = sorted(range(n), key=rest.__getitem__)
    ranks = [0.0] * n
    for rank, index in enumerate(order):
        ranks[index] = rank - (n - 1) / 2
    total = sum(rank * rank for rank in ranks)
    lag = sum(a * b for a, b in pairwise(ranks)) / total if total else 0.0
    lag = min(max(lag + 1 / n, 0.0), 0.95)  # a short series shows less than there is
    return (1 + lag) / (1 - lag)
