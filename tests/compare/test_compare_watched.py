"""Watched jobs compare by their step, and by the share of it that is not exposed communication."""

import json
from dataclasses import replace
from typing import Any

import pytest

from wirespeed.compare.compare import SideRuns, compare, points_of, trend
from wirespeed.compare.figures import figures_of
from wirespeed.model.derived_records import Comparison, Row
from wirespeed.model.watch_records import Watched
from wirespeed.views import Style
from wirespeed.views import comparison as view
from wirespeed.views import trend as trend_view

JITTER = (0.995, 1.0, 1.006)
PLAIN = Style(width=200)


def watched(step: float, exposed: float = 0.22, **more: Any) -> Watched:
    told: dict[str, Any] = {
        "ranks": 4, "world_size": 4, "hosts": ("a",) * 4, "steps": 500, "step": step,
        "step_low": 0.99 * step, "step_high": 1.01 * step, "exposed": exposed,
        "exposed_low": exposed - 0.01, "exposed_high": exposed + 0.01,
    }  # fmt: skip
    return Watched(**(told | more))


@pytest.fixture
def side(make_run: Any) -> Any:
    def make(name: str, step: float, exposed: float = 0.22, **more: Any) -> SideRuns:
        """Three runs whose steps differ a little."""
        return SideRuns(
            tuple(
                replace(make_run(f"{name}{k}"), watched=watched(step * f, exposed, **more))
                for k, f in enumerate(JITTER)
            )
        )

    return make


def row(found: Comparison, figure: str = "step") -> Row:
    return next(one for one in found.rows if one.what.get("figure") == figure)


def test_a_slower_step_is_worse(side: Any) -> None:
    found = compare([side("a", 0.030), side("b", 0.036)])
    told = row(found)
    assert (told.verdict, found.exit_code, told.what.kind) == ("WORSE", 1, "watched")
    assert told.ratio == pytest.approx(1.2) and told.samples == (1500, 1500)
    assert row(found, "unexposed").verdict == "same"
    (line,) = (x for x in view.render(found, "table", PLAIN).splitlines() if "step" in x)
    assert "30.0 ms" in line and "36.0 ms" in line and "+20.0 %" in line


def test_the_same_job_is_the_same(side: Any) -> None:
    found = compare([side("a", 0.030), side("b", 0.0301)])
    assert {one.verdict for one in found.rows} == {"same"} and found.exit_code == 0


def test_more_exposed_communication_is_worse_and_shown_as_what_is_left(side: Any) -> None:
    found = compare([side("a", 0.03, 0.2), side("b", 0.03, 0.4)])
    assert row(found, "unexposed").verdict == "WORSE"
    (line,) = (x for x in view.render(found, "table", PLAIN).splitlines() if "not exposed" in x)
    assert "80.0 %" in line and "60.0 %" in line and "−25.0 %" in line
    (data,) = (x for x in view.document(found)["versus"][0]["rows"] if "exposed_before" in x)
    assert data["exposed_before"] == pytest.approx(0.2)
    assert data["exposed_after"] == pytest.approx(0.4)


def test_twice_of_nearly_nothing_is_the_same(side: Any) -> None:
    """Noise of a share of 0.2 % is no regression, however many times it is more."""
    ends = {"exposed_low": 0.0, "exposed_high": 0.01}
    found = compare([side("a", 0.03, 0.001, **ends), side("b", 0.03, 0.003, **ends)])
    assert row(found, "unexposed").verdict == "same"


def test_one_run_a_side_needs_the_noise_to_be_stated(side: Any) -> None:
    pair = [SideRuns(side(name, step).runs[:1]) for name, step in (("a", 0.03), ("b", 0.04))]
    assert row(compare(pair)).verdict == "not enough runs"
    assert row(compare(pair, stated=0.03)).verdict == "WORSE"


def test_other_numbers_of_ranks_pair_only_when_asked(side: Any) -> None:
    pair = [side("a", 0.03), side("b", 0.03, world_size=8)]
    found = compare(pair)
    assert not found.rows and found.versus[0].unpaired.differ_in == ("ranks",)
    assert row(compare(pair, across=["ranks"])).verdict == "same"


def test_what_was_not_seen_is_no_figure(make_run: Any) -> None:
    nothing = Watched(ranks=2, world_size=2, hosts=("a", "a"), steps=0)
    assert figures_of(replace(make_run("a"), watched=nothing)) == {}
    alone = replace(nothing, steps=9, step=0.1, parts_ms={"forward": 100.0})
    (what,) = figures_of(replace(make_run("a"), watched=alone))
    assert what.get("figure") == "step"
    hung = replace(alone, exposed=1.0, exposed_low=1.0, exposed_high=1.0)
    assert len(figures_of(replace(make_run("a"), watched=hung))) == 1


def test_other_arguments_of_the_command_are_told(side: Any) -> None:
    first, second = (
        SideRuns(tuple(replace(run, config={"command": ["train.py", word]}) for run in one.runs))
        for one, word in ((side("a", 0.03), "--small"), (side("b", 0.03), "--large"))
    )
    (told,) = compare([first, second]).versus[0].differences
    assert (told.name, told.before, told.after) == (
        "command",
        "train.py, --small",
        "train.py, --large",
    )


def test_a_trend_has_both(make_run: Any) -> None:
    runs = [
        replace(make_run(f"r{k}", started=f"2026-11-{k + 1:02}T00:00:00Z"), watched=watched(0.03))
        for k in range(3)
    ]
    lines = trend_view.render(trend(points_of(runs)), "table", PLAIN).splitlines()
    assert any("step" in line and "30.0 ms" in line for line in lines)
    assert any("not exposed" in line and "78.0 %" in line for line in lines)
    points = [
        one["points"][0]
        for one in json.loads(trend_view.render(trend(points_of(runs)), "json", PLAIN))["series"]
    ]
    assert [one["exposed"] for one in points if "exposed" in one] == [pytest.approx(0.22)]
