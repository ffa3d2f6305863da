"""Which ranks, or nodes, are late at their own work: in every step from some step on, or now and then.

A unit is a rank or a node. Its excess is its work less the median of all others' at the same step, so
that what hits all alike (an evaluation, a compilation, noise of the whole job) is no lateness.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from wirespeed.statistics import MAD_TO_SIGMA, mean_interval, median_interval
from wirespeed.watch.change_points import (
    LEAST_ROWS,
    Change,
    Level,
    events_since,
    inflation,
    levels,
    noise,
    scan,
    sure_score,
)
from wirespeed.watch.own_work import Floats, Matrix, highest, median_over, others

MATERIAL = 0.03
"""Share of a step below which nobody is accused."""
_FEW, _FEW_MATERIAL = 8, 0.05
"""Below so many units their usual differences are not known: who was always late must be so by more."""
_SPREADS = 4.0
"""Who was always late must stand off the others by so many sigmas of their usual differences."""
_LEAST_NOISE = 0.002
"""Of a step: no unit is more even."""
_MOST_UNITS = 256
"""Looked at closely; the latest first."""
_OVER_ROWS = 20
"""Rows of lateness that is over again, below which it is not told."""
_BURST_SIGMAS, _BURST_SHARE = 5.0, 0.1
"""Excess of a burst in sigmas of the unit, and as a share of a step."""
_LEAST_BURSTS = 4
_LUCK = 1e-4
_BLOCKS = 20


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

    @property
    def typical_s(self) -> float:
        return float(np.median(self.delay[self.rows]))


@dataclass(frozen=True, slots=True)
class Cost:
    """How many times longer a step takes for it, and the 95 % interval."""

    ratio: float
    low: float
    high: float


class _Seen:
    """Units × rows with what is known of their noise."""

    def __init__(self, work: Matrix, each: Floats, step_s: float) -> None:
        self.work, self.each, self.step_s = work, each, step_s
        self.excess = work - others(work)
        usual = median_over(self.excess, 1)
        self.level: Floats = np.where(np.isnan(usual), 0.0, usual)
        self.sigma: Floats = np.maximum(
            np.nan_to_num(noise(self.excess, each)), _LEAST_NOISE * step_s
        )

    def filled(self, unit: int) -> Floats:
        """Its excess, where not known its level."""
        row = self.excess[unit].astype(np.float64)
        filled: Floats = np.where(np.isnan(row), self.level[unit], row)
        return filled


def late_units(work: Matrix, each: Floats, step_s: float) -> list[Late]:
    """work: [units, rows] seconds, NaN where not known; each: steps of a row; step_s: of a step."""
    if len(work) < 2 or work.shape[1] < 2 * LEAST_ROWS:
        return []
    seen = _Seen(work, each, step_s)
    found = [late for unit in _candidates(seen) if (late := _always(seen, unit)) is not None]
    return found + _bursts(seen, found)


def _candidates(seen: _Seen) -> list[int]:
    """Units whose level is high, or changed."""
    level, sigma = (one[:, None].astype(np.float32) for one in (seen.level, seen.sigma))
    scaled = np.clip(np.nan_to_num((seen.excess - level) / sigma), -3, 3)
    scores, _ = scan(scaled, seen.each)
    shares = seen.level / (MATERIAL * seen.step_s)
    rank = np.maximum(shares, scores / sure_score(seen.excess.size))
    order = np.argsort(-rank, kind="stable")[:_MOST_UNITS]
    return [int(unit) for unit in order if rank[unit] >= 0.5]


def _always(seen: _Seen, unit: int) -> Late | None:
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


def _late_run(found: Sequence[Level], seen: _Seen) -> list[Level]:
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
    while run[0].value < mean / 2:
        run = run[1:]
    return run


def _stands_off(seen: _Seen, unit: int, excess: Floats) -> bool:
    """Whether who was late from the begin is so by more than units usually differ."""
    rest = np.delete(seen.level, unit)
    spread = MAD_TO_SIGMA * float(np.median(np.abs(rest - np.median(rest))))
    few = len(seen.work) < _FEW
    least = max((_FEW_MATERIAL if few else MATERIAL) * seen.step_s, 0 if few else _SPREADS * spread)
    inner = np.clip(excess, *np.percentile(excess, (5, 95)))
    thinned = excess[:: max(1, round(inflation(inner - inner.mean())))]
    return median_interval(thinned.tolist()).low >= least


def _bursts(seen: _Seen, always: Sequence[Late]) -> list[Late]:
    """Units that are late now and then, and much more often than others are."""
    work, rest = seen.work.copy(), seen.excess - seen.level[:, None].astype(np.float32)
    for one in always:
        work[one.unit] -= one.delay
        even = seen.excess[one.unit] - one.delay
        rest[one.unit] = even - median_over(even[None], 1)
    last, margin = last_units(work)
    rows = np.arange(len(last))
    late = rest[last, rows]
    least = _burst_bound(seen, seen.sigma[last])
    event = late > least
    begins = event & ~(np.roll(event, 1) & (np.roll(last, 1) == last))
    counts = np.bincount(last[begins], minlength=len(work))
    lost = np.bincount(last, np.where(event, margin, 0) * seen.each, minlength=len(work))
    natural = float(np.median(lost)) / (seen.step_s * float(seen.each.sum()))
    found = []
    for unit in np.nonzero(counts >= _LEAST_BURSTS)[0]:
        typical = float(np.median(np.delete(counts, unit)))
        if _by_luck(int(counts[unit]), 1.5 * typical + 1):
            continue
        event = rest[unit] > _burst_bound(seen, seen.sigma[unit])
        found.append(_burst(seen, int(unit), rest[unit], event, natural))
    return found


def _burst_bound(seen: _Seen, sigma: Floats) -> Floats:
    """By row: an excess above it is a burst."""
    bound: Floats = np.maximum(
        _BURST_SIGMAS * sigma / np.sqrt(seen.each), _BURST_SHARE * seen.step_s / seen.each
    )
    return bound


def _burst(seen: _Seen, unit: int, rest: Matrix, event: NDArray[np.bool_], natural: float) -> Late:
    onset, every = events_since(event, seen.each)
    rows = event.copy()
    rows[: onset.at if onset else 0] = False
    return Late(
        unit=unit,
        rows=rows,
        delay=np.where(rows, rest, 0).astype(np.float64),
        onset=onset,
        bursts=True,
        every=every,
        natural=natural,
    )


def _by_luck(count: int, expected: float) -> bool:
    """Whether a Poisson count of that mean reaches it by luck (by its square root, nearly normal)."""
    z = 2 * (math.sqrt(count) - math.sqrt(expected))
    return 1 - NormalDist().cdf(z) > _LUCK


def last_units(work: Matrix) -> tuple[NDArray[np.int64], Matrix]:
    """By row the unit with the most work, and by how much it exceeds the next one."""
    known = np.where(np.isnan(work), np.float32(0), work)
    top = np.partition(known, -2, axis=0)[-2:]
    return np.argmax(known, axis=0), top[1] - top[0]


Blame = tuple[Sequence[int], Late]
"""The units that are late together (the ranks of a node), and how."""


def mended(work: Matrix, blamed: Sequence[Blame]) -> Matrix:
    """What work would be if all of them were well."""
    if not blamed:
        return work
    well = work.copy()
    for units, late in blamed:
        well[list(units)] = np.maximum(well[list(units)] - late.delay, 0)
    return well


def cost_of_late(work: Matrix, top: Matrix, blame: Blame, base: Floats, each: Floats) -> Cost:
    """top: the most work of any rank by row, base: the time of a step, if nothing were wrong."""
    units, late = blame
    span = _span(late)
    solo = np.where(late.rows, np.maximum(highest(work[list(units)]) - top, 0), 0)
    return cost_of(solo[span], base[span], each[span])


def _span(late: Late) -> slice:
    """Rows over which its cost is told: from its onset to its end."""
    begin = int(np.argmax(late.rows)) if late.onset is not None else 0
    return slice(begin, late.over if late.over >= 0 else None)


def cost_of(extra: Floats, base: Floats, each: Floats) -> Cost:
    """extra: by row, what a step takes more than `base` for it; the interval by means of blocks of rows,
    long enough to hold two of what happens now and then."""
    lost, well = extra * each, np.maximum(base, 1e-9) * each
    times = int(np.count_nonzero(np.diff(np.concatenate(([0], extra > 0))) > 0))
    often = np.count_nonzero(extra > 0) > len(extra) / 3
    blocks = _BLOCKS if often else min(_BLOCKS, max(2, times // 2))
    parts = [part for part in np.array_split(np.arange(len(lost)), blocks) if len(part)]
    interval = mean_interval([float(lost[part].sum() / well[part].sum()) for part in parts])
    ratio = 1 + float(lost.sum() / well.sum())
    return Cost(ratio, 1 + max(0.0, interval.low), max(ratio, 1 + interval.high))
