"""A fleet that exists only in arithmetic: jobs of many users on nodes of which a few are lemons.

Users' programs fail by themselves, some of them often, and are started again at once on nodes near by;
switches and file systems fail under many jobs; good nodes are not equally good.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wirespeed.fleet.job_ends import How, JobEnd

DAY_S = 86400.0
_EARLY_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """What is simulated."""

    nodes: int = 1000
    lemons: float = 0.01
    """Share of the nodes."""
    days: int = 365
    good_a_day: float = 0.004
    """Failures of a good node in a day of use, in the mean; gamma-distributed, its deviation half of it.
    Published: 2.3 and 6.5 in 1,000 node-days (A. Kokolis et al., 2024)."""
    lemon_a_day: tuple[float, float] = (0.2, 1.0)
    """What a lemon adds: log-uniform between these. One in five instead fails every second job that
    starts on it."""
    told: float = 0.5
    """Share of nodes' failures that the scheduler tells as such; others look like the job's own."""
    named: float = 1.0
    """Share of these of which it tells the node, too."""
    workloads: int = 300
    soft_a_day: float = 0.15
    """Failures that programs have of themselves in a day, in the mean; most have few, some many."""
    soft_at_start: float = 0.04
    """Share of starts that fail by mistakes of the program."""
    again: float = 0.5
    """After a failure of the program's own the share that is started again at once on the same nodes, to
    fail again after 20 s to 4 hours."""
    leaf: int = 32
    """Nodes behind one switch."""
    outages: int = 12
    """In a year of the whole fleet: a tenth to a half of the jobs end at once. Of single switches: four
    times as many."""
    mean_s: float = 8 * 3600.0
    largest: int = 64
    """Nodes of a job: 1, 2, 4, … to this or a quarter of the fleet, with equal node-hours of each."""
    use: float = 0.85
    """Share of the nodes that are in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lemon:
    node: str
    since_s: float
    a_day: float
    """0: it fails jobs as they start."""


