"""Which measurements of the given runs can be fitted together, and why others cannot."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import Algorithm, children_at_once
from wirespeed.model.derived_records import Source, WorldSize
from wirespeed.model.records import Measurement, Run
from wirespeed.statistics import reach_of_ends

_LONGEST_S, _LARGEST = 1e5, 2**50
"""Beyond these a figure of a file is damaged or invented."""
_ALIKE = 1.1
_MOST_RANKS = 2**20
_MOST_POINTS, _FEW_SIZES = 200, 8
_OF_TORCH = ("torch", "deepspeed")
"""Engines that call torch.distributed."""
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One median time."""

    world: WorldSize
    size_bytes: int
    seconds: float
    spread: float
    """Standard error of log(seconds), from the interval of the median; 0: not known."""
    iterations: int
    run: str


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one collective that were measured in the same way."""

    op: str
    how: str
    points: tuple[Point, ...]
    cores: int = 0
    """See `cores_of`; the least of the runs."""
    backend: str = ""
    """Whose collectives these are, such as `gloo`; empty where an engine has its own."""

    @property
    def worlds(self) -> tuple[WorldSize, ...]:
        return tuple(_sorted_worlds(point.world for point in self.points))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({point.size_bytes for point in self.points}))

    @property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """Sizes, ascending, those within 10 % of each other together: 1 MiB is 1,048,575 bytes where
        it is shared by three ranks."""
        found: list[list[int]] = []
        for size in self.sizes:
            if found and size <= found[-1][0] * _ALIKE:
                found[-1].append(size)
            else:
                found.append([size])
        return tuple(tuple(one) for one in found)


def collect(
    runs: Sequence[Run], ranks_per_node: int | None = None
) -> tuple[dict[str, Series], tuple[Source, ...], tuple[str, ...]]:
    """(series by operation, sources, notes on what was left out).

    Of each operation the way of measuring with the most worlds is taken, then with the most points:
    times of other dtypes, engines or ways of timing do not lie on one curve. Several runs of the
    same configuration all count. ranks_per_node: for runs that do not tell their nodes.
    """
    groups: dict[str, dict[Key, list[Point]]] = defaultdict(lambda: defaultdict(list))
    left: Counter[str] = Counter()
    for run in runs:
        for m in run.measurements:
            why = _unusable(m)
            world = None if why else world_of(run, m, ranks_per_node)
            if world is None:
                left[why or "the run does not tell its nodes (say --ranks-per-node)"] += 1
                continue
            seconds, count = m.time.median, max(m.iterations, 1)
            point = Point(world, m.size_bytes, seconds, _spread(m), count, run.id)
            groups[m.op][_key(run, m)].append(point)
    cores = {run.id: cores_of(run) for run in runs}
    series = {op: _chosen(op, ways, cores, left) for op, ways in sorted(groups.items())}
    notes = tuple(f"{count} measurements left out: {why}" for why, count in left.items())
    return series, _sources(runs, series.values()), notes


def cores_of(run: Run) -> int:
    """CPUs that the ranks of one node share, where they compute and send on them; 0: on GPUs, or not
    told. With more ranks than that each waits for a core."""
    if any(node.gpus for node in run.world.nodes) or run.world.backend != "gloo":
        return 0
    told = [n.facts.cpu_shared or n.facts.cpu_logical for n in run.world.nodes]
    known = [one for one in told if one and one > 0]
    return min(known) if known and len(known) == len(told) else 0


def world_of(run: Run, m: Measurement, ranks_per_node: int | None) -> WorldSize | None:
    """Nodes and ranks a node of a measurement over the whole world; None where that is not told."""
    listed = [len(node.ranks) for node in run.world.nodes]
    if listed and sum(listed) == m.ranks:
        alike = len(set(listed)) == 1 and listed[0] > 0
        return WorldSize(len(listed), listed[0]) if alike else None
    if ranks_per_node and m.ranks % ranks_per_node == 0:
        return WorldSize(m.ranks // ranks_per_node, ranks_per_node)
    return None


def _unusable(m: Measurement) -> str:
    """Why a measurement is no evidence; empty where it is."""
    if m.wrong:
        return "the data were wrong"
    if m.setting:
        return "measured under other settings than the default"
    if m.groups != "all":
        return "groups that ran side by side"
    if not 2 <= m.ranks <= _MOST_RANKS:
        return "fewer than 2 ranks" if m.ranks < 2 else "ranks beyond belief"
    if not 0 < m.size_bytes <= _LARGEST:
        return "no bytes" if m.size_bytes <= 0 else "bytes beyond belief"
    if not (math.isfinite(m.time.median) and 0 < m.time.median <= _LONGEST_S):
        return "times beyond belief"
    return ""


def _spread(m: Measurement) -> float:
    low, high = m.time.low, m.time.high
    known = math.isfinite(low) and math.isfinite(high) and 0 < low <= high
    return min(math.log(high / low) / (2 * reach_of_ends(m.samples)), 1.0) if known else 0.0


def _key(run: Run, m: Measurement) -> Key:
    how = (run.world.backend, m.engine, m.dtype, m.timing)
    return (*how, m.in_place, m.blocking, m.in_flight, m.redop)


def _how(key: Key) -> str:
    backend, engine, dtype, timing, in_place, blocking, in_flight, redop = key
    parts = [str(one) for one in (backend, engine, dtype, redop, timing) if one not in ("", "none")]
    parts += ["in place"] if in_place else []
    parts += [] if blocking else ["async"]
    parts += [f"{in_flight} in flight"] if in_flight != 1 else []
    return " · ".join(dict.fromkeys(parts))


def _chosen(
    op: str, ways: dict[Key, list[Point]], cores: dict[str, int], left: Counter[str]
) -> Series:
    """cores: by run. left: what is left out, counted by its reason."""

    def much(key: Key) -> tuple[int, int, bool]:
        return len({point.world for point in ways[key]}), len(ways[key]), not key[4]

    best = max(ways, key=much)
    for key, points in ways.items():
        if key != best:
            left[f"{op} measured in another way ({_how(key)}; taken: {_how(best)})"] += len(points)
    ordered = sorted(ways[best], key=lambda p: (p.world.ranks, p.world.nodes, p.size_bytes, p.run))
    kept = _thinned(ordered)
    if len(kept) < len(ordered):
        why = f"{op}: medians over runs, and fewer sizes, stand for them"
        left[why] += len(ordered) - len(kept)
    backend, engine = best[:2]
    named = str(backend) if engine in _OF_TORCH else ""
    least = min(cores[point.run] for point in kept)
    return Series(op, _how(best), tuple(kept), least, named)


def _thinned(points: list[Point]) -> list[Point]:
    """At most `_MOST_POINTS`, since the cost of a fit grows with their cube: several runs of one place
    become their median, then every second size is dropped, and so on."""
    if len(points) <= _MOST_POINTS:
        return points
    places: dict[tuple[WorldSize, int], list[Point]] = defaultdict(list)
    for point in points:
        places[point.world, point.size_bytes].append(point)
    merged = [
        replace(
            found[0],
            seconds=median(one.seconds for one in found),
            iterations=sum(one.iterations for one in found),
        )
        for found in places.values()
    ]
    while len(merged) > _MOST_POINTS and len({one.size_bytes for one in merged}) > _FEW_SIZES:
        sizes = set(sorted({one.size_bytes for one in merged})[::2])
        merged = [one for one in merged if one.size_bytes in sizes]
    return merged[:_MOST_POINTS]


def _sources(runs: Sequence[Run], series: Iterable[Series]) -> tuple[Source, ...]:
    used: dict[str, list[tuple[str, Point]]] = defaultdict(list)
    for one in series:
        for point in one.points:
            used[point.run].append((one.op, point))
    found = []
    for run in {run.id: run for run in runs}.values():
        points = used.get(run.id, [])
        ops = ", ".join(dict.fromkeys(op for op, _ in points))
        worlds = _sorted_worlds(point.world for _, point in points)
        where = ", ".join(f"{one.nodes} × {one.ranks_per_node}" for one in worlds)
        what = f"{ops}: {len(points)} measurements on nodes × ranks {where}" if points else ""
        if run.training:
            trained = ", ".join(dict.fromkeys(f"{t.model}" for t in run.training))
            what = "; ".join(filter(None, (what, f"training steps of {trained}")))
        found.append(Source(id=run.id, what=what or "nothing that could be used"))
    return tuple(found)


def _sorted_worlds(worlds: Iterable[WorldSize]) -> list[WorldSize]:
    return sorted(set(worlds), key=lambda one: (one.ranks, one.nodes))


# What a collective costs by algorithm: latency by steps, bandwidth by bytes of the busiest rank.
#
# A shape is a list of terms; the time of one call is
#
#     T = (A^p + B^p)^(1/p),   A = sum of latency terms,   B = sum of bandwidth terms
#
# each term a coefficient that is not negative (fitted) times a known function of ranks, nodes, ranks a
# node and size. p = 1 is Hockney's line (R. W. Hockney, The communication challenge for MPP, 1994);
# p = 4 is nearly the larger of the two, for links that let a burst through at once (token buckets) and
# pipelines that hide one behind the other. Steps and bytes are those of R. Thakur, R. Rabenseifner and
# W. Gropp, Optimization of Collective Communication Operations in MPICH, 2005, and, for the hops
# between nodes, of NCCL's tuning model (NVIDIA/nccl, src/graph/tuning.cc: a ring over k nodes has
# steps(k) slow hops among its steps(n)). Sizes are nccl-tests' (docs/bandwidth.md). Which algorithms an
# operation may have, and which a backend's source has, the catalogue says; the latter's are `known`.

Array = NDArray[np.float64]
Place = tuple[WorldSize, int]
"""A world and a size in bytes."""
Value = Callable[[WorldSize, float], float]
"""Of the world and the size in bytes."""
_SHARP = 4.0


@dataclass(frozen=True, slots=True)
class Term:
    name: str
    value: Value
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


_BURSTS = tuple(2**k for k in range(15, 20))
"""Sizes of a token bucket that are tried, 32 KiB to 512 KiB: tc-tbf(8) needs a few packets at least."""


def known_ops() -> tuple[str, ...]:
    return tuple(op for op, one in CATALOGUE.items() if one.algorithms)


def shapes_for(
    op: str, worlds: Sequence[WorldSize], cores: int = 0, backend: str = ""
) -> list[Shape]:
    """The shapes that can be told apart on these worlds; terms that say the same there are one.

    cores: that the ranks of one node share; 0 where that is not known. backend: whose collectives they
    are; empty where that is not known.
    """
    collective, found = CATALOGUE[op], list[Shape]()
    for algorithm in collective.algorithms:
        known = algorithm.name in collective.algorithms_of.get(backend, ())
        for shape in _placed(algorithm, worlds, cores):
            found += [replace(shape, power=p, known=known) for p in (1.0, _SHARP)]
        found += [replace(one, known=known) for one in _bursting(algorithm, worlds)]
    return found


def _placed(algorithm: Algorithm, worlds: Sequence[WorldSize], cores: int) -> list[Shape]:
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


def _bursting(algorithm: Algorithm, worlds: Sequence[WorldSize]) -> list[Shape]:
    """Over links that let a burst through, where ranks pass on; they begin at once, hence the power."""
    if algorithm.steps is not children_at_once or any(one.ranks_per_node > 1 for one in worlds):
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
_WITHIN, _BETWEEN = "within a node", "between nodes"


def _step(where: str, value: Value) -> Term:
    return Term(f"a step {where}", value, between=where == _BETWEEN)


def _byte(where: str, value: Value) -> Term:
    return Term(f"a byte {where}", value, bandwidth=True, between=where == _BETWEEN)


def _flat(algorithm: Algorithm, between: bool) -> Shape:
    """All links alike."""
    where = _BETWEEN if between else "within the node"
    step = _step(where, lambda w, s: algorithm.steps(w.ranks))
    byte = _byte(where, lambda w, s: algorithm.carried(w.ranks, s))
    return Shape(algorithm.name, (_CALL, step, byte))


def _crowded(algorithm: Algorithm, cores: int) -> Shape:
    """All ranks of a node share its cores, n / cores times the work each; or its memory (cores: 1),
    which bytes wait for and steps do not."""

    def share(world: WorldSize) -> float:
        return max(1.0, world.ranks / cores)

    waits = cores > 1
    step = _step("of any rank", lambda w, s: algorithm.steps(w.ranks) * (share(w) if waits else 1))
    byte = _byte("of any rank", lambda w, s: algorithm.bytes(w.ranks) * share(w) * s)
    return Shape(f"{algorithm.name}, shared {'cores' if waits else 'node'}", (_CALL, step, byte))


def _waiting(algorithm: Algorithm, cores: int, between: bool) -> Shape:
    """More ranks than cores: the next rank of a step finds no free core in 1 - cores / n of the cases,
    and then waits for a time slice of the scheduler. Bytes take the wire's time, or the cores'."""

    def waits(world: WorldSize, _: float) -> float:
        return algorithm.steps(world.ranks) * max(0.0, 1 - cores / world.ranks)

    _, step, byte = (_flat(algorithm, True) if between else _crowded(algorithm, cores)).terms
    step = replace(step, value=lambda w, s: algorithm.steps(w.ranks))
    waiting = Term("a wait for a core", waits)
    return Shape(f"{algorithm.name}, waiting for cores", (step, waiting, byte))


def _hops(algorithm: Algorithm) -> Shape:
    """One algorithm over all ranks; some of its hops lead to another node, which bounds the rate."""

    def inner_steps(world: WorldSize, _: float) -> float:
        return max(0.0, algorithm.steps(world.ranks) - algorithm.steps(world.nodes))

    terms = (
        _CALL,
        _step(_WITHIN, inner_steps),
        _step(_BETWEEN, lambda w, s: algorithm.steps(w.nodes)),
        _byte(_WITHIN, lambda w, s: algorithm.bytes(w.ranks) * s if w.nodes == 1 else 0.0),
        _byte(_BETWEEN, lambda w, s: algorithm.bytes(w.ranks) * s if w.nodes > 1 else 0.0),
    )
    return Shape(f"{algorithm.name}, node to node", terms)


def _levels(algorithm: Algorithm) -> Shape:
    """Within each node first, then between nodes: two algorithms, one after the other."""
    terms = (
        _CALL,
        _step(_WITHIN, lambda w, s: algorithm.steps(w.ranks_per_node)),
        _step(_BETWEEN, lambda w, s: algorithm.steps(w.nodes)),
        _byte(_WITHIN, lambda w, s: algorithm.bytes(w.ranks_per_node) * s),
        _byte(_BETWEEN, lambda w, s: algorithm.bytes(w.nodes) * s),
    )
    return Shape(f"{algorithm.name}, in two levels", terms)
