"""Where something runs, as stretches of time in bounded memory."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from wirespeed.training.trace import Stretch, merged

_MOST = 1 << 18


class Cover:
    """The union of many stretches; beyond `_MOST` parts the shortest gaps between them are closed."""

    def __init__(self, parts: Iterable[Stretch] = ()) -> None:
        self._parts: list[Stretch] = list(parts)

    def add(self, begin: float, end: float) -> None:
        """Seconds; in any order."""
        self._parts.append((begin, end))
        if len(self._parts) > _MOST:
            self._parts = _coarser(merged(self._parts))

    def extend(self, parts: list[Stretch]) -> None:
        """The same of many, up to some 100,000."""
        self._parts += parts
        if len(self._parts) > _MOST:
            self._parts = _coarser(merged(self._parts))

    def parts(self) -> list[Stretch]:
        """In order; they neither overlap nor touch."""
        self._parts = merged(self._parts)
        return self._parts


def _coarser(parts: list[Stretch]) -> list[Stretch]:
    """At most half of `_MOST`."""
    edges = np.array(parts)
    gaps = edges[1:, 0] - edges[:-1, 1]
    if len(gaps) < _MOST // 2:
        return parts
    keep = np.sort(np.argpartition(gaps, -_MOST // 2 + 1)[-_MOST // 2 + 1 :])
    begins = np.concatenate((edges[:1, 0], edges[keep + 1, 0]))
    ends = np.concatenate((edges[keep, 1], edges[-1:, 1]))
    return list(zip(begins.tolist(), ends.tolist(), strict=True))


def seconds_before(parts: list[Stretch], times: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much of them lies before each time; parts as `Cover.parts` gives them."""
    if not parts:
        return np.zeros(len(times))
    edges = np.array(parts)
    lengths = np.concatenate(([0.0], np.cumsum(edges[:, 1] - edges[:, 0])))
    return np.asarray(np.interp(times, edges.ravel(), np.repeat(lengths, 2)[1:-1]))
