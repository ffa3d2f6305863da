"""Where the level of a noisy series changes: binary segmentation of values whose outliers are clipped.

Noise is robust (median absolute deviation) and corrected for its autocorrelation; a change must
stand out of what the largest of all places it could be at reaches by luck.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirespeed.statistics import MAD_TO_SIGMA
from wirespeed.watch.own_work import Floats, median_over

LEAST_ROWS = 5
"""Rows of a level."""
_CLIP = 3.0
_MARGIN = 1.0
"""Beyond the extreme of so many normal scores."""
_LIKELIHOOD = 7.35
"""Twice the logarithm of the likelihood ratio below which a place belongs to the 95 % interval of a
change (B. E. Hansen, Sample splitting and threshold estimation, Econometrica 68, 2000, table I)."""


_LEAST_EVENTS = 4
_REGULAR = 0.6
"""Share of the distances between events that must be the same for them to be regular."""


@dataclass(frozen=True, slots=True)
class Change:
    at: int
    """Index of the first value of the new level."""
    low: int
    """Ends of its 95 % interval."""
    high: int
    score: float
    """Difference of the levels in standard errors."""


@dataclass(frozen=True, slots=True)
class Level:
    """A stretch without a change."""

    start: int
    stop: int
    value: float
    """Its median."""
    change: Change | None
    """With which it begins; None: with the series."""


def sure_score(places: int) -> float:
    """What the largest of so many scores does not reach by luck."""
    return math.sqrt(2 * math.log(max(2, places))) + _MARGIN


def noise(values: NDArray[Any], weights: Floats) -> Floats:
    """By series [series, n]: sigma of a value of weight 1, of neighbours' differences, so that
    changes of level leave it alone."""
    steps = np.diff(values, axis=-1) / np.sqrt(1 / weights[1:] + 1 / weights[:-1])
    return MAD_TO_SIGMA * median_over(np.abs(steps), 1)


def scan(scaled: NDArray[Any], weights: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """By series [series, n] of noise 1: the largest score of a change up, and where it is."""
    sums = np.cumsum(scaled * weights, axis=-1)
    before = np.cumsum(weights)
    total = before[-1]
    reach = slice(LEAST_ROWS - 1, -LEAST_ROWS)
    shares = (before / total)[reach]
    spread = np.sqrt(shares * (1 - shares) * total)
    scores = (shares * sums[..., -1:] - sums[..., reach]) / spread
    best = np.argmax(scores, axis=-1)
    return np.take_along_axis(scores, best[..., None], -1)[..., 0], best + LEAST_ROWS


def levels(values: Floats, weights: Floats, *, among: int = 1) -> list[Level]:
    """The levels of a series without NaN; among: how many series are looked at."""
    found: list[tuple[int, Change | None]] = [(0, None)]
    parts = [(0, len(values))]
    while parts:
        start, stop = parts.pop()
        change = _strongest(values[start:stop], weights[start:stop], len(values) * among)
        if change is None:
            continue
        at = start + change.at
        moved = Change(at, start + change.low, start + change.high, change.score)
        found.append((at, moved))
        parts += [(start, at), (at, stop)]
    found.sort(key=lambda one: one[0])
    ends = [at for at, _ in found[1:]] + [len(values)]
    return [
        Level(at, end, float(np.median(values[at:end])), change)
        for (at, change), end in zip(found, ends, strict=True)
    ]


def _strongest(values: Floats, weights: Floats, places: int) -> Change | None:
    """Of all of it, else of shorter windows, in which a level that comes and goes has one end only
    (S. Kovács, H. Li, P. Bühlmann and A. Munk, Seeded binary segmentation, Biometrika 110, 2023)."""
    n = len(values)
    found = _change(values, weights, places)
    for size in (n // 2, n // 4):
        if found is not None or size < 2 * LEAST_ROWS:
            break
        for start in range(0, n - size + 1, size // 2):
            window = slice(start, start + size)
            one = _change(values[window], weights[window], places)
            if one is not None and (found is None or one.score > found.score):
                found = Change(start + one.at, start + one.low, start + one.high, one.score)
    return found


def _change(values: Floats, weights: Floats, places: int) -> Change | None:
    """The strongest change, if it is sure: of the values, or of their ranks, which tell more where
    noise has a long tail on one side, as of a rank whose core others take."""
    if len(values) < 2 * LEAST_ROWS:
        return None
    found = _change_of(_clipped(values, weights), weights, 2 * places)
    return found or _change_of(_normal_scores(values), weights, 2 * places)


def _normal_scores(values: Floats) -> Floats:
    """What normal noise of the same ranks would be."""
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return _normal_quantiles(len(values))[ranks]


@lru_cache(maxsize=256)
def _normal_quantiles(count: int) -> Floats:
    normal = NormalDist()
    return np.array([normal.inv_cdf((one + 0.5) / count) for one in range(count)])


def _change_of(clipped: Floats, weights: Floats, places: int) -> Change | None:
    gains = _gains(clipped, weights)
    at = int(np.argmax(gains)) + LEAST_ROWS
    rest = np.concatenate(
        (clipped[:at] - np.median(clipped[:at]), clipped[at:] - np.median(clipped[at:]))
    )
    variance = float(np.average(rest**2, weights=weights)) * float(np.mean(weights))
    variance = max(variance * inflation(rest), 1e-24)
    score = math.sqrt(float(gains[at - LEAST_ROWS]) / variance)
    if score < sure_score(places):
        return None
    near = np.nonzero(gains >= gains[at - LEAST_ROWS] - _LIKELIHOOD * variance)[0] + LEAST_ROWS
    return Change(at, int(near[0]), int(near[-1]), score)


def _clipped(values: Floats, weights: Floats) -> Floats:
    """Single values far off both levels next to them pull no level."""
    sigma = float(noise(values[None], weights)[0])
    wide = MAD_TO_SIGMA * float(np.median(np.abs(values - np.median(values))))
    reach = _CLIP * max(sigma, wide, 1e-12)
    low, high = np.percentile(values, (10, 90))
    clipped: Floats = np.clip(values, low - reach, high + reach)
    return clipped


def _gains(values: Floats, weights: Floats) -> Floats:
    """Weighted squares that a change at LEAST_ROWS, … explains."""
    sums, before = np.cumsum(values * weights), np.cumsum(weights)
    reach = slice(LEAST_ROWS - 1, -LEAST_ROWS)
    first = before[reach]
    rest = before[-1] - first
    gap = sums[reach] / first - (sums[-1] - sums[reach]) / rest
    gains: Floats = gap**2 * first * rest / before[-1]
    return gains


def inflation(rest: Floats) -> float:
    """How many times larger the variance of a mean is for the values' autocorrelation; at least 1."""
    square = float(np.dot(rest, rest))
    lag = float(np.dot(rest[1:], rest[:-1])) / square if square > 0 else 0.0
    lag = min(max(lag + 1 / len(rest), 0.0), 0.9)  # a short series shows less than there is
    return (1 + lag) / (1 - lag)


