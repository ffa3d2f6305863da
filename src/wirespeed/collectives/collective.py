"""What is known of one operation, as the catalogue's entries say it: algorithms, types, groups.

An operation is described by its *layout*: for each rank of a group, which stretch of its output
must hold which stretch of whose input (`Copy`), or the reduction of which stretch over all inputs
(`Reduce`). The oracle, the report of wrong chunks and the buffer sizes all come from that one
description.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from wirespeed.errors import UsageError

# The algorithms of collectives as models: steps, and bytes of the busiest rank (R. Thakur,
# R. Rabenseifner and W. Gropp, Optimization of Collective Communication Operations in MPICH, 2005).


@dataclass(frozen=True, slots=True)
class Algorithm:
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


def _share(n: int) -> float:
    return (n - 1) / n


def _one(n: int) -> float:
    return 1.0 if n > 1 else 0.0


def _times(factor: float, of: Callable[[int], float]) -> Callable[[int], float]:
    return lambda n: factor * of(n)


def _scatter_gather(n: int) -> float:
    return _log2(n) + n - 1


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


def children_at_once(n: int) -> float:
    """Sends on the longest way down, all of a rank's as long as they take together."""
    return float(max(_paths(n).values()))


def _carried(n: int, size: float, burst: int) -> float:
    """Each rank that passes on was idle before, so that its link lets a burst through (a token bucket);
    the root's is never idle for longer than between two calls."""
    ways = (sends * size - passing * burst for passing, sends in _paths(n).items())
    return max(_log2(n) * size, *ways)


REDUCING = (
    Algorithm("ring", _times(2, _all), _times(2, _share)),
    Algorithm("tree", _times(2, _log2), _times(2, _one)),
    Algorithm("recursive doubling", _log2, _log2),
    Algorithm("halving and doubling", _times(2, _log2), _times(2, _share)),
)
SPREADING = (Algorithm("ring", _all, _share), Algorithm("recursive doubling", _log2, _share))
ROOTED = (
    Algorithm("binomial tree", _log2, _log2),
    Algorithm("binomial tree, children at once", _log2, children_at_once),
    # Each send costs the sender its time (LogP's o: D. Culler et al., 1993), however short it is.
    Algorithm("binomial tree, send by send", children_at_once, children_at_once),
    Algorithm("scatter and all-gather", _scatter_gather, _times(2, _share)),
    Algorithm("chain", _all, _one),
)
EXCHANGING = (Algorithm("pairwise", _all, _share), Algorithm("Bruck", _log2, _times(0.5, _log2)))
SPLITTING = (Algorithm("linear", _all, _share), Algorithm("binomial tree", _log2, _share))
DIRECT = (Algorithm("direct", _one, _one),)


REDOPS = ("sum", "prod", "min", "max", "avg")


@dataclass(frozen=True, slots=True)
class Geometry:
    """One call as seen by one rank; all counts are elements, all ranks are within the group."""

    rank: int
    ranks: int
    count: int
    root: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """`length` elements of `rank`'s input from `offset` on."""

    rank: int
    offset: int


