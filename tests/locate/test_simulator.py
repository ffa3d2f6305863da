"""The simulated fabric and its score."""

import math

import numpy as np
import pytest

from wirespeed.errors import UsageError
from wirespeed.locate.pair_figures import Culprit
from wirespeed.locate.simulator import (
    LATENCY,
    RATE,
    WORK,
    FabricSpec,
    Fault,
    SimulatedFabric,
    random_faults,
    score,
    standard_spec,
)

QUIET = FabricSpec(nodes=8, rails=2, leaf=4, noise=0.0, wild=0.0)
PAIRS = [(0, 1), (2, 4), (3, 5), (6, 7)]


def rates(*faults: Fault, spec: FabricSpec = QUIET) -> np.ndarray:
    """[forth or back, pair, rail], as shares of the full rate."""
    readings = SimulatedFabric(spec, faults).round(PAIRS)
    return np.array([[r.forth for r in readings], [r.back for r in readings]]) / RATE


def test_a_healthy_fabric_gives_the_full_rate():
    assert rates() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("fault", "slow"),
    [
        (Fault(kind="node", nodes=(0,)), np.s_[:, 0, :]),
        (Fault(kind="direction", nodes=(0,), towards="out"), np.s_[0, 0, :]),
        (Fault(kind="direction", nodes=(1,), towards="out"), np.s_[1, 0, :]),
        (Fault(kind="direction", nodes=(1,), towards="in"), np.s_[0, 0, :]),
        (Fault(kind="rail", rail=1), np.s_[:, :, 1]),
        (Fault(kind="nic", nodes=(4,), rail=0), np.s_[:, 1, 0]),
        (Fault(kind="uplink", nodes=(0, 1, 2, 3)), np.s_[:, 1:3, :]),
        (Fault(kind="link", nodes=(6, 7)), np.s_[:, 3, :]),
    ],
)
def test_a_fault_slows_its_part_only(fault, slow):
    expected = np.ones((2, 4, 2))
    expected[slow] = 0.5

    assert rates(fault) == pytest.approx(expected)


def test_a_pair_goes_at_its_slowest_part():
    both = (Fault(kind="node", nodes=(0,)), Fault(kind="node", nodes=(1,), degradation=0.8))

    assert rates(*both)[:, 0] == pytest.approx(0.2)


def test_an_oversubscribed_uplink_is_shared_by_those_that_cross():
    spec = FabricSpec(nodes=8, leaf=4, oversubscription=8, noise=0.0, wild=0.0)
    (forth, back) = rates(spec=spec)[..., 0]

    assert forth[0] == back[0] == pytest.approx(1.0)  # within a leaf
    assert forth[1] == pytest.approx(0.25)  # (2, 4) and (5, 3) send up leaf 0 or 1 at once


def test_dead_nodes_answer_nothing():
    fabric = SimulatedFabric(QUIET, [Fault(kind="dead", nodes=(0,))])
    reading = fabric.round([(0, 1)])[0]

    assert reading.forth == reading.back == (0.0, 0.0)
    assert reading.latency == (math.inf,)
    assert fabric.compute().seconds[0] == math.inf


def test_stragglers_and_delays():
    faults = [
        Fault(kind="straggler", nodes=(2,), what="time"),
        Fault(kind="node", nodes=(0,), degradation=0.9, what="latency"),
    ]
    fabric = SimulatedFabric(QUIET, faults)

    assert fabric.compute().own[:3] == pytest.approx([WORK, WORK, 2 * WORK])
    assert fabric.round([(0, 1)])[0].latency[0] > 9 * LATENCY
    assert fabric.round([(1, 3)])[0].latency[0] == pytest.approx(LATENCY)


def test_intermittent_faults_come_and_go():
    fabric = SimulatedFabric(QUIET, [Fault(kind="node", nodes=(0,), often=0.5)], seed=1)
    seen = {round(fabric.round([(0, 1)])[0].forth[0] / RATE, 3) for _ in range(40)}

    assert seen == {0.5, 1.0}


def test_noise_has_the_sigma_that_was_asked_for():
    fabric = SimulatedFabric(FabricSpec(nodes=4000, noise=0.1, wild=0.0), seed=2)
    pairs = [(a, a + 1) for a in range(0, 4000, 2)]
    logs = np.log([reading.forth[0] / RATE for reading in fabric.round(pairs)])

    assert np.std(logs) == pytest.approx(0.1, rel=0.1)


def test_no_pairs_no_readings():
    assert SimulatedFabric(QUIET).round([]) == []


def test_random_faults_hit_different_parts():
    spec = standard_spec(1024)
    faults = random_faults(spec, 40, ("node", "direction", "nic", "straggler", "link"), seed=5)
    nodes = [node for fault in faults for node in fault.nodes]

    assert len(faults) == 40
    assert len(nodes) == len(set(nodes))
    assert all(1 / 6 <= fault.degradation <= 0.9 for fault in faults)
    assert random_faults(spec, 8, seed=5) == random_faults(spec, 8, seed=5)


def test_no_more_faults_than_there_are_parts():
    assert len(random_faults(FabricSpec(nodes=4), 9, ("node",))) == 4
    assert len(random_faults(standard_spec(64), 9, ("rail",))) == 2


def test_kinds_that_the_fabric_has_not_are_refused():
    with pytest.raises(UsageError, match="rail"):
        random_faults(FabricSpec(nodes=4), 1, ("rail",))


def test_the_score_counts_kind_and_subject():
    def culprit(kind, node, towards=""):
        return Culprit(
            kind=kind,
            nodes=(node,),
            towards=towards,
            factor=2,
            low=1.9,
            high=2.1,
            confidence=0.9,
            samples=9,
        )

    injected = [
        Fault(kind="node", nodes=(1,)),
        Fault(kind="direction", nodes=(2,), towards="in"),
    ]

    assert score([culprit("node", 1), culprit("direction", 2, "in")], injected) == (1.0, 1.0)
    assert score([culprit("node", 1), culprit("direction", 2, "out")], injected) == (0.5, 0.5)
    assert score([], injected) == (1.0, 0.0)
    assert score([culprit("node", 1)], []) == (0.0, 1.0)
