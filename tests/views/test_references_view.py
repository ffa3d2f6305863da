"""What figures were graded against: kept with its unit, drawn as data, shown in every form."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from wirespeed.model.bench_records import ReferenceFigure
from wirespeed.model.codec import from_json, to_json, validated
from wirespeed.model.records import Run
from wirespeed.runs.schema import load_schema
from wirespeed.views import Style, data, md, prometheus
from wirespeed.views.html.collectives import Line, busbw_chart, time_chart
from wirespeed.views.html.page import page

PLAIN = Style(width=10_000)


def against(run: Run, quantity: str, **changes: Any) -> ReferenceFigure:
    """Of the first (time) or the last (busbw) all_reduce of the run."""
    timed = [m for m in run.measurements if m.op == "all_reduce"]
    m = timed[0] if quantity == "time" else timed[-1]
    how = ("op", "engine", "dtype", "redop", "in_place", "size_bytes", "ranks")
    fields: dict[str, Any] = {name: getattr(m, name) for name in how}
    fields |= {"kind": "fleet", "source": "median of 9 READY runs"}
    figures = {"value": 20.5e-6 if quantity == "time" else 45.4e9} | changes
    named = {"value": quantity, "low": f"{quantity}_low", "high": f"{quantity}_high"}
    return ReferenceFigure(**(fields | {named.get(key, key): v for key, v in figures.items()}))


@pytest.fixture
def graded(check: Run) -> Run:
    busbw = against(check, "busbw", low=40e9, high=50e9)
    model = against(check, "busbw", kind="roofline", source="<b>ring</b>", value=50e9)
    first, second, *rest = check.findings
    findings = (
        replace(first, references=(busbw, model)),
        replace(second, references=(against(check, "time"),)),
        *rest,
    )
    return replace(check, findings=findings)


def test_json_and_back(graded: Run) -> None:
    data = json.loads(json.dumps(to_json(graded)))
    Draft202012Validator(load_schema()).validate(data)
    assert to_json(validated(Run, data, source="run")) == data
    busbw = data["findings"][0]["references"][0]
    assert (busbw["busbw_GBps"], busbw["busbw_low_GBps"]) == pytest.approx((45.4, 40))
    assert data["findings"][1]["references"][0]["time_us"] == pytest.approx(20.5)
    again = from_json(Run, data)
    assert to_json(again) == data
    assert again.findings[0].references[0].value == pytest.approx(45.4e9)


def test_a_run_without_references_loads_and_writes_none(check: Run) -> None:
    data = to_json(check)
    assert all("references" not in one for one in data["findings"])
    assert all(one.references == () for one in from_json(Run, data).findings)


def test_a_figure_of_a_later_version_is_passed_over(graded: Run) -> None:
    data = to_json(graded)
    told = data["findings"][0]["references"][0]
    told["algbw_GBps"] = told.pop("busbw_GBps")
    assert len(from_json(Run, data).findings[0].references) == 1


def test_lines_come_from_the_figures_and_not_from_words(graded: Run) -> None:
    rows = tuple(m for m in graded.measurements if m.op == "all_reduce")
    told = [one for finding in graded.findings for one in finding.references]
    drawn = busbw_chart([Line("out of place", rows)], told)
    assert drawn is not None
    curve, reference, model = drawn["data"]
    assert curve["y"] == pytest.approx([m.busbw / 1e9 for m in rows], rel=1e-5)
    assert reference["y"] == pytest.approx([45.4] * 3)
    assert reference["x"][1] == rows[-1].size_bytes and reference["marker"]["size"][1] > 0
    assert reference["error_y"]["array"] == pytest.approx([0, 4.6, 0])
    assert reference["name"].startswith("earlier runs at ")
    assert model["line"]["dash"] != reference["line"]["dash"]
    assert "<b>" not in json.dumps(model)
    timed = time_chart([Line("out of place", rows)], told)
    assert timed is not None
    assert timed["data"][1]["y"] == pytest.approx([20.5] * 3)
    only_words = [replace(one, references=()) for one in graded.findings]
    words = page(replace(graded, findings=tuple(only_words)))
    assert "graded against" not in words and "graded against" in page(graded)


def test_the_table_tells_the_share(graded: Run) -> None:
    m = [m for m in graded.measurements if m.op == "all_reduce"][-1]
    text = md.render(graded, PLAIN)
    (row,) = [line for line in text.splitlines() if "median of 9" in line and "45.4 GB/s" in line]
    assert f"| {m.busbw / 45.4e9:.2f} |" in row and "40.0 GB/s … 50.0 GB/s" in row
    gone = md.render(replace(graded, measurements=()), PLAIN)
    assert "45.4 GB/s | – |" in gone, "what was not measured has no share"


def test_csv_and_prometheus_tell_the_figure(graded: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(data.render_csv(graded, PLAIN))))
    (told,) = [row for row in rows if row["graded_roofline.busbw_GBps"]]
    assert float(told["graded_fleet.busbw_GBps"]) == pytest.approx(45.4)
    assert told["op"] == "all_reduce" and told["graded_fleet.source"] == "median of 9 READY runs"
    text = prometheus.render(graded, PLAIN)
    lines = [one for one in text.splitlines() if one.startswith("wirespeed_collective_reference")]
    assert [float(one.rpartition(" ")[2]) for one in lines] == pytest.approx(
        [45.4e9, 50e9, 20.5e-6]
    )
    assert [one.partition('kind="')[2].partition('"')[0] for one in lines] == [
        "fleet",
        "roofline",
        "fleet",
    ]


def test_a_roofline_far_above_is_told_and_not_drawn(graded: Run) -> None:
    rows = tuple(m for m in graded.measurements if m.op == "all_reduce")
    far = against(graded, "busbw", kind="roofline", value=99 * max(m.busbw for m in rows))
    drawn = busbw_chart([Line("x", rows)], [far, replace(far, kind="baseline")])
    assert drawn is not None and len(drawn["data"]) == 2, "a baseline is drawn wherever it lies"
    first, *rest = graded.findings
    text = page(replace(graded, findings=(replace(first, references=(far,)), *rest)))
    assert "Far above: a roofline of " in text
