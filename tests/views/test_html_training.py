"""The page of a training run: charts, the figures behind each of them, and the timeline."""

import html
import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest

from html_reader import Reader
from wirespeed.model.records import Run
from wirespeed.model.training_records import LoadFigures, Ratio, Spread, Training
from wirespeed.training.trace import Span, chrome_trace
from wirespeed.views.html.page import page
from wirespeed.views.html.training_charts import memory_chart, scaling_chart, step_chart
from wirespeed.views.training import name as name_of
from wirespeed.views.training import tables

EVIL = '<script>alert("x")</script>'
SECTIONS = ("strategies", "timeline", "scaling", "memory", "load")


@pytest.fixture
def trace() -> Any:
    spans = [
        Span(rank, lane, name, 0.0, 0.01)
        for rank in (0, 1)
        for lane, name in (("step", "ddp on 2 ranks"), ("communication", "gloo:all_reduce"))
    ]
    return json.loads(chrome_trace(spans, hosts=["a", EVIL]))


def one(**more: Any) -> Training:
    known: dict[str, Any] = {
        "strategy": "ddp",
        "bucket_mb": 25.0,
        "model": "tiny",
        "ranks": 2,
        "nodes": 1,
        "batch": 8,
        "rounds": 9,
        "step": Spread(mean=0.1, std=0.01, low=0.09, high=0.12, samples=27),
        "parts": {"forward": 0.04, "backward": 0.06},
        "samples_per_s": 80.0,
    }
    return Training(**(known | more))


def test_every_section_is_there_in_its_order(train: Run, trace: Any) -> None:
    read = Reader(page(train, trace))
    assert [name for name in read.sections if name in SECTIONS] == list(SECTIONS)
    assert train.verdict in read.text
    assert any("Plotly" in code for code in read.code)
    assert "ws-tl-title" in read.ids
    assert "ddp on 2 ranks" in read.text


def test_what_was_not_measured_has_no_section(train: Run) -> None:
    compared = tuple(replace(one, memory=None) for one in train.training if one.study == "compare")
    read = Reader(page(replace(train, training=compared, under_load=())))
    assert [name for name in read.sections if name in SECTIONS] == ["strategies"]
    read = Reader(page(replace(train, training=(), under_load=(), measurements=())))
    assert not set(read.sections) & set(SECTIONS)
    assert not any("Plotly" in code for code in read.code), "no chart, no plotly"


def test_the_same_run_gives_the_same_page(train: Run, trace: Any) -> None:
    assert page(train, trace) == page(train, trace)


def test_every_chart_says_what_it_is_and_has_its_figures_in_a_table(train: Run) -> None:
    read = Reader(page(train))
    assert set(read.charts) >= {"figure-steps", "figure-scaling", "figure-memory"}
    for name, attributes in read.charts.items():
        assert attributes["role"] == "img" and attributes["aria-label"]
        assert attributes["aria-describedby"] in read.ids
        assert name in read.data


def test_the_tables_are_those_of_the_text_form(train: Run) -> None:
    read = Reader(page(train))
    shown = list(read.tables.values())
    for _, grid in tables(train):
        cells = {cell for row in grid.rows for cell in row if cell}
        assert any(cells <= {cell for row in table for cell in row} for table in shown)
    for table in shown:
        assert len({len(row) for row in table}) == 1, "a head above every column"


