"""Baselines, own figures and the order in which they are believed."""

from dataclasses import replace
from typing import Any

import pytest

from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.reference import Chain
from wirespeed.reference.ask import Asked, ask, expected_of
from wirespeed.reference.figures import figures_from_csv, figures_to_csv, shipped_figures
from wirespeed.reference.known import (
    FigureReference,
    FleetReference,
    baseline_references,
)
from wirespeed.reference.shape import figures_of_run, shape_told


def test_a_baseline_is_for_its_nodes_and_the_newest_counts(
    cluster: Any, run: Any, timed: Any
) -> None:
    world = cluster(2)
    old, new = run(world, timed(300e9)), run(world, timed(350e9), started="2026-11-05T00:00:00Z")
    chain = Chain(baseline_references([("a", "2026-11-04", [old]), ("b", "2026-11-05", [new])]))
    told = chain.expect(world, timed())
    assert told is not None
    assert (told.busbw, told.origin) == (350e9, "baseline")
    assert told.source == "baseline 'b', 1 run of 2026-11-05"
    assert told.busbw_range is not None and told.busbw_range[0] < 350e9 < told.busbw_range[1]
    assert [choice.value for choice in chain.choices()] == ["b", "a"]
    assert chain.expect(cluster(3), timed()) is None


def test_repeats_of_a_baseline_are_one_median(cluster: Any, run: Any, timed: Any) -> None:
    runs = [run(cluster(2), timed(rate)) for rate in (340e9, 350e9, 400e9)]
    (one,) = baseline_references([("a", "x", runs)])
    told = one.expect(cluster(2), timed())
    assert told is not None
    assert (told.busbw, told.samples, told.busbw_range) == (350e9, 3, (340e9, 400e9))


def test_own_figures_of_a_run_hold_for_such_nodes(cluster: Any, run: Any, timed: Any) -> None:
    measured = run(cluster(2), timed(300e9), timed(200e9, in_place=True), timed(1e6, size=1024))
    figures = figures_of_run(measured, "monday")
    assert [(one.size_bytes, one.busbw) for one in figures] == [(1024, 1e6), (8 << 30, 300e9)]
    kept = figures_from_csv(figures_to_csv(figures), source="x")
    own = FigureReference(kept, "own")
    told = own.expect(cluster(2), timed())
    assert told is not None
    assert (told.busbw, told.origin, told.may_fail) == (300e9, "own", True)
    assert told.outside_fail < 1
    small = own.expect(cluster(2), timed(size=1024))
    assert small is not None and small.time_s is not None
    assert own.expect(cluster(1), timed()) is None
    assert own.expect(cluster(2), timed(groups="pairs")) is None


def test_a_run_whose_way_between_nodes_is_not_known_gives_no_figure(
    cluster: Any, run: Any, timed: Any
) -> None:
    assert figures_of_run(run(cluster(2, rdma=()), timed()), "x") == []


def test_own_figures_of_processors_are_for_the_same_model(
    laptop: Any, run: Any, timed: Any
) -> None:
    world = laptop()
    own = FigureReference(figures_of_run(run(world, timed()), "x"), "own")
    assert own.expect(world, timed()) is not None
    facts = {"cpu.model": "another", "cpu.allowed": 8}
    other = replace(world, nodes=(replace(world.nodes[0], facts=from_json(Facts, facts)),))
    assert own.expect(other, timed()) is None


def test_the_order_and_what_stands_behind(cluster: Any, run: Any, timed: Any) -> None:
    world = cluster(2)
    runs = [run(world, timed(rate)) for rate in (80e9, 90e9, 99e9, 85e9, 95e9)]
    chain = Chain(
        [
            *baseline_references([("a", "x", [run(world, timed(90e9))])]),
            FigureReference((), "own"),
            FleetReference(lambda: runs),
            FigureReference(shipped_figures(), "reference"),
        ]
    )
    told = chain.expect(world, timed())
    assert told is not None
    assert [told.origin, *(one.origin for one in told.also)] == ["baseline", "fleet", "reference"]
    assert told.outside_fail == told.also[0].outside_fail, "the fleet tells the spread of one run"


@pytest.mark.parametrize(("samples", "may_fail"), [(5, False), (20, True)])
def test_a_baseline_of_few_samples_fails_nobody(
    cluster: Any, run: Any, timed: Any, samples: int, may_fail: bool
) -> None:
    world = cluster(2)
    good = replace(timed(350e9), iterations=samples)
    (baseline,) = baseline_references([("a", "x", [run(world, good)])])
    known = baseline.expect(world, timed(350e9))
    assert known is not None
    assert known.may_fail is may_fail
    assert (known.time_range is None) is not may_fail


@pytest.mark.parametrize("repeats", [1, 3])
def test_slow_runs_that_once_passed_do_not_excuse_another(
    cluster: Any, run: Any, timed: Any, repeats: int
) -> None:
    world = cluster(2)
    good = [run(world, timed(rate)) for rate in (350e9, 351e9, 352e9)][:repeats]
    slow = [run(world, timed(rate)) for rate in (30e9, 350e9, 32e9, 28e9, 31e9)]
    (baseline,) = baseline_references([("a", "x", good)])
    alone = baseline.expect(world, timed())
    told = Chain([baseline, FleetReference(lambda: slow)]).expect(world, timed())
    assert alone is not None and told is not None
    assert (told.outside_warn, told.outside_fail) == (alone.outside_warn, alone.outside_fail)


H100 = shape_told("H100", per_node=8, nodes=2, interconnect="ib", nics=8, nic_Gbitps=400.0)


def answer(busbw: float, **more: Any) -> Any:
    expectation = expected_of(H100, "all_reduce", 8 << 30)
    return ask(H100, "all_reduce", Asked(8 << 30, busbw, **more), expectation)


def test_is_this_number_normal() -> None:
    low, normal, high = answer(310e9), answer(440e9), answer(600e9)
    assert (low.place, normal.place, high.place) == ("low", "normal", "high")
    assert len(low.reasons) == 3 and not normal.reasons
    assert low.limit is not None and low.limit.busbw == 750e9, "400 GB/s a node, 15 of 8 parts"
    assert high.above
    assert answer(345e9).place == "low", "two sources measured such a world; none got that little"
    ring = answer(390e9)
    assert (ring.place, bool(ring.remark), bool(normal.remark)) == ("normal", True, False)
    assert answer(800e9).place == "impossible", "no algorithm moves so much over these cards"
    assert answer(310e9, busbw_range=(300e9, 420e9)).place == "normal", "may be as good as others"
    assert answer(310e9, busbw_range=(100e9, 420e9)).place == "unknown", "too wide for a verdict"


def test_where_nothing_holds_the_nearest_are_told() -> None:
    shape = shape_told("H100", per_node=8, nodes=2, interconnect="tcp")
    told = ask(shape, "all_reduce", Asked(8 << 30, 4e9), expected_of(shape, "all_reduce", 8 << 30))
    assert told.place == "unknown"
    assert told.published and all(one.differs for one in told.published)
    assert any("--nics" in need for need in told.missing)
