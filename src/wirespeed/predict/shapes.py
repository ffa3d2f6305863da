"""What a collective costs by algorithm: latency by steps, bandwidth by bytes of the busiest rank.

A shape is a list of terms; the time of one call is

    T = (A^p + B^p)^(1/p),   A = sum of latency terms,   B = sum of bandwidth terms

each term a coefficient that is not negative (fitted) times a known function of ranks, nodes, ranks a
node and size. p = 1 is Hockney's line (R. W. Hockney, The communication challenge for MPP, 1994);
p = 4 is nearly the larger of the two, for links that let a burst through at once (token buckets) and
pipelines that hide one behind the other. Steps and bytes are those of R. Thakur, R. Rabenseifner and
W. Gropp, Optimization of Collective Communication Operations in MPICH, 2005, and, for the hops
between nodes, of NCCL's tuning model (NVIDIA/nccl, src/graph/tuning.cc: a ring over k nodes has
steps(k) slow hops among its steps(n)). Sizes are nccl-tests' (docs/bandwidth.md).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wirespeed.records_prediction import WorldSize

__all__ = ["Place", "Shape", "Term", "known_ops", "shapes_for", "varied"]

Array = NDArray[np.float64]
Place = tuple[WorldSize, int]
"""A world and a size in bytes."""
_SHARP = 4.0


@dataclass(frozen=True, slots=True)
class Term:
    name: str
    value: Callable[[WorldSize, float], float]
    """Of the world and the size in bytes."""
    bandwidth: bool = False
    between: bool = False
    """Whether it is a cost of the links between nodes."""


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    terms: tuple[Term, ...]
    power: float = 1.0

    def matrix(self, places: Sequence[Place]) -> Array:
        """The terms' functions: one row a place, one column a term."""
        return np.array([[term.value(w, float(s)) for term in self.terms] for w, s in places])

    @property
    def bandwidth(self) -> NDArray[np.bool_]:
        return np.array([term.bandwidth for term in self.terms])


@dataclass(frozen=True, slots=True)
class _Algorithm:
    name: str
    steps: Callable[[int], float]
    bytes: Callable[[int], float]
    """Of the busiest rank, over the size."""


def _log2(n: int) -> float:
    return float(math.ceil(math.log2(n))) if n > 1 else 0.0


def _all(n: int) -> float:
    return float(n - 1)


def _twice(n: int) -> float:
    return 2.0 * (n - 1)


def _share(n: int) -> float:
    return (n - 1) / n


def _ring_bytes(n: int) -> float:
    return 2 * (n - 1) / n


def _two_trees(n: int) -> float:
    return 2.0 if n > 1 else 0.0


def _one(n: int) -> float:
    return 1.0 if n > 1 else 0.0


def _twice_log2(n: int) -> float:
    return 2 * _log2(n)


def _scatter_gather(n: int) -> float:
    return _log2(n) + n - 1


def _half_log2(n: int) -> float:
    return _log2(n) / 2


@lru_cache(maxsize=1024)
def _children_at_once(n: int) -> float:
    """A rank that sends to all its children of a binomial tree at once shares its link among them; they
    pass on when they have it all. So does gloo (facebookincubator/gloo, gloo/broadcast.cc), where
    rank v that got it in round i sends to v + 2^j in each later round j."""

    def below(rank: int, joined: int) -> float:
        rounds = [j for j in range(joined, int(_log2(n))) if rank + (1 << j) < n]
        deepest = max((below(rank + (1 << j), j + 1) for j in rounds), default=0.0)
        return len(rounds) + deepest

    return below(0, 0)


_REDUCING = (
    _Algorithm("ring", _twice, _ring_bytes),
    _Algorithm("tree", _twice_log2, _two_trees),
    _Algorithm("recursive doubling", _log2, _log2),
    _Algorithm("halving and doubling", _twice_log2, _ring_bytes),
)
_SPREADING = (
    _Algorithm("ring", _all, _share),
    _Algorithm("recursive doubling", _log2, _share),
)
_ROOTED = (
    _Algorithm("binomial tree", _log2, _log2),
    _Algorithm("binomial tree, children at once", _log2, _children_at_once),
    _Algorithm("scatter and all-gather", _scatter_gather, _ring_bytes),
    _Algorithm("chain", _all, _one),
)
_ALGORITHMS: dict[str, tuple[_Algorithm, ...]] = {
    "all_reduce": _REDUCING,
    "all_gather": _SPREADING,
    "reduce_scatter": _SPREADING,
    "all_to_all": (
        _Algorithm("pairwise", _all, _share),
        _Algorithm("Bruck", _log2, _half_log2),
    ),
    "broadcast": _ROOTED,
    "reduce": _ROOTED,
    "gather": (
        _Algorithm("linear", _all, _share),
        _Algorithm("binomial tree", _log2, _share),
    ),
    "scatter": (
        _Algorithm("linear", _all, _share),
        _Algorithm("binomial tree", _log2, _share),
    ),
    "send_recv": (_Algorithm("direct", _one, _one),),
    "pair_exchange": (_Algorithm("direct", _one, _one),),
}


