"""Below six samples no view claims an interval, and the stored figures stay what they are."""

import csv
import io
import json
from dataclasses import replace

import pytest

import usual
from html_reader import Reader
from wirespeed.model.bench_records import MedianTime
from wirespeed.model.records import Measurement, Run
from wirespeed.model.training_records import LoadFigures, Ratio, Spread, Training
from wirespeed.views import md, table
from wirespeed.views.data import render_csv, render_json, render_nccl_tests
from wirespeed.views.html.collectives import Line, time_chart
from wirespeed.views.html.page import page
from wirespeed.views.prometheus import render as render_prometheus
from wirespeed.views.sections import interval, precision
from wirespeed.views.text import Style
from wirespeed.views.training import exposed_interval, ratio_cell, reach, tables

PLAIN = Style(width=10_000)


def bench(samples: int) -> Run:
    """A bench of two sizes, of which the larger has so many samples."""
    rows = (usual.measurement(half=0.1), usual.measurement(1e-3, 1 << 20, 0.1, iterations=samples))
    return usual.run(command="bench", measurements=rows)


@pytest.mark.parametrize(("samples", "has_one"), [(2, False), (5, False), (6, True), (20, True)])
def test_a_table_shows_an_interval_from_six_samples_on(samples: int, has_one: bool) -> None:
    for text in (table.render(bench(samples), PLAIN), md.render(bench(samples), PLAIN)):
        (row,) = [line for line in text.splitlines() if "1 MiB" in line and "1.00 ms" in line]
        assert ("±10.0 %" in row) is has_one
        assert (f"n={samples}, no interval" in row) is not has_one


def test_the_page_draws_no_whisker_of_a_range() -> None:
    few, many = (time_chart([Line("a", bench(n).measurements)]) for n in (2, 20))
    assert few is not None and many is not None
    assert [few["data"][0]["error_y"]["array"][i] > 0 for i in (0, 1)] == [True, False]
    assert [many["data"][0]["error_y"]["array"][i] > 0 for i in (0, 1)] == [True, True]
    assert "(n=2, no interval)" in few["data"][0]["customdata"][1]
    assert "n=2, no interval" in Reader(page(bench(2))).text


def test_metrics_of_a_range_are_left_out() -> None:
    few, many = (render_prometheus(bench(n), PLAIN) for n in (2, 20))
    for name in ("collective_time_low", "collective_time_high", "collective_busbw_low"):
        assert many.count(f"\nwirespeed_{name}") == 2
        assert few.count(f"\nwirespeed_{name}") == 1
    assert few.count("\nwirespeed_collective_time_seconds") == 2, "the median stays"


def test_stored_keys_stay_and_say_how_many_samples() -> None:
    row = json.loads(render_json(bench(2), PLAIN))["measurements"][1]
    assert row["iterations"] == 2
    assert (row["time_us"]["low"], row["time_us"]["high"]) == pytest.approx((900, 1100))
    *_, cells = csv.DictReader(io.StringIO(render_csv(bench(2), PLAIN)))
    assert cells["iterations"] == "2"
    remark = "# no interval where a size has fewer than 6 iterations"
    assert [remark in render_nccl_tests(bench(n), PLAIN) for n in (2, 6)] == [True, False]


@pytest.mark.parametrize(
    ("changes", "samples"),
    [
        ({"iterations": 7}, 7),
        ({"iterations": 24, "timing": "batch", "stopped_by": "count"}, 8),
        ({"iterations": 24, "timing": "batch", "stopped_by": "time"}, 3),
        ({"iterations": 48, "timing": "graph", "stopped_by": "precision"}, 6),
    ],
)
def test_a_batch_of_calls_is_one_sample(changes: dict[str, object], samples: int) -> None:
    one: Measurement = usual.measurement(half=0.1, **changes)
    assert one.samples == samples
    assert ("no interval" in precision(one)) is (samples < 6)


def test_an_average_of_another_tool_has_no_number_of_samples() -> None:
    time = MedianTime(median=1.0, low=1.0, high=1.0, samples=20)
    assert interval(time, 0, "?") == interval(time, 20, "?") == "?"


def training(rounds: int) -> Training:
    """A strategy whose exposed communication was alike in all rounds, of steps that were not."""
    return Training(
        strategy="naive", model="tiny", ranks=2, nodes=1, batch=8, rounds=rounds,
        step=Spread(mean=0.3, std=0.01, low=0.262, high=0.338, samples=3 * rounds),
        exposed=Ratio(value=0.144, low=0.144, high=0.1441), samples_per_s=80.0,
        ratio=Ratio(value=1.2, low=1.1, high=1.3), verdict="slower",
    )  # fmt: skip


def test_few_rounds_of_training_have_no_interval() -> None:
    few, many = training(2), training(9)
    assert [reach(one.step, one.rounds) for one in (few, many)] == [
        "2 rounds, no interval",
        "±12.7 %",
    ]
    assert exposed_interval(few) == "2 rounds, no interval"
    assert exposed_interval(many) == "144 ms … 144 ms"
    assert ratio_cell(few) == "1.20×  slower"
    text = "\n".join(
        line for _, grid in tables(usual.run(training=(few,))) for line in grid.lines(PLAIN)
    )
    assert text.count("2 rounds, no interval") == 2
    assert "…" not in text
    metrics = render_prometheus(usual.run(training=(few,)), PLAIN)
    assert "training_step_low" not in metrics
    assert "training_step_seconds" in metrics


def test_few_rounds_beside_each_other_are_called_slower_by_nobody() -> None:
    load = LoadFigures(
        name="all_reduce 4 MiB", beside="products", alone=0.01, together=0.02,
        ratio=Ratio(value=2.0, low=1.9, high=2.1), rounds=9,
    )  # fmt: skip
    sentence = "2.00 times as long beside products"
    for rounds, said in ((9, True), (5, False)):
        run = usual.run(under_load=(replace(load, rounds=rounds),))
        assert (sentence in Reader(page(run)).text) is said
