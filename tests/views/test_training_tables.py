"""The figures of communication time in every form, and runs of before there was a spread."""

import csv
import io
import json
from dataclasses import replace

from wirespeed.model.codec import from_json, to_json
from wirespeed.model.records import Run
from wirespeed.model.training_records import Ratio, Spread
from wirespeed.views import md, table
from wirespeed.views.data import render_csv, render_json
from wirespeed.views.text import Style
from wirespeed.views.training import training_notes

PLAIN = Style(width=10_000)
KNOWN = Spread(mean=0.0123, std=0.0045, low=0.0101, high=0.0145, samples=17)


def known(train: Run) -> Run:
    """Only the figures of one strategy, with a spread that we know."""
    one = next(one for one in train.training if one.strategy == "naive")
    return replace(train, training=(replace(one, comm=KNOWN.mean, comm_spread=KNOWN),))


def old(train: Run) -> Run:
    """As `run.json` was before: no word of a spread."""
    data = to_json(train)
    for row in data["training"]:
        del row["comm_spread_ms"]
    return from_json(Run, data)


def test_the_table_shows_mean_std_and_interval(train: Run) -> None:
    text = table.render(known(train), PLAIN)
    assert "12.3 ms  ±17.9 %" in text
    (line,) = [line for line in text.splitlines() if "10.1 ms … 14.5 ms" in line]
    assert line.split()[:6] == ["naive", "12.3", "ms", "4.50", "ms", "10.1"]
    assert line.split()[10] == "17"


def test_markdown_has_mean_and_std_side_by_side(train: Run) -> None:
    text = md.render(known(train), PLAIN)
    assert "| strategy | comm | std | 95 % | n |" in text
    assert "| naive | 12.3 ms | 4.50 ms | 10.1 ms … 14.5 ms | 17 |" in text


def test_csv_and_json_have_every_figure(train: Run) -> None:
    (row,) = csv.DictReader(io.StringIO(render_csv(known(train), PLAIN)))
    (data,) = json.loads(render_json(known(train), PLAIN))["training"]
    for key, value in {"mean": 12.3, "std": 4.5, "low": 10.1, "high": 14.5, "samples": 17}.items():
        assert abs(float(row[f"comm_spread_ms.{key}"]) - value) < 1e-9
        assert abs(data["comm_spread_ms"][key] - value) < 1e-9


def test_a_run_of_before_loads_and_shows_what_it_has(train: Run) -> None:
    run = old(train)
    assert all(one.comm_spread is None for one in run.training)
    text = table.render(run, PLAIN)
    assert "profiled steps" not in text
    assert "comm  of step" in text, "a column without a figure is not shown"
    assert [one.comm for one in run.training] == [one.comm for one in train.training]


def test_a_record_comes_back_as_it_was(train: Run) -> None:
    (there,) = known(train).training
    (back,) = from_json(Run, json.loads(json.dumps(to_json(known(train))))).training
    assert back.comm_spread is not None
    assert there.comm_spread is not None
    assert abs(back.comm_spread.low - there.comm_spread.low) < 1e-12
    assert back.comm_spread.samples == 17


def test_what_is_exposed_beyond_communication_is_explained(train: Run) -> None:
    one = known(train).training[0]

    def told(value: float, low: float, high: float) -> str:
        row = replace(one, exposed=Ratio(value=value, low=low, high=high))
        return "\n".join(training_notes(replace(train, training=(row,)), PLAIN))

    assert "naive" not in told(0.012, 0.011, 0.013), "the order holds"
    noise = told(0.0133, 0.011, 0.016)
    assert "1.00 ms above comm (−3.50 ms … 5.90 ms), less than their intervals tell apart" in noise
    assert "copies gradients" in told(0.0233, 0.021, 0.026)
    assert "naive" not in told(0.002, -0.001, 0.003), "hidden communication needs no word"
