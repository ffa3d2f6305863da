"""A fabric that exists only in arithmetic: the same questions as real ranks answer, any size.

A pair goes at the rate of its slowest part: the sender, the receiver, the rail, the two leaves'
uplinks (shared by all that cross them at once) or the link itself; then comes the noise.
"""

import time
from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from wirespeed.locate.faults import FabricSpec, Fault
from wirespeed.locate.localise import localise
from wirespeed.locate.model import Diagnosis, Pair, Reading, Worked
from wirespeed.locate.schedule import work_order

__all__ = ["SimulatedFabric", "simulate", "standard_spec"]

RATE = 50e9
"""Bytes a second of one rail: 400 Gbit/s."""
LATENCY = 5e-6
HOP = 1e-6
"""Seconds more between leaves."""
WORK = 0.05
"""Seconds of the work without traffic."""
DISTRACTED = 0.25
"""Share of a straggler's degradation that its traffic suffers too."""

TURNS = 8
"""So many nodes work one after the other, as in `ranks/pairs`; more of them all at once."""
PAUSE = 0.35
"""Seconds between two calls, in the mean."""
BURST = 1.5
"""Seconds that other work lasts, in the mean."""

_Floats = NDArray[np.float64]


class SimulatedFabric:
    """`Fabric` of the given shape with the given faults; the seed makes the noise."""

    def __init__(self, spec: FabricSpec, faults: Sequence[Fault] = (), seed: int = 0) -> None:
        self.spec, self.faults = spec, tuple(faults)
        self._random = np.random.default_rng(seed)
        self._other = OtherWork(spec, seed) if spec.busy else None
        self._calls = 0
        self._leaf = np.arange(spec.nodes) // spec.leaf if spec.leaf else np.zeros(spec.nodes, int)

    @property
    def nodes(self) -> int:
        return self.spec.nodes

    @property
    def rails(self) -> int:
        return self.spec.rails

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        return self.spec.leaves if self.spec.knows_groups else ()

    def round(self, pairs: Sequence[Pair]) -> list[Reading]:
        if not pairs:
            return []
        a, b = np.array(pairs, dtype=np.intp).T
        showing = [fault for fault in self.faults if self._random.random() < fault.often]
        forth, back = self._both_ways(a, b, showing)
        wild = self._wild(len(pairs))
        latency = self._latency(a, b, showing)
        figures = zip(
            pairs,
            self._noisy(forth * wild).tolist(),
            self._noisy(back * wild).tolist(),
            self._noisy(latency).tolist(),
            strict=True,
        )
        return [Reading(pair, tuple(f), tuple(b), latency=(s,)) for pair, f, b, s in figures]

    def compute(self) -> Worked:
        seconds = np.full(self.nodes, WORK)
        for fault in self.faults:
            if fault.kind in ("straggler", "dead") and self._random.random() < fault.often:
                seconds[list(fault.nodes)] *= fault.factor
        self._calls += 1
        own = seconds
        if self._other is not None:
            # A quota leaves less than the others' work does, and not less again.
            seconds = np.maximum(seconds, WORK * self._other.factors(self._calls))
        # What makes a node's own time wander shows on the clock as well.
        noise = self._noisy(np.ones(self.nodes)) / self._wild(self.nodes)[:, 0]
        return Worked((seconds * noise).tolist(), (own * noise).tolist())

    def _both_ways(
        self, a: NDArray[np.intp], b: NDArray[np.intp], faults: list[Fault]
    ) -> tuple[_Floats, _Floats]:
        """(forth, back). Every other pair starts with its way back, as `Fabric.round` asks for."""
        turned = (a + b) % 2 == 1
        source, to = np.where(turned, b, a), np.where(turned, a, b)
        first, second = self._rates(source, to, faults), self._rates(to, source, faults)
        swap = turned[:, None]
        return np.where(swap, second, first), np.where(swap, first, second)

    def _rates(
        self, source: NDArray[np.intp], to: NDArray[np.intp], faults: list[Fault]
    ) -> _Floats:
        """[pairs, rails], bytes a second."""
        sends, receives = np.ones((2, self.nodes, self.rails))
        rail, uplink = np.ones(self.rails), np.ones(self._leaf.max() + 1)
        for fault in faults:
            _damage(fault, sends, receives, rail, uplink, self._leaf)
        pace = np.minimum(np.minimum(sends[source], receives[to]), rail)
        crosses = self._leaf[source] != self._leaf[to]
        for end in (source, to):
            share = self._share(end, crosses) * uplink[self._leaf[end]]
            pace[crosses] = np.minimum(pace[crosses], share[crosses, None])
        for fault in faults:
            if fault.kind == "link":
                one, other = fault.nodes
                hit = ((source == one) & (to == other)) | ((source == other) & (to == one))
                pace[hit] = np.minimum(pace[hit], 1 - fault.degradation)
        return RATE * pace

    def _share(self, end: NDArray[np.intp], crosses: NDArray[np.bool_]) -> _Floats:
        """What a leaf's uplink leaves to each pair that crosses it, at most a rail's rate."""
        if not self.spec.leaf:
            return np.ones(len(end))
        crossing = np.bincount(self._leaf[end][crosses], minlength=self._leaf.max() + 1)
        capacity = self.spec.leaf / self.spec.oversubscription
        share: _Floats = np.minimum(1.0, capacity / np.maximum(crossing, 1))
        result: _Floats = share[self._leaf[end]]
        return result

    def _latency(self, a: NDArray[np.intp], b: NDArray[np.intp], faults: list[Fault]) -> _Floats:
        seconds: _Floats = LATENCY + HOP * (self._leaf[a] != self._leaf[b])
        for fault in faults:
            hit = np.isin(a, fault.nodes) | np.isin(b, fault.nodes)
            if fault.what == "latency":
                seconds = np.where(
                    hit, np.maximum(seconds, fault.factor * (LATENCY + HOP)), seconds
                )
            elif fault.kind == "dead":
                seconds = np.where(hit, np.inf, seconds)
        return seconds

    def _noisy(self, values: _Floats) -> _Floats:
        noise = self.spec.noise * self._random.standard_normal(values.shape, dtype=np.float32)
        result: _Floats = values * np.exp(noise)
        return result

    def _wild(self, count: int) -> _Floats:
        wild = self._random.random((count, 1)) < self.spec.wild
        return np.where(wild, self._random.uniform(0.2, 1.0, (count, 1)), 1.0)


