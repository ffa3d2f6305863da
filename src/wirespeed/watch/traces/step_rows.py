"""One rank's trace as rows of steps: what `StepGrid` takes."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from wirespeed.watch.steps import COLUMNS
from wirespeed.watch.traces.boundaries import steps_in
from wirespeed.watch.traces.cover import Stretches, seconds_before, stretches, united
from wirespeed.watch.traces.rank_trace import Mark, RankTrace
from wirespeed.watch.traces.waiting import Times, Waiting

_AT_ONCE = 128
"""Rows that `StepGrid` takes in one piece."""


@dataclass(frozen=True, slots=True)
class StepRows:
    boundary: str
    """As `Watched.boundary`; empty: no steps."""
    numbers: NDArray[np.int64]
    """By row."""
    begins: Times
    """Seconds of the trace's clock, as `ends`."""
    ends: Times
    values: NDArray[np.float32]
    """[rows, COLUMNS], seconds; NaN: not known."""

    def runs(self) -> Iterator[slice]:
        """Rows whose numbers follow each other, some at a time."""
        breaks = np.nonzero(np.diff(self.numbers) != 1)[0] + 1
        edges = [0, *breaks.tolist(), len(self.numbers)]
        for first, last in pairwise(edges):
            for start in range(first, last, _AT_ONCE):
                yield slice(start, min(start + _AT_ONCE, last))


def step_rows(trace: RankTrace, waiting: Waiting) -> StepRows:
    """Steps of the trace; none where nothing tells them."""
    boundary, steps = steps_in(trace)
    begins = np.array([one.begin_s for one in steps])
    ends = np.array([one.end_s for one in steps])
    # A step is from the end of the one before, so that what comes between two counts.
    follows = np.diff([one.number for one in steps]) == 1
    begins[1:] = np.where(follows, np.minimum(ends[:-1], begins[1:]), begins[1:])
    values = np.full((len(steps), len(COLUMNS)), np.nan, np.float32)
    if steps:
        parts = {"step": ends - begins, **_parts(trace, begins, ends, waiting)}
        for name, seconds in parts.items():
            values[:, COLUMNS.index(name)] = seconds
    return StepRows(
        boundary, np.array([one.number for one in steps], np.int64), begins, ends, values
    )


def _parts(trace: RankTrace, begins: Times, ends: Times, waiting: Waiting) -> dict[str, Times]:
    found = {}
    if waiting.known:
        found["blocked"] = waiting.before(ends) - waiting.before(begins)
    for name, parts in (("data", trace.loading.parts()), ("checkpoint", trace.saving.parts())):
        if len(parts):
            found[name] = _within(parts, begins, ends)
    if not trace.on_gpu:  # whose work the CPU's operators do not time
        found |= _phases(trace, begins, ends, waiting)
    return found


def _within(parts: Stretches, begins: Times, ends: Times) -> Times:
    return seconds_before(parts, ends) - seconds_before(parts, begins)


def _phases(trace: RankTrace, begins: Times, ends: Times, waiting: Waiting) -> dict[str, Times]:
    """Without what waits: optimizer, backward, and forward from the begin, or the end of loading."""

    def worked(since: Times, until: Times) -> Times:
        return np.maximum(until - since - (waiting.before(until) - waiting.before(since)), 0)

    found = {}
    if trace.optimizers:
        found["optimizer"] = _optimizing(trace.optimizers, begins, ends, worked)
    edges = trace.backward.parts()
    if len(edges):
        first = np.searchsorted(edges[:, 0], begins)
        after = np.searchsorted(edges[:, 0], ends)
        there = after > first
        since = np.where(there, edges[np.minimum(first, len(edges) - 1), 0], ends)
        until = np.where(there, np.minimum(edges[np.maximum(after - 1, 0), 1], ends), ends)
        found["backward"] = np.where(there, worked(since, until), np.nan)
        loaded = _within(trace.loading.parts(), begins, since)
        found["forward"] = np.where(there, np.maximum(worked(begins, since) - loaded, 0), np.nan)
    return found


def _optimizing(marks: list[Mark], begins: Times, ends: Times, worked: object) -> Times:
    edges = united(stretches((one.begin_s, one.end_s) for one in marks))
    each = worked(edges[:, 0], edges[:, 1])  # type: ignore[operator]
    sums = np.concatenate(([0.0], np.cumsum(each)))
    return (
        sums[np.searchsorted(edges[:, 1], ends, "right")]
        - sums[np.searchsorted(edges[:, 1], begins, "right")]
    )
