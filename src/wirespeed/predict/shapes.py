"""What a collective costs by algorithm: latency by steps, bandwidth by bytes of the busiest rank.

A shape is a list of terms; the time of one call is

    T = (A^p + B^p)^(1/p),   A = sum of latency terms,   B = sum of bandwidth terms

each term a coefficient that is not negative (fitted) times a known function of ranks, nodes, ranks a
node and size. p = 1 is Hockney's line (R. W. Hockney, The communication challenge for MPP, 1994);
p = 4 is nearly the larger of the two, for links that let a burst through at once (token buckets) and
pipelines that hide one behind the other. Steps and bytes are those of R. Thakur, R. Rabenseifner and
W. Gropp, Optimization of Collective Communication Operations in MPICH, 2005, and, for the hops
between nodes, of NCCL's tuning model (NVIDIA/nccl, src/graph/tuning.cc: a ring over k nodes has
steps(k) slow hops among its steps(n)). Sizes are nccl-tests' (docs/bandwidth.md). What a backend does
is known where its source says so (`_SOURCES`); its shapes are marked `known`.
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
    credit: float = 0.0
    """B - credit * A counts as B: a token bucket fills again while its link is idle between two
    calls, for about as long as a call of nearly no bytes takes."""
    known: bool = False
    """The source of the backend that was measured has this algorithm."""

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
    burst: int = 0
    """Bytes that a link which was idle lets through at once (`_carried`), in trees with children at
    once."""

    def carried(self, ranks: int, size: float) -> float:
        """Bytes that one after the other take their time on a link."""
        return _carried(ranks, size, self.burst) if self.burst else self.bytes(ranks) * size


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
def _paths(n: int) -> dict[int, int]:
    """Of a binomial tree whose ranks send to all their children at once, and pass on when they have it
    all: by the ranks on a way down that pass on, the most sends along it (each child waits for all).

    So does gloo (facebookincubator/gloo, gloo/broadcast.cc), where rank v that got it in round i sends
    to v + 2^j in each later round j.
    """

    def below(rank: int, joined: int) -> dict[int, int]:
        rounds = [j for j in range(joined, int(_log2(n))) if rank + (1 << j) < n]
        most = {1 if rank else 0: len(rounds)} if rounds else {0: 0}
        for j in rounds:
            for passing, sends in below(rank + (1 << j), j + 1).items():
                way = passing + (1 if rank else 0)
                most[way] = max(most.get(way, 0), sends + len(rounds))
        return most

    return below(0, 0)


def _children_at_once(n: int) -> float:
    """Sends on the longest way down, all of a rank's as long as they take together."""
    return float(max(_paths(n).values()))


def _carried(n: int, size: float, burst: int) -> float:
    """Each rank that passes on was idle before, so that its link lets a burst through (a token bucket);
    the root's is never idle for longer than between two calls."""
    ways = (sends * size - passing * burst for passing, sends in _paths(n).items())
    return max(_log2(n) * size, *ways)


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
    # Each send costs the sender its time (LogP's o: D. Culler et al., 1993), however short it is.
    _Algorithm("binomial tree, send by send", _children_at_once, _children_at_once),
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


_SOURCES = {
    "gloo": {
        "all_reduce": ("ring",),
        "all_gather": ("ring",),
        "reduce_scatter": ("ring",),
        "all_to_all": ("pairwise",),
        "broadcast": ("binomial tree, children at once", "binomial tree, send by send"),
    }
}
"""facebookincubator/gloo: allreduce.cc, allgather.cc, alltoall.cc, broadcast.cc in gloo/; torch's
reduce_scatter over gloo goes round the same ring."""
_BURSTS = tuple(2**k for k in range(15, 20))
"""Sizes of a token bucket that are tried, 32 KiB to 512 KiB: tc-tbf(8) needs a few packets at least."""


def known_ops() -> tuple[str, ...]:
    return tuple(_ALGORITHMS)


def shapes_for(
    op: str, worlds: Sequence[WorldSize], cores: int = 0, backend: str = ""
) -> list[Shape]:
    """The shapes that can be told apart on these worlds; terms that say the same there are one.

    cores: that the ranks of one node share; 0 where that is not known. backend: whose collectives they
    are; empty where that is not known.
    """
    sources = _SOURCES.get(backend, {}).get(op, ())
    found: list[Shape] = []
    for algorithm in _ALGORITHMS.get(op, ()):
        known = algorithm.name in sources
        for shape in _placed(algorithm, worlds, cores):
            found += [replace(shape, power=p, known=known) for p in (1.0, _SHARP)]
        found += [replace(one, known=known) for one in _bursting(algorithm, worlds)]
    return found


def _placed(algorithm: _Algorithm, worlds: Sequence[WorldSize], cores: int) -> list[Shape]:
    """The algorithm on flat links, in levels, on cores that are shared."""
    between = any(world.nodes > 1 for world in worlds)
    if between and any(world.ranks_per_node > 1 for world in worlds):
        return [_hops(algorithm), _levels(algorithm)]
    found = [_flat(algorithm, between)]
    if not between:
        found += [_crowded(algorithm, one) for one in _takers(worlds, cores)]
    if 0 < cores < max(world.ranks for world in worlds):
        # Nodes may be containers of one host, whose cores each of them counts as its own.
        found.append(_waiting(algorithm, cores, between))
    return found


def _bursting(algorithm: _Algorithm, worlds: Sequence[WorldSize]) -> list[Shape]:
    """Over links that let a burst through, where ranks pass on; they begin at once, hence the power."""
    if algorithm.steps is not _children_at_once or any(one.ranks_per_node > 1 for one in worlds):
        return []
    made = [replace(algorithm, burst=burst) for burst in _BURSTS]
    shapes = [_flat(one, between=True) for one in made]
    return [
        replace(
            shape, name=f"{shape.name}, bursts of {one.burst >> 10} KiB", power=_SHARP, credit=1.0
        )
        for shape, one in zip(shapes, made, strict=True)
    ]


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
                lambda w, s: algorithm.carried(w.ranks, s),
                bandwidth=True,
                between=between,
            ),
        ),
    )


def _crowded(algorithm: _Algorithm, cores: int) -> Shape:
    """All ranks of a node share its cores, n / cores times the work each; or its memory (cores: 1),
    which bytes wait for and steps do not."""

    def share(world: WorldSize) -> float:
        return max(1.0, world.ranks / cores)

    return Shape(
        f"{algorithm.name}, shared {'cores' if cores > 1 else 'node'}",
        (
            _CALL,
            Term(
                "a step of any rank",
                lambda w, s: algorithm.steps(w.ranks) * (share(w) if cores > 1 else 1),
            ),
            Term(
                "a byte of any rank",
                lambda w, s: algorithm.bytes(w.ranks) * share(w) * s,
                bandwidth=True,
            ),
        ),
    )


def _waiting(algorithm: _Algorithm, cores: int, between: bool) -> Shape:
    """More ranks than cores: the next rank of a step finds no free core in 1 - cores / n of the cases,
    and then waits for a time slice of the scheduler. Bytes take the wire's time, or the cores'."""

    def waits(world: WorldSize) -> float:
        return algorithm.steps(world.ranks) * max(0.0, 1 - cores / world.ranks)

    _, step, bytes_of = (_flat(algorithm, True) if between else _crowded(algorithm, cores)).terms
    step = replace(step, value=lambda w, s: algorithm.steps(w.ranks))
    waiting = Term("a wait for a core", lambda w, s: waits(w))
    return Shape(f"{algorithm.name}, waiting for cores", (step, waiting, bytes_of))


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