def test_the_bars_are_the_parts_and_the_whiskers_the_interval() -> None:
    slow = one(strategy="naive", bucket_mb=None, exposed=Ratio(value=0.03, low=0.01, high=0.05))
    drawn = step_chart([one(verdict="yardstick"), slow])
    traces = {trace["name"]: trace for trace in drawn["data"]}
    assert traces["forward"]["x"] == [40, 40] and traces["backward"]["x"] == [60, 60]
    assert "data" not in traces, "no part that nobody has"
    whiskers = traces["mean and 95 % interval"]
    assert whiskers["error_x"]["arrayminus"] == pytest.approx([10, 10])
    assert whiskers["error_x"]["array"] == pytest.approx([20, 20])
    exposed = traces["exposed communication"]
    assert exposed["base"] == pytest.approx([70]) and exposed["x"] == pytest.approx([30])
    assert exposed["customdata"] == ["30.0 ms (10.0 ms … 50.0 ms)"]
    assert drawn["layout"]["yaxis"]["ticktext"] == ["ddp 25 MB ", "naive "]
    assert [line["x0"] for line in drawn["layout"]["shapes"]] == [100], "without synchronisation"


def test_a_very_wide_interval_does_not_squeeze_the_bars() -> None:
    wide = Spread(mean=0.1, std=0.01, low=0.0, high=9.0, samples=2)
    low, high = step_chart([one(), one(step=wide)])["layout"]["xaxis"]["range"]
    assert low == 0 and 120 < high < 200
    assert step_chart([one()])["layout"]["xaxis"]["range"][1] == pytest.approx(1.04 * 120)


def test_what_is_not_exposed_has_no_mark() -> None:
    hidden = one(exposed=Ratio(value=-0.01, low=-0.02, high=0.01))
    assert "exposed communication" not in {trace["name"] for trace in step_chart([hidden])["data"]}


def test_a_step_without_parts_is_one_bar() -> None:
    traces = {trace["name"]: trace for trace in step_chart([one(parts={})])["data"]}
    assert traces["step"]["x"] == [100]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_figures_that_are_no_numbers_break_nothing(odd: float) -> None:
    step = Spread(mean=odd, std=odd, low=odd, high=odd, samples=1)
    ratio = Ratio(value=odd, low=odd, high=odd)
    rows = [one(step=step, parts={"forward": odd}, exposed=ratio, samples_per_s=odd)]
    rows += [one(study="weak", efficiency=ratio, exposed=ratio, step=step)]
    json.dumps([step_chart(rows), scaling_chart(rows)], allow_nan=False)
    wide = Ratio(value=1.5, low=odd, high=odd)
    json.dumps(scaling_chart([one(study="weak", efficiency=wide)]), allow_nan=False)
    json.dumps(step_chart([one(exposed=wide)]), allow_nan=False)


def test_each_kind_of_scaling_is_a_line_with_its_interval() -> None:
    rows = [
        one(study=kind, ranks=ranks, efficiency=Ratio(value=1 / ranks, low=0.4 / ranks, high=1.2))
        for kind in ("strong", "weak")
        for ranks in (4, 1, 2)
    ]
    drawn = scaling_chart(rows)
    assert drawn is not None
    assert [line["name"] for line in drawn["data"]] == ["strong: ddp 25 MB", "weak: ddp 25 MB"]
    for line in drawn["data"]:
        assert line["x"] == [1, 2, 4] and line["y"] == [100, 50, 25]
        assert line["error_y"]["arrayminus"] == pytest.approx([60, 30, 15])
    assert drawn["layout"]["xaxis"]["tickvals"] == [1, 2, 4]
    assert scaling_chart([one(study="weak")]) is None


def test_memory_is_stacked_with_its_peaks(train: Run) -> None:
    memory = next(one.memory for one in train.training if one.memory)
    drawn = memory_chart([("ddp", memory, memory), ("naive", memory, None)])
    traces = {trace["name"]: trace for trace in drawn["data"]}
    assert traces["gradients"]["x"] == pytest.approx([memory.gradients / 2**20] * 2)
    assert traces["peak"]["x"] == pytest.approx([memory.peak / 2**20] * 2)
    assert traces["peak, predicted"]["x"][1] is None
    assert "peak, predicted" not in {t["name"] for t in memory_chart([("a", memory, None)])["data"]}


