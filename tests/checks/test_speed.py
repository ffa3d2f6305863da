"""From timings to findings: with a reference by ratio, without one by spread; no verdict on noise."""

from dataclasses import dataclass
from typing import Any

import pytest

from wirespeed.checks.speed import speed_findings
from wirespeed.model.records import Finding, Measurement, World
from wirespeed.reference import Expectation, NoReference


@dataclass
class Known:
    """A reference that expects the same of everything."""

    expectation: Expectation

    def expect(self, world: World, measurement: Measurement) -> Expectation:
        return self.expectation


def by_id(world: World, timings: list[Measurement], reference: Any) -> dict[str, Finding]:
    return {one.id: one for one in speed_findings(world, timings, reference)}


@pytest.mark.parametrize(
    ("busbw", "status"),
    [(95e9, "pass"), (90e9, "pass"), (89e9, "warn"), (80e9, "warn"), (79e9, "fail")],
)
def test_bandwidth_against_a_reference(
    busbw: float, status: str, world: World, measured: Any
) -> None:
    reference = Known(Expectation(time_s=None, busbw=100e9, source="NVIDIA, 2026"))
    timings = [measured(), measured(size_bytes=1 << 30, busbw=busbw)]
    found = by_id(world, timings, reference)["BW-001"]
    assert found.status == status
    assert found.expected == "100 GB/s, the only known figure, ±4 % assumed (NVIDIA, 2026)"
    assert found.saw == f"{busbw / 100e9:.2f} of the reference"
    assert bool(found.fix and found.next) == (status != "pass")


@pytest.mark.parametrize(
    ("median", "status"), [(100e-6, "pass"), (120e-6, "pass"), (130e-6, "warn"), (160e-6, "fail")]
)
def test_latency_against_a_reference(
    median: float, status: str, world: World, measured: Any
) -> None:
    reference = Known(Expectation(time_s=100e-6, busbw=None, source="x"))
    found = by_id(world, [measured(median=median)], reference)["LAT-001"]
    assert found.status == status


def test_latency_is_of_the_smallest_and_bandwidth_of_the_largest(
    world: World, measured: Any
) -> None:
    timings = [measured(size_bytes=size) for size in (1 << 20, 1024, 1 << 16)]
    found = by_id(world, timings, NoReference())
    assert found["LAT-001"].title.startswith("all_reduce 1 KiB: ")
    assert found["BW-001"].title.startswith("all_reduce 1 MiB: ")
    assert "BW-001" not in by_id(world, timings[:1], NoReference())


@pytest.mark.parametrize(
    "reference", [NoReference(), Known(Expectation(time_s=1.0, busbw=1.0, source="x"))]
)
def test_an_uncertain_figure_supports_no_verdict(
    reference: Any, world: World, measured: Any
) -> None:
    timings = [measured(half=0.51), measured(half=1.2, size_bytes=4096)]
    found = by_id(world, timings, reference)
    for id, size in (("LAT-001", 1024), ("BW-001", 4096)):
        assert found[id].status == "measured"
        assert found[id].because == "95 % interval wider than ±50 %"
        assert (
            found[id].next == f"wirespeed bench all_reduce -b {size} -e {size} --time-per-size 10"
        )
    assert found["LAT-001"].saw == "±51 % after 20 iterations"
    assert by_id(world, [measured(half=0.49)], NoReference())["LAT-001"].fix == ""


@pytest.mark.parametrize(("samples", "status"), [(5, "measured"), (6, "fail")])
def test_a_range_of_few_samples_supports_no_verdict(
    samples: int, status: str, world: World, measured: Any
) -> None:
    known = Known(Expectation(time_s=1e-6, busbw=1e15, source="x"))
    found = by_id(world, [measured(half=0.01, iterations=samples)], known)["LAT-001"]
    assert found.status == status
    assert ("no interval" in found.title) is (samples < 6)


def test_without_a_reference_ranks_that_lie_apart_are_told(world: World, measured: Any) -> None:
    medians = (100e-6, 100e-6, 100e-6, 230e-6)
    found = by_id(world, [measured(rank_medians=medians)], NoReference())["LAT-001"]
    assert (found.status, found.subject.name) == ("warn", "rank 3")
    assert found.saw == "rank 3 on node-b takes 2.30× the median rank's time"
    alike = by_id(world, [measured(rank_medians=(1e-4,) * 4)], NoReference())["LAT-001"]
    assert (alike.status, alike.because) == ("measured", "no reference for this hardware")


def test_times_of_rooted_operations_do_not_accuse_a_rank(world: World, measured: Any) -> None:
    """The root of a broadcast is done long before the others, and nobody is to blame."""
    medians = (10e-6, 10e-6, 10e-6, 100e-6)
    found = by_id(world, [measured("broadcast", rank_medians=medians)], NoReference())
    assert found["LAT-006"].status == "measured"
    assert found["SKEW-001"].status == "not_applicable"


def test_a_straggler_is_slow_in_most_measurements(world: World, measured: Any) -> None:
    slow, even = (100e-6, 100e-6, 180e-6, 100e-6), (100e-6,) * 4
    timings = [measured(op, rank_medians=slow) for op in ("all_reduce", "all_gather", "all_to_all")]
    timings.append(measured("reduce_scatter", rank_medians=even))
    found = by_id(world, timings, NoReference())["SKEW-001"]
    assert (found.status, found.subject.name) == ("warn", "rank 2")
    assert found.title == "rank 2 on node-b is a straggler"
    assert found.saw == "1.80× the middle rank's time in 3 of 4 measurements"
    assert "node-b" in found.fix
    few = by_id(world, timings[2:], NoReference())["SKEW-001"]
    assert few.status == "pass", "slow in 1 of 2 is not most"


def test_two_ranks_cannot_have_a_straggler(world: World, measured: Any) -> None:
    found = by_id(world, [measured(rank_medians=(1e-4, 9e-4))], NoReference())["SKEW-001"]
    assert found.status == "not_applicable"
    assert "3 ranks" in found.because
