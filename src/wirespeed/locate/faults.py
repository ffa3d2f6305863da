"""Faults for the simulator, and how well a diagnosis names them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from wirespeed.errors import UsageError
from wirespeed.locate.model import Culprit, CulpritKind

__all__ = ["COMMON_KINDS", "FabricSpec", "Fault", "FaultKind", "random_faults", "score"]

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
    towards: Literal["", "out", "in"] = ""
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
    *,
    least: float = 1 / 6,
    most: float = 0.9,
) -> tuple[Fault, ...]:
    """`count` faults of different parts, their degradation between `least` and `most`.

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
        fault = free.draw(kind, random.uniform(least, most))
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
            return self._rail(degradation)
        if kind == "uplink":
            nodes = self._leaves.pop() if self._leaves else ()
        else:
            nodes = tuple(
                sorted(self._nodes.pop() for _ in range(1 + (kind == "link")) if self._nodes)
            )
        if len(nodes) < 1 + (kind == "link"):
            return None
        if kind == "latency":
            degradation = max(degradation, LEAST_DELAY)
            return Fault(kind="node", nodes=nodes, degradation=degradation, what="latency")
        rail = self._random.choice(self._healthy) if kind == "nic" else -1
        return Fault(
            kind=kind,
            nodes=nodes,
            rail=rail,
            towards=self._random.choice(("out", "in")) if kind == "direction" else "",
            degradation=degradation,
            what="time" if kind == "straggler" else "rate",
        )

    def _rail(self, degradation: float) -> Fault | None:
        if not self._rails:
            return None
        return Fault(kind="rail", rail=self._rails.pop(), degradation=degradation)
