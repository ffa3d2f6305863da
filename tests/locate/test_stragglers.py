"""Who is slow at work without traffic: always, now and then, or too seldom to cost anything."""

import math
import random

import pytest

from wirespeed.locate.verdict import stragglers

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
