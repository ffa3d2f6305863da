"""The rows of all ranks in bounded memory: ranks × rows, aligned by the number of the step.

Where there are too many rows, neighbours among the older ones are put together.
"""

import numpy as np
from numpy.typing import NDArray

from wirespeed.watch.steps import COLUMNS

ROWS = 2048
"""Rows that are kept at most."""
_LEAST_ROWS = 256
_CELLS = 5_000_000
"""Ranks × rows at most: 11 columns of them are 220 MB."""
_MOST_AHEAD = 100_000
"""Steps that a rank may be ahead of all that was told before."""


class StepGrid:
    """Row i holds steps `first[i]` … `first[i] + each[i] - 1`; there is no hole between rows."""

    def __init__(self, ranks: int) -> None:
        self.ranks = max(1, ranks)
        self.capacity = max(_LEAST_ROWS, min(ROWS, _CELLS // self.ranks))
        self.rows = 0
        self._first = np.zeros(self.capacity, np.int64)
        self._each = np.zeros(self.capacity, np.int64)
        self._begin = np.full(self.capacity, np.nan)
        self._filled = np.zeros((self.ranks, self.capacity), np.float32)
        self._cells = np.full((len(COLUMNS), self.ranks, self.capacity), np.nan, np.float32)

    @property
    def end(self) -> int:
        """Number of the step after the last one."""
        return int(self._first[self.rows - 1] + self._each[self.rows - 1]) if self.rows else 0

    def put(
        self, rank: int, first: int, each: int, values: NDArray[np.float32], begin_s: float
    ) -> bool:
        """values: [rows, columns], each row the mean over `each` steps; whether it had a place."""
        end = first + each * len(values)
        if self.rows and (first > self.end + _MOST_AHEAD or end <= self._first[0]):
            return False
        self._extend(first, each, len(values))
        begins = np.full(len(values), np.nan)
        if begin_s > 0:
            spent = np.nan_to_num(values[:, 0].astype(np.float64)) * each
            begins = begin_s + np.concatenate(([0.0], np.cumsum(spent)[:-1]))
        at = int(np.searchsorted(self._first[: self.rows], first))
        span = slice(at, at + len(values))
        if span.stop <= self.rows and self._fits(span, first, each):
            self._put_new(rank, span, values, begins)
        else:
            self._put_each(rank, first, each, values, begins)
        return True

    def _fits(self, span: slice, first: int, each: int) -> bool:
        """Whether rows of the grid are the same steps as those that were told."""
        starts, lengths = self._first[span], self._each[span]
        return bool(starts[0] == first and lengths[0] == each and (lengths == each).all())

    def _put_new(
        self, rank: int, span: slice, values: NDArray[np.float32], begins: NDArray[np.float64]
    ) -> None:
        self._cells[:, rank, span] = values.T
        self._filled[rank, span] = self._each[span]
        self._begin[span] = np.fmin(self._begin[span], begins)

    def _put_each(
        self,
        rank: int,
        first: int,
        each: int,
        values: NDArray[np.float32],
        begins: NDArray[np.float64],
    ) -> None:
        """Rows that are longer or shorter than the grid's: by their overlap."""
        for index, row in enumerate(values):
            start, stop = first + index * each, first + (index + 1) * each
            low = max(0, int(np.searchsorted(self._first[: self.rows], start, "right")) - 1)
            high = int(np.searchsorted(self._first[: self.rows], stop))
            rows = slice(low, high)
            ends = np.minimum(self._first[rows] + self._each[rows], stop)
            part = (ends - np.maximum(self._first[rows], start)).clip(0).astype(np.float32)
            had, old = self._filled[rank, rows], self._cells[:, rank, rows]
            mixed = (old * had + row[:, None] * part) / np.maximum(had + part, 1)
            fresh = np.where(np.isnan(old) & (part > 0), row[:, None], old)
            self._cells[:, rank, rows] = np.where(np.isnan(mixed), fresh, mixed)
            self._filled[rank, rows] = np.minimum(had + part, self._each[rows])
            if low < high and self._first[low] == start:
                self._begin[low] = np.fmin(self._begin[low], begins[index])

    def _extend(self, first: int, each: int, count: int) -> None:
        """Rows up to the last step that is told, one for all steps of a hole before it."""
        end = self.end if self.rows else first
        last = first + each * count
        start = first + max(0, -((first - end) // each)) * each
        if start > end and last > end:
            self._append(end, start - end, 1)
        if last > start:
            self._append(start, each, (last - start) // each)

    def _append(self, first: int, each: int, count: int) -> None:
        while self.rows + count > self.capacity:
            self._merge()
        new = slice(self.rows, self.rows + count)
        self._first[new] = first + each * np.arange(count)
        self._each[new] = each
        self._begin[new] = np.nan
        self._filled[:, new] = 0
        self._cells[:, :, new] = np.nan
        self.rows += count

    def _merge(self) -> None:
        """Pairs among the older three quarters that stay below a length which all steps need."""
        old = self.rows * 3 // 4
        steps = int(self._each[: self.rows].sum())
        most = 2
        while most * self.capacity < 2 * steps:
            most *= 2
        lefts = _pairs(self._each[:old], most)
        if not len(lefts):  # rows of very different lengths
            lefts = np.arange(0, self.rows - 1, 2)
        rights = lefts + 1
        self._join(lefts, rights)
        kept = np.delete(np.arange(self.rows), rights)
        for one in (self._first, self._each, self._begin, self._filled):
            one[..., : len(kept)] = one[..., kept]
        for column in self._cells:
            column[:, : len(kept)] = column[:, kept]
        self.rows = len(kept)

    def _join(self, lefts: NDArray[np.int64], rights: NDArray[np.int64]) -> None:
        had, more = self._filled[:, lefts], self._filled[:, rights]
        share = more / np.maximum(had + more, 1)
        for column in self._cells:
            a, b = column[:, lefts], column[:, rights]
            mixed = a + (b - a) * share
            column[:, lefts] = np.where(np.isnan(a), b, np.where(np.isnan(b), a, mixed))
        self._filled[:, lefts] = had + more
        self._each[lefts] += self._each[rights]
        self._begin[lefts] = np.where(
            np.isnan(self._begin[lefts]), self._begin[rights], self._begin[lefts]
        )

    def widened(self, ranks: int) -> "StepGrid":
        """The same with room for more ranks."""
        wide = StepGrid(ranks)
        while self.rows > wide.capacity:
            self._merge()
        kept = slice(0, self.rows)
        for new, old in ((wide._first, self._first), (wide._each, self._each)):
            new[kept] = old[kept]
        wide._begin[kept] = self._begin[kept]
        wide._filled[: self.ranks, kept] = self._filled[:, kept]
        wide._cells[:, : self.ranks, kept] = self._cells[:, :, kept]
        wide.rows = self.rows
        return wide

    def snapshot(
        self,
    ) -> tuple[
        NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], dict[str, NDArray[np.float32]]
    ]:
        """Copies of first, each, begin and the columns."""
        kept = slice(0, self.rows)
        columns = {name: self._cells[i, :, kept].copy() for i, name in enumerate(COLUMNS)}
        return (
            self._first[kept].copy(),
            self._each[kept].copy(),
            self._begin[kept].copy(),
            columns,
        )


def _pairs(each: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Left indices of disjoint neighbours that together are not longer than `most`."""
    lefts, at = [], 0
    lengths = each.tolist()
    while at + 1 < len(lengths):
        if lengths[at] + lengths[at + 1] <= most:
            lefts.append(at)
            at += 1
        at += 1
    return np.array(lefts, np.int64)
