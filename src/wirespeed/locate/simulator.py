"""A fabric that exists only in arithmetic: the same questions as real ranks answer, any size.

A pair goes at the rate of its slowest part: the sender, the receiver, the rail, the two leaves'
uplinks (shared by all that cross them at once) or the link itself; then comes the noise.
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wirespeed.errors import UsageError
from wirespeed.locate.localise import localise, work_order
from wirespeed.locate.pair_figures import (
    Culprit,
    CulpritKind,
    Diagnosis,
    Pair,
    Reading,
    Towards,
    Worked,
)
from wirespeed.model.records import PairFigures, SimulatedPart

FaultKind = Literal[
    "node", "rail", "nic", "direction", "uplink", "link", "straggler", "dead", "latency"
]
COMMON_KINDS: tuple[FaultKind, ...] = ("node", "rail", "direction", "uplink", "straggler")
"""What is drawn unless other kinds are asked for."""

LEAST_DELAY = 0.6
"""A latency fault makes 2.5 times of the latency at least: switches alone make some difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricSpec:
    """A fabric of two stages: nodes on leaves, leaves on a spine."""

    nodes: int
    rails: int = 1
    leaf: int = 0
    """Nodes behind one leaf switch; 0: one switch for all."""
    oversubscription: float = 1.0
    """A leaf's rate towards its nodes over its rate towards the spine."""
    noise: float = 0.1
    """Sigma of the lognormal noise of each figure of each reading."""
    wild: float = 0.01
    """Share of the readings (pairs in a round) that are slower by a random factor of up to 5."""
    busy: float = 0.0
    """Share of the time in which other work takes a core, from whoever works just then or one node."""
    knows_groups: bool = True
    """Whether the localiser is told which nodes share a leaf."""

    @property
    def leaves(self) -> tuple[tuple[int, ...], ...]:
        if not self.leaf:
            return ()
        starts = range(0, self.nodes, self.leaf)
        return tuple(tuple(range(s, min(s + self.leaf, self.nodes))) for s in starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One injected fault; the fields as in `Culprit`."""

    kind: CulpritKind
    nodes: tuple[int, ...] = ()
    rail: int = -1
    towards: Towards = ""
    degradation: float = 0.5
    """Share of the rate (or of the speed) that is lost: 0.5 is twice as slow."""
    often: float = 1.0
    """Chance that it shows in a round."""
    what: Literal["rate", "latency", "time"] = "rate"

    @property
    def factor(self) -> float:
        return 1 / (1 - self.degradation) if self.kind != "dead" else float("inf")


def random_faults(
    spec: FabricSpec,
    count: int,
    kinds: Sequence[FaultKind] = COMMON_KINDS,
    seed: int = 0,
) -> tuple[Fault, ...]:
    """`count` faults of different parts, their degradation between a sixth and nine tenths.

    The kinds take turns in random order. No more than a third of the rails or leaves fail: beyond,
    slow is the rule and there is nothing to compare with.
    """
    random = Random(seed)
    usable = [kind for kind in dict.fromkeys(kinds) if _room(spec, kind)]
    if not usable:
        raise UsageError(
            f"none of {', '.join(kinds)} can fail in a fabric of {spec.nodes} nodes",
            expected="3 rails for rail and nic, 3 leaves for uplink",
        )
    faults: list[Fault] = []
    free = _Free(spec, random)
    while len(faults) < count and usable:
        kind = random.choice(usable)
        fault = free.draw(kind, random.uniform(1 / 6, 0.9))
        if fault is None:
            usable.remove(kind)
        else:
            faults.append(fault)
    return tuple(faults)


def score(named: Iterable[Culprit], injected: Iterable[Fault]) -> tuple[float, float]:
    """(precision, recall): a culprit counts where kind and subject are those of a fault.

    Precision is 1 where nothing is named, recall where nothing was injected.
    """
    said, there = {_key(culprit) for culprit in named}, {_key(fault) for fault in injected}
    right = len(said & there)
    return (right / len(said) if said else 1.0), (right / len(there) if there else 1.0)


def _key(part: Culprit | Fault) -> tuple[object, ...]:
    rail = part.rail if part.kind in ("rail", "nic") else -1
    towards = part.towards if part.kind == "direction" else ""
    return part.kind, tuple(sorted(part.nodes)), rail, towards, part.what


def _room(spec: FabricSpec, kind: FaultKind) -> bool:
    if kind in ("rail", "nic"):
        return spec.rails >= 3
    return kind != "uplink" or len(spec.leaves) >= 3


class _Free:
    """What has not failed yet."""

    def __init__(self, spec: FabricSpec, random: Random) -> None:
        self._spec, self._random = spec, random
        self._nodes = random.sample(range(spec.nodes), spec.nodes)
        self._rails = random.sample(range(spec.rails), spec.rails // 3)
        self._healthy = sorted(set(range(spec.rails)) - set(self._rails))
        self._leaves = random.sample(spec.leaves, len(spec.leaves) // 3)

    def draw(self, kind: FaultKind, degradation: float) -> Fault | None:
        """None: there is no such part left."""
        if kind == "rail":
            rail = self._rails.pop() if self._rails else None
            return None if rail is None else Fault(kind=kind, rail=rail, degradation=degradation)
        ends = 2 if kind == "link" else 1
        if kind == "uplink":
            nodes = self._leaves.pop() if self._leaves else ()
        else:
            nodes = tuple(sorted(self._nodes.pop() for _ in range(ends) if self._nodes))
        if len(nodes) < ends:
            return None
        if kind == "latency":
            degradation = max(degradation, LEAST_DELAY)
            return Fault(kind="node", nodes=nodes, degradation=degradation, what="latency")
        return Fault(
            kind=kind,
            nodes=nodes,
            rail=self._random.choice(self._healthy) if kind == "nic" else -1,
            towards=self._random.choice(("out", "in")) if kind == "direction" else "",
            degradation=degradation,
            what="time" if kind == "straggler" else "rate",
        )


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
        self.nodes, self.rails = spec.nodes, spec.rails
        self.groups = spec.leaves if spec.knows_groups else ()
        self._random = np.random.default_rng(seed)
        self._other = OtherWork(spec, seed) if spec.busy else None
        self._calls = 0
        self._leaf = np.arange(spec.nodes) // spec.leaf if spec.leaf else np.zeros(spec.nodes, int)

    def round(self, pairs: Sequence[Pair]) -> list[Reading]:
        if not pairs:
            return []
        a, b = np.array(pairs, dtype=np.intp).T
        showing = [fault for fault in self.faults if self._random.random() < fault.often]
        forth, back = self._both_ways(a, b, showing)
        wild = self._wild(len(pairs))
        latency = self._latency(a, b, showing)
        noisy = (self._noisy(one).tolist() for one in (forth * wild, back * wild, latency))
        figures = zip(pairs, *noisy, strict=True)
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
                worse = np.maximum(seconds, fault.factor * (LATENCY + HOP))
                seconds = np.where(hit, worse, seconds)
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
            hit = self._begin <= self._now and self._whom in (-1, node)
            longer[node] = self._slow if hit else 1.0
            if self._nodes <= TURNS:
                self._now += WORK * float(longer[node])
        return longer

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
    leaf = min(32, nodes // 4)
    return FabricSpec(nodes=nodes, rails=8, leaf=leaf, oversubscription=1.5, noise=noise)


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


# From the localiser's figures to records: names for numbers, JSON for what has no record.


def pair_figures(reading: Reading, names: Sequence[str], number: int) -> list[PairFigures]:
    """One entry a rail; `number` is the round, from 0."""
    first, second = (names[node] for node in reading.pair)
    return [
        PairFigures(
            first=first,
            second=second,
            rail=rail,
            round=number,
            latency=_of_rail(reading.latency, rail),
            forth=forth,
            back=back,
            both=_of_rail(reading.both, rail) or 0.0,
        )
        for rail, (forth, back) in enumerate(zip(reading.forth, reading.back, strict=True))
    ]


def _of_rail(figures: Sequence[float], rail: int) -> float | None:
    """None where it was not measured, or where no answer came."""
    known = rail < len(figures) and math.isfinite(figures[rail])
    return figures[rail] if known else None


def culprit_json(culprit: Culprit) -> dict[str, Any]:
    """JSON has no infinity: None stands for it."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(culprit).items()
    }


def simulated_part(part: Culprit | Fault, names: Sequence[str]) -> SimulatedPart:
    """What of the fabric it is, in words: `node-7 sending`, `rail 3`, `node-0 … node-31`."""
    said = [names[node] for node in part.nodes]
    match part.kind:
        case "rail":
            name = f"rail {part.rail}"
        case "nic":
            name = f"rail {part.rail} of {said[0]}"
        case "uplink":
            name = f"{said[0]} … {said[-1]}"
        case "link":
            name = " <-> ".join(said)
        case "direction":
            name = f"{said[0]} {'sending' if part.towards == 'out' else 'receiving'}"
        case _:
            name = ", ".join(said)
    factor = part.factor if math.isfinite(part.factor) else None
    return SimulatedPart(kind=part.kind, name=name, what=part.what, factor=factor)
