"""Speed against what is known: baseline, fleet or reference; what each finding says of it."""

from typing import Any

import pytest

from wirespeed.checks.speed import speed_findings
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, World
from wirespeed.reference import Expectation, NoReference


class Known:
    def __init__(self, expectation: Expectation) -> None:
        self._expectation = expectation

    def expect(self, world: Any, measurement: Any) -> Expectation:
        return self._expectation

    def choices(self) -> tuple[()]:
        return ()


def bandwidth(world: World, measured: Any, busbw: float, expected: Any, **more: Any) -> Finding:
    timings = [measured(), measured(size_bytes=1 << 30, busbw=busbw, **more)]
    found = speed_findings(world, timings, expected)
    return next(one for one in found if one.id == "BW-001")


def fleet(**changes: Any) -> Known:
    fields: dict[str, Any] = {
        "time_s": None, "busbw": 100e9, "source": "median of 9 earlier runs",
        "origin": "fleet", "busbw_range": (90e9, 104e9), "samples": 9, "outside_warn": 0.8,
        "outside_fail": 0.6, "notes": ("the spread",),
    }  # fmt: skip
    return Known(Expectation(**{**fields, **changes}))


@pytest.mark.parametrize(
    ("busbw", "status"), [(85e9, "pass"), (70e9, "warn"), (50e9, "fail"), (99e9, "pass")]
)
def test_low_is_beyond_the_ratio_and_outside_the_spread(
    busbw: float, status: str, world: World, measured: Any
) -> None:
    found = bandwidth(world, measured, busbw, fleet(origin="baseline"))
    assert found.status == status
    assert found.saw == f"{busbw / 100e9:.2f} of the baseline"
    assert found.expected == "100 GB/s, 90.0 GB/s … 104 GB/s (median of 9 earlier runs)"
    assert found.evidence[0] == "the spread"
    assert found.because.startswith("likeliest first: (1) ") == (status != "pass")
    assert found.because.count("(3)") == (status != "pass")


@pytest.mark.parametrize(
    ("busbw", "status"), [(85e9, "measured"), (70e9, "warn"), (50e9, "warn"), (99e9, "measured")]
)
def test_runs_that_nobody_endorsed_warn_and_pass_nothing(
    busbw: float, status: str, world: World, measured: Any
) -> None:
    found = bandwidth(world, measured, busbw, fleet())
    assert found.status == status
    assert ("median of 9 earlier runs" in found.because) == (status == "measured")
    assert found.references[0].kind == "fleet"


def test_runs_that_lie_too_far_apart_pass_nothing(world: World, measured: Any) -> None:
    wide = fleet(origin="baseline", outside_fail=0.05)
    found = bandwidth(world, measured, 99e9, wide)
    assert (found.status, "too far apart" in found.because) == ("measured", True)
    assert bandwidth(world, measured, 99e9, fleet(origin="baseline")).status == "pass"


@pytest.mark.parametrize(
    ("origin", "samples", "outside"),
    [("baseline", 3, True), ("fleet", 9, True), ("baseline", 2, False), ("reference", 9, False)],
)
@pytest.mark.parametrize("too_noisy", [True, False])
def test_far_off_all_earlier_runs_is_told(
    world: World, measured: Any, origin: Any, samples: int, outside: bool, too_noisy: bool
) -> None:
    seconds = measured(busbw=100e9).time.median
    known = fleet(
        origin=origin, samples=samples, time_range=(0.11 * seconds, 0.12 * seconds),
        outside_fail=0.01 if too_noisy else 0.6, outside_warn=0.01 if too_noisy else 0.8,
    )  # fmt: skip
    found = bandwidth(world, measured, 12e9, known)
    text = f"outside all {samples} earlier runs (−88 %)"
    assert (text in found.saw + found.because) is outside
    near = fleet(origin=origin, samples=samples, time_range=(0.9 * seconds, 1.1 * seconds))
    near_by = bandwidth(world, measured, 12e9, near)
    assert "outside" not in near_by.saw + near_by.because


def test_a_figure_whose_interval_reaches_the_spread_is_not_low(world: World, measured: Any) -> None:
    assert bandwidth(world, measured, 50e9, fleet(), half=0.4).status == "measured"


def test_crowded_cores_warn_at_most(world: World, measured: Any) -> None:
    assert bandwidth(world, measured, 30e9, fleet(may_fail=False)).status == "warn"


def test_a_good_fleet_does_not_hide_a_rank_that_lies_apart(world: World, measured: Any) -> None:
    medians = (1e-4, 1e-4, 1e-4, 3e-4)
    found = bandwidth(world, measured, 100e9, fleet(), rank_medians=medians)
    assert (found.status, found.subject.name) == ("warn", "rank 3")


def test_below_a_gate_is_a_warning(world: World, measured: Any) -> None:
    gate = Expectation(time_s=None, busbw=479e9, source="x", gate=460e9)
    assert bandwidth(world, measured, 450e9, Known(gate)).status == "warn"
    assert bandwidth(world, measured, 465e9, Known(gate)).status == "pass"


