"""Where something runs, as stretches of time in bounded memory: arrays of [begin, end] in seconds."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from wirespeed.training.trace import Stretch

Stretches = NDArray[np.float64]
"""[parts, 2]."""
_MOST = 1 << 18
_AT_ONCE = 1 << 12


class Cover:
    """The union of many stretches; beyond `_MOST` parts the shortest gaps between them are closed."""

    def __init__(self, parts: Iterable[Stretch] = ()) -> None:
        self._new: list[Stretch] = list(parts)
        self._parts: list[Stretches] = []
        self._count = 0

    def add(self, begin: float, end: float) -> None:
        """Seconds; in any order."""
        self._new.append((begin, end))
        if len(self._new) >= _AT_ONCE:
            self._take_new()

    def extend(self, parts: Stretches) -> None:
        """The same of many, up to some 100,000."""
        self._parts.append(parts)
        self._count += len(parts)
        if self._count > _MOST:
            self._parts = [_coarser(united(*self._parts))]
            self._count = len(self._parts[0])

    def parts(self) -> Stretches:
        """In order; they neither overlap nor touch."""
        self._take_new()
        self._parts = [united(*self._parts)]
        self._count = len(self._parts[0])
        return self._parts[0]

    def _take_new(self) -> None:
        new, self._new = stretches(self._new), []
        self.extend(new)


def stretches(parts: Iterable[Stretch]) -> Stretches:
    return np.array(list(parts), np.float64).reshape(-1, 2)


def united(*parts: Stretches) -> Stretches:
    """The same time as stretches in order that neither overlap nor touch; empty ones are dropped."""
    edges = np.concatenate([np.zeros((0, 2)), *parts])
    edges = edges[edges[:, 1] > edges[:, 0]]
    edges = edges[np.argsort(edges[:, 0], kind="stable")]
    until = np.maximum.accumulate(edges[:, 1])
    apart = edges[1:, 0] > until[:-1]
    first = np.concatenate(([True], apart))[: len(edges)]
    last = np.concatenate((apart, [True]))[: len(edges)]
    return np.column_stack((edges[first, 0], until[last]))


def _coarser(edges: Stretches) -> Stretches:
    """At most half of `_MOST`."""
    gaps = edges[1:, 0] - edges[:-1, 1]
    if len(gaps) < _MOST // 2:
        return edges
    keep = np.sort(np.argpartition(gaps, -_MOST // 2 + 1)[-_MOST // 2 + 1 :])
    begins = np.concatenate((edges[:1, 0], edges[keep + 1, 0]))
    ends = np.concatenate((edges[keep, 1], edges[-1:, 1]))
    return np.column_stack((begins, ends))


def seconds_before(edges: Stretches, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much of them lies before each time; stretches as `united` gives them."""
    if not len(edges):
        return np.zeros(len(times))
    lengths = np.concatenate(([0.0], np.cumsum(edges[:, 1] - edges[:, 0])))
    return np.asarray(np.interp(times, edges.ravel(), np.repeat(lengths, 2)[1:-1]))
