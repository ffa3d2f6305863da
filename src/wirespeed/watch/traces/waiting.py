"""How long a rank waited in communication, up to any time of its trace.

On GPUs: a communication kernel runs and no other does, which is what profilers call exposed. On CPUs
the thread that waits leaves no event: it does nothing from the end of one operator to the begin of
the next. Such a pause is a wait as long as a collective is under way; a short one, as Python makes
between operators, only up to the end of a collective that ends in it. (gloo's thread may tell an end
late: it is woken after the thread that waited.)
"""

import numpy as np
from numpy.typing import NDArray

from wirespeed.watch.traces.cover import Stretches, seconds_before, stretches, united
from wirespeed.watch.traces.rank_trace import RankTrace

Times = NDArray[np.float64]
_LONG_S = 0.5e-3
"""Pauses from here on are more than Python's steps between operators."""


class Waiting:
    """Of one rank."""

    def __init__(self, trace: RankTrace) -> None:
        covers = (trace.compute, trace.loading, trace.saving)
        busy = united(*[one.parts() for one in (covers[:1] if trace.on_gpu else covers)])
        calls = stretches((one.begin_s, one.end_s) for one in trace.calls if one.end_s is not None)
        self.known = len(calls) > 0 if trace.world_size != 1 else True
        """Whether the trace tells of communication, or there is none."""
        if trace.launches_only:
            self.known, calls = False, calls[:0]
        self._hidden = busy if trace.on_gpu else busy[:0]
        self._all = united(busy, calls) if trace.on_gpu else _waits(calls, busy)

    def before(self, times: Times) -> Times:
        """Seconds waited before each time."""
        return seconds_before(self._all, times) - seconds_before(self._hidden, times)


def _waits(calls: Stretches, busy: Stretches) -> Stretches:
    if not len(calls) or not len(busy):
        return united(calls)
    begins = np.concatenate(([-np.inf], busy[:, 1]))
    ends = np.concatenate((busy[:, 0], [np.inf]))
    long = ends - begins >= _LONG_S
    return united(_common(united(calls), begins[long], ends[long]), _ended_in(calls, begins, ends))


def _common(spans: Stretches, begins: Times, ends: Times) -> Stretches:
    """Where pauses and calls run; both in order and apart."""
    first = np.searchsorted(spans[:, 1], begins, "right")
    after = np.searchsorted(spans[:, 0], ends, "left")
    count = np.maximum(after - first, 0)
    pause = np.repeat(np.arange(len(begins)), count)
    at = first[pause] + np.arange(len(pause)) - np.repeat(np.cumsum(count) - count, count)
    return np.column_stack(
        (np.maximum(begins[pause], spans[at, 0]), np.minimum(ends[pause], spans[at, 1]))
    )


def _ended_in(calls: Stretches, begins: Times, ends: Times) -> Stretches:
    pause = np.searchsorted(begins, calls[:, 1], "left") - 1
    inside = calls[:, 1] <= ends[pause]
    return np.column_stack((np.maximum(calls[:, 0], begins[pause]), calls[:, 1]))[inside]
