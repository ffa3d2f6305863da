"""Nodes that fail jobs more often than chance and their siblings explain.

Each node is a question: does it add failures to the jobs that it is part of? By chance a job fails at
the rate of its workload (what the same program does elsewhere) and of its nodes (what nodes of their
group do). For a rate that the node may add, the likelihood ratio of all that happened on it,
exp(-excess × time) times (1 + excess / rate by chance) for each failure, is a test martingale: its mean
stays at most 1 as long as the rate by chance is not taken too low. The mean over several excesses and
over the weeks since which it may be bad is one too, an *e-value* (V. Vovk and R. Wang, E-values:
calibration, combination and applications, Annals of Statistics 49, 2021; for changes at unknown times
J. Shin, A. Ramdas and A. Rinaldo, E-detectors, 2022). Of n nodes those are accused whose e-values pass
the Benjamini-Hochberg procedure for e-values (R. Wang and A. Ramdas, False discovery rate control with
e-values, JRSS B 84, 2022): of the accused at most ALPHA are innocent in the mean, however the nodes
depend on each other, which they do where they share jobs.

Siblings explain: the surest node is taken first; what it adds becomes part of what the others' jobs
fail by. A node that had as much evidence until then cannot be told apart from it: both are named,
none is accused.
"""

from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirespeed.fleet.chance import DAY_S, EARLY_S, SAME_S, chance_of
from wirespeed.fleet.job_ends import GOOD, NODE, JobTable
from wirespeed.fleet.job_store import BEFORE, apart, stored_jobs
from wirespeed.fleet.nodes import renewed
from wirespeed.runs.source import StoredRuns

__all__ = ["ALPHA", "DAY_S", "WINDOW_S", "Judged", "Suspect", "find_lemons", "judged"]

ALPHA = 0.05
"""Share of innocent nodes among the accused that is allowed, in the mean."""
_WEEK_S = 7 * DAY_S
_WEEKS = 13
WINDOW_S = _WEEKS * _WEEK_S
"""How far back it looks: what is longer ago was repaired, or has shown itself since."""
_FLOOR = log(20.0)
"""The least evidence (of an e-value the logarithm) that a node is named with."""
_RIVAL = log(20.0)
"""Nodes whose evidence is this near, and that explain each other's, are not told apart."""
_SURELY = 2.0
"""So many times what a node adds on average is expected of its jobs: it is worse at times, and who is
innocent beside it pays for what is taken too low."""
_MOST = 200
"""Nodes that are named."""

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]

# What a bad node may add, in failures a second: such that a node's failure is told (NODE_FAIL, a
# finding), such as look like the job's own, and such as end jobs as they start.
_LEVELS = [(level, share) for level in (0.1, 0.3, 1.0) for share in (0.0, 0.5, 1.0)]
_TOLD = np.array([*(level * share / DAY_S for level, share in _LEVELS), 0.0])
_HIDDEN = np.array([*(level * (1 - share) / DAY_S for level, share in _LEVELS), 0.0])
_AT_START = np.array([*(0.0 for _ in _LEVELS), 0.5 / EARLY_S])


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """One node that fails jobs."""

    node: str
    accused: bool
    """Whether it is a lemon as surely as was asked for; else it is only worth a look."""
    evidence: float
    """Its e-value's logarithm to the base 10: chance alone passes 2 for at most one node in 100."""
    since_s: float
    """Unix time of the begin of the week since which it fails jobs, most likely."""
    jobs: int
    """Jobs that it was part of since then."""
    failures: int
    """Failures of these that count: one of several at once, none of an outage or a crash loop."""
    expected: float
    """Failures of these jobs by chance and by nodes that are surer to be bad."""
    a_day: float
    """Failures that it adds to a day of its use, about."""
    rivals: tuple[str, ...] = ()
    """Nodes that explain the same failures as well, since they ran the same jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the ends of jobs say of a fleet's nodes."""

    suspects: tuple[Suspect, ...]
    """The surest first."""
    nodes: int
    jobs: int
    failures: int
    loops: int
    """Failures left out, since the same workload had failed just before."""
    outages: int
    """Failures left out, since many unrelated jobs failed with them."""
    a_day: float
    """Failures that a good node causes in a day of its use."""


