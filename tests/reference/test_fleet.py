"""The fleet's median: what counts as fleet, and that its own noise fails nobody."""

import random
from dataclasses import replace
from typing import Any

import pytest

from wirespeed.reference.known import FleetReference, fleet_shape, spread_shares


def past(run: Any, world: Any, timed: Any, rates: list[float]) -> Any:
    runs = [run(world, timed(rate), id=f"{n:08x}") for n, rate in enumerate(rates)]
    return lambda: runs


RATES = [398e9, 402e9, 400e9, 401e9, 399e9]


def test_five_runs_of_the_same_nodes_are_a_fleet(cluster: Any, run: Any, timed: Any) -> None:
    fleet = FleetReference(past(run, cluster(2), timed, RATES))
    told = fleet.expect(cluster(2), timed(300e9))
    assert told is not None
    assert (told.busbw, told.samples, told.origin) == (400e9, 5, "fleet")
    assert told.busbw_range == (398e9, 402e9)
    assert told.source == "median of 5 earlier runs on such nodes"
    assert 0.95 < told.outside_fail < 0.99, "quiet runs leave a narrow spread"
    assert fleet.choices()[0].value == "5 earlier runs"


def test_what_is_no_fleet(cluster: Any, run: Any, timed: Any) -> None:
    world = cluster(2)
    good = past(run, world, timed, RATES)()
    beside = [replace(node, facts=replace(node.facts, neighbours=[{}])) for node in world.nodes]
    few = FleetReference(lambda: good[:4])
    assert few.expect(world, timed()) is None
    for spoilt in (
        [replace(one, verdict="NOT READY") for one in good],
        [replace(one, config={"inject": ["flip:rank=1"]}) for one in good],
        [replace(one, world=cluster(3)) for one in good],
        [replace(one, world=replace(world, nodes=tuple(beside))) for one in good],
        [replace(one, world=replace(world, backend="gloo")) for one in good],
    ):
        assert FleetReference(lambda runs=spoilt: runs).expect(world, timed()) is None
    whole = FleetReference(lambda: good)
    assert whole.expect(world, timed(size=4 << 30)) is None
    assert whole.expect(world, timed(dtype="bfloat16")) is None


def test_names_of_hosts_do_not_matter_and_cards_do(cluster: Any, port: Any) -> None:
    world = cluster(2)
    moved = replace(world, nodes=tuple(replace(n, host=f"other-{n.host}") for n in world.nodes))
    assert fleet_shape(moved) == fleet_shape(world)
    slower = cluster(2, rdma=tuple(port(n, 200.0) for n in range(8)))
    assert fleet_shape(slower) != fleet_shape(world)


def test_a_run_with_many_repeats_is_one_voice(cluster: Any, run: Any, timed: Any) -> None:
    world = cluster(2)
    fleet = FleetReference(lambda: [run(world, *[timed(rate) for rate in RATES])])
    assert fleet.expect(world, timed()) is None


def test_ranks_that_share_cores_warn_at_most(laptop: Any, run: Any, timed: Any) -> None:
    for cores, may_fail in ((8, True), (1, False)):
        world = laptop(ranks=2, cores=cores)
        told = FleetReference(past(run, world, timed, RATES)).expect(world, timed())
        assert told is not None
        assert told.may_fail is may_fail


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "sigma"), [(5, 0.05), (5, 0.3), (8, 0.15), (20, 0.1)])
def test_the_fleets_own_noise_is_hardly_ever_outside_its_spread(runs: int, sigma: float) -> None:
    """Of the same distribution, 0.05 % are below the bound for a failure; 4000 draws show few."""
    draw = random.Random(f"{runs} {sigma}")
    failed = 0
    for _ in range(4000):
        times = [draw.lognormvariate(0, sigma) for _ in range(runs)]
        share = sorted(times)[runs // 2] / draw.lognormvariate(0, sigma)
        failed += share < spread_shares(times)[1]
    assert failed <= 12


def test_a_quiet_fleet_sees_a_third_less() -> None:
    draw = random.Random(3)
    seen = 0
    for _ in range(500):
        times = [draw.lognormvariate(0, 0.02) for _ in range(10)]
        share = sorted(times)[5] / (1.5 * draw.lognormvariate(0, 0.02))
        seen += share < spread_shares(times)[1]
    assert seen == 500
