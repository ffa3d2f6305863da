"""What a step of the job sends, by group and operation, in the mean over the ranks of each group."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wirespeed.model.watch_records import Traffic
from wirespeed.watch.calls import Call
from wirespeed.watch.traces.waiting import Waiting

_MOST = 200
Key = tuple[str, int, str]
"""Group's name, members, operation."""


@dataclass(slots=True)
class _Sum:
    ranks: set[int] = field(default_factory=set)
    calls: float = 0.0
    """A step, over ranks, as all below."""
    bytes: float = 0.0
    exposed_s: float = 0.0
    known: bool = True
    """Whether all ranks tell what is exposed."""


class TrafficSums:
    """Filled rank by rank."""

    def __init__(self) -> None:
        self._sums: dict[Key, _Sum] = {}

    def add(
        self, rank: int, calls: Sequence[Call], step_of: NDArray[np.int64], waiting: Waiting
    ) -> None:
        """step_of: by call the number of the step in which it began; calls in none do not count."""
        steps = len(np.unique(step_of[step_of >= 0]))
        if not steps:
            return
        own: dict[Key, list[float]] = {}
        for call, step, seconds in zip(
            calls, step_of.tolist(), _exposed(calls, waiting).tolist(), strict=True
        ):
            if step >= 0:
                sums = own.setdefault((call.group_name, len(call.group), call.op), [0, 0, 0.0])
                sums[0] += 1
                sums[1] += call.size_bytes
                sums[2] += seconds
        for key, (count, sent, seconds) in own.items():
            one = self._sums.setdefault(key, _Sum())
            one.ranks.add(rank)
            one.calls += count / steps
            one.bytes += sent / steps
            one.exposed_s += seconds / steps
            one.known &= waiting.known

    def rows(self, described: dict[str, str]) -> tuple[Traffic, ...]:
        """Most bytes first; described: what a group is for, by its name."""
        rows = [
            Traffic(
                group=_title(name, described.get(name, "")),
                ranks=size,
                op=op,
                calls=one.calls / len(one.ranks),
                bytes_per_step=int(one.bytes / len(one.ranks)),
                exposed=one.exposed_s / len(one.ranks) if one.known else None,
            )
            for (name, size, op), one in self._sums.items()
        ]
        return tuple(sorted(rows, key=lambda one: -one.bytes_per_step)[:_MOST])


def _exposed(calls: Sequence[Call], waiting: Waiting) -> NDArray[np.float64]:
    ends = np.array([one.begin_s if one.end_s is None else one.end_s for one in calls])
    begins = np.array([one.begin_s for one in calls])
    return np.asarray(waiting.before(ends) - waiting.before(begins))


def _title(name: str, described: str) -> str:
    if described in ("", "undefined", name):
        return name or "not told"
    return f"{described} ({name})" if name else described