def events_since(event: NDArray[np.bool_], each: Floats) -> tuple[Change | None, int]:
    """Where events begin, None: as often from the first row on, as far as can be told; and the steps
    from one to the next, if they are regular, else 0.

    each: steps of a row.
    """
    onset = _rate_change(event)
    begins = np.nonzero(event & ~np.concatenate(([False], event[:-1])))[0]
    if onset is not None:
        begins = begins[begins >= onset.at]
    at_step = np.concatenate(([0], np.cumsum(each))).astype(np.int64)
    every = _period(at_step[begins])
    if every:
        begins = _in_time(begins, at_step, every)
        at, rows = int(begins[0]), round(every / float(np.median(each)))
        if onset is not None or at > 1.5 * rows:  # the one before would have been seen
            onset = Change(at, max(0, at - rows + 1), at, onset.score if onset else 0.0)
    return onset, every


def _in_time(
    begins: NDArray[np.int64], at_step: NDArray[np.int64], every: int
) -> NDArray[np.int64]:
    """Without the first ones that are not a whole number of periods before the next.

    An event is in one of the steps of its row, whichever.
    """
    first, last = at_step[begins], at_step[begins + 1] - 1
    most, least = last[1:] - first[:-1], first[1:] - last[:-1]
    out_of_time = most // every * every < least
    return begins[int(np.argmin(out_of_time)) :]


def _period(steps: NDArray[np.int64]) -> int:
    """Steps between most of the events that begin there; 0: they are irregular."""
    if len(steps) < _LEAST_EVENTS:
        return 0
    values, counts = np.unique(np.diff(steps), return_counts=True)
    best = int(np.argmax(counts))
    return int(values[best]) if counts[best] >= _REGULAR * (len(steps) - 1) else 0


def _rate_change(event: NDArray[np.bool_]) -> Change | None:
    """By the likelihood of two rates."""
    n = len(event)
    if n < 2:
        return None
    sums = np.cumsum(event)[:-1].astype(np.float64)
    before = np.arange(1, n, dtype=np.float64)
    total = float(event.sum())
    gains = _fit(sums, before) + _fit(total - sums, n - before)
    gains -= _fit(np.array([total]), np.array([float(n)]))[0]
    gains[(total - sums) / (n - before) <= sums / before] = 0
    at = int(np.argmax(gains))
    score = math.sqrt(2 * max(0.0, float(gains[at])))
    if score**2 < _LIKELIHOOD:
        return None
    near = np.nonzero(2 * gains >= 2 * gains[at] - _LIKELIHOOD)[0] + 1
    return Change(at + 1, int(near[0]), int(near[-1]), score)


def _fit(hits: Floats, of: Floats) -> Floats:
    """Logarithm of the likelihood of so many events at their own rate."""
    rate = hits / of
    with np.errstate(divide="ignore", invalid="ignore"):
        logs: Floats = np.nan_to_num(hits * np.log(rate)) + np.nan_to_num(
            (of - hits) * np.log1p(-rate)
        )
    return logs