@dataclass(frozen=True, slots=True)
class Reduce:
    """The reduction over all ranks of their inputs from `offset` on."""

    offset: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the output and where its content must come from."""

    start: int
    length: int
    source: Copy | Reduce

    @property
    def label(self) -> str:
        if isinstance(self.source, Copy):
            return f"chunk from rank {self.source.rank}"
        return f"reduced chunk at element {self.source.offset}"


Count = Callable[[Geometry], int]
Layout = Callable[[Geometry], tuple[Segment, ...]]
Splits = Callable[[int, int, int], int]
"""Elements that (sender, receiver, count) makes."""


def count_of(geometry: Geometry) -> int:
    return geometry.count


class BusFactor(NamedTuple):
    """busbw / algbw over n ranks."""

    times: float
    shared: bool = False
    """Whether it is `times` × (n-1)/n: of n parts each rank keeps its own."""

    def __call__(self, ranks: int) -> float:
        return self.times * (ranks - 1) / ranks if self.shared else self.times

    @property
    def formula(self) -> str:
        """`2(n−1)/n`, in n ranks; empty where there is no busbw."""
        times = f"{self.times:g}" if self.times else ""
        return f"{times.removeprefix('1')}(n−1)/n" if self.shared else times


_ONCE = BusFactor(1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Collective:
    """One operation of the catalogue; there is one object of each."""

    name: str
    number: int
    """Of its findings (`COL-001`), for good."""
    title: str
    aliases: tuple[str, ...] = ()
    """Other names that people use, without hyphens and underscores."""

    # Buffers, and what must come out.
    input_count: Count = count_of
    """Elements that this rank hands in."""
    output_count: Count = count_of
    """Elements of this rank's output buffer (0: nothing comes out here)."""
    layout: Layout
    splits: Splits = lambda sender, receiver, count: count
    """Of an exchange: what each rank gives each."""
    in_place_slice: Callable[[Geometry], tuple[int, int]] | None = None
    """(offset of the input within the output, offset of the output within the input); one is 0.
    None: no in-place form exists at all (where there is one, an engine may still lack it)."""
    has_data: bool = True
    reduces: bool = False
    rooted: bool = False
    point_to_point: bool = False
    """Made of sends and receives, which take part in pairs."""

    # Figures.
    size_factor: Callable[[int], int] = lambda ranks: 1
    """`size` in units of the count parameter, from the number of ranks."""
    bus_factor: BusFactor = _ONCE
    synchronising: bool = False
    """Every rank waits for every other, with as much to do, so that the ranks' times compare."""
    timed_for: tuple[str, ...] = ()
    """Findings, or families of them, that `check` times it for beside its own."""
    scratch: Mapping[str, Literal["input", "output"]] = field(default_factory=dict)
    """Which buffer a backend takes once more (seen with torch 2.13: it flattens lists of chunks, and
    reduces a copy of the input; tests/rank/test_memory_need.py repeats it)."""

    # Models.
    links: Literal["", "ring", "pairs", "root"] = ""
    """How its bytes cross the links in the roofline's model; `root`: all through those of the root;
    empty: no model."""
    adds: float = 0.0
    """Passes over memory to add values, for each byte of busbw."""
    algorithms: tuple[Algorithm, ...] = ()
    """What predictions try to fit."""
    algorithms_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Those that a backend's source is known to have, by backend."""

    # Its names elsewhere.
    functions: tuple[str, ...] = ()
    """Of torch.distributed and deepspeed.comm, the newest first; each release has one of them."""
    mpi: str = ""
    """MPI's, as mpi4py has it for buffers."""
    program: str = ""
    """Of nccl-tests, without `_perf`; empty: none."""
    recorded: tuple[str, ...] = ()
    """Of calls in torch's flight recorder."""
    same_size: bool = False
    """Whether what is recorded has the same size and type on every rank."""

    @property
    def min_ranks(self) -> int:
        return 2 if self.point_to_point else 1

    @property
    def in_place(self) -> bool:
        return self.in_place_slice is not None

    def count_for(self, size_bytes: int, itemsize: int, ranks: int) -> int:
        """Elements of the count parameter for about that size, at least 1 (0 without data)."""
        if not self.has_data:
            return 0
        return max(1, size_bytes // (itemsize * self.size_factor(ranks)))

    def size_bytes(self, count: int, itemsize: int, ranks: int) -> int:
        """The `size` that nccl-tests would report for that count."""
        return count * itemsize * self.size_factor(ranks)


# Types of elements: their size, and up to where integers stay exact in them.


@dataclass(frozen=True, slots=True)
class DType:
    name: str
    """The name that torch uses too."""
    itemsize: int
    signed: bool
    exact: int
    """Every integer from 0 to here (and its negative, if signed) is exactly representable and is
    not the sentinel that marks an element as unwritten. For floats 2 to the significand's bits."""
    max_exponent: int
    """2 to this power, and every lower power from 0, is exactly representable."""


DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType("float32", 4, True, 2**24, 127),
        DType("float64", 8, True, 2**53, 1023),
        DType("float16", 2, True, 2**11, 15),
        DType("bfloat16", 2, True, 2**8, 127),
        DType("float8_e4m3fn", 1, True, 2**4, 8),
        DType("float8_e5m2", 1, True, 2**3, 15),
        DType("int8", 1, True, 127, 6),
        DType("int32", 4, True, 2**31 - 1, 30),
        DType("int64", 8, True, 2**53, 62),
        DType("uint8", 1, False, 254, 7),
    )
}

ALIASES = {
    "float": "float32",
    "fp32": "float32",
    "double": "float64",
    "fp64": "float64",
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "float8": "float8_e4m3fn",
    "fp8": "float8_e4m3fn",
    "f8e4m3": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "f8e5m2": "float8_e5m2",
}


def dtype_named(name: str) -> DType:
    """The type of that name or nccl-tests alias; UsageError lists the names otherwise."""
    found = DTYPES.get(ALIASES.get(name.lower(), name.lower()))
    if found is None:
        raise UsageError(f"unknown dtype {name!r}", expected=", ".join(DTYPES))
    return found