class OtherWork:
    """Bursts that come at random times, last for random times and slow down by random factors
    whoever works just then; every other one sits on one node's core."""

    def __init__(self, spec: FabricSpec, seed: int) -> None:
        self._random = Random(seed)
        self._nodes = spec.nodes
        self._gap = BURST * (1 / spec.busy - 1)
        self._now = self._end = 0.0
        self._next()

    def factors(self, call: int) -> _Floats:
        """How many times longer each node takes in this call."""
        self._now += self._random.uniform(0, 2 * PAUSE)
        longer = np.ones(self._nodes)
        for node in work_order(self._nodes, call):
            while self._end < self._now:
                self._next()
            longer[node] = self._slow if self._begin <= self._now and self._hits(node) else 1.0
            if self._nodes <= TURNS:
                self._now += WORK * float(longer[node])
        return longer

    def _hits(self, node: int) -> bool:
        return self._whom in (-1, node)

    def _next(self) -> None:
        self._begin = self._end + self._random.expovariate(1 / self._gap)
        self._end = self._begin + self._random.expovariate(1 / BURST)
        self._slow = self._random.uniform(1.2, 3.0)
        self._whom = self._random.choice((-1, self._random.randrange(self._nodes)))


def _damage(
    fault: Fault,
    sends: _Floats,
    receives: _Floats,
    rail: _Floats,
    uplink: _Floats,
    leaf: NDArray[np.intp],
) -> None:
    """Write what a fault leaves of the rates into the parts that it hits."""
    left, nodes = 1 - fault.degradation, list(fault.nodes)
    if fault.kind == "rail":
        rail[fault.rail] = left
    elif fault.kind == "uplink":
        uplink[leaf[nodes[0]]] = left
    elif fault.kind == "nic":
        sends[nodes, fault.rail] = receives[nodes, fault.rail] = left
    elif fault.kind == "dead":
        sends[nodes] = receives[nodes] = 0.0
    elif fault.kind == "straggler":
        sends[nodes] = receives[nodes] = 1 - DISTRACTED * fault.degradation
    elif fault.what == "rate" and fault.kind in ("node", "direction"):
        if fault.towards in ("", "out"):
            sends[nodes] = left
        if fault.towards in ("", "in"):
            receives[nodes] = left


def standard_spec(nodes: int, noise: float = 0.1) -> FabricSpec:
    """From 64 nodes on 8 rails and leaves of 32 nodes; below, one rail and one switch."""
    if nodes < 64:
        return FabricSpec(nodes=nodes, noise=noise)
    return FabricSpec(
        nodes=nodes, rails=8, leaf=min(32, nodes // 4), oversubscription=1.5, noise=noise
    )


def simulate(
    spec: FabricSpec,
    faults: Sequence[Fault],
    seed: int = 0,
    *,
    exhaustive: bool = False,
    most_rounds: int = 24,
) -> tuple[Diagnosis, float]:
    """What `localise` says of such a fabric, and the seconds that both took."""
    start = time.perf_counter()
    fabric = SimulatedFabric(spec, faults, seed)
    diagnosis = localise(fabric, exhaustive=exhaustive, most_rounds=most_rounds, seed=seed)
    return diagnosis, time.perf_counter() - start
