"""How a job ended, where it ran and who it was: what lemons are found by. As arrays for many."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

How = Literal["good", "failed", "node"]
"""`good`: it ended as it should, or somebody ended it (cancelled, time limit, preempted, out of
memory); `failed`: by an error of its own, as far as is known; `node`: a node of it failed."""
HOWS: tuple[How, ...] = ("good", "failed", "node")
GOOD, FAILED, NODE = range(3)
LAST_S = float(1 << 32)
"""Unix time in the year 2106: no job ends later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """One job that has ended."""

    job: str
    """Its id, where it ran: the same job is counted once."""
    workload: str
    """What ran, such as `user/name`: the same again is expected to fail as often."""
    group: str = ""
    """Of like nodes, such as a partition: held to each other."""
    start_s: float
    """Unix time in seconds."""
    end_s: float
    nodes: tuple[str, ...]
    how: How
    culprit: str = ""
    """The one of its nodes that is known to be to blame; empty: any may be."""


@dataclass(frozen=True, slots=True, eq=False)
class JobTable:
    """Many of them, by the time of their end; row i ran on `members[first[i]:first[i + 1]]`."""

    nodes: tuple[str, ...]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    how: NDArray[np.int8]
    workload: NDArray[np.int32]
    group: NDArray[np.int32]
    culprit: NDArray[np.int32]
    """A place in `nodes`; -1: not known."""
    first: NDArray[np.int64]
    members: NDArray[np.int32]
    """Places in `nodes`."""

    @classmethod
    def of(cls, jobs: Iterable[JobEnd]) -> "JobTable":
        ordered = sorted(jobs, key=lambda one: one.end_s)
        nodes = tuple(sorted({name for one in ordered for name in one.nodes}))
        place = {name: k for k, name in enumerate(nodes)}
        counts = [len(one.nodes) for one in ordered]
        return cls(
            nodes,
            np.array([one.start_s for one in ordered], dtype=np.float64),
            np.array([one.end_s for one in ordered], dtype=np.float64),
            np.array([HOWS.index(one.how) for one in ordered], dtype=np.int8),
            _numbered([one.workload for one in ordered]),
            _numbered([one.group for one in ordered]),
            np.array([place.get(one.culprit, -1) for one in ordered], dtype=np.int32),
            np.concatenate(([0], np.cumsum(counts, dtype=np.int64))),
            np.array([place[name] for one in ordered for name in one.nodes], dtype=np.int32),
        )

    def __len__(self) -> int:
        return len(self.end)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Nodes of each job."""
        return np.diff(self.first)

    @property
    def seconds(self) -> NDArray[np.float64]:
        return np.maximum(self.end - self.start, 1.0)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The job of each entry of `members`."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def between(self, since_s: float, until_s: float) -> "JobTable":
        """Those that ended in that time; nodes keep their places."""
        a, b = np.searchsorted(self.end, (since_s, until_s), side="right")
        low, high = self.first[a], self.first[b]
        return JobTable(
            self.nodes,
            self.start[a:b],
            self.end[a:b],
            self.how[a:b],
            self.workload[a:b],
            self.group[a:b],
            self.culprit[a:b],
            self.first[a : b + 1] - low,
            self.members[low:high],
        )


def _numbered(words: Sequence[str]) -> NDArray[np.int32]:
    known: dict[str, int] = {}
    return np.array([known.setdefault(word, len(known)) for word in words], dtype=np.int32)
