"""The localiser on simulated fabrics: every kind of fault, alone and together."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.locate.localise import FIRST_COMPUTE, MOST_COMPUTE, MOST_ROUNDS, localise
from wirespeed.locate.pair_figures import Diagnosis, Pair, Reading, Worked
from wirespeed.locate.simulator import (
    FabricSpec,
    Fault,
    SimulatedFabric,
    random_faults,
    score,
    simulate,
    standard_spec,
)

SMALL = FabricSpec(nodes=6, rails=4)
LEAVES = FabricSpec(nodes=12, leaf=3)
LARGE = FabricSpec(nodes=128, rails=4, leaf=16, oversubscription=1.5)


def named(spec: FabricSpec, *faults: Fault, seed: int = 1, **more: object) -> Diagnosis:
    diagnosis, _ = simulate(spec, faults, seed, **more)
    return diagnosis


def subjects(diagnosis: Diagnosis) -> set[tuple[object, ...]]:
    return {(c.kind, c.nodes, c.rail, c.towards, c.what) for c in diagnosis.culprits}


def expected(*faults: Fault) -> set[tuple[object, ...]]:
    return {(f.kind, f.nodes, f.rail, f.towards, f.what) for f in faults}


NODE = Fault(kind="node", nodes=(2,))
OUT = Fault(kind="direction", nodes=(3,), towards="out")
IN = Fault(kind="direction", nodes=(0,), towards="in")
RAIL = Fault(kind="rail", rail=1)
NIC = Fault(kind="nic", nodes=(4,), rail=2)
LINK = Fault(kind="link", nodes=(1, 5))
WORKER = Fault(kind="straggler", nodes=(1,), what="time")
DEAD = Fault(kind="dead", nodes=(5,))
DELAY = Fault(kind="node", nodes=(4,), degradation=0.9, what="latency")


@pytest.mark.parametrize("fault", [NODE, OUT, IN, RAIL, NIC, LINK, WORKER, DEAD, DELAY])
def test_each_kind_alone_in_a_small_world(fault):
    assert subjects(named(SMALL, fault)) == expected(fault)


@pytest.mark.parametrize("fault", [NODE, OUT, IN, RAIL, NIC, WORKER, DEAD, DELAY])
def test_each_kind_alone_in_a_large_world(fault):
    diagnosis = named(LARGE, fault)

    assert subjects(diagnosis) == expected(fault)
    assert diagnosis.rounds <= MOST_ROUNDS


@pytest.mark.parametrize(
    ("spec", "group"),
    [(LEAVES, (3, 4, 5)), (replace(LEAVES, knows_groups=False), (3, 4, 5)), (LARGE, range(16, 32))],
)
def test_a_slow_uplink_is_not_many_slow_nodes(spec, group):
    fault = Fault(kind="uplink", nodes=tuple(group), degradation=0.6)

    assert subjects(named(spec, fault)) == expected(fault)


def test_a_node_behind_a_slow_uplink_is_found_by_its_pairs_within():
    uplink = Fault(kind="uplink", nodes=tuple(range(16)), degradation=0.6)
    node = Fault(kind="node", nodes=(7,), degradation=0.4)

    assert subjects(named(LARGE, uplink, node)) == expected(uplink, node)


@pytest.mark.parametrize("seed", range(5))
def test_two_slow_nodes_of_four_and_not_their_partners(seed):
    faults = (Fault(kind="node", nodes=(0,)), Fault(kind="node", nodes=(1,), degradation=0.8))

    assert subjects(named(FabricSpec(nodes=4), *faults, seed=seed)) == expected(*faults)


@pytest.mark.parametrize("seed", range(5))
def test_one_slow_node_of_three(seed):
    assert subjects(named(FabricSpec(nodes=3), NODE, seed=seed)) == expected(NODE)


def test_one_slow_link_of_three():
    fault = Fault(kind="link", nodes=(0, 2))

    assert subjects(named(FabricSpec(nodes=3), fault)) == expected(fault)


def test_of_two_nodes_only_the_link_can_be_named():
    (culprit,) = named(FabricSpec(nodes=2), replace(OUT, nodes=(0,))).culprits

    assert (culprit.kind, culprit.nodes, culprit.confidence) == ("link", (0, 1), 0.5)
    assert culprit.low <= 2 <= culprit.high


def test_several_kinds_at_once():
    faults = (RAIL, OUT, replace(WORKER, nodes=(70,)), replace(NODE, nodes=(100,)), DEAD)

    assert subjects(named(LARGE, *faults)) == expected(*faults)


def test_a_straggler_whose_traffic_suffers_is_named_once():
    fault = Fault(kind="straggler", nodes=(3,), degradation=0.8, what="time")

    assert subjects(named(FabricSpec(nodes=4), fault)) == expected(fault)


class _Counting(SimulatedFabric):
    """Counts the timings of work without traffic."""

    timings = 0

    def compute(self) -> Worked:
        self.timings += 1
        return super().compute()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("fault", "least", "most"),
    [
        # What slows each transfer stops nobody for moments, and would have been seen at work.
        (Fault(kind="node", nodes=(2,), degradation=0.8), FIRST_COMPUTE, FIRST_COMPUTE),
        (Fault(kind="node", nodes=(2,), degradation=0.8, often=0.5), MOST_COMPUTE, MOST_COMPUTE),
        # More timings than chance needs change nothing.
        (
            Fault(kind="straggler", nodes=(2,), degradation=0.6, what="time"),
            FIRST_COMPUTE + 1,
            MOST_COMPUTE // 2,
        ),
    ],
    ids=["each transfer", "some transfers", "each work"],
)
def test_work_is_timed_as_often_as_it_may_tell_more(
    fault: Fault, least: int, most: int, seed: int
) -> None:
    fabric = _Counting(FabricSpec(nodes=4, noise=0.02, wild=0.0), (fault,), seed)
    found = localise(fabric, seed=seed)
    assert [one.nodes for one in found.culprits] == [(2,)]
    assert least <= fabric.timings <= most


@pytest.mark.parametrize("spec", [SMALL, LARGE])
def test_an_intermittent_node_with_the_share_of_its_rounds(spec):
    (culprit,) = named(spec, replace(NODE, often=0.5, degradation=0.7)).culprits

    assert (culprit.kind, culprit.nodes) == ("node", (2,))
    assert 0.2 < culprit.share < 0.8
    assert culprit.low <= 1 / 0.3 * 1.1 and culprit.high >= 1 / 0.3 / 1.1


@pytest.mark.parametrize("nodes", [2, 3, 4, 6, 16, 64, 256])
def test_a_healthy_fabric_has_no_culprit(nodes):
    for seed in range(20 if nodes < 256 else 5):
        assert subjects(named(standard_spec(nodes), seed=seed)) == set()


@pytest.mark.slow
def test_the_bound_of_a_thousand_nodes_and_eight_faults():
    spec, precision, recall = standard_spec(1024), [], []
    for seed in range(6):
        faults = random_faults(spec, 8, seed=seed)
        diagnosis = named(spec, *faults, seed=seed)
        p, r = score(diagnosis.culprits, faults)
        precision.append(p)
        recall.append(r)
        assert diagnosis.rounds <= 24
    assert min(sum(precision), sum(recall)) >= 0.99 * 6


@pytest.mark.parametrize("spec", [SMALL, LARGE])
def test_the_same_readings_give_the_same_answer(spec):
    first, second = (named(spec, NODE, OUT, seed=3) for _ in range(2))

    assert first == second


@pytest.mark.parametrize("degradation", [0.3, 0.6, 0.9])
def test_the_interval_holds_the_factor(degradation):
    fault = replace(NODE, degradation=degradation)
    (culprit,) = named(FabricSpec(nodes=8), fault).culprits

    assert culprit.low / 1.05 <= fault.factor <= culprit.high * 1.05
    assert culprit.cost == pytest.approx(culprit.factor - 1)
    assert culprit.samples >= 6


def test_the_costliest_comes_first_and_nothing_is_infinitely_slow():
    culprits = named(SMALL, DEAD, NODE, replace(OUT, degradation=0.8)).culprits

    factors = [culprit.factor for culprit in culprits]
    assert factors == sorted(factors, reverse=True)
    assert (culprits[0].kind, factors[0]) == ("dead", math.inf)


def test_coverage_is_told():
    part, all_ = named(LARGE), named(LARGE, exhaustive=True)

    assert part.pairs == all_.pairs == all_.pairs_measured == 128 * 127 // 2
    assert part.pairs_measured < part.pairs
    assert all_.rounds >= 127


def test_an_exhaustive_search_finds_the_one_slow_link():
    fault = Fault(kind="link", nodes=(17, 93))

    assert subjects(named(LARGE, fault, exhaustive=True)) == expected(fault)


def test_the_limit_of_rounds_is_kept_and_told():
    diagnosis = named(LARGE, replace(NODE, degradation=0.15), most_rounds=3)

    assert diagnosis.rounds == 3
    assert "limit of 3 rounds" in diagnosis.stopped


@pytest.mark.parametrize("nodes", [2, 4, 32])
def test_nothing_comes_through_anywhere(nodes):
    dead = [Fault(kind="dead", nodes=(node,)) for node in range(nodes)]

    culprits = named(FabricSpec(nodes=nodes), *dead).culprits

    assert {c.nodes for c in culprits if c.kind == "dead"} == {(n,) for n in range(nodes)}


class _Cut(SimulatedFabric):
    """A node that works, but whose traffic ends after some rounds."""

    after, node, asked = 2, 1, 0

    def round(self, pairs: Sequence[Pair]) -> list[Reading]:
        self.asked += 1
        return [self._cut(reading) for reading in super().round(pairs)]

    def _cut(self, reading: Reading) -> Reading:
        if self.asked <= self.after or self.node not in reading.pair:
            return reading
        nothing = (0.0,) * self.rails
        return Reading(reading.pair, nothing, nothing, latency=(math.inf,))


@pytest.mark.parametrize("nodes", [3, 4, 6, 40])
def test_a_node_that_dies_on_the_way_is_a_result(nodes):
    diagnosis = localise(_Cut(FabricSpec(nodes=nodes)))

    assert subjects(diagnosis) == {("dead", (1,), -1, "", "rate")}


def test_a_fabric_that_measures_no_latency():
    class Silent(SimulatedFabric):
        def round(self, pairs: Sequence[Pair]) -> list[Reading]:
            return [replace(reading, latency=()) for reading in super().round(pairs)]

    assert subjects(localise(Silent(SMALL, [NODE]))) == expected(NODE)


def test_the_threshold_that_is_asked_for_holds_for_latency_too():
    assert subjects(localise(SimulatedFabric(SMALL, [DELAY]), threshold=5)) == expected(DELAY)
    assert not localise(SimulatedFabric(SMALL, [DELAY]), threshold=50).culprits


@pytest.mark.parametrize("nodes", [0, 1])
def test_one_node_is_a_clear_error(nodes):
    with pytest.raises(CannotMeasure, match="no pair"):
        localise(SimulatedFabric(FabricSpec(nodes=nodes)))


@pytest.mark.parametrize("wrong", [{"most_rounds": 0}, {"threshold": 1.0}])
def test_impossible_limits_are_refused(wrong):
    with pytest.raises(UsageError):
        localise(SimulatedFabric(SMALL), **wrong)
