"""What all ranks share: the time of a step, when it changed, and communication that nothing hides."""

import math
from dataclasses import dataclass

import numpy as np

from wirespeed.checks.soaking_trends import slope
from wirespeed.statistics import Interval, has_interval, mean_interval, median_interval
from wirespeed.watch.change_points import Change, levels
from wirespeed.watch.own_work import Floats, Matrix, OwnWork, highest, median_over, sample

_MATERIAL = 0.07
"""A change of the whole job's step below this share is not told."""
_LEAST_ROWS = 30
"""Of a new level."""
_POINTS = 60
_BLOCKS = 20
_HALF = 0.5


@dataclass(frozen=True, slots=True)
class JobChange:
    change: Change | None
    """None: a drift."""
    before: float
    after: float
    low: float
    """Least rise that is sure, as a share."""
    grown: str
    """`communication`, `waited` (no core), `batches`, or `work`."""


def communication(seen: OwnWork) -> Floats:
    """By row: what of a step even the last rank waits for."""
    return np.maximum(seen.step_s - highest(seen.own), 0)


def share_interval(part: Floats, whole: Floats, each: Floats) -> tuple[float, Interval]:
    """Share of the time, and its 95 % interval by means of blocks of rows."""
    parts = [rows for rows in np.array_split(np.arange(len(part)), _BLOCKS) if len(rows)]
    shares = [float((part * each)[rows].sum() / (whole * each)[rows].sum()) for rows in parts]
    share = float((part * each).sum() / (whole * each).sum())
    interval = mean_interval(shares)
    low, high = (min(1.0, max(0.0, end)) for end in (interval.low, interval.high))
    return min(1.0, share), Interval(min(low, share), max(high, share), interval.coverage)


def job_change(seen: OwnWork, explained: Floats, work: Matrix) -> JobChange | None:
    """The rise of the whole job's step that still lasts, of what no rank explains.

    explained: by row, seconds of a step that have a cause already.
    """
    times = np.maximum(seen.step_s - explained, 1e-9)
    found = levels(np.log(times), seen.each)
    changes = [one.change for one in found if one.change is not None]
    if not changes:
        return None
    strongest = max(changes, key=lambda change: change.score)
    if len(changes) > 1 and (drift := _drift(seen, times, work, strongest.at)) is not None:
        return drift
    at = strongest.at
    if len(times) - at < _LEAST_ROWS or not has_interval(at):
        return None
    first, second = (median_interval(part.tolist()) for part in (times[:at], times[at:]))
    low = second.low / first.high - 1
    half = (float(np.median(times[:at])) + float(np.median(times[at:]))) / 2
    if low < _MATERIAL or np.median(times[found[-1].start :]) < half:
        return None
    before, after = slice(0, at), slice(at, None)
    return _change(seen, times, work, before, after, low, strongest)


def _change(
    seen: OwnWork,
    times: Floats,
    work: Matrix,
    before: slice,
    after: slice,
    low: float,
    change: Change | None,
) -> JobChange:
    return JobChange(
        change,
        float(np.median(times[before])),
        float(np.median(times[after])),
        low,
        _grown(seen, work, before, after),
    )


def _drift(seen: OwnWork, times: Floats, work: Matrix, at: int) -> JobChange | None:
    """A slope that fits better than a step at `at`."""
    blocks = np.array_split(np.arange(len(times)), min(_POINTS, len(times)))
    steps = np.array([float(seen.first[rows].mean()) for rows in blocks])
    values = np.array([math.log(float(np.median(times[rows]))) for rows in blocks])
    found = slope(steps.tolist(), values.tolist(), 0.99)
    span = float(steps[-1] - steps[0])
    if found is None or found.low * span < math.log1p(_MATERIAL):
        return None
    early = steps < seen.first[at]
    jump = np.where(early, np.median(values[early]), np.median(values[~early]))
    line = found.value * steps
    if np.abs(values - jump).sum() <= np.abs(values - line - np.median(values - line)).sum():
        return None
    quarter = max(1, len(times) // 8)
    low = math.expm1(found.low * span)
    return _change(seen, times, work, slice(0, quarter), slice(-quarter, None), low, None)


def _grown(seen: OwnWork, work: Matrix, before: slice, after: slice) -> str:
    """What makes the most of the rise, and where that is work, why."""

    def rise(part: Floats) -> float:
        return float(np.nan_to_num(np.median(part[after]) - np.median(part[before])))

    worked = median_over(sample(work), 0)
    rises = {"communication": rise(communication(seen)), "work": rise(worked)}
    most = max(rises, key=lambda name: rises[name])
    waited = rise(median_over(sample(seen.column("waited")), 0))
    if waited >= _HALF * rises[most] > 0:
        return "waited"
    load = median_over(sample(seen.column("load")), 0)
    larger = rise(load) / max(1.0, float(np.median(load[before])))
    if most == "work" and larger >= _HALF * rises["work"] / max(
        1e-9, float(np.median(worked[before]))
    ):
        return "batches"
    return most