def test_the_first_sentence_names_the_winner_and_who_is_not_settled(train: Run) -> None:
    rows = (
        one(verdict="fastest", bucket_mb=1.0),
        one(verdict="same"),
        one(verdict="not enough rounds", strategy="naive", bucket_mb=None),
        one(verdict="not enough rounds", strategy="flat", bucket_mb=None),
    )
    text = Reader(page(replace(train, training=rows, under_load=()))).text
    assert "ddp 1 MB is fastest: 100 ms a step, 80 samples a second." in text
    assert "No difference was found to ddp 25 MB." in text
    assert "It takes more rounds to tell for naive and flat." in text
    undecided = Reader(page(replace(train, training=(one(),), under_load=())))
    assert "fastest:" not in undecided.text


def test_only_what_certainly_slows_is_told(train: Run) -> None:
    def load(low: float) -> Run:
        ratio = Ratio(value=3.0, low=low, high=5.0)
        figures = LoadFigures(
            name="all_reduce", beside="GEMM", alone=0.1, together=0.3, ratio=ratio, rounds=8
        )
        return replace(train, training=(), under_load=(figures,))

    assert "all_reduce takes 3.00 times as long beside GEMM" in Reader(page(load(1.5))).text
    assert "times as long" not in Reader(page(load(0.5))).text


@pytest.mark.parametrize(
    "name", [EVIL, '"><img src=x onerror=alert(1)>', "</script><b>", "{{ 7 }}"]
)
def test_names_stay_text(train: Run, trace: Any, name: str) -> None:
    rows = tuple(replace(one, strategy=name, model=name) for one in train.training)
    read, harmless = (Reader(page(made, trace)) for made in (replace(train, training=rows), train))
    assert read.code == harmless.code
    assert read.ids == harmless.ids
    assert name in read.text
    ticks = read.data["figure-steps"]["layout"]["yaxis"]["ticktext"]
    assert not any("<" in tick for tick in ticks), "plotly reads HTML in labels"


def test_nothing_is_fetched(train: Run, trace: Any) -> None:
    text = page(train, trace)
    plotly = max(Reader(text).code, key=len)
    left = text.replace(plotly, "").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|url\(|@import|src=", left)
    assert "default-src 'none'" in html.unescape(left)


@pytest.mark.parametrize("trace", [None, {}, {"traceEvents": []}, {"traceEvents": "x"}])
def test_without_a_step_in_the_trace_there_is_no_timeline(train: Run, trace: Any) -> None:
    assert "timeline" not in Reader(page(train, trace)).sections


def test_communication_time_has_mean_std_and_interval_in_the_page(train: Run) -> None:
    read = Reader(page(train))
    (table,) = (rows for rows in read.tables.values() if rows[0][1:4] == ["comm", "std", "95 %"])
    assert {row[0] for row in table[1:]} == {
        name_of(one) for one in train.training if one.study == "compare" and one.comm
    }
    assert {row[3] for row in table[1:]} == {"4 rounds, no interval"}
    more = tuple(
        (one.comm_spread and replace(one, comm_spread=replace(one.comm_spread, samples=12))) or one
        for one in train.training
    )
    read = Reader(page(replace(train, training=more)))
    (table,) = (rows for rows in read.tables.values() if rows[0][1:4] == ["comm", "std", "95 %"])
    assert all("…" in row[3] for row in table[1:])


def test_few_rounds_have_no_whiskers() -> None:
    few = [one(rounds=5, efficiency=Ratio(value=0.9, low=0.8, high=1.0), ranks=n) for n in (1, 2)]
    drawn = step_chart(few)
    whiskers = next(trace for trace in drawn["data"] if trace["name"] == "mean and 95 % interval")
    assert whiskers["error_x"]["arrayminus"] == [0, 0]
    assert all("no interval" in text for text in whiskers["customdata"])
    scaled = scaling_chart([replace(row, study="strong") for row in few])
    assert scaled is not None
    assert scaled["data"][0]["error_y"]["arrayminus"] == [0, 0]