def test_a_fleet_that_is_slow_as_a_whole_is_told(world: World, measured: Any) -> None:
    """Runs that were never graded can be READY and slow: another cluster's figure shows it."""
    behind = Expectation(time_s=None, busbw=450e9, source="SkyPilot")
    found = bandwidth(world, measured, 100e9, fleet(also=(behind,)))
    assert found.status == "warn"
    assert found.expected.endswith("; but 0.22 of 450 GB/s (SkyPilot)")
    vague = Expectation(time_s=None, busbw=450e9, source="y", may_fail=False)
    assert bandwidth(world, measured, 100e9, fleet(also=(vague,))).status == "measured"


def node(number: int) -> NodeFacts:
    ports = ({"device": "mlx5_0", "port": 1, "state": "ACTIVE", "rate_Gbitps": 100.0,
              "link_layer": "InfiniBand"},)  # fmt: skip
    gpus = ({"index": 0, "name": "NVIDIA L40S"}, {"index": 1, "name": "NVIDIA L40S"})
    return NodeFacts(
        host=f"n{number}", ranks=(2 * number, 2 * number + 1), facts=Facts(), gpus=gpus, rdma=ports
    )


@pytest.mark.parametrize("busbw", [1e9, 13e9])
def test_a_model_alone_fails_nobody_and_is_named(busbw: float, measured: Any) -> None:
    world = World(size=4, nodes=(node(0), node(1)), backend="nccl", launcher="x")
    found = bandwidth(world, measured, busbw, NoReference())
    assert (found.status, found.because) == ("measured", "no reference for this hardware")
    assert 'the limit of the model "ring over 1 × 100 Gbit/s a node"' in found.evidence[0]
    assert len(found.evidence) == (2 if busbw > 12.5e9 else 1), "above it needs a word"


def test_a_finding_keeps_the_figures_that_it_was_graded_against(measured: Any) -> None:
    world = World(size=4, nodes=(node(0), node(1)), backend="nccl", launcher="x")
    behind = Expectation(time_s=None, busbw=450e9, source="SkyPilot")
    close = Expectation(time_s=None, busbw=1.1e9, source="near")
    found = bandwidth(world, measured, 1e9, fleet(also=(behind, close)))
    told = [(one.kind, one.source, one.value) for one in found.references]
    assert told[0][::2] == ("fleet", 100e9)
    assert told[1] == ("reference", "SkyPilot", 450e9), "what does not contradict is left out"
    assert told[2][::2] == ("roofline", 12.5e9) and "ring over" in told[2][1]
    first = found.references[0]
    assert (first.low, first.high, first.quantity) == (90e9, 104e9, "busbw")
    assert (first.op, first.size_bytes, first.ranks) == ("all_reduce", 1 << 30, 4)


def test_what_is_too_uncertain_names_what_it_would_be_held_against(
    world: World, measured: Any
) -> None:
    found = bandwidth(world, measured, 50e9, fleet(), half=0.6)
    assert (found.status, [one.kind for one in found.references]) == ("measured", ["fleet"])


def test_a_time_is_graded_against_a_time(world: World, measured: Any) -> None:
    known = Known(Expectation(time_s=1e-4, busbw=1e9, source="x", time_range=(9e-5, 2e-4)))
    (found,) = [one for one in speed_findings(world, [measured()], known) if one.id == "LAT-001"]
    (told,) = found.references
    assert (told.quantity, told.value, told.low, told.high) == ("time", 1e-4, 9e-5, 2e-4)


def published(**changes: Any) -> Expectation:
    fields: dict[str, Any] = {"time_s": None, "busbw": 100e9, "source": "SkyPilot"}
    return Expectation(**{**fields, **changes})


def earlier_runs(**changes: Any) -> Expectation:
    found = fleet(**changes).expect(None, None)  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("busbw", "status", "kinds"),
    [
        (99e9, "pass", ["reference"]),
        (110e9, "warn", ["reference", "fleet"]),
        (70e9, "fail", ["reference"]),
    ],
)
def test_a_published_figure_passes_and_earlier_runs_still_warn_of_a_change(
    busbw: float, status: str, kinds: list[str], world: World, measured: Any
) -> None:
    usual = earlier_runs(busbw=200e9 if status == "warn" else 100e9, outside_fail=0.6)
    found = bandwidth(world, measured, busbw, Known(published(also=(usual,))))
    assert found.status == status
    assert [one.kind for one in found.references] == kinds


@pytest.mark.parametrize(
    ("busbw", "changes", "status"),
    [
        (10e9, {}, "fail"),
        (10e9, {"may_fail": False}, "warn"),
        (10e9, {"samples": 2}, "fail"),
        (60e9, {}, "warn"),
        (95e9, {}, "pass"),
        (95e9, {"time_range": (1e-6, 2.5e-6)}, "measured"),
    ],
)
def test_off_all_runs_of_a_noisy_baseline_is_low_and_far_below_them_fails(
    busbw: float, changes: dict[str, Any], status: str, world: World, measured: Any
) -> None:
    """By Student's t of three noisy runs alone, even a tenth of their median would be possible."""
    noisy = {"samples": 3, "outside_warn": 0.2 if changes.get("may_fail") is False else 0.05}
    told = fleet(
        **{
            "origin": "baseline",
            "outside_fail": 0.01,
            "time_range": (1e-6, 1.1e-6),
            **noisy,
            **changes,
        }
    )
    found = bandwidth(world, measured, busbw, told)
    assert found.status == status
