"""The catalogue of operations: buffers, what must come out, bytes on the bus.

An operation is described by its *layout*: for each rank of a group, which stretch of its output
must hold which stretch of whose input (`Copy`), or the reduction of which stretch over all inputs
(`Reduce`). The oracle, the report of wrong chunks and the buffer sizes all come from that one
description; nothing here calls a collective. Sizes and bus factors are those of NVIDIA/nccl-tests
2.19 (doc/PERFORMANCE.md and src/*.cu); docs/bandwidth.md explains them.

To add an operation: write its layout, add it to `CATALOGUE`, and bind it in each engine.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from wirespeed.errors import UsageError

__all__ = [
    "ALIASES",
    "CATALOGUE",
    "REDOPS",
    "Collective",
    "Copy",
    "Geometry",
    "Reduce",
    "Segment",
    "collective_named",
    "partner",
    "split_count",
]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One operation of the catalogue."""

    name: str
    title: str
    input_count: Count
    """Elements that this rank hands in."""
    output_count: Count
    """Elements of this rank's output buffer (0: nothing comes out here)."""
    layout: Layout
    size_factor: Callable[[int], int]
    """`size` in units of the count parameter, from the number of ranks."""
    bus_factor: Callable[[int], float]
    """busbw / algbw, from the number of ranks."""
    reduces: bool = False
    rooted: bool = False
    in_place: bool = True
    """Whether an in-place form exists at all (the engine may still lack it)."""
    in_place_slice: Callable[[Geometry], tuple[int, int]] | None = None
    """(offset of the input within the output, offset of the output within the input); one is 0."""
    min_ranks: int = 1
    has_data: bool = True

    def count_for(self, size_bytes: int, itemsize: int, ranks: int) -> int:
        """Elements of the count parameter for about that size, at least 1 (0 without data)."""
        if not self.has_data:
            return 0
        return max(1, size_bytes // (itemsize * self.size_factor(ranks)))

    def size_bytes(self, count: int, itemsize: int, ranks: int) -> int:
        """The `size` that nccl-tests would report for that count."""
        return count * itemsize * self.size_factor(ranks)


def split_count(sender: int, receiver: int, count: int) -> int:
    """Elements that `sender` gives `receiver` in all_to_all_v: uneven, some of them none.

    Weights 0, 1, 2, 3, 4 in turn, so that rows and columns differ between ranks.
    """
    return count * ((sender + 2 * receiver) % 5)


def _v_total(geometry: Geometry, *, sent: bool) -> int:
    me, n = geometry.rank, geometry.ranks
    pairs = ((me, peer) if sent else (peer, me) for peer in range(n))
    return sum(split_count(a, b, geometry.count) for a, b in pairs)


@lru_cache
def _v_size_factor(ranks: int) -> int:
    """all_to_all_v reports max(sent, received) of the busiest rank."""
    totals = (
        _v_total(Geometry(rank, ranks, 1), sent=sent)
        for rank in range(ranks)
        for sent in (True, False)
    )
    return max(1, *totals)


def _v_layout(geometry: Geometry) -> tuple[Segment, ...]:
    segments, start = [], 0
    for peer in range(geometry.ranks):
        length = split_count(peer, geometry.rank, geometry.count)
        before = sum(split_count(peer, other, geometry.count) for other in range(geometry.rank))
        if length:
            segments.append(Segment(start, length, Copy(peer, before)))
        start += length
    return tuple(segments)


def _count(geometry: Geometry) -> int:
    return geometry.count


def _count_times_ranks(geometry: Geometry) -> int:
    return geometry.count * geometry.ranks


def _none(_: Geometry) -> int:
    return 0


def _at_root(inner: Count) -> Count:
    return lambda geometry: inner(geometry) if geometry.rank == geometry.root else 0


def _one_reduced(offset: Count) -> Layout:
    return lambda g: (Segment(0, g.count, Reduce(offset(g))),)


def _one_copied(source: Callable[[Geometry], Copy]) -> Layout:
    return lambda g: (Segment(0, g.count, source(g)),)


def _chunks(source: Callable[[Geometry, int], Copy]) -> Layout:
    return lambda g: tuple(
        Segment(peer * g.count, g.count, source(g, peer)) for peer in range(g.ranks)
    )


def _only_root(layout: Layout) -> Layout:
    return lambda g: layout(g) if g.rank == g.root else ()


def partner(geometry: Geometry) -> int | None:
    """Who exchanges with this rank in pair_exchange: 0 with 1, 2 with 3 …; None for an odd last."""
    other = geometry.rank ^ 1
    return other if other < geometry.ranks else None


def _pair_count(geometry: Geometry) -> int:
    return 0 if partner(geometry) is None else geometry.count


def _pair_layout(geometry: Geometry) -> tuple[Segment, ...]:
    other = partner(geometry)
    return () if other is None else (Segment(0, geometry.count, Copy(other, 0)),)


def _one(_: int) -> float:
    return 1.0


def _unit(_: int) -> int:
    return 1


def _ranks(ranks: int) -> int:
    return ranks


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _own_chunk(geometry: Geometry) -> int:
    return geometry.rank * geometry.count


_ALL = (
    Collective(
        name="all_reduce",
        title="all-reduce",
        input_count=_count,
        output_count=_count,
        layout=_one_reduced(lambda g: 0),
        size_factor=_unit,
        bus_factor=lambda n: 2 * (n - 1) / n,
        reduces=True,
        in_place_slice=lambda g: (0, 0),
    ),
    Collective(
        name="reduce_scatter",
        title="reduce-scatter",
        input_count=_count_times_ranks,
        output_count=_count,
        layout=_one_reduced(_own_chunk),
        size_factor=_ranks,
        bus_factor=_others,
        reduces=True,
        in_place_slice=lambda g: (0, _own_chunk(g)),
    ),
    Collective(
        name="all_gather",
        title="all-gather",
        input_count=_count,
        output_count=_count_times_ranks,
        layout=_chunks(lambda g, peer: Copy(peer, 0)),
        size_factor=_ranks,
        bus_factor=_others,
        in_place_slice=lambda g: (_own_chunk(g), 0),
    ),
    Collective(
        name="all_to_all",
        title="all-to-all",
        input_count=_count_times_ranks,
        output_count=_count_times_ranks,
        layout=_chunks(lambda g, peer: Copy(peer, g.rank * g.count)),
        size_factor=_ranks,
        bus_factor=_others,
        in_place=False,
    ),
    Collective(
        name="all_to_all_v",
        title="all-to-all with uneven splits",
        input_count=lambda g: _v_total(g, sent=True),
        output_count=lambda g: _v_total(g, sent=False),
        layout=_v_layout,
        size_factor=_v_size_factor,
        bus_factor=_others,
        in_place=False,
    ),
    Collective(
        name="broadcast",
        title="broadcast",
        input_count=_at_root(_count),
        output_count=_count,
        layout=_one_copied(lambda g: Copy(g.root, 0)),
        size_factor=_unit,
        bus_factor=_one,
        rooted=True,
        in_place_slice=lambda g: (0, 0),
    ),
    Collective(
        name="reduce",
        title="reduce",
        input_count=_count,
        output_count=_at_root(_count),
        layout=_only_root(_one_reduced(lambda g: 0)),
        size_factor=_unit,
        bus_factor=_one,
        reduces=True,
        rooted=True,
        in_place_slice=lambda g: (0, 0),
    ),
    Collective(
        name="gather",
        title="gather",
        input_count=_count,
        output_count=_at_root(_count_times_ranks),
        layout=_only_root(_chunks(lambda g, peer: Copy(peer, 0))),
        size_factor=_ranks,
        bus_factor=_others,
        rooted=True,
        in_place_slice=lambda g: (_own_chunk(g) if g.rank == g.root else 0, 0),
    ),
    Collective(
        name="scatter",
        title="scatter",
        input_count=_at_root(_count_times_ranks),
        output_count=_count,
        layout=_one_copied(lambda g: Copy(g.root, _own_chunk(g))),
        size_factor=_ranks,
        bus_factor=_others,
        rooted=True,
        in_place_slice=lambda g: (0, _own_chunk(g) if g.rank == g.root else 0),
    ),
    Collective(
        name="send_recv",
        title="send and receive, ring shift",
        input_count=_count,
        output_count=_count,
        layout=_one_copied(lambda g: Copy((g.rank - 1) % g.ranks, 0)),
        size_factor=_unit,
        bus_factor=_one,
        in_place=False,
        min_ranks=2,
    ),
    Collective(
        name="pair_exchange",
        title="bidirectional exchange in pairs",
        input_count=_pair_count,
        output_count=_pair_count,
        layout=_pair_layout,
        size_factor=_unit,
        bus_factor=_one,
        in_place=False,
        min_ranks=2,
    ),
    Collective(
        name="barrier",
        title="barrier",
        input_count=_none,
        output_count=_none,
        layout=lambda g: (),
        size_factor=_unit,
        bus_factor=lambda n: 0.0,
        in_place=False,
        has_data=False,
    ),
)

CATALOGUE: dict[str, Collective] = {collective.name: collective for collective in _ALL}

ALIASES = {
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all_v",
    "sendrecv": "send_recv",
    "pt2pt": "send_recv",
    "bidirectional": "pair_exchange",
    "pair": "pair_exchange",
}


def collective_named(name: str) -> Collective:
    """The operation of that name (`all-reduce`, `AllReduce`, `alltoall_perf` and so on too)."""
    plain = name.strip().lower().replace("-", "_").removesuffix("_perf")
    found = CATALOGUE.get(plain) or CATALOGUE.get(ALIASES.get(plain.replace("_", ""), ""))
    if found is None:
        raise UsageError(f"unknown operation {name!r}", expected=", ".join(CATALOGUE))
    return found
