"""Which measurements of the given runs can be fitted together, and why others cannot."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from wirespeed.records import Measurement, Run
from wirespeed.records_prediction import Source, WorldSize

__all__ = ["Point", "Series", "collect", "cores_of", "sorted_worlds", "world_of"]

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
        found = {point.world for point in self.points}
        return tuple(sorted(found, key=lambda one: (one.ranks, one.nodes)))

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
    series = {op: _chosen(op, ways, left) for op, ways in sorted(groups.items())}
    series = {op: replace(one, cores=_least_cores(runs, one)) for op, one in series.items()}
    notes = tuple(f"{count} measurements left out: {why}" for why, count in left.items())
    return series, _sources(runs, series.values()), notes


def cores_of(run: Run) -> int:
    """CPUs that the ranks of one node share, where they compute and send on them; 0: on GPUs, or not
    told. With more ranks than that each waits for a core."""
    if any(node.gpus for node in run.world.nodes) or run.world.backend != "gloo":
        return 0
    told = [n.facts.get("cpu.shared") or n.facts.get("cpu.logical") for n in run.world.nodes]
    known = [one for one in told if isinstance(one, int) and one > 0]
    return min(known) if known and len(known) == len(told) else 0


def _least_cores(runs: Sequence[Run], series: Series) -> int:
    used = {point.run for point in series.points}
    return min((cores_of(run) for run in runs if run.id in used), default=0)


def world_of(run: Run, m: Measurement, ranks_per_node: int | None) -> WorldSize | None:
    """Nodes and ranks a node of a measurement over the whole world; None where that is not told."""
    listed = [len(node.ranks) for node in run.world.nodes]
    if listed and sum(listed) == m.ranks and len(set(listed)) == 1 and listed[0]:
        return WorldSize(len(listed), listed[0])
    if listed and sum(listed) == m.ranks:
        return None
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
    return min(math.log(high / low) / (2 * 1.96), 1.0) if known else 0.0


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


def _chosen(op: str, ways: dict[Key, list[Point]], left: Counter[str]) -> Series:
    def much(key: Key) -> tuple[int, int, bool]:
        return len({point.world for point in ways[key]}), len(ways[key]), not key[4]

    best = max(ways, key=much)
    for key, points in ways.items():
        if key != best:
            left[f"{op} measured in another way ({_how(key)}; taken: {_how(best)})"] += len(points)
    ordered = sorted(ways[best], key=lambda p: (p.world.ranks, p.world.nodes, p.size_bytes, p.run))
    kept = _thinned(ordered)
    if len(kept) < len(ordered):
        left[f"{op}: medians over runs, and fewer sizes, stand for them"] += len(ordered) - len(
            kept
        )
    return Series(op, _how(best), tuple(kept), backend=_backend(best))


def _backend(key: Key) -> str:
    backend, engine = key[:2]
    return str(backend) if engine in _OF_TORCH else ""


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
        worlds = {point.world for _, point in points}
        where = ", ".join(f"{one.nodes} × {one.ranks_per_node}" for one in sorted_worlds(worlds))
        what = f"{ops}: {len(points)} measurements on nodes × ranks {where}" if points else ""
        if run.training:
            trained = ", ".join(dict.fromkeys(f"{t.model}" for t in run.training))
            what = "; ".join(filter(None, (what, f"training steps of {trained}")))
        found.append(Source(id=run.id, what=what or "nothing that could be used"))
    return tuple(found)


def sorted_worlds(worlds: Iterable[WorldSize]) -> list[WorldSize]:
    return sorted(worlds, key=lambda one: (one.ranks, one.nodes))
