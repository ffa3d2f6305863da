"""The page of a watched job: charts, the table behind each, extremes, hostile names."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from wirespeed.model.records import Run
from wirespeed.model.watch_records import StepChange, Watched, WatchWindow
from wirespeed.training.trace import Span, chrome_trace
from wirespeed.views.html.page import page
from wirespeed.views.html.watched import lateness_chart, ranks_chart, steps_chart
from wirespeed.views.watched import ranks_of

EVIL = "<script>alert(1)</script>"
CHARTS = ("steps", "late", "ranks", "parts")


def job_of(run: Run) -> Watched:
    assert run.watched is not None
    return run.watched


def figures(run: Run, trace: Any = None) -> dict[str, Any]:
    """By chart its data."""
    found = re.findall(
        r'<script type="application/json" id="figure-watched-(\w+)-chart">(.*?)</script>',
        page(run, trace),
    )
    return {name: json.loads(data) for name, data in found}


def test_the_section_with_every_chart_and_the_table_behind_it(watched: Run) -> None:
    text = page(watched)
    assert text.index('id="culprits"') < text.index('id="watched"')
    assert tuple(figures(watched)) == CHARTS
    for table in re.findall(r'aria-describedby="(watched-\w+-caption)"', text):
        assert f'id="{table}"' in text
    for name in ("changes", "steps", "ranks", "parts", "traffic"):
        assert f'<table id="watched-{name}">' in text
    assert "A step takes 59.1 ms" in text and "not seen: memory of the GPU" in text
    assert 'id="watched"' not in page(replace(watched, watched=None))


def test_the_same_run_gives_the_same_page(crowd: Run) -> None:
    assert page(crowd) == page(crowd)


def test_steps_and_their_changes(watched: Run) -> None:
    drawn = figures(watched)["steps"]
    (trace,) = drawn["data"]
    assert trace["x"][:3] == [0, 10, 20] and trace["x"][-1] == 200
    assert trace["y"][4:6] == [30.19, 59.128] and trace["y"][-1] == trace["y"][-2]
    assert trace["customdata"][5] == "steps 50 … 59: 59.1 ms"
    line, band = drawn["layout"]["shapes"]
    assert line["x0"] == line["x1"] == 50 and (band["x0"], band["x1"]) == (48, 51)
    assert [one["text"] for one in drawn["layout"]["annotations"]] == ["50"]


def test_numbers_of_changes_do_not_overlap(watched: Run) -> None:
    known = job_of(watched).changes[0]
    many = tuple(replace(known, step=step, low_step=step, high_step=step) for step in range(200))
    layout = steps_chart(replace(job_of(watched), changes=many), 70.0)["layout"]
    assert len(layout["shapes"]) == 400 and 15 < len(layout["annotations"]) <= 20


def test_a_first_step_that_compiles_leaves_the_chart(watched: Run) -> None:
    first, *rest = job_of(watched).windows
    run = replace(
        watched, watched=replace(job_of(watched), windows=(replace(first, step=20.0), *rest))
    )
    assert figures(run)["steps"]["layout"]["yaxis"]["range"][1] < 150
    assert "1 of the windows took longer than the chart shows" in page(run)


def test_the_map_shows_who_is_late_since_when(watched: Run) -> None:
    (trace,) = figures(watched)["late"]["data"]
    assert trace["y"][2] == "rank 2 on node-1" and trace["x"][5] == "steps 50 … 59"
    assert all(abs(z) < 1 for z in trace["z"][2][:5]) and all(z > 28 for z in trace["z"][2][5:])
    assert all(abs(z) < 1 for row in (0, 1, 3) for z in trace["z"][row])
    assert trace["zmax"] == pytest.approx(0.5 * 59.107, rel=1e-3), (
        "half a step is as bright as can be"
    )


def test_noise_stays_dark(job: Any) -> None:
    calm = job(8, 1, {}).watched()
    (trace,) = lateness_chart(calm, range(8))["data"]
    assert max(z for row in trace["z"] for z in row) < 0.4 * trace["zmax"]


def test_what_is_not_known_is_an_empty_cell() -> None:
    window = WatchWindow(first_step=0, steps=1, since_s=0, step=0.1, own=(0.1, -1.0))
    short = replace(window, first_step=1, own=(0.1,))
    seen = Watched(ranks=2, world_size=2, hosts=("a", "b"), steps=2, windows=(window, short))
    (trace,) = lateness_chart(seen, range(2))["data"]
    assert trace["z"] == [[0.0, 0.0], [None, None]]
    assert [one["y"] for one in ranks_chart(ranks_of(seen))["data"]] == [[100.0, 0]]


def test_a_crowd_has_a_map_of_its_latest_and_areas_for_bars(crowd: Run) -> None:
    found = figures(crowd)
    assert tuple(found) == ("steps", "latest", "late", "ranks", "parts")
    (some,), (every,) = found["latest"]["data"], found["late"]["data"]
    assert len(some["y"]) == 16 and "rank 77 on node-9" in some["y"]
    assert len(every["y"]) == 256 and len(found["late"]["layout"]["yaxis"]["tickvals"]) <= 40
    assert {one["type"] for one in found["ranks"]["data"]} == {"scatter"}
    text = page(crowd)
    assert "the 64 latest of 256 ranks" in text
    rows = text.partition('<table id="watched-ranks">')[2].partition("</table>")[0]
    assert rows.count("<tr>") == 65


def test_bars_of_a_rank_add_up_to_its_step(watched: Run) -> None:
    drawn = figures(watched)["ranks"]["data"]
    assert [one["name"] for one in drawn] == ["data", "other own work", "blocked"]
    for rank in ranks_of(job_of(watched)):
        whole = sum(one["y"][rank.rank] for one in drawn)
        assert whole == pytest.approx(1e3 * ((rank.own or 0) + (rank.blocked or 0)), rel=1e-4)


def test_nothing_known_is_no_chart(unknown: Run) -> None:
    assert figures(unknown) == {}
    text = page(unknown)
    assert "Watched 0 steps of 2 of 4 ranks" in text and "the job called no optimizer" in text


@pytest.mark.parametrize("size", [1, 2048])
def test_one_window_without_ranks(unknown: Run, size: int) -> None:
    window = WatchWindow(first_step=0, steps=1, since_s=0.0, step=0.0)
    seen = replace(
        job_of(unknown), steps=1, windows=(window,), world_size=size, parts_ms={"gc": 0.0}
    )
    run = replace(unknown, watched=seen)
    assert tuple(figures(run)) == ("steps",)
    assert ("at most 1,024 ranks" in page(run)) is (size > 1024)


def test_the_timeline_of_sampled_steps(watched: Run) -> None:
    spans = [Span(rank, "step", "step 100", 0.0, 0.06) for rank in range(4)]
    text = page(watched, json.loads(chrome_trace(spans, hosts=job_of(watched).hosts)))
    assert 'id="timeline"' in text and "step 100" in text and "train --trace" not in text


@pytest.mark.hostile("hostile values")
def test_hostile_names_are_text(watched: Run) -> None:
    change = StepChange(step=50, low_step=1, high_step=90, subject=EVIL, before=0.1, after=0.2)
    seen = replace(
        job_of(watched), hosts=(EVIL,) * 4, changes=(change,), boundary=EVIL, unseen=(EVIL,),
        parts_ms={EVIL: 3.0, "data": 1.0},
    )  # fmt: skip
    run = replace(watched, watched=seen)
    assert "<script>alert" not in page(run) and "&lt;script&gt;alert" in page(run)
    told = json.dumps(figures(run))
    assert "<script" not in told and "\\u003c" not in told, "plotly reads HTML in labels"
