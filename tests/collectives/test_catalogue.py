"""Layouts, sizes and bus factors of the catalogue."""

import pytest

from wirespeed.collectives.catalogue import CATALOGUE, collective_named, partner, split_count
from wirespeed.collectives.collective import Copy, Geometry, Reduce
from wirespeed.errors import UsageError

WITH_DATA = [collective for collective in CATALOGUE.values() if collective.has_data]


@pytest.mark.parametrize("collective", WITH_DATA, ids=lambda c: c.name)
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_layout_fills_each_output_once_from_within_the_inputs(collective, ranks):
    for rank in range(ranks):
        geometry = Geometry(rank, ranks, 7, root=ranks - 1)
        segments = sorted(collective.layout(geometry), key=lambda s: s.start)
        covered = 0
        for segment in segments:
            assert segment.start == covered
            covered += segment.length
            sources = range(ranks) if isinstance(segment.source, Reduce) else [segment.source.rank]
            for source in sources:
                given = collective.input_count(Geometry(source, ranks, 7, root=ranks - 1))
                assert segment.source.offset + segment.length <= given
        assert covered == collective.output_count(geometry)


@pytest.mark.parametrize("collective", WITH_DATA, ids=lambda c: c.name)
def test_only_the_root_hands_in_or_gets_out_where_there_is_a_root(collective):
    counts = {
        (collective.input_count(g) > 0, collective.output_count(g) > 0)
        for g in (Geometry(0, 4, 3, root=2), Geometry(1, 4, 3, root=2), Geometry(3, 4, 3, root=2))
    }
    root = Geometry(2, 4, 3, root=2)
    assert collective.input_count(root) > 0 and collective.output_count(root) > 0
    assert (counts != {(True, True)}) == collective.rooted


# From the table of NVIDIA/nccl-tests, doc/PERFORMANCE.md, for 4 ranks.
@pytest.mark.parametrize(
    ("op", "size_factor", "bus_factor"),
    [
        ("all_reduce", 1, 2 * 3 / 4),
        ("reduce_scatter", 4, 3 / 4),
        ("all_gather", 4, 3 / 4),
        ("all_to_all", 4, 3 / 4),
        ("gather", 4, 3 / 4),
        ("scatter", 4, 3 / 4),
        ("broadcast", 1, 1),
        ("reduce", 1, 1),
        ("send_recv", 1, 1),
    ],
)
def test_sizes_and_factors_are_those_of_nccl_tests(op, size_factor, bus_factor):
    collective = CATALOGUE[op]
    assert collective.size_bytes(10, 4, 4) == 10 * 4 * size_factor
    assert collective.bus_factor(4) == pytest.approx(bus_factor)


@pytest.mark.parametrize("collective", WITH_DATA, ids=lambda c: c.name)
@pytest.mark.parametrize("size", [1, 1000, 1024, 4093, 1 << 20])
def test_count_for_a_size_rounds_down_to_whole_elements_and_ranks(collective, size):
    count = collective.count_for(size, 4, 3)
    assert count >= 1
    if count > 1:
        assert collective.size_bytes(count, 4, 3) <= size < collective.size_bytes(count + 1, 4, 3)


def test_uneven_splits_agree_between_sender_and_receiver_and_some_are_empty():
    ranks, count = 5, 3
    collective = CATALOGUE["all_to_all_v"]
    splits = [split_count(a, b, count) for a in range(ranks) for b in range(ranks)]
    assert 0 in splits and len(set(splits)) > 2
    sent = sum(collective.input_count(Geometry(r, ranks, count)) for r in range(ranks))
    received = sum(collective.output_count(Geometry(r, ranks, count)) for r in range(ranks))
    assert sent == received == sum(splits)
    busiest = max(
        max(collective.input_count(g), collective.output_count(g))
        for g in (Geometry(r, ranks, count) for r in range(ranks))
    )
    assert collective.size_bytes(count, 1, ranks) == busiest


def test_in_place_slices_lie_within_the_buffer_that_nccl_tests_uses():
    all_gather, reduce_scatter = CATALOGUE["all_gather"], CATALOGUE["reduce_scatter"]
    geometry = Geometry(2, 4, 5)
    assert all_gather.in_place_slice(geometry) == (10, 0)
    assert reduce_scatter.in_place_slice(geometry) == (0, 10)


def test_ring_shift_comes_from_the_rank_before_and_pairs_are_mutual():
    assert CATALOGUE["send_recv"].layout(Geometry(0, 3, 2))[0].source == Copy(2, 0)
    assert [partner(Geometry(r, 5, 1)) for r in range(5)] == [1, 0, 3, 2, None]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("all_reduce", "all_reduce"),
        ("AllReduce", "all_reduce"),
        ("all-gather", "all_gather"),
        ("alltoall_perf", "all_to_all"),
        ("sendrecv", "send_recv"),
        ("pt2pt", "send_recv"),
        ("bidirectional", "pair_exchange"),
    ],
)
def test_operations_are_found_by_the_names_people_use(written, name):
    assert collective_named(written).name == name


def test_unknown_operation_lists_the_known_ones():
    with pytest.raises(UsageError, match="unknown operation 'all_redcue'") as error:
        collective_named("all_redcue")
    assert "all_reduce" in error.value.expected
