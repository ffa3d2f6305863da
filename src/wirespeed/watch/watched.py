"""What was seen of a job, as the record that a run keeps."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wirespeed.model.watch_records import Gain, StepChange, Traffic, Watched, WatchWindow
from wirespeed.statistics import median_interval
from wirespeed.watch.own_work import Matrix, OwnWork, last_units, median_over, sample
from wirespeed.watch.steps import StepTable
from wirespeed.watch.whole_job import share_interval

WINDOWS = 240
_MOST_RANKS = 1024
"""With more, windows have no lists by rank."""
_PARTS = ("data", "forward", "backward", "optimizer", "blocked", "checkpoint", "gc")
_LAST_TIMES = 2.0
"""Who is last this many times as often as by chance stands out."""


def watched(
    table: StepTable,
    seen: OwnWork | None,
    *,
    world_size: int,
    changes: Sequence[StepChange] = (),
    gains: Sequence[Gain] = (),
    traffic: Sequence[Traffic] = (),
    launches: int = 1,
    unseen: Sequence[str] = (),
) -> Watched:
    """The record; of a job that told too little, what is known of it."""
    told = int((~np.isnan(table.columns["step"])).any(axis=1).sum()) if len(table.first) else 0
    common = Watched(
        ranks=told,
        world_size=max(world_size, told),
        hosts=tuple(table.hosts),
        launches=launches,
        steps=int(table.each.sum()),
        boundary=table.boundary,
        changes=tuple(sorted(changes, key=lambda one: one.step)),
        traffic=tuple(traffic),
        gains=tuple(sorted(gains, key=lambda one: -one.share)),
        unseen=tuple(unseen),
    )
    return common if seen is None else _with_times(common, seen)


def _with_times(known: Watched, seen: OwnWork) -> Watched:
    times = seen.step_s
    interval = median_interval(times.tolist())
    blocked = np.nan_to_num(median_over(sample(seen.column("blocked")), 0))
    if not seen.table.waits_known:
        blocked = np.zeros_like(blocked)
    exposed, ends = share_interval(np.minimum(blocked, times), times, seen.each)
    last, share = _last(seen)
    return replace(
        known,
        step=float(np.median(times)),
        step_low=interval.low,
        step_high=interval.high,
        exposed=exposed,
        exposed_low=ends.low,
        exposed_high=ends.high,
        parts_ms=_parts(seen),
        windows=_windows(seen),
        last_rank=last,
        last_share=share,
    )


def _parts(seen: OwnWork) -> dict[str, float]:
    """Means over rows, so that what happens now and then counts; what is left is `other`."""
    weights = seen.each / seen.each.sum()
    parts = {
        name: 1e3 * float(np.nansum(median_over(sample(seen.column(name)), 0) * weights))
        for name in _PARTS
        if name != "blocked" or seen.table.waits_known
    }
    whole = 1e3 * float((seen.step_s * weights).sum())
    return {**parts, "other": max(0.0, whole - sum(parts.values()))}


def _last(seen: OwnWork) -> tuple[int, float]:
    if len(seen.ranks) < 2 or not seen.table.waits_known:
        return -1, 0.0
    last, _ = last_units(seen.own)
    counts = np.bincount(last, seen.each)
    unit = int(np.argmax(counts))
    share = float(counts[unit] / seen.each.sum())
    if share < min(0.5, _LAST_TIMES / len(seen.ranks)):
        return -1, 0.0
    return int(seen.ranks[unit]), share


def _windows(seen: OwnWork) -> tuple[WatchWindow, ...]:
    edges = np.unique(np.linspace(0, len(seen.rows), min(WINDOWS, len(seen.rows)) + 1).astype(int))
    starts, each, times = edges[:-1], seen.each, seen.step_s
    steps = np.add.reduceat(each, starts)
    means = np.add.reduceat(times * each, starts) / steps
    since = np.concatenate(([0.0], np.cumsum(means * steps)[:-1]))
    since = np.where(np.isnan(begins := _begins(seen)[starts]), since, begins)
    lists = [
        _by_rank(seen, column, starts)
        for column in (seen.own, *map(seen.column, ("blocked", "data")))
    ]
    return tuple(
        WatchWindow(
            first_step=int(seen.first[start]),
            steps=int(steps[i]),
            since_s=max(0.0, float(since[i])),
            step=float(means[i]),
            own=lists[0][i],
            blocked=lists[1][i],
            data=lists[2][i],
        )
        for i, start in enumerate(starts)
    )


def _begins(seen: OwnWork) -> NDArray[np.float64]:
    """By row: seconds since the first step of the table that has a time."""
    told = seen.table.begin_s
    known = told[~np.isnan(told)]
    begins: NDArray[np.float64] = told[seen.rows] - (known.min() if len(known) else 0.0)
    return begins


def _by_rank(seen: OwnWork, column: Matrix, starts: NDArray[np.int64]) -> list[tuple[float, ...]]:
    """By window the mean of each rank of the table; -1: not known."""
    size = len(seen.table.hosts)
    if size > _MOST_RANKS:
        return [()] * len(starts)
    known = ~np.isnan(column)
    weights = np.add.reduceat(known * seen.each, starts, axis=1)
    sums = np.add.reduceat(np.nan_to_num(column) * seen.each, starts, axis=1)
    full = np.full((size, len(starts)), -1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        full[seen.ranks] = np.where(weights > 0, sums / weights, -1.0)
    return [tuple(window) for window in full.T.tolist()]
