"""The part of a table that is judged, and what a rank does compared with the others at the same step.

In synchronous training all ranks take the same time for a step. A rank's own work is what it did
not wait; the one with the most of it is who the others wait for. No clocks are compared.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirespeed.watch.steps import StepTable

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]

_FIRST_STEPS = 3
_WARM_TIMES = 1.5
"""Rows at the begin whose steps take longer than this many medians are warm-up, …"""
_WARM_SHARE = 0.25
"""… at most this share of the rows."""
_KNOWN = 0.75
"""Share of the ranks that a row must know."""

_LEAST_S = 1e-5
"""No step is shorter: what agents tell is no finer."""
_SAMPLE = 512
"""Ranks from which it is told what is typical."""


@dataclass(frozen=True, slots=True)
class OwnWork:
    """Rows without the job's warm-up and holes; ranks that told something."""

    table: StepTable
    ranks: NDArray[np.int64]
    """Number of each rank that is here."""
    rows: NDArray[np.int64]
    """Of the table, by row here."""
    first: NDArray[np.int64]
    each: Floats
    step_s: Floats
    """Time of a step by row: the median over ranks."""
    step: Matrix
    """[ranks, rows], as all below; NaN: not known."""
    own: Matrix

    def column(self, name: str) -> Matrix:
        return _part(self.table.columns[name], self.ranks, self.rows)

    @property
    def hosts(self) -> list[str]:
        return [self.table.hosts[rank] for rank in self.ranks]

    def step_at(self, row: int) -> int:
        """Number of the row's first step; of the row after the last one, of the step after it."""
        if row < len(self.first):
            return int(self.first[row])
        return int(self.first[-1] + self.each[-1])


def own_work(table: StepTable) -> OwnWork | None:
    """None where no rank told of two steps or more."""
    step = table.columns["step"]
    known = ~np.isnan(step)
    ranks = np.nonzero(known.any(axis=1))[0] if step.size else np.zeros(0, np.int64)
    if not len(ranks):
        return None
    enough = known[ranks].sum(axis=0) >= _KNOWN * len(ranks)
    rows = np.nonzero(enough & (table.first + table.each > _FIRST_STEPS))[0]
    if len(rows) < 2:
        return None
    times = median_over(sample(_part(step, ranks, rows)), 0)
    rows = rows[_warm_rows(times) :]
    steps = _part(step, ranks, rows)
    return OwnWork(
        table=table,
        ranks=ranks,
        rows=rows,
        first=table.first[rows],
        each=table.each[rows].astype(np.float64),
        step_s=np.maximum(median_over(sample(steps), 0), _LEAST_S),
        step=steps,
        own=np.maximum(steps - _part(table.columns["blocked"], ranks, rows), 0),
    )


def _part(column: Matrix, ranks: NDArray[np.int64], rows: NDArray[np.int64]) -> Matrix:
    """A view where ranks and rows have no holes, which is the usual case."""
    if len(rows) == rows[-1] - rows[0] + 1:
        column = column[:, rows[0] : rows[-1] + 1]
    else:
        column = column[:, rows]
    return column if len(ranks) == len(column) else column[ranks]


def _warm_rows(times: Floats) -> int:
    slow = times > _WARM_TIMES * np.median(times)
    count = int(np.argmin(slow)) if not slow.all() else 0
    return min(count, int(_WARM_SHARE * len(times)))


def others(values: Matrix) -> Matrix:
    """[units, rows]: by unit and row the median of all other units' values; NaN without another."""
    ordered = np.sort(np.ascontiguousarray(values.T), axis=1)  # NaN last
    count = (~np.isnan(ordered)).sum(axis=1)
    low, high = np.maximum(count - 2, 0) // 2, np.maximum(count - 1, 0) // 2
    lower = _without(values, ordered, low)
    upper = lower if (low == high).all() else _without(values, ordered, high)
    middle: Matrix = ((lower + upper) / 2).astype(np.float32)
    middle[:, count < 2] = np.nan
    return middle


def _without(values: Matrix, ordered: Matrix, index: NDArray[np.int64]) -> Matrix:
    """What stands at `index` of a row's ordered values when the unit's own is taken out."""
    rows = np.arange(len(ordered))
    here = ordered[rows, index]
    after = ordered[rows, np.minimum(index + 1, ordered.shape[1] - 1)]
    taken: Matrix = np.where(values > here, here, after)
    return taken


def highest(values: Matrix) -> Matrix:
    """By row the largest value that is known; 0 where there is none."""
    top: Matrix = np.fmax.reduce(values, axis=0, initial=0)
    return top


def sample(values: Matrix) -> Matrix:
    """Of very many ranks some, evenly: enough for what is typical."""
    return values[:: max(1, len(values) // _SAMPLE)]


def median_over(values: NDArray[Any], axis: int) -> Floats:
    """Medians of what is known; NaN where nothing is."""
    if not np.isnan(values).any():
        return np.asarray(np.median(values, axis=axis), np.float64)
    known = ~np.isnan(values).all(axis=axis)
    middle = np.full(len(known), np.nan)
    middle[known] = np.nanmedian(np.compress(known, values, axis=1 - axis), axis=axis)
    return middle


def lower_median(values: Matrix) -> Floats:
    """By row what at least half of the ranks have or exceed: of two ranks the less. NaN: not known."""
    ordered = np.sort(values, axis=0)  # NaN last
    middle = np.maximum((~np.isnan(values)).sum(axis=0) - 1, 0) // 2
    return np.asarray(np.take_along_axis(ordered, middle[None], axis=0)[0], np.float64)


def last_units(work: Matrix) -> tuple[NDArray[np.int64], Matrix]:
    """By row the unit with the most work, and by how much it exceeds the next one."""
    known = np.where(np.isnan(work), np.float32(0), work)
    top = np.partition(known, -2, axis=0)[-2:]
    return np.argmax(known, axis=0), top[1] - top[0]
