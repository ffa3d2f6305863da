"""From the records of a run to its findings."""

from typing import Any

from wirespeed.checks.judge import judge
from wirespeed.model.records import World
from wirespeed.reference import NoReference


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
