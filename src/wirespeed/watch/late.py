"""Which ranks, or nodes, are late at their own work in every step, from some step on.

A unit is a rank or a node. Its excess is its work less the median of all others' at the same step, so
that what hits all alike (an evaluation, a compilation, noise of the whole job) is no lateness.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wirespeed.statistics import LEAST_SAMPLES, MAD_TO_SIGMA, has_interval, median_interval
from wirespeed.watch.change_points import (
    LEAST_ROWS,
    Change,
    Level,
    inflation,
    levels,
    noise,
    scan,
    sure_score,
)
from wirespeed.watch.own_work import Floats, Matrix, median_over, others

MATERIAL = 0.03
"""Share of a step below which nobody is accused."""
_FEW, _FEW_MATERIAL = 8, 0.05
"""Below so many units their usual differences are not known: who was always late must be so by more."""
_SPREADS = 4.0
"""Who was always late must stand off the others by so many sigmas of their usual differences."""
_LEAST_NOISE = 0.002
"""Of a step: no unit is more even."""
_MOST_NOISE = 2.0
"""Of other units' own noise, in rows of several steps: where two of five hold a burst, these are no
noise of the unit's."""
_MOST_UNITS = 256
"""Looked at closely; the latest first."""
_OVER_ROWS = 20
"""Rows of lateness that is over again, below which it is not told."""
_PART = 0.25
"""Of the mean lateness: a level below it before the others is no part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    unit: int
    rows: NDArray[np.bool_]
    """Where it was late."""
    delay: Floats
    """By row, seconds that it was late; 0 elsewhere."""
    onset: Change | None
    """None: since the begin of what was seen."""
    over: int = -1
    """First row at which it was no longer late; -1: it still is."""
    bursts: bool = False
    """Late now and then, not in every step."""
    every: int = 0
    """Bursts come every so many steps; 0: irregularly."""
    natural: float = 0.0
    """Share of the time that bursts of another unit cost as a rule."""
    steady_s: float = 0.0
    """Of it in every step, where it is told as bursts."""

    @property
    def typical_s(self) -> float:
        return float(np.median(self.delay[self.rows]))


class Units:
    """Units × rows with what is known of their noise."""

    def __init__(self, work: Matrix, each: Floats, step_s: float) -> None:
        """work: [units, rows] seconds, NaN where not known; each: steps of a row; step_s: of a step."""
        self.work, self.each, self.step_s = work, each, step_s
        self.excess = work - others(work)
        usual = median_over(self.excess, 1)
        self.level: Floats = np.where(np.isnan(usual), 0.0, usual)
        own = np.nan_to_num(noise(self.excess, each))
        if np.median(each) > 1:
            theirs = others(noise(work, each)[:, None].astype(np.float32))[:, 0]
            own = np.fmin(own, _MOST_NOISE * theirs)
        self.sigma: Floats = np.maximum(own, _LEAST_NOISE * step_s)

    def filled(self, unit: int) -> Floats:
        """Its excess, where not known its level."""
        row = self.excess[unit].astype(np.float64)
        filled: Floats = np.where(np.isnan(row), self.level[unit], row)
        return filled


def always_late(units: Units) -> list[Late]:
    """Those that are late in every step of a stretch."""
    if len(units.work) < 2 or units.work.shape[1] < 2 * LEAST_ROWS:
        return []
    return [late for unit in _candidates(units) if (late := _always(units, unit)) is not None]


def _candidates(seen: Units) -> list[int]:
    """Units whose level is high, or changed."""
    level, sigma = (one[:, None].astype(np.float32) for one in (seen.level, seen.sigma))
    scaled = np.clip(np.nan_to_num((seen.excess - level) / sigma), -3, 3)
    scores, _ = scan(scaled, seen.each)
    shares = seen.level / (MATERIAL * seen.step_s)
    rank = np.maximum(shares, scores / sure_score(seen.excess.size))
    order = np.argsort(-rank, kind="stable")[:_MOST_UNITS]
    return [int(unit) for unit in order if rank[unit] >= 0.5]


def _always(seen: Units, unit: int) -> Late | None:
    """Late in a stretch of steps, if it is."""
    excess = seen.filled(unit)
    run = _late_run(levels(excess, seen.each, among=len(seen.work)), seen)
    if not run:
        return None
    start, stop = run[0].start, run[-1].stop
    over = -1 if stop == len(excess) else stop
    if run[0].change is None and not _stands_off(seen, unit, excess[start:stop]):
        return None
    if over >= 0 and stop - start < _OVER_ROWS:
        return None
    rows = np.zeros(len(excess), np.bool_)
    rows[start:stop] = True
    delay = np.zeros(len(excess))
    for level in run:
        delay[level.start : level.stop] = max(0.0, level.value)
    return Late(unit=unit, rows=rows, delay=delay, onset=run[0].change, over=over)


def _late_run(found: Sequence[Level], seen: Units) -> list[Level]:
    """The neighbouring late levels that cost most, without a begin that is no part of it."""
    runs: list[list[Level]] = [[]]
    for level in found:
        if level.value >= MATERIAL * seen.step_s:
            runs[-1].append(level)
        elif runs[-1]:
            runs.append([])

    def weight(level: Level) -> float:
        return float(seen.each[level.start : level.stop].sum())

    run = max(runs, key=lambda run: sum(one.value * weight(one) for one in run))
    if not run:
        return []
    mean = sum(one.value * weight(one) for one in run) / sum(map(weight, run))
    while run[0].value < _PART * mean:
        run = run[1:]
    return run


def _stands_off(seen: Units, unit: int, excess: Floats) -> bool:
    """Whether who was late from the begin is so by more than units usually differ."""
    rest = np.delete(seen.level, unit)
    spread = MAD_TO_SIGMA * float(np.median(np.abs(rest - np.median(rest))))
    few = len(seen.work) < _FEW
    least = max((_FEW_MATERIAL if few else MATERIAL) * seen.step_s, 0 if few else _SPREADS * spread)
    inner = np.clip(excess, *np.percentile(excess, (5, 95)))
    # Never so few that they have no interval, which then is only wider for the samples between.
    stride = min(round(inflation(inner - inner.mean())), len(excess) // LEAST_SAMPLES)
    thinned = excess[:: max(1, stride)]
    return has_interval(len(thinned)) and median_interval(thinned.tolist()).low >= least
