"""Who is slow at work without traffic: always, now and then, or too seldom to cost anything."""

import math
import random

import numpy as np
import pytest

from wirespeed.locate.evidence import against_chance, slow_turns, stragglers
from wirespeed.locate.simulator import FabricSpec, Fault, SimulatedFabric

LEAST = math.log(1.2)
CALLS, NODES = 32, 6


def timings(share: float, factor: float, seed: int) -> list[list[float]]:
    """Node 2 is `factor` slower in that share of the calls, spread evenly; 2 % noise."""
    source = random.Random(seed)
    hits = {round(i / share) for i in range(int(CALLS * share))} if share else set()
    return [
        [
            0.1 * source.lognormvariate(0, 0.02) * (factor if node == 2 and call in hits else 1)
            for node in range(NODES)
        ]
        for call in range(CALLS)
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("share", "factor"), [(1.0, 1.5), (0.3, 2.0), (0.125, 3.0)])
def test_who_costs_the_job_time_is_named(share: float, factor: float, seed: int) -> None:
    culprits, _ = stragglers(timings(share, factor, seed), LEAST)
    assert [(one.kind, one.nodes) for one in culprits] == [("straggler", (2,))]
    assert culprits[0].factor == pytest.approx(factor, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("share", "factor"), [(0.0, 1.0), (0.125, 1.3), (0.25, 1.25)])
def test_who_is_late_now_and_then_at_no_cost_is_not(share: float, factor: float, seed: int) -> None:
    assert stragglers(timings(share, factor, seed), LEAST)[0] == []


FLEETS = 100
BUSY = FabricSpec(nodes=4, noise=0.05, wild=0.0, busy=0.4)


def named_beside_other_work(*faults: Fault) -> list[set[int]]:
    """By fleet, the stragglers of 25 timings while other work takes cores from whoever is there."""
    fabrics = [SimulatedFabric(BUSY, faults, seed) for seed in range(FLEETS)]
    found = (stragglers([one.compute().seconds for _ in range(25)], LEAST)[0] for one in fabrics)
    return [{one.nodes[0] for one in culprits} for culprits in found]


def test_what_hits_anybody_accuses_nobody() -> None:
    assert sum(map(bool, named_beside_other_work())) <= FLEETS // 50


def test_a_real_one_is_found_beside_other_work() -> None:
    half = Fault(kind="straggler", nodes=(2,), degradation=0.5, what="time")
    assert sum(2 in named for named in named_beside_other_work(half)) >= FLEETS * 19 // 20


def test_the_exact_test_is_exact() -> None:
    """8 of 8 against 0 of 24: one way of choosing 8 of 32; as many as the others: nothing."""
    assert against_chance(8, 8, 0, 24) == pytest.approx(math.log(math.comb(32, 8)))
    assert against_chance(0, 8, 3, 24) == pytest.approx(0.0, abs=1e-9)


def test_one_burst_is_one_slow_turn() -> None:
    slow = np.zeros((24, 1), bool)
    slow[6:9] = True
    assert slow_turns(slow, always=True).sum() == slow_turns(slow, always=False).sum() == 1
