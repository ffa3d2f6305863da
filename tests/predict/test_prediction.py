"""The whole answer, and how it is shown."""

import json
import math
from dataclasses import replace

import pytest

from wirespeed.errors import UsageError
from wirespeed.predict.answer import Question, predict
from wirespeed.predict.forecast import parse_improvement
from wirespeed.views.prediction import FORMATS, render
from wirespeed.views.text import Style


@pytest.fixture
def runs(made):
    rows = (made.trained("none", 0.025), made.trained("ddp", 0.036, bucket=1.0))
    rows = (*rows, made.trained("flat", 0.035))
    return [*(made.bench(n, noise=0.01) for n in (2, 3, 4)), made.training_run(*rows)]


@pytest.fixture
def found(runs):
    asked = Question(nodes=(4, 8, 16), improvements=(parse_improvement("nic=2x"),))
    return predict(runs, asked)


def test_every_part_is_there(found):
    assert found.refusals == ()
    assert [(one.world.nodes, one.size_bytes) for one in found.collectives] == [
        (nodes, 4**k) for nodes in (4, 8, 16) for k in (5, 9, 12)
    ]
    assert {one.strategy for one in found.steps} == {"ddp", "flat"}
    assert [one.world.nodes for one in found.best] == [4, 8, 16]
    assert [one.bound for one in found.stretches] == [0.8, 0.5]
    assert {one.what.split()[0] for one in found.gains} == {"all_reduce", "step,"}


def test_figures_are_in_order_and_efficiency_falls(found):
    for one in found.collectives:
        assert one.time.low <= one.time.value <= one.time.high
        assert one.busbw.low <= one.busbw.value <= one.busbw.high
        assert one.points == 24
    flat = [one.efficiency.value for one in found.steps if one.strategy == "flat"]
    assert flat == sorted(flat, reverse=True)
    assert all(0 < one <= 1 for one in flat)


def test_where_it_stops_scaling(found):
    upper, lower = found.stretches
    assert upper.looked == 16
    assert upper.nodes is not None
    assert upper.low <= upper.nodes
    assert lower.nodes is None or lower.nodes >= upper.nodes


def test_what_was_measured_stands_beside_what_is_told(found):
    assert all((one.measured is None) == (one.world.nodes != 4) for one in found.collectives)
    assert {one.beyond for one in found.collectives} == {"", "2 × the ranks", "4 × the ranks"}


def test_worlds_beyond_reach_are_refused_and_the_others_told(runs):
    found = predict(runs, Question(nodes=(8, 1024)))
    assert {one.world.nodes for one in found.collectives} == {8}
    assert any("1024 nodes" in one.what for one in found.refusals)


def test_unknown_strategies_and_operations_are_refused(runs):
    found = predict(runs, Question(nodes=(8,), ops=("broadcast",), strategies=("fsdp2",)))
    assert {one.what for one in found.refusals} >= {"broadcast"}
    assert found.collectives == ()


@pytest.mark.slow
def test_an_interval_that_says_nothing_is_refused(made):
    runs = [made.bench(n, noise=0.35, seed=2) for n in (2, 3, 4)]
    found = predict(runs, Question(nodes=(128,)))
    assert all(one.time.high <= 10 * one.time.low for one in found.collectives)
    assert found.refusals


def test_no_run_gives_a_refusal_and_no_crash():
    found = predict([], Question(nodes=(4,)))
    assert found.collectives == ()
    assert found.refusals[0].helps.startswith("wirespeed bench all_reduce")


def test_json_has_units_and_no_nan(found):
    data = json.loads(render(found, "json", Style()), parse_constant=pytest.fail)
    assert data["schema"] == "wirespeed.prediction/1"
    first, told = data["collectives"][0], found.collectives[0]
    assert first["time_us"]["value"] == pytest.approx(told.time.value * 1e6)
    assert first["busbw_GBps"]["high"] == pytest.approx(told.busbw.high / 1e9)
    assert set(data["gains"][0]) >= {"before_us", "after_us", "ratio", "assumes"}


@pytest.mark.slow
def test_the_table_names_every_part(found):
    text = render(found, "table", Style())
    for word in ("Fitted", "Collectives", "Training steps", "Improvements", "best on 16 × 1"):
        assert word in text
    assert "efficiency below 80%" in text
    assert render(found, "table", Style(ascii=True)).isascii()


@pytest.mark.slow
def test_markdown_tables_are_whole(found):
    text = render(found, "md", Style())
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) > 20
    assert len({row.count("|") for row in rows[:3]}) == 1


@pytest.mark.parametrize("format", FORMATS)
def test_hostile_text_is_inert(made, format):
    runs = [made.bench(n) for n in (2, 3, 4)]
    evil = '\x1b[31m<script>alert(1)</script>|`=cmd"\u202e'
    bad = [replace(m, dtype=evil) for m in runs[0].measurements]
    runs[0] = replace(runs[0], id=evil, measurements=tuple(bad))
    text = render(predict(runs, Question(nodes=(3, 4, 8))), format, Style())
    assert "\x1b" not in text
    if format != "json":
        assert "\u202e" not in text
    if format == "md":
        assert "<script>" not in text


def test_an_unknown_format_is_the_users_mistake(found):
    with pytest.raises(UsageError):
        render(found, "yaml", Style())


@pytest.mark.slow
def test_a_thousand_odd_figures_do_not_stop_it(made):
    run = made.bench(2)
    odd = [
        replace(run.measurements[0], size_bytes=size, time=made.measurement(4, 2, seconds).time)
        for size in (-1, 0, 1, 2**70)
        for seconds in (math.nan, -1.0, 0.0, 1e-300, 1e300)
    ]
    runs = [replace(run, measurements=(*run.measurements, *odd)), made.bench(3), made.bench(4)]
    assert predict(runs, Question(nodes=(8,))).notes
