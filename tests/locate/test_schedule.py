"""Rounds of disjoint pairs."""

from collections import Counter
from random import Random

import pytest

from wirespeed.locate.localise import (
    across,
    circle_round,
    fill,
    rounds_for_all_pairs,
)


def circle_rounds(order):
    return [circle_round(order, turn) for turn in range(rounds_for_all_pairs(len(order)))]


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 6, 7, 16, 33])
def test_every_pair_meets_exactly_once(nodes):
    rounds = circle_rounds(Random(nodes).sample(range(nodes), nodes))

    met = Counter(pair for pairs in rounds for pair in pairs)

    assert len(rounds) == rounds_for_all_pairs(nodes)
    assert met == Counter({(a, b): 1 for a in range(nodes) for b in range(a + 1, nodes)})


@pytest.mark.parametrize("nodes", [2, 3, 8, 9])
def test_a_round_uses_each_node_at_most_once_and_rests_at_most_one(nodes):
    for pairs in circle_rounds(range(nodes)):
        used = [node for pair in pairs for node in pair]
        assert len(used) == len(set(used)) == nodes - nodes % 2


def test_the_circle_repeats_after_all_pairs():
    assert circle_round(range(6), 5) == circle_round(range(6), 0)


@pytest.mark.parametrize("nodes", [0, 1])
def test_nobody_to_talk_to(nodes):
    assert circle_round(range(nodes), 0) == []
    assert rounds_for_all_pairs(nodes) <= 1


def test_suspects_meet_known_good_nodes_only():
    pairs = across([5, 6, 7], [0, 1], Random(0))

    assert len(pairs) == 2
    assert all(a in (0, 1) and b in (5, 6, 7) for a, b in pairs)


def test_filling_keeps_the_wanted_pairs_and_uses_everybody():
    pairs = fill([(3, 1), (1, 2), (4, 4), (0, 9)], range(7), Random(0))

    used = [node for pair in pairs for node in pair]
    assert pairs[0] == (1, 3)
    assert len(used) == len(set(used)) == 6
    assert all(a < b for a, b in pairs)