# How the world is cut into groups that run side by side, as tensor × data parallel jobs do.

_NUMBER = r"0*[1-9]\d{0,8}"
_GROUPS = re.compile(rf"all|nodes|rails|pairs|every-{_NUMBER}|of-{_NUMBER}(?:-every-{_NUMBER})?")
_LISTED = re.compile(r"ranks-\d{1,9}(?:-\d{1,9})?(?:[+/]\d{1,9}(?:-\d{1,9})?)*")
_NAMES = (
    "all, nodes, rails, pairs, every-K (such as every-2), of-S, of-S-every-K, or "
    "ranks-0-3/4+6 (the ranks themselves)"
)


def check_groups(spec: str) -> None:
    """UsageError unless `spec` is one of the known cuts."""
    if not _GROUPS.fullmatch(spec) and not _LISTED.fullmatch(spec):
        raise UsageError(f"unknown groups {spec[:80]!r}", expected=_NAMES)


def members_of(
    spec: str, hosts: Sequence[str], local_ranks: Sequence[int]
) -> list[tuple[int, ...]]:
    """The groups of global ranks, each of 2 or more; hosts and local_ranks are by global rank.

    `nodes`: the ranks of each host. `rails`: the same local rank on every host. `pairs`: 0 with 1,
    2 with 3 … `every-K`: ranks that are equal modulo K. `of-S`: S neighbours. `of-S-every-K`: S ranks
    that lie K apart. `ranks-0-3/4+6`: these ranks, a group between slashes. Groups of one rank are
    left out; an empty list means that this world cannot be cut so. UsageError for an unknown name.
    """
    check_groups(spec)
    world = range(len(hosts))
    if spec == "all":
        return [tuple(world)]
    if _LISTED.fullmatch(spec):
        return _listed(spec, len(hosts))
    keys: Mapping[str, Sequence[object]] = {
        "nodes": hosts,
        "rails": local_ranks,
        "pairs": [rank // 2 for rank in world],
    }
    groups: dict[object, list[int]] = {}
    for rank, key in enumerate(keys.get(spec) or _regular(spec, world)):
        groups.setdefault(key, []).append(rank)
    return [tuple(ranks) for ranks in groups.values() if len(ranks) > 1]


def _regular(spec: str, world: range) -> list[object]:
    """By rank its group, of `every-K` and `of-S-every-K`."""
    sized, _, stride = spec.rpartition("every-") if "every-" in spec else (spec, "", "1")
    every = int(stride)
    block = int(sized.strip("of-")) * every if sized else len(world)
    return [(rank // block, rank % every) for rank in world]


def _listed(spec: str, world: int) -> list[tuple[int, ...]]:
    groups: list[tuple[int, ...]] = []
    for part in spec.removeprefix("ranks-").split("/"):
        ends = [tuple(map(int, one.split("-"))) for one in part.split("+")]
        if max(end[-1] for end in ends) >= world:
            return []
        groups.append(tuple(rank for end in ends for rank in range(end[0], end[-1] + 1)))
    named = [rank for ranks in groups for rank in ranks]
    if len(named) > len(set(named)):
        raise UsageError(f"groups {spec[:80]!r} name a rank twice", expected="each rank once")
    return [ranks for ranks in groups if len(ranks) > 1]


def cut_of(groups: Sequence[tuple[int, ...]], world: int, unknown: Collection[int] = ()) -> str:
    """The name of the regular cut into these disjoint groups; where there is none, `ranks-…`.

    It may have more groups than these: of ranks that are all `unknown`.
    """
    size, stride = len(groups[0]), groups[0][1] - groups[0][0] if len(groups[0]) > 1 else 1
    if size == world and groups[0] == tuple(range(world)):
        return "all"
    if stride > 0 and world % (size * stride) == 0:
        spec = f"of-{size}" if stride == 1 else f"of-{size}-every-{stride}"
        regular = set(members_of(spec, [""] * world, [0] * world))
        beyond = {rank for ranks in regular.difference(groups) for rank in ranks}
        if regular.issuperset(groups) and beyond.issubset(unknown):
            return f"every-{stride}" if size * stride == world else spec
    return "ranks-" + "/".join("+".join(_spans(ranks)) for ranks in groups)


def _spans(ranks: Sequence[int]) -> list[str]:
    """`0-3` of neighbours, `5` of one that stands alone; in their order."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][-1] + 1:
            spans[-1][1:] = [rank]
        else:
            spans.append([rank])
    return ["-".join(map(str, span)) for span in spans]
