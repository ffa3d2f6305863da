"""Nodes behind one switch, from pairs: right where it is told, and said to be not clear elsewhere."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest

from wirespeed.errors import CannotMeasure
from wirespeed.locate.grouping import Grouping, group, natural, switches
from wirespeed.locate.localise import circle_round, rounds_for_all_pairs
from wirespeed.locate.pair_figures import Reading
from wirespeed.locate.simulator import FabricSpec, Fault, SimulatedFabric, random_faults
from wirespeed.model.records import Located, PairFigures

LEAST = 0.98
"""Share of the nodes that must be with their leaf at 10 % noise."""


def seen(
    spec: FabricSpec, faults: tuple[Fault, ...] = (), seed: int = 0, rounds: int = 0
) -> list[Reading]:
    fabric = SimulatedFabric(spec, faults, seed)
    order = Random(seed).sample(range(spec.nodes), spec.nodes)
    turns = range(rounds or rounds_for_all_pairs(spec.nodes))
    return [one for turn in turns for one in fabric.round(circle_round(order, turn))]


def right(found: Grouping, spec: FabricSpec) -> float:
    """Share of all nodes that are in the group which stands for their leaf; not clear is not right."""
    leaf = {node: number for number, nodes in enumerate(spec.leaves) for node in nodes}
    taken, count = set(), 0
    for one in found.groups:
        most = max(set(map(leaf.get, one)), key=[leaf[node] for node in one].count)
        if most not in taken:
            taken.add(most)
            count += sum(leaf[node] == most for node in one)
    return count / spec.nodes


@pytest.mark.parametrize("faults", [0, 4])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_leaves_at_ten_percent_noise(faults: int, seed: int) -> None:
    spec = FabricSpec(nodes=64, rails=2, leaf=16, oversubscription=1.5, noise=0.1)
    injected = random_faults(spec, faults, ("node", "uplink", "straggler"), seed)
    assert right(group(64, seen(spec, injected, seed)), spec) >= LEAST


def test_few_nodes_and_uneven_leaves() -> None:
    spec = FabricSpec(nodes=10, leaf=6, noise=0.05)
    found = group(10, seen(spec, rounds=45))
    assert (right(found, spec), found.groups) == (1.0, (tuple(range(6)), tuple(range(6, 10))))
    assert found.apart == pytest.approx(1.2, abs=0.05)


def test_a_slow_uplink_is_no_distance() -> None:
    spec = FabricSpec(nodes=64, rails=2, leaf=16, noise=0.1)
    slow = Fault(kind="uplink", nodes=spec.leaves[1], degradation=0.5)
    assert right(group(64, seen(spec, (slow,))), spec) >= LEAST


def test_an_oversubscribed_uplink_tells_where_latencies_do_not() -> None:
    spec = FabricSpec(nodes=32, leaf=8, oversubscription=8, noise=0.1)
    rates = [Reading(one.pair, one.forth, one.back) for one in seen(spec)]
    found = group(32, rates)
    assert right(found, spec) == 1.0
    assert (found.by, round(found.apart)) == ("rate", 4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("faults", [0, 3])
def test_noise_makes_no_groups(seed: int, faults: int) -> None:
    spec = FabricSpec(nodes=32, rails=2, noise=0.1)
    found = group(32, seen(spec, random_faults(spec, faults, ("node", "straggler"), seed), seed))
    assert (found.groups, found.unsure) == ((tuple(range(32)),), ())
    assert found.would_show < 1.1


def test_a_node_that_answered_nobody_is_not_clear() -> None:
    spec = FabricSpec(nodes=32, leaf=8, noise=0.05)
    found = group(32, seen(spec, (Fault(kind="dead", nodes=(3,)),)))
    assert found.unsure == (3,)
    assert right(found, spec) == 31 / 32


def test_nothing_measured() -> None:
    found = group(4, [])
    assert (found.groups, found.unsure) == ((), (0, 1, 2, 3))


def located(spec: FabricSpec, seed: int = 0, rounds: int = 0, scale: float = 1.0) -> Located:
    names = [f"node-{node}" for node in range(spec.nodes)]
    pairs = [
        PairFigures(
            first=names[one.pair[0]],
            second=names[one.pair[1]],
            rail=0,
            round=0,
            latency=one.latency[0] * scale,
            forth=one.forth[0] / scale,
            back=one.back[0] / scale,
            both=0.0,
        )
        for one in seen(spec, seed=seed, rounds=rounds)
    ]
    return Located(
        over="nodes",
        nodes=tuple(names),
        rounds=1,
        pairs_measured=len(pairs),
        pairs_possible=len(pairs),
        stopped="",
        compute=(),
        pairs=tuple(pairs),
    )


def test_runs_of_other_levels_are_told_together() -> None:
    spec = FabricSpec(nodes=16, leaf=4, noise=0.05)
    found = switches([located(spec, 1), located(spec, 2, scale=3.0)])
    assert [len(leaf) for leaf in found.leaves] == [4, 4, 4, 4]
    assert found.leaves[0] == ("node-0", "node-1", "node-2", "node-3")


def part(seed: int, *nodes: int) -> Located:
    """Two leaves of eight: a run of some of their nodes."""
    one = located(FabricSpec(nodes=16, leaf=8, noise=0.02), seed, scale=1.0 + seed)
    names = {f"node-{node}" for node in nodes}
    pairs = tuple(pair for pair in one.pairs if {pair.first, pair.second} <= names)
    return replace(one, nodes=tuple(sorted(names)), pairs=pairs)


@pytest.mark.parametrize(
    "runs",
    [
        [range(8), range(8), range(8), range(16)],
        [range(8), range(8, 16), (0, 1, 2, 3, 8, 9, 10, 11), range(4, 12)],
    ],
)
def test_runs_of_other_nodes_are_told_together(runs: list[Iterable[int]]) -> None:
    found = switches([part(seed, *nodes) for seed, nodes in enumerate(runs)])
    names = [f"node-{node}" for node in range(16)]
    assert (found.leaves, found.unsure) == ((tuple(names[:8]), tuple(names[8:])), ())


def test_runs_that_share_no_pairs_are_not_told_together() -> None:
    with pytest.raises(CannotMeasure, match="shares 0 pairs of nodes with the others"):
        switches([part(0, *range(8)), part(1, *range(8, 16))])


@pytest.mark.hostile("tampered stores")
@pytest.mark.parametrize("first", ["zzz", "node-1"])
def test_a_pair_of_nobody_or_of_one_node_tells_nothing(first: str) -> None:
    one = located(FabricSpec(nodes=16, leaf=4, noise=0.05))
    pairs = tuple(replace(pair, first=first, second="node-1") for pair in one.pairs[:3])
    assert switches([replace(one, pairs=one.pairs + pairs)]).leaves == switches([one]).leaves


def test_too_few_pairs_are_no_answer() -> None:
    spec = FabricSpec(nodes=64, leaf=16, noise=0.1)
    with pytest.raises(CannotMeasure, match="of 2,016 pairs do not tell"):
        switches([located(spec, rounds=6)])


def test_names_in_the_order_of_people() -> None:
    assert sorted(["n10", "n9", "a", "n9b"], key=natural) == ["a", "n9", "n9b", "n10"]
