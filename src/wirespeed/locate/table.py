"""All readings as arrays by round and node, so that the localiser can take medians over many at once.

Logarithms throughout: a part that is slow by some factor lowers its pairs' figures by the same amount
whatever their level, and a figure of "more is better" is made of latencies and times by the sign.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirespeed.locate.model import Reading

__all__ = ["LOST", "Floats", "Ints", "Table", "middle", "upper"]

Floats = NDArray[Any]
"""Of numbers or of truths: numpy types do not say which through its functions."""
Ints = NDArray[np.int32]

LOST = -30.0
"""Stands for the logarithm of nothing (0.0 came through); e**-30 of any rate is nothing."""


class Table:
    """partner: [rounds, nodes], -1 where a node rested; figures: [rounds, nodes, rails], NaN there."""

    def __init__(self, nodes: int, rails: int) -> None:
        self.nodes, self.rails = nodes, rails
        self._partner: list[Ints] = []
        self._sent: list[Floats] = []
        self._latency: list[Floats] = []

    @property
    def rounds(self) -> int:
        return len(self._partner)

    @property
    def partner(self) -> Ints:
        return np.stack(self._partner)

    @property
    def sent(self) -> Floats:
        """ln of the rate from the node to its partner."""
        return np.stack(self._sent)

    @property
    def latency(self) -> Floats:
        """-ln of the latency between the node and its partner, the median of the rails: one column."""
        return np.stack(self._latency)

    def add(self, readings: Sequence[Reading]) -> None:
        """One more round."""
        partner = np.full(self.nodes, -1, np.int32)
        sent = np.full((self.nodes, self.rails), np.nan, np.float32)
        latency = np.full((self.nodes, 1), np.nan, np.float32)
        if readings:
            a, b = np.array([reading.pair for reading in readings], np.int32).T
            partner[a], partner[b] = b, a
            sent[a] = _log([reading.forth for reading in readings])
            sent[b] = _log([reading.back for reading in readings])
            latency[a] = latency[b] = _latencies(readings)
        self._partner.append(partner)
        self._sent.append(sent)
        self._latency.append(latency)


def middle(values: Floats) -> Floats:
    """Median over the last axis without the NaN; NaN where there is nothing else."""
    return _at(values, lambda count: ((count - 1) // 2, count // 2))


def upper(values: Floats, share: float = 0.5) -> Floats:
    """The value that at least `share` of those on the last axis do not exceed, the upper of two.

    "Upper" because a slow part can only lower a figure: of two that differ, the higher one is right.
    """
    return _at(values, lambda count: (np.minimum((count * share).astype(int), count - 1),) * 2)


def _at(values: Floats, places: Callable[[Floats], tuple[Floats, Floats]]) -> Floats:
    if values.shape[-1] == 1:
        return values[..., 0]
    ordered = np.sort(values, axis=-1)
    count = (~np.isnan(values)).sum(axis=-1)
    low, high = (np.maximum(place, 0)[..., None] for place in places(count))
    picked = np.take_along_axis(ordered, low, -1) + np.take_along_axis(ordered, high, -1)
    result: Floats = (picked[..., 0] / 2).astype(np.float32)
    return result


def _log(rates: Sequence[Sequence[float]]) -> Floats:
    values = np.array(rates, np.float64)
    logs = np.log(np.where(values > 0, values, 1.0))
    return np.where(values > 0, logs, LOST).astype(np.float32)


def _latencies(readings: Sequence[Reading]) -> Floats:
    """-ln of the seconds: LOST where none came back, NaN where it was not measured."""
    if not all(reading.latency for reading in readings):
        return np.full((len(readings), 1), np.nan, np.float32)
    seconds = np.median(np.array([reading.latency for reading in readings], np.float64), axis=1)
    usable = np.isfinite(seconds) & (seconds > 0)
    logs = np.where(usable, -np.log(np.where(usable, seconds, 1.0)), LOST)
    return logs[:, None].astype(np.float32)