def known_ops() -> tuple[str, ...]:
    return tuple(_ALGORITHMS)


def shapes_for(op: str, worlds: Sequence[WorldSize], cores: int = 0) -> list[Shape]:
    """The shapes that can be told apart on these worlds; terms that say the same there are one.

    cores: that the ranks of one node share; 0 where that is not known.
    """
    between = any(world.nodes > 1 for world in worlds)
    within = any(world.ranks_per_node > 1 for world in worlds)
    found: list[Shape] = []
    for algorithm in _ALGORITHMS.get(op, ()):
        if between and within:
            found += [_hops(algorithm), _levels(algorithm)]
        else:
            found += [_flat(algorithm, between)]
        if within and not between:
            found += [_crowded(algorithm, one) for one in _takers(worlds, cores)]
    return [replace(shape, power=p) for shape in found for p in (1.0, _SHARP)]


def _takers(worlds: Sequence[WorldSize], cores: int) -> list[int]:
    """Ranks from which on each further one slows all: the first (memory), and the one for which there
    is no core, where the worlds lie on both sides of it."""
    ranks = [world.ranks for world in worlds]
    return [1, cores] if min(ranks) < cores < max(ranks) else [1]


def varied(shape: Shape, places: Sequence[Place]) -> Shape:
    """Without terms that are 0 at these places, or a multiple of an earlier term of their kind."""
    matrix = shape.matrix(places)
    kept: list[int] = []
    for column in range(matrix.shape[1]):
        values = matrix[:, column]
        if not np.any(values > 0):
            continue
        same = (k for k in kept if shape.terms[k].bandwidth == shape.terms[column].bandwidth)
        if not any(_proportional(matrix[:, k], values) for k in same):
            kept.append(column)
    return replace(shape, terms=tuple(shape.terms[k] for k in kept))


def _proportional(one: Array, other: Array) -> bool:
    # Of two terms that always go together the second tells nothing that the first does not.
    product = float(one @ other)
    return product**2 >= (1 - 1e-9) * float(one @ one) * float(other @ other)


_CALL = Term("a call", lambda w, s: 1.0)


def _flat(algorithm: _Algorithm, between: bool) -> Shape:
    """All links alike."""
    where = "between nodes" if between else "within the node"
    return Shape(
        algorithm.name,
        (
            _CALL,
            Term(f"a step {where}", lambda w, s: algorithm.steps(w.ranks), between=between),
            Term(
                f"a byte {where}",
                lambda w, s: algorithm.bytes(w.ranks) * s,
                bandwidth=True,
                between=between,
            ),
        ),
    )


def _crowded(algorithm: _Algorithm, cores: int) -> Shape:
    """All ranks of a node share its cores, or its memory (cores: 1): n / cores times the work each."""

    def share(world: WorldSize) -> float:
        return max(1.0, world.ranks / cores)

    return Shape(
        f"{algorithm.name}, shared {'cores' if cores > 1 else 'node'}",
        (
            _CALL,
            Term("a step of any rank", lambda w, s: algorithm.steps(w.ranks) * share(w)),
            Term(
                "a byte of any rank",
                lambda w, s: algorithm.bytes(w.ranks) * share(w) * s,
                bandwidth=True,
            ),
        ),
    )


def _hops(algorithm: _Algorithm) -> Shape:
    """One algorithm over all ranks; some of its hops lead to another node, which bounds the rate."""
    return Shape(
        f"{algorithm.name}, node to node",
        (
            _CALL,
            Term(
                "a step within a node",
                lambda w, s: max(0.0, algorithm.steps(w.ranks) - algorithm.steps(w.nodes)),
            ),
            Term("a step between nodes", lambda w, s: algorithm.steps(w.nodes), between=True),
            Term(
                "a byte within a node",
                lambda w, s: algorithm.bytes(w.ranks) * s if w.nodes == 1 else 0.0,
                bandwidth=True,
            ),
            Term(
                "a byte between nodes",
                lambda w, s: algorithm.bytes(w.ranks) * s if w.nodes > 1 else 0.0,
                bandwidth=True,
                between=True,
            ),
        ),
    )


def _levels(algorithm: _Algorithm) -> Shape:
    """Within each node first, then between nodes: two algorithms, one after the other."""
    return Shape(
        f"{algorithm.name}, in two levels",
        (
            _CALL,
            Term("a step within a node", lambda w, s: algorithm.steps(w.ranks_per_node)),
            Term("a step between nodes", lambda w, s: algorithm.steps(w.nodes), between=True),
            Term(
                "a byte within a node",
                lambda w, s: algorithm.bytes(w.ranks_per_node) * s,
                bandwidth=True,
            ),
            Term(
                "a byte between nodes",
                lambda w, s: algorithm.bytes(w.nodes) * s,
                bandwidth=True,
                between=True,
            ),
        ),
    )
