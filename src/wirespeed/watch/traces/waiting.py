"""How long a rank waited in communication, up to any time of its trace.

On GPUs: a communication kernel runs and no other does, which is what profilers call exposed. On CPUs
the thread that waits leaves no event: it does nothing from the end of one operator on, and goes on
when a collective ends. So a wait is the part of a pause between operators before the end of the last
collective that ended in it; one that ends while operators run, or after the pause, is hidden.
"""

import numpy as np
from numpy.typing import NDArray

from wirespeed.training.trace import Stretch, merged
from wirespeed.watch.traces.cover import seconds_before
from wirespeed.watch.traces.rank_trace import RankTrace

Times = NDArray[np.float64]


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
    edges, spans = np.array(busy), np.array(calls)
    begins = np.concatenate(([-np.inf], edges[:, 1]))
    ends = np.concatenate((edges[:, 0], [np.inf]))
    pause = np.searchsorted(begins, spans[:, 1], "left") - 1
    inside = spans[:, 1] <= ends[pause]
    waits = np.column_stack((np.maximum(spans[:, 0], begins[pause]), spans[:, 1]))[inside]
    return [(float(begin), float(end)) for begin, end in waits]