class SimulatedFleet:
    """Its lemons, and the jobs of its time, from Unix time 0 on."""

    def __init__(self, spec: FleetSpec, seed: int) -> None:
        self.spec, self._rng = spec, np.random.default_rng(seed)
        self._spoil()
        rng = self._rng
        self._soft = rng.gamma(0.5, spec.soft_a_day / DAY_S / 0.5, spec.workloads)
        self._soon = rng.beta(0.5, 0.5 / spec.soft_at_start - 0.5, spec.workloads)
        largest = max(1, min(spec.largest, spec.nodes // 4))
        self._sizes = 2 ** np.arange(int(np.log2(largest)) + 1)
        self._shares = (1 / self._sizes) / (1 / self._sizes).sum()
        self._ends: list[tuple[float, int, tuple[int, ...], int]] = []
        self._number = 0
        self.jobs = sorted(self._outages(list(self._run())), key=lambda one: one.end_s)

    def _spoil(self) -> None:
        """Which nodes are lemons, how bad, and since when."""
        spec, rng, n = self.spec, self._rng, self.spec.nodes
        self._rate = rng.gamma(4.0, spec.good_a_day / 4, n) / DAY_S
        bad = rng.choice(n, round(n * spec.lemons), replace=False)
        self._since, self._more = np.full(n, np.inf), np.zeros(n)
        self._since[bad] = rng.uniform(0, spec.days - 60, len(bad)) * DAY_S
        low, high = np.log(spec.lemon_a_day)
        self._more[bad] = np.exp(rng.uniform(low, high, len(bad))) / DAY_S
        self._starts = np.isin(np.arange(n), bad[: len(bad) // 5])
        self._more[self._starts] = 0.0
        self.lemons: tuple[Lemon, ...] = tuple(
            Lemon(node=_name(k), since_s=float(self._since[k]), a_day=float(self._more[k] * DAY_S))
            for k in sorted(bad)
        )

    def _run(self) -> Iterator[JobEnd]:
        """Jobs until the time is over: as soon as nodes are free, the next one starts."""
        spec, now, unused = self.spec, 0.0, self.spec.nodes
        free = np.ones(spec.nodes, dtype=bool)
        wanted = self._wanted()
        size, workload = next(wanted)
        while now < spec.days * DAY_S:
            if unused - size >= (1 - spec.use) * spec.nodes:
                places = self._place(free, size)
                free[list(places)] = False
                unused -= size
                yield self._job(places, workload, now)
                size, workload = next(wanted)
                continue
            now, _, places, again = heapq.heappop(self._ends)
            if again >= 0:
                yield self._job(places, again, now, looping=True)
            else:
                free[list(places)] = True
                unused += len(places)

    def _job(
        self, places: tuple[int, ...], who: int, now: float, *, looping: bool = False
    ) -> JobEnd:
        rng = self._rng
        end, how, broken = self._end(places, who, now, looping=looping)
        again = how == "failed" and broken < 0 and rng.random() < self.spec.again
        down = rng.exponential(4 * 3600.0) if how == "node" else 60.0
        self._number += 1
        heapq.heappush(self._ends, (end + down, self._number, places, who if again else -1))
        named = how == "node" and rng.random() < self.spec.named
        return JobEnd(
            job=str(self._number),
            workload=f"user-{who}",
            start_s=now,
            end_s=end,
            nodes=tuple(map(_name, places)),
            how=how,
            culprit=_name(broken) if named else "",
        )

    def _wanted(self) -> Iterator[tuple[int, int]]:
        """Size and workload of one job after the other."""
        while True:
            sizes = self._rng.choice(self._sizes, 1000, p=self._shares).tolist()
            yield from zip(
                sizes, self._rng.integers(self.spec.workloads, size=1000).tolist(), strict=True
            )

    def _place(self, free: NDArray[np.bool_], size: int) -> tuple[int, ...]:
        """Free nodes next to each other, as far as there are, from a random one on."""
        spots = np.flatnonzero(free)
        begin = int(self._rng.integers(len(spots)))
        return tuple(spots.take(range(begin, begin + size), mode="wrap").tolist())

    def _end(
        self, places: tuple[int, ...], who: int, now: float, *, looping: bool
    ) -> tuple[float, How, int]:
        """When it ends and how, and the node that ended it; -1: it was the program, or nothing."""
        rng, where = self._rng, np.array(places)
        whole = min(rng.lognormal(np.log(self.spec.mean_s) - 0.5, 1.0), 4 * DAY_S)
        if looping:
            return now + np.exp(rng.uniform(*np.log((20.0, 4 * 3600.0)))), "failed", -1
        if rng.random() < self._soon[who]:
            return now + min(rng.uniform(5, _EARLY_S), whole), "failed", -1
        bad = self._since[where] < now
        starts = where[self._starts[where] & bad]
        if len(starts) and rng.random() < 0.5:
            return now + min(rng.uniform(5, 300), whole), self._how(), int(starts[0])
        rates = self._rate[where] + self._more[where] * bad
        broke = rng.exponential(1 / rates.sum())
        soft = rng.exponential(1 / max(self._soft[who], 1e-12))
        if min(broke, soft) >= whole:
            return now + whole, "good", -1
        if broke < soft:
            return now + broke, self._how(), int(rng.choice(where, p=rates / rates.sum()))
        return now + soft, "failed", -1

    def _how(self) -> How:
        return "node" if self._rng.random() < self.spec.told else "failed"

    def _outages(self, jobs: list[JobEnd]) -> list[JobEnd]:
        """Some of the jobs that run at a moment end then, of the whole fleet or of one switch."""
        spec, rng = self.spec, self._rng
        count = rng.poisson(spec.outages * spec.days / 365)
        when = [(rng.uniform(0, spec.days) * DAY_S, -1) for _ in range(count)]
        leaves = max(1, spec.nodes // spec.leaf)
        when += [
            (rng.uniform(0, spec.days) * DAY_S, int(rng.integers(leaves)))
            for _ in range(rng.poisson(4 * spec.outages * spec.days / 365))
        ]
        starts = np.array([one.start_s for one in jobs])
        ends = np.array([one.end_s for one in jobs])
        for at, leaf in when:
            share = rng.uniform(0.1, 0.5) if leaf < 0 else 0.9
            how = self._how()
            for k in np.flatnonzero((starts < at) & (ends > at)):
                on = leaf < 0 or any(int(name[1:]) // spec.leaf == leaf for name in jobs[k].nodes)
                if on and rng.random() < share:
                    ends[k] = at + rng.uniform(0, 60)
                    jobs[k] = replace(jobs[k], end_s=float(ends[k]), how=how, culprit="")
        return jobs


def _name(place: int) -> str:
    return f"n{place:05d}"
