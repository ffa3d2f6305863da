"""Ranks, or nodes, that are late now and then, and much more often than the others are."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from wirespeed.watch.change_points import LEAST_ROWS, events_since
from wirespeed.watch.late import Late, Units
from wirespeed.watch.own_work import Floats, Matrix, last_units, median_over

_SIGMAS, _SHARE = 5.0, 0.1
"""Excess of a burst in sigmas of the unit, and as a share of a step."""
_TIMES = (1, 2, 4, 8, 16)
"""That, and so many times that: noise has small bursts, and what is wrong larger ones."""
_LEAST = 4
_NEAR_ROWS = 5
"""Between the intervals of two onsets that are one."""
_LUCK = 1e-4 / len(_TIMES)
_SURE = NormalDist().inv_cdf(1 - _LUCK)


@dataclass(frozen=True, slots=True)
class _Count:
    """Bursts by unit above one bound."""

    times: int
    score: Floats
    """How far a unit's number is above the others', in sigmas."""
    natural: float
    """Seconds that bursts of a unit cost as a rule."""


def bursts(units: Units, always: Sequence[Late]) -> list[Late]:
    """always: whose lateness in every step is known."""
    if len(units.work) < 2 or units.work.shape[1] < 2 * LEAST_ROWS:
        return []
    work, rest = units.work.copy(), units.excess - units.level[:, None].astype(np.float32)
    for one in always:
        work[one.unit] -= one.delay
        even = units.excess[one.unit] - one.delay
        rest[one.unit] = even - median_over(even[None], 1)
    last, margin = last_units(work)
    late = rest[last, np.arange(len(last))]
    counts = [_counted(units, last, late, margin, times) for times in _TIMES]
    best = np.argmax([one.score for one in counts], axis=0)
    sure = np.max([one.score for one in counts], axis=0) > _SURE
    return [
        _burst(units, int(unit), rest[unit], counts[best[unit]]) for unit in np.nonzero(sure)[0]
    ]


def _counted(
    units: Units, last: NDArray[np.int64], late: Matrix, margin: Matrix, times: int
) -> _Count:
    """By row the last unit, its excess, and how far the next one is; bursts in steps one after the
    other are one."""
    event = late > times * _bound(units, units.sigma[last])
    goes_on = event[:-1] & (last[1:] == last[:-1])
    begins = event & ~np.concatenate(([False], goes_on))
    counts = np.bincount(last[begins], minlength=len(units.work))
    lost = np.bincount(last, np.where(event, margin, 0) * units.each, minlength=len(units.work))
    scores = np.zeros(len(units.work))
    for unit in np.nonzero(counts >= _LEAST)[0]:
        typical = 1.5 * float(np.median(np.delete(counts, unit))) + 1
        scores[unit] = 2 * (math.sqrt(counts[unit]) - math.sqrt(typical))  # of Poisson counts
    return _Count(times, scores, float(np.median(lost)))


def _bound(units: Units, sigma: Floats | float) -> Floats:
    """By row: an excess above it is a burst."""
    bound: Floats = np.maximum(
        _SIGMAS * sigma / np.sqrt(units.each), _SHARE * units.step_s / units.each
    )
    return bound


def _burst(units: Units, unit: int, rest: Matrix, count: _Count) -> Late:
    event: NDArray[np.bool_] = rest > count.times * _bound(units, float(units.sigma[unit]))
    onset, every = events_since(event, units.each)
    rows = event.copy()
    rows[: onset.at if onset else 0] = False
    return Late(
        unit=unit,
        rows=rows,
        delay=np.where(rows, rest, 0).astype(np.float64),
        onset=onset,
        bursts=True,
        every=every,
        natural=count.natural / (units.step_s * float(units.each.sum())),
    )


def one_each(always: Sequence[Late], found: Sequence[Late]) -> list[Late]:
    """Both, but one of a unit that is late in every step, and more so now and then since the same time
    or with a period: its lateness varies, or rows hold several steps. It is told as most of it is."""
    told = []
    for one in always:
        twin = next((other for other in found if _are_one(one, other)), None)
        if twin is not None:
            found = [other for other in found if other is not twin]
            most = twin if twin.delay.sum() > one.delay.sum() else one
            one = replace(most, delay=one.delay + twin.delay, steady_s=one.typical_s)
        told.append(one)
    return [*told, *found]


def _are_one(one: Late, other: Late) -> bool:
    if one.unit != other.unit or other.every > 1:
        return one.unit == other.unit
    if one.onset is None or other.onset is None:
        return one.onset is other.onset
    apart = max(one.onset.low, other.onset.low) - min(one.onset.high, other.onset.high)
    return apart <= _NEAR_ROWS
