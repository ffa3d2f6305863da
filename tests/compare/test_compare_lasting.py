"""Goodput and soak compare with the run as their unit."""

from dataclasses import replace
from typing import Any

import pytest

from wirespeed.compare.compare import SideRuns, compare, points_of, trend
from wirespeed.compare.figures import figures_of
from wirespeed.model.derived_records import Comparison, Row
from wirespeed.model.lasting_records import Goodput, Soak, SoakCell, SoakWindow
from wirespeed.model.records import Run
from wirespeed.model.training_records import Ends, LoadFigures, Ratio
from wirespeed.views import Style
from wirespeed.views import comparison as view
from wirespeed.views import trend as trend_view

JITTER = (0.995, 1.0, 1.006)
PLAIN = Style(width=200)


def goodput(ratio: float, **more: Any) -> Goodput:
    told: dict[str, Any] = {
        "model": "tiny", "strategy": "ddp", "ranks": 2, "asked_s": 60.0, "wall_s": 100.0,
        "parts_s": {"useful": 100 * ratio}, "step_s": 0.1, "step_low_s": 0.099,
        "step_high_s": 0.101, "step_samples": 500,
    }  # fmt: skip
    return Goodput(**(told | more))


def soak(median: float, wrong: int = 0, windows: int = 8) -> Soak:
    cell = SoakCell(
        op="all_reduce", dtype="float32", size_bytes=4096, calls=50, wrong=wrong, low=median,
        median=median, p99=median, max=median, last_rank=0,
    )  # fmt: skip
    made = [
        SoakWindow(
            since_s=10.0 * k, seconds=10.0, world=1, calls=50, checked_bytes=1, wrong=wrong,
            stalls=0, stalled_s=0.0, cells=(replace(cell, median=median * (1 + k / 1000)),),
        )
        for k in range(windows)
    ]  # fmt: skip
    return Soak(for_s=60.0, elapsed_s=80.0, window_s=10.0, windows=tuple(made))


@pytest.fixture
def side(make_run: Any) -> Any:
    def make(name: str, **lasting: Any) -> SideRuns:
        """lasting: makes the record from a factor near 1."""
        ((what, made),) = lasting.items()
        runs = [replace(make_run(f"{name}{k}"), **{what: made(f)}) for k, f in enumerate(JITTER)]
        return SideRuns(tuple(runs))

    return make


def row(found: Comparison, figure: str = "goodput") -> Row:
    return next(one for one in found.rows if one.what.get("figure") == figure)


def test_less_goodput_is_worse_and_shown_as_a_share(side: Any) -> None:
    before = side("a", goodput=lambda f: goodput(0.9 * f))
    after = side("b", goodput=lambda f: goodput(0.6 * f))
    found = compare([before, after])
    told = row(found)
    assert (told.verdict, found.exit_code) == ("WORSE", 1)
    assert told.ratio == pytest.approx(1.5)
    assert row(found, "step").verdict == "same"
    (line,) = [x for x in view.render(found, "table", PLAIN).splitlines() if "goodput" in x]
    assert "90.0 %" in line and "60.0 %" in line and "−33.3 %" in line
    data = next(x for x in view.document(found)["versus"][0]["rows"] if "goodput_before" in x)
    assert data["goodput_before"] == pytest.approx(0.9, rel=0.01)
    assert "time_before_us" not in data
    assert row(compare([after, before])).verdict == "better"


def test_what_ran_beside_others_compares_by_its_time_there(side: Any) -> None:
    def load(factor: float) -> tuple[LoadFigures, ...]:
        one = LoadFigures(
            name="tensor 4 MiB", beside="GEMM 256", alone=0.01, together=0.02 * factor,
            ratio=Ratio(value=2.0, low=1.9, high=2.1), rounds=8,
            together_interval=Ends(low=0.0199 * factor, high=0.0201 * factor),
        )  # fmt: skip
        return one, replace(one, beside="data 4 MiB, GEMM 256", together_interval=None)

    found = compare([side("a", under_load=load), side("b", under_load=lambda f: load(1.5 * f))])
    assert [one.verdict for one in found.rows] == ["WORSE", "WORSE"]
    text = view.render(found, "table", PLAIN)
    assert "\ntensor 4 MiB beside GEMM 256 time " in text


def test_one_run_a_side_decides_nothing(side: Any) -> None:
    pair = [
        SideRuns(side(name, goodput=lambda f, r=ratio: goodput(r * f)).runs[:1])
        for name, ratio in (("a", 0.9), ("b", 0.3))
    ]
    found = compare(pair)
    assert row(found).verdict == "not enough runs" and found.exit_code == 3


def test_runs_of_other_lengths_pair_only_when_asked(side: Any) -> None:
    pair = [
        side("a", goodput=lambda f: goodput(0.9 * f)),
        side("b", goodput=lambda f: goodput(0.9 * f, asked_s=3600.0)),
    ]
    found = compare(pair)
    assert not found.rows and found.versus[0].unpaired.differ_in == ("for_s",)
    assert row(compare(pair, across=["for_s"])).verdict == "same"


def test_soaks_compare_by_the_windows_medians(side: Any) -> None:
    pair = [side("a", soak=lambda f: soak(1e-4 * f)), side("b", soak=lambda f: soak(1.3e-4 * f))]
    (told,) = compare(pair).rows
    assert (told.verdict, told.what.kind, told.samples) == ("WORSE", "soak", (1200, 1200))
    assert told.before == pytest.approx(1e-4, rel=0.01)
    wrong = [pair[0], side("b", soak=lambda f: soak(1e-4 * f, wrong=1))]
    assert [one.verdict for one in compare(wrong).rows] == ["wrong data"]


def test_few_windows_show_no_interval(make_run: Any) -> None:
    def within(windows: int) -> float | None:
        run = replace(make_run("a"), soak=soak(1e-4, windows=windows))
        (figure,) = figures_of(run).values()
        return figure.within

    assert within(8) is not None and within(5) is None


def test_a_trend_shows_the_share(make_run: Any) -> None:
    runs: list[Run] = [
        replace(make_run(f"r{k}", started=f"2026-11-{k + 1:02}T00:00:00Z"), goodput=goodput(0.75))
        for k in range(3)
    ]
    text = trend_view.render(trend(points_of(runs)), "table", PLAIN)
    (line,) = [x for x in text.splitlines() if "ddp goodput" in x]
    assert "75.0 %" in line
    points = [x["points"][0] for x in trend_view.document(trend(points_of(runs)))["series"]]
    assert [p["goodput"] for p in points if "time_us" not in p] == [pytest.approx(0.75)]