def find_lemons(table: JobTable, now_s: float, *, alpha: float = ALPHA) -> Judged:
    """From the jobs that ended within `WINDOW_S` before `now_s` (Unix time in seconds)."""
    evidence = _Evidence(table.between(now_s - WINDOW_S, now_s), now_s)
    nodes = len(np.unique(evidence.table.members))
    named: list[dict[str, Any]] = []
    while len(named) < _MOST and (one := evidence.surest()) is not None:
        named.append(one)
    passed = [k for k, one in enumerate(named, 1) if one["evidence"] >= log(nodes / (alpha * k))]
    sure = max(passed, default=0)
    chance = evidence.chance
    return Judged(
        suspects=tuple(
            Suspect(
                **one | {"evidence": one["evidence"] / log(10)},
                accused=k < sure and not one["rivals"],
            )
            for k, one in enumerate(named)
        ),
        nodes=nodes,
        jobs=len(evidence.table),
        failures=int((evidence.table.how != GOOD).sum()),
        loops=int(chance.loop.sum()),
        outages=int(chance.outage.sum()),
        a_day=float(np.median(chance.node_rate) * DAY_S) if nodes else 0.0,
    )


def judged(index: StoredRuns, now_s: float, *, alpha: float = ALPHA) -> Judged:
    """By the jobs that the stored runs know; its `jobs` is 0 where they know none of that time."""
    known = stored_jobs(index, now_s - WINDOW_S)
    jobs = apart(known, renewed(index, days=WINDOW_S / DAY_S)) if known else known
    found = find_lemons(JobTable.of(jobs), now_s, alpha=alpha)
    there = tuple(one for one in found.suspects if not one.node.endswith(BEFORE))
    return replace(found, suspects=there)


@dataclass(slots=True, eq=False)
class _Failures:
    """Failures that count, one entry a node that may have caused it."""

    job: _Ints
    node: NDArray[np.int32]
    week: _Ints
    adds: _Floats
    """By what a bad node may add: how much of it would be seen as this failure, a second."""
    rate: _Floats
    """Failures a second by chance, and by nodes that were taken already."""
    blamed: NDArray[np.bool_]
    """Whether this node is known to have caused it."""

    def terms(self, which: Any = ...) -> _Floats:
        rates = self.rate[which][..., np.newaxis]
        return np.asarray(np.log1p(self.adds[which] / rates))


