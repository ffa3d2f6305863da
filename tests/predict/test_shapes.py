"""The terms of the algorithms, against the formulas of Thakur, Rabenseifner and Gropp (2005)."""

import pytest

from wirespeed.model.derived_records import WorldSize
from wirespeed.predict.points import known_ops, shapes_for, varied

FLAT = [WorldSize(2, 1), WorldSize(8, 1)]


def row(op, name, world, size, worlds=FLAT):
    shape = next(one for one in shapes_for(op, worlds) if one.name == name)
    return shape.matrix([(world, size)])[0].tolist()


@pytest.mark.parametrize(
    ("op", "name", "steps", "size"),
    [
        ("all_reduce", "ring", 14, 1.75),
        ("all_reduce", "tree", 6, 2),
        ("all_reduce", "recursive doubling", 3, 3),
        ("all_reduce", "halving and doubling", 6, 1.75),
        ("all_gather", "ring", 7, 0.875),
        ("reduce_scatter", "recursive doubling", 3, 0.875),
        ("all_to_all", "pairwise", 7, 0.875),
        ("all_to_all", "Bruck", 3, 1.5),
        ("broadcast", "binomial tree", 3, 3),
        ("broadcast", "binomial tree, children at once", 3, 6),
        ("broadcast", "binomial tree, send by send", 6, 6),
        ("broadcast", "chain", 7, 1),
        ("reduce", "scatter and all-gather", 10, 1.75),
        ("send_recv", "direct", 1, 1),
    ],
)
def test_steps_and_bytes_of_eight_ranks(op, name, steps, size):
    assert row(op, name, WorldSize(8, 1), 1000) == pytest.approx([1, steps, size * 1000])


@pytest.mark.parametrize(("ranks", "told"), [(2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (8, 6)])
def test_a_tree_whose_children_are_sent_to_at_once(ranks, told):
    found = row("broadcast", "binomial tree, children at once", WorldSize(ranks, 1), 1)
    assert found[2] == told


@pytest.mark.parametrize(
    ("ranks", "size", "told"),
    [
        # The root's own sends: its link is never idle. 128 KiB of burst on each rank that passes on.
        (2, 2**20, 2**20),
        (4, 2**20, 3 * 2**20 - 2**17),
        (8, 2**20, 6 * 2**20 - 2 * 2**17),
        (8, 2**14, 3 * 2**14),
    ],
)
def test_links_that_were_idle_let_a_burst_through(ranks, size, told):
    name = "binomial tree, send by send, bursts of 128 KiB"
    assert row("broadcast", name, WorldSize(ranks, 1), size)[2] == told


def test_what_the_source_of_the_backend_says_is_known():
    known = {s.name for s in shapes_for("broadcast", FLAT, 0, "gloo") if s.known}
    assert known >= {"binomial tree, children at once", "binomial tree, send by send"}
    assert "chain" not in known
    assert {s.name for s in shapes_for("all_reduce", FLAT, 0, "gloo") if s.known} == {"ring"}
    assert not any(s.known for s in shapes_for("all_reduce", FLAT, 0, "nccl"))


def test_hops_between_nodes_are_few_among_many():
    worlds = [WorldSize(1, 4), WorldSize(4, 4)]
    found = row("all_reduce", "ring, node to node", WorldSize(4, 4), 16, worlds)
    assert found == pytest.approx([1, 30 - 6, 6, 0, 2 * 15 / 16 * 16])
    alone = row("all_reduce", "ring, node to node", WorldSize(1, 4), 16, worlds)
    assert alone == pytest.approx([1, 6, 0, 2 * 3 / 4 * 16, 0])
    levels = row("all_reduce", "ring, in two levels", WorldSize(4, 4), 16, worlds)
    assert levels == pytest.approx([1, 6, 6, 24, 24])


def test_one_world_cannot_tell_a_call_from_its_steps():
    places = [(WorldSize(4, 1), size) for size in (1, 100)]
    shape = shapes_for("all_reduce", [WorldSize(4, 1)])[0]
    assert [term.name for term in varied(shape, places).terms] == ["a call", "a byte between nodes"]


def test_every_operation_has_shapes_and_barrier_none():
    assert all(shapes_for(op, FLAT) for op in known_ops())
    assert shapes_for("barrier", FLAT) == []


def test_a_rank_that_finds_no_free_core_waits():
    """Of 8 ranks on 2 cores 3 of 4 find none; bytes take the cores' time, or the wire's."""
    alone = {s.name: s for s in shapes_for("all_reduce", [WorldSize(1, 2), WorldSize(1, 8)], 2)}
    found = alone["ring, waiting for cores"]
    assert found.matrix([(WorldSize(1, 2), 8)])[0].tolist() == pytest.approx([2, 0, 8])
    assert found.matrix([(WorldSize(1, 8), 8)])[0].tolist() == pytest.approx(
        [14, 14 * 0.75, 14 * 4]
    )
    nodes = {s.name: s for s in shapes_for("all_reduce", FLAT, 2)}["ring, waiting for cores"]
    assert nodes.matrix([(WorldSize(8, 1), 8)])[0].tolist() == pytest.approx([14, 10.5, 14])
    assert [term.between for term in nodes.terms] == [True, False, True]
    assert not any("waiting" in s.name for s in shapes_for("all_reduce", FLAT, 8))


def test_ranks_that_share_a_node_share_its_memory():
    worlds = [WorldSize(1, 2), WorldSize(1, 8)]
    found = {s.name: s for s in shapes_for("all_reduce", worlds)}["ring, shared node"]
    assert found.matrix([(worlds[1], 8)])[0].tolist() == pytest.approx([1, 14, 14 * 8])


def test_ranks_beyond_the_cores_take_turns():
    worlds = [WorldSize(1, 2), WorldSize(1, 8)]
    crowded = {s.name: s for s in shapes_for("all_reduce", worlds, 4)}["ring, shared cores"]
    assert crowded.matrix([(worlds[0], 8)])[0].tolist() == pytest.approx([1, 2, 8])
    assert crowded.matrix([(worlds[1], 8)])[0].tolist() == pytest.approx([1, 14 * 2, 14 * 2])
    for cores in (0, 1, 2, 8, 64):
        names = [s.name for s in shapes_for("all_reduce", worlds, cores)]
        assert "ring, shared cores" not in names
        assert "ring, shared node" in names
