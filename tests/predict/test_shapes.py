"""The terms of the algorithms, against the formulas of Thakur, Rabenseifner and Gropp (2005)."""

import pytest

from wirespeed.predict.shapes import known_ops, shapes_for, varied
from wirespeed.records_prediction import WorldSize

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


def test_ranks_beyond_the_cores_take_turns():
    worlds = [WorldSize(1, 2), WorldSize(1, 8)]
    crowded = {s.name: s for s in shapes_for("all_reduce", worlds, 4)}["ring, shared cores"]
    assert crowded.matrix([(worlds[0], 8)])[0].tolist() == pytest.approx([1, 2, 8])
    assert crowded.matrix([(worlds[1], 8)])[0].tolist() == pytest.approx([1, 14 * 2, 14 * 2])
    for cores in (0, 1, 2, 8, 64):
        names = [s.name for s in shapes_for("all_reduce", worlds, cores)]
        assert "ring, shared cores" not in names
        assert "ring, shared node" in names
