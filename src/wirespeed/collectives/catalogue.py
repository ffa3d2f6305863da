"""The catalogue of operations: all that is known of each of them, and the one place that knows it.

Nothing here calls a collective. Sizes and bus factors are those of NVIDIA/nccl-tests 2.19
(doc/PERFORMANCE.md and src/*.cu); docs/bandwidth.md explains them. CONTRIBUTING.md tells how an
operation is added.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from wirespeed.collectives.collective import (
    DIRECT,
    EXCHANGING,
    REDUCING,
    ROOTED,
    SPLITTING,
    SPREADING,
    BusFactor,
    Collective,
    Copy,
    Count,
    Geometry,
    Layout,
    Reduce,
    Segment,
    Splits,
    count_of,
)
from wirespeed.errors import UsageError


def split_count(sender: int, receiver: int, count: int) -> int:
    """Elements that `sender` gives `receiver` in all_to_all_v: uneven, some of them none.

    Weights 0, 1, 2, 3, 4 in turn, so that rows and columns differ between ranks.
    """
    return count * ((sender + 2 * receiver) % 5)


def exchanged(splits: Splits) -> dict[str, Any]:
    """The fields of a collective in which each rank gives each what `splits` says."""

    def total(g: Geometry, *, sent: bool) -> int:
        pairs = ((g.rank, peer) if sent else (peer, g.rank) for peer in range(g.ranks))
        return sum(splits(a, b, g.count) for a, b in pairs)

    def layout(g: Geometry) -> tuple[Segment, ...]:
        segments, start = [], 0
        for peer in range(g.ranks):
            length = splits(peer, g.rank, g.count)
            before = sum(splits(peer, other, g.count) for other in range(g.rank))
            if length:
                segments.append(Segment(start, length, Copy(peer, before)))
            start += length
        return tuple(segments)

    return {
        "splits": splits,
        "input_count": partial(total, sent=True),
        "output_count": partial(total, sent=False),
        "layout": layout,
    }


@lru_cache
def _v_size_factor(ranks: int) -> int:
    """all_to_all_v reports max(sent, received) of the busiest rank."""
    every = range(ranks)
    rows = [[split_count(a, b, 1) for b in every] for a in every]
    return max(1, *map(sum, rows), *map(sum, zip(*rows, strict=True)))


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


def _ranks(ranks: int) -> int:
    return ranks


_SHARE = BusFactor(1, shared=True)


def _own_chunk(geometry: Geometry) -> int:
    return geometry.rank * geometry.count


_ALL = (
    Collective(
        name="all_reduce",
        number=1,
        title="all-reduce",
        layout=_one_reduced(lambda g: 0),
        in_place_slice=lambda g: (0, 0),
        reduces=True,
        bus_factor=BusFactor(2, shared=True),
        synchronising=True,
        timed_for=("SKEW", "COUNT"),
        links="ring",
        adds=0.5,
        algorithms=REDUCING,
        algorithms_of={"gloo": ("ring",)},  # gloo/allreduce.cc of facebookincubator/gloo
        functions=("all_reduce",),
        mpi="Allreduce",
        program="all_reduce",
        recorded=("all_reduce", "allreduce"),
        same_size=True,
    ),
    Collective(
        name="reduce_scatter",
        number=2,
        title="reduce-scatter",
        input_count=_count_times_ranks,
        layout=_one_reduced(_own_chunk),
        in_place_slice=lambda g: (0, _own_chunk(g)),
        reduces=True,
        size_factor=_ranks,
        bus_factor=_SHARE,
        synchronising=True,
        scratch={"gloo": "input"},
        links="ring",
        adds=1.0,
        algorithms=SPREADING,
        algorithms_of={"gloo": ("ring",)},  # torch's over gloo goes round the ring of all_reduce
        functions=("reduce_scatter_single", "reduce_scatter_tensor"),
        mpi="Reduce_scatter_block",
        program="reduce_scatter",
        recorded=("reduce_scatter", "_reduce_scatter_base"),
        same_size=True,
    ),
    Collective(
        name="all_gather",
        number=3,
        title="all-gather",
        output_count=_count_times_ranks,
        layout=_chunks(lambda g, peer: Copy(peer, 0)),
        in_place_slice=lambda g: (_own_chunk(g), 0),
        size_factor=_ranks,
        bus_factor=_SHARE,
        synchronising=True,
        timed_for=("SKEW",),
        scratch={"gloo": "output"},
        links="ring",
        algorithms=SPREADING,
        algorithms_of={"gloo": ("ring",)},  # allgather.cc
        functions=("all_gather_single", "all_gather_into_tensor"),
        mpi="Allgather",
        program="all_gather",
        recorded=("_all_gather_base", "_allgather_base"),
        same_size=True,
    ),
    Collective(
        name="all_to_all",
        number=4,
        title="all-to-all",
        input_count=_count_times_ranks,
        output_count=_count_times_ranks,
        layout=_chunks(lambda g, peer: Copy(peer, g.rank * g.count)),
        size_factor=_ranks,
        bus_factor=_SHARE,
        synchronising=True,
        timed_for=("COUNT",),
        links="pairs",
        algorithms=EXCHANGING,
        algorithms_of={"gloo": ("pairwise",)},  # alltoall.cc
        functions=("all_to_all_single",),
        mpi="Alltoall",
        program="alltoall",
    ),
    Collective(
        name="all_to_all_v",
        number=5,
        title="all-to-all with uneven splits",
        **exchanged(split_count),
        size_factor=_v_size_factor,
        bus_factor=_SHARE,
        links="pairs",
        functions=("all_to_all_single",),
        mpi="Alltoallv",
        program="alltoallv",
    ),
    Collective(
        name="broadcast",
        number=6,
        title="broadcast",
        input_count=_at_root(count_of),
        layout=_one_copied(lambda g: Copy(g.root, 0)),
        in_place_slice=lambda g: (0, 0),
        rooted=True,
        links="ring",
        algorithms=ROOTED,
        algorithms_of={  # broadcast.cc
            "gloo": ("binomial tree, children at once", "binomial tree, send by send")
        },
        functions=("broadcast",),
        mpi="Bcast",
        program="broadcast",
        recorded=("broadcast",),
        same_size=True,
    ),
    Collective(
        name="reduce",
        number=7,
        title="reduce",
        output_count=_at_root(count_of),
        layout=_only_root(_one_reduced(lambda g: 0)),
        in_place_slice=lambda g: (0, 0),
        reduces=True,
        rooted=True,
        links="ring",
        adds=1.0,
        algorithms=ROOTED,
        functions=("reduce",),
        mpi="Reduce",
        program="reduce",
        recorded=("reduce",),
        same_size=True,
    ),
    Collective(
        name="gather",
        number=8,
        title="gather",
        output_count=_at_root(_count_times_ranks),
        layout=_only_root(_chunks(lambda g, peer: Copy(peer, 0))),
        in_place_slice=lambda g: (_own_chunk(g) if g.rank == g.root else 0, 0),
        rooted=True,
        size_factor=_ranks,
        bus_factor=_SHARE,
        scratch={"gloo": "output"},
        links="root",
        algorithms=SPLITTING,
        functions=("gather",),
        mpi="Gather",
        program="gather",
        recorded=("gather",),
    ),
    Collective(
        name="scatter",
        number=9,
        title="scatter",
        input_count=_at_root(_count_times_ranks),
        layout=_one_copied(lambda g: Copy(g.root, _own_chunk(g))),
        in_place_slice=lambda g: (0, _own_chunk(g) if g.rank == g.root else 0),
        rooted=True,
        size_factor=_ranks,
        bus_factor=_SHARE,
        links="root",
        algorithms=SPLITTING,
        functions=("scatter",),
        mpi="Scatter",
        program="scatter",
        recorded=("scatter",),
    ),
    Collective(
        name="send_recv",
        number=10,
        title="send and receive, ring shift",
        aliases=("pt2pt",),
        layout=_one_copied(lambda g: Copy((g.rank - 1) % g.ranks, 0)),
        point_to_point=True,
        algorithms=DIRECT,
        program="sendrecv",
        recorded=("send", "recv"),
    ),
    Collective(
        name="pair_exchange",
        number=11,
        title="bidirectional exchange in pairs",
        aliases=("bidirectional", "pair"),
        input_count=_pair_count,
        output_count=_pair_count,
        layout=_pair_layout,
        point_to_point=True,
        algorithms=DIRECT,
        recorded=("send", "recv"),
    ),
    Collective(
        name="barrier",
        number=12,
        title="barrier",
        input_count=_none,
        output_count=_none,
        layout=lambda g: (),
        has_data=False,
        bus_factor=BusFactor(0),
        functions=("barrier",),
        mpi="Barrier",
    ),
)

CATALOGUE: dict[str, Collective] = {collective.name: collective for collective in _ALL}
_BY_LETTERS = {name: one for one in _ALL for name in (one.name.replace("_", ""), *one.aliases)}


def collective_named(name: str) -> Collective:
    """The operation of that name (`all-reduce`, `AllReduce`, `alltoall_perf` and so on too)."""
    plain = name.strip().lower().replace("-", "_").removesuffix("_perf")
    found = _BY_LETTERS.get(plain.replace("_", ""))
    if found is None:
        raise UsageError(f"unknown operation {name!r}", expected=", ".join(CATALOGUE))
    return found
