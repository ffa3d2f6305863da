"""How long a rank waited in communication, up to any time of its trace.

On GPUs: a communication kernel runs and no other does, which is what profilers call exposed. On CPUs
the thread that waits leaves no event: it does nothing from the end of one operator to the begin of
the next. Such a pause is a wait as long as a collective is under way; a short one, as Python makes
between operators, only up to the end of a collective that ends in it. (gloo's thread may tell an end
late: it is woken after the thread that waited.)
"""

import numpy as np
from numpy.typing import NDArray

from wirespeed.training.trace import Stretch, merged
from wirespeed.watch.traces.cover import seconds_before
from wirespeed.watch.traces.rank_trace import RankTrace

Times = NDArray[np.float64]
_LONG_S = 0.5e-3
"""Pauses from here on are more than Python's steps between operators."""


class Waiting:
    """Of one rank."""

    def __init__(self, trace: RankTrace) -> None:
        busy = merged(
            [*trace.compute.parts(), *trace.loading.parts(), *trace.saving.parts()]
            if not trace.on_gpu
            else trace.compute.parts()
        )
        calls = [(one.begin_s, one.end_s) for one in trace.calls if one.end_s is not None]
        self.known = bool(calls) if trace.world_size != 1 else True
        """Whether the trace tells of communication, or there is none."""
        if trace.launches_only:
            self.known, calls = False, []
        self._hidden = busy if trace.on_gpu else []
        self._all = merged([*busy, *calls]) if trace.on_gpu else merged(_waits(calls, busy))

    def before(self, times: Times) -> Times:
        """Seconds waited before each time."""
        return seconds_before(self._all, times) - seconds_before(self._hidden, times)


def _waits(calls: list[Stretch], busy: list[Stretch]) -> list[Stretch]:
    if not calls or not busy:
        return calls
    edges, spans = np.array(busy), np.array(merged(calls))
    begins = np.concatenate(([-np.inf], edges[:, 1]))
    ends = np.concatenate((edges[:, 0], [np.inf]))
    long = ends - begins >= _LONG_S
    return [
        *_common(spans, begins[long], ends[long]),
        *_ended_in(np.array(calls), begins, ends),
    ]


def _common(spans: Times, begins: Times, ends: Times) -> list[Stretch]:
    """Where pauses and calls run; both in order and apart."""
    first = np.searchsorted(spans[:, 1], begins, "right")
    after = np.searchsorted(spans[:, 0], ends, "left")
    return [
        (float(max(begin, spans[at, 0])), float(min(end, spans[at, 1])))
        for begin, end, since, until in zip(begins, ends, first, after, strict=True)
        for at in range(since, until)
    ]


def _ended_in(calls: Times, begins: Times, ends: Times) -> list[Stretch]:
    pause = np.searchsorted(begins, calls[:, 1], "left") - 1
    inside = calls[:, 1] <= ends[pause]
    waits = np.column_stack((np.maximum(calls[:, 0], begins[pause]), calls[:, 1]))[inside]
    return [(float(begin), float(end)) for begin, end in waits]