class _Evidence:
    """What the jobs of a table say of each node.

    `ratios`: logarithms of the likelihood ratios by week (0: the last), by what may be added, by node.
    """

    def __init__(self, table: JobTable, now_s: float) -> None:
        self.table, self.now_s = table, now_s
        self.taken: list[int] = []
        self.chance = chance_of(table)
        self.expected = self.chance.expected.copy()
        ages = (now_s - table.end) / _WEEK_S
        self.weeks = ages.astype(np.int64).clip(0, _WEEKS - 1)
        self.failures = self._failures()
        n = len(table.nodes)
        place = self.weeks[table.rows] * n + table.members.astype(np.int64)
        time = self._sum(place, table.seconds).reshape(_WEEKS, 1, n)
        start = self._sum(place, table.seconds.clip(max=EARLY_S)).reshape(_WEEKS, 1, n)
        adds = (_TOLD + _HIDDEN)[:, np.newaxis], _AT_START[:, np.newaxis]
        self.ratios = -(time * adds[0]) - start * adds[1]
        self._add(slice(None), self.failures.terms())

    def _sum(self, place: _Ints, by_job: _Floats) -> _Floats:
        size = _WEEKS * len(self.table.nodes)
        summed = np.bincount(place, weights=by_job[self.table.rows], minlength=size)
        return summed.astype(np.float64)

    def _failures(self) -> _Failures:
        """Of several of one node at once the first; of a job whose culprit is known only that one."""
        table, rows = self.table, self.table.rows
        culprit = table.culprit[rows]
        may = self.chance.counted[rows] & ((culprit < 0) | (culprit == table.members))
        job, node, blamed = rows[may], table.members[may], culprit[may] >= 0
        slot = (table.end[job] / SAME_S).astype(np.int64)
        _, first = np.unique(np.stack((slot, node.astype(np.int64))), axis=1, return_index=True)
        job, node, blamed = job[first], node[first], blamed[first]
        told = blamed | (table.how[job] == NODE)
        early = (table.seconds[job] < EARLY_S)[:, np.newaxis]
        hidden = _HIDDEN + np.where(early, _AT_START, 0.0)
        rate = np.where(blamed, 2 * self.chance.node_rate[job], self.chance.rate[job])
        adds = np.where(told[:, np.newaxis], _TOLD, hidden)
        return _Failures(job, node, self.weeks[job], adds, rate, blamed)

    def _add(self, which: Any, terms: _Floats) -> None:
        place: Any = self.failures.week[which], slice(None), self.failures.node[which]
        np.add.at(self.ratios, place, terms)

    def surest(self) -> dict[str, Any] | None:
        """The node with the most evidence of those that were not taken; None: there is too little.

        What it adds is from now on what the others' jobs fail by.
        """
        since = np.cumsum(self.ratios, axis=0)  # from the begin of each week until now
        before = _mean(since)
        before[self.taken] = -np.inf
        if not len(before) or before.max() < _FLOOR:
            return None
        node = int(before.argmax())
        week, kind = np.unravel_index(since[:, :, node].argmax(), since.shape[:2])
        said = self._said(node, int(week), int(kind))
        self.taken.append(node)
        self._explain(node, int(kind), said["a_day"])
        after = _mean(np.cumsum(self.ratios, axis=0))
        rival = (before > before[node] - _RIVAL) & (before > _FLOOR) & (after < before / 2)
        rival[node] = False
        names = tuple(self.table.nodes[other] for other in np.flatnonzero(rival))
        return {**said, "evidence": float(before[node]), "rivals": names}

    def _said(self, node: int, week: int, kind: int) -> dict[str, Any]:
        table, events = self.table, self.failures
        jobs = np.unique(table.rows[table.members == node])
        jobs = jobs[self.weeks[jobs] <= week]
        failures = int(((events.node == node) & (events.week <= week)).sum())
        expected = float(self.expected[jobs].sum())
        days = float(table.seconds[jobs].sum()) / DAY_S
        return {
            "node": table.nodes[node],
            "since_s": self.now_s - (week + 1) * _WEEK_S,
            "jobs": len(jobs),
            "failures": failures,
            "expected": expected,
            "a_day": max(failures - expected, 0.0) / max(days, 1.0),
        }

    def _explain(self, node: int, kind: int, a_day: float) -> None:
        """What that node adds is expected of its jobs, with all their nodes: in the whole time, since
        nobody knows when it began. Of its jobs that failed as they started nobody else is to blame."""
        events, table = self.failures, self.table
        jobs = np.unique(table.rows[table.members == node])
        more = max(_TOLD[kind] + _HIDDEN[kind], a_day / DAY_S)
        which = np.flatnonzero(np.isin(events.job, jobs) & (events.node != node) & ~events.blamed)
        old = events.terms(which)
        starts = table.seconds[events.job[which]] < EARLY_S
        events.rate[which] += np.where(starts, np.inf, _SURELY * more)
        self._add(which, events.terms(which) - old)
        seconds = table.seconds[jobs]
        self.expected[jobs] += more * seconds + _AT_START[kind] * seconds.clip(max=EARLY_S)


def _mean(since: _Floats) -> _Floats:
    """By node: the logarithm of the mean over weeks and kinds."""
    top = since.max(axis=(0, 1))
    return np.asarray(top + np.log(np.exp(since - top).mean(axis=(0, 1))))
