"""With another run on its nodes, speed is not judged: neither NOT READY nor READY comes of it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from wirespeed.checks.judge import judge
from wirespeed.checks.verdicts import Extent, grade
from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, World
from wirespeed.reference import Expectation, NoReference

OTHERS = [
    {"mark": "a" * 16, "pid": 7, "since": 1_700_000_000, "command": "check"},
    {"mark": "b" * 16, "pid": 8, "since": 1_700_000_060, "command": "train"},
]


def ended(command: str, findings: Iterable[Finding], *, only: bool = False) -> tuple[str, int]:
    found = grade(command, list(findings), Extent(only=only, measured=2))
    return found.verdict, found.exit_code


class Quick(NoReference):
    """Expects ten times what was measured."""

    def expect(self, world: World, measurement: Any) -> Expectation | None:
        return Expectation(
            origin="baseline", source="a baseline", time_s=1e-5, busbw=1e10, may_fail=True
        )


@pytest.fixture
def crowded(world: World) -> World:
    first, *rest = world.nodes
    return replace(
        world, nodes=(replace(first, facts=from_json(Facts, {"neighbours": OTHERS})), *rest)
    )


def by_id(findings: list[Finding]) -> dict[str, Finding]:
    return {one.id: one for one in findings}


def test_a_slow_node_is_not_accused_where_others_measure(
    world: World, crowded: World, measured: Any, verified: Any
) -> None:
    timed = [measured(), measured(size_bytes=1 << 20, rank_medians=(1e-4, 1e-4, 1e-4, 9e-4))]
    alone = judge("check", world, timed, [verified()], Quick())
    assert ended("check", alone) == ("NOT READY", 1)
    found = by_id(judge("check", crowded, timed, [verified()], Quick()))
    speed = [one for id, one in found.items() if id.split("-")[0] in ("LAT", "BW", "SKEW")]
    assert len(speed) == 3
    for one in speed:
        assert one.status == "not_checked"
        assert "2 other wirespeed runs measured on node-a meanwhile, since 22:13:20" in one.because
        assert one.subject.kind == "job" and not one.next
    assert "straggler" not in found["SKEW-001"].title.replace("stragglers not checked", "")
    shared = found["WORLD-003"]
    assert shared.status == "not_checked" and shared.next
    assert shared.saw.startswith("check of pid 7, since 22:13:20 UTC; train of pid 8")
    assert ended("check", found.values()) == ("UNKNOWN", 3)


def test_what_is_too_noisy_beside_others_is_not_ready(
    crowded: World, measured: Any, verified: Any
) -> None:
    found = judge("check", crowded, [measured(half=0.9)], [verified()], Quick())
    assert "other wirespeed runs" in by_id(found)["LAT-001"].because
    assert by_id(found)["WORLD-003"].next and not by_id(found)["LAT-001"].next
    assert ended("check", found) == ("UNKNOWN", 3)


def test_wrong_data_fail_all_the_same(
    crowded: World, measured: Any, verified: Any, wrong: Any
) -> None:
    bad = verified(wrong=1, errors=(wrong(),))
    found = judge("check", crowded, [measured()], [bad], Quick())
    assert ended("check", found) == ("NOT READY", 1)


def test_who_asks_for_no_speed_is_told_nothing(
    crowded: World, measured: Any, verified: Any
) -> None:
    found = judge("check", crowded, [measured()], [verified()], Quick(), frozenset({"COL-001"}))
    assert set(by_id(found)) == {"COL-001"}
    assert ended("check", found, only=True) == ("PASSED", 0)


def test_figures_of_a_shared_node_say_so(crowded: World, measured: Any, verified: Any) -> None:
    found = judge("bench", crowded, [measured()], [verified()], NoReference())
    assert by_id(found)["WORLD-003"].status == "warn"
    assert ended("bench", found) == ("MEASURED", 0)
