"""The verdict: a failure is NOT READY, nothing measured is UNKNOWN, and neither looks like READY."""

from typing import Any

import pytest

from wirespeed.checks.judge import judge, verdict_of
from wirespeed.model.records import Finding, World
from wirespeed.reference import NoReference


def finding(status: Any) -> Finding:
    return Finding(id="X-001", status=status, title="x")


@pytest.mark.parametrize(
    ("statuses", "measured", "verdict"),
    [
        (["pass"], 1, ("READY", 0)),
        (["pass", "warn", "not_checked"], 1, ("READY", 0)),
        (["pass", "fail"], 9, ("NOT READY", 1)),
        (["fail"], 0, ("NOT READY", 1)),
        (["pass"], 0, ("UNKNOWN", 3)),
        (["not_checked"], 0, ("UNKNOWN", 3)),
        ([], 0, ("UNKNOWN", 3)),
    ],
)
def test_verdict(statuses: list[str], measured: int, verdict: tuple[str, int]) -> None:
    assert verdict_of([finding(status) for status in statuses], measured) == verdict


def test_check_judges_speed_and_bench_does_not(world: World, measured: Any, verified: Any) -> None:
    def families(command: str) -> set[str]:
        found = judge(command, world, [measured()], [verified()], NoReference())
        return {one.id.split("-")[0] for one in found}

    assert families("check") >= {"WORLD", "NODE", "COL", "LAT", "SKEW"}
    assert families("bench") >= {"WORLD", "NODE", "COL"}
    assert not families("bench") & {"LAT", "BW", "SKEW"}


def test_only_keeps_what_was_asked_for(world: World, measured: Any, verified: Any) -> None:
    only = frozenset({"COL-001", "LAT-001"})
    found = judge("check", world, [measured()], [verified()], NoReference(), only)
    assert {one.id for one in found} == only


def test_a_world_that_never_was_did_not_join() -> None:
    nowhere = World(size=0, nodes=(), backend="unknown", launcher="local")
    assert judge("check", nowhere, [], [], NoReference(), frozenset({"WORLD-001"})) == []


def test_the_world_is_counted(world: World) -> None:
    first = judge("bench", world, [], [], NoReference())[0]
    assert first.title == "4 ranks on 2 nodes joined one world over gloo"
