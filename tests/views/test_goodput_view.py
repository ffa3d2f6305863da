"""Training that lasted in every form: where the time went, restarts, hostile names."""

import csv
import io
import json
from dataclasses import replace

import pytest
from jsonschema import Draft202012Validator

from wirespeed.model.codec import from_json, to_json, validated
from wirespeed.model.lasting_records import Goodput, Incident
from wirespeed.model.records import Run
from wirespeed.runs.schema import load_schema
from wirespeed.views import md, table
from wirespeed.views.data import render_csv, render_json
from wirespeed.views.html.page import page
from wirespeed.views.lasting import conclusion, parts_shown
from wirespeed.views.text import Style

PLAIN = Style(width=10_000)
PARTS = {"useful": 80.0, "start": 9.0, "restore": 1.0, "checkpoint": 4.0}
PARTS |= {"lost": 2.0, "down": 3.0, "other": 1.0}


def incident(**fields):
    told = {"at": "2026-11-22T00:58:12Z", "since_s": 18.6, "id": "DIED-001", "lost_s": 14.9}
    told |= {"title": "rank 1 on a died: killed by signal 9 (SIGKILL)", "world": 1}
    told |= {"subject_kind": "rank", "subject": "rank 1"}
    return Incident(**(told | fields))


def goodput(**fields):
    told = {
        "model": "tiny", "strategy": "ddp", "ranks": 2, "asked_s": 99.0, "wall_s": 100.0,
        "parts_s": PARTS, "last_step": 400, "lost_steps": 10, "step_s": 0.2, "step_low_s": 0.19,
        "step_high_s": 0.21, "step_samples": 410, "tokens_per_step": 512, "loss": 5.5, "worlds": 2,
        "restarts": 1, "failures": 1, "checkpoints": 8, "checkpoint_s": 0.5, "folder": "/data/kept",
        "loss_at_most_s": 70.0, "incidents": (incident(),),
    }  # fmt: skip
    return Goodput(**(told | fields))


@pytest.fixture
def lasted(train: Run) -> Run:
    return replace(train, training=(), under_load=(), goodput=goodput())


def test_json_and_back(lasted):
    data = json.loads(render_json(lasted, PLAIN))
    Draft202012Validator(load_schema()).validate(data)
    validated(Run, data, source="run")
    assert data["goodput"] == to_json(lasted)["goodput"]
    assert from_json(Run, data).goodput == lasted.goodput
    assert "goodput" not in to_json(replace(lasted, goodput=None))


@pytest.mark.parametrize("render", [table.render, table.render_wide])
def test_the_table_tells_where_the_time_went(lasted, render):
    text = render(lasted, PLAIN)
    useful = next(line for line in text.splitlines() if line.split()[:1] == ["useful"])
    assert "80.0 s" in useful and "80.0 %" in useful and useful.count("█") == 24
    assert "goodput 80.0 %: 80.0 s of useful steps in 100 s; 1 restart" in text
    assert "rank 1 on a died: killed by signal 9 (SIGKILL)  DIED-001" in text
    assert "--checkpoint-dir /data/kept --resume" in text
    lines = text.splitlines()
    titles = next(n for n, line in enumerate(lines) if line.split()[:2] == ["steps", "made"])
    figures = lines[titles + 1].split()
    # Over the wall time, without pauses, tokens over the wall time.
    assert figures[:2] == ["400", "10"] and figures[-7:-4] == ["4", "5", "2,048"]


def test_causes_that_took_no_time_are_left_out_but_never_the_useful_one():
    one = goodput(parts_s=dict.fromkeys(PARTS, 0.0) | {"start": 3.0}, wall_s=3.0)
    assert parts_shown(one) == [("useful", 0.0), ("start", 3.0)]
    assert one.ratio == 0 and goodput(wall_s=0.0).ratio == 0


def test_what_failures_tell():
    none = conclusion(goodput(failures=0, restarts=0, incidents=()))
    assert "no failure was seen" in none[1] and "at most 70.0 s" in none[1]
    assert "one failure tells no time between" in conclusion(goodput())[1]
    two = goodput(failures=2, mtbf_s=50.0, mtbf_low_s=14.0, mtbf_high_s=413.0, best_interval_s=7.07)
    lines = conclusion(two)
    assert "50.0 s (95 %: 14.0 s … 6 min 53 s; n = 2)" in lines[1]
    assert "one every 7.07 s loses least (Young 1974, Daly 2006)" in lines[2]


def test_without_a_step_nothing_is_divided_by_nothing(lasted):
    empty = Goodput(model="tiny", strategy="ddp", ranks=2, asked_s=9.0, wall_s=0.0)
    text = table.render(replace(lasted, goodput=empty), PLAIN)
    assert "goodput 0.0 %" in text


def test_markdown_and_the_page(lasted):
    text = md.render(lasted, PLAIN)
    assert "goodput 80.0 %" in text and "| useful |" in text
    html = page(lasted)
    assert 'id="goodput"' in html and "How much of the time was useful" in html
    assert 'id="goodput"' not in page(replace(lasted, goodput=None))


def test_a_row_of_figures(lasted):
    (row,) = csv.DictReader(io.StringIO(render_csv(lasted, PLAIN)))
    assert (row["parts_s.useful"], row["last_step"], row["restarts"]) == ("80.0", "400", "1")


@pytest.mark.hostile("hostile values")
def test_hostile_names_are_inert(lasted):
    bad = "<script>alert(1)</script>\x1b[31m"
    one = goodput(model=bad, folder=bad, incidents=(incident(title=bad, subject=bad),))
    run = replace(lasted, goodput=one)
    assert "<script>alert" not in page(run)
    assert "\x1b" not in table.render(run, PLAIN) and "\x1b" not in md.render(run, PLAIN)
    assert "<script>alert" not in md.render(run, PLAIN)


def test_thousands_of_incidents_are_cut(lasted):
    many = tuple(incident(since_s=float(number)) for number in range(500))
    text = table.render(replace(lasted, goodput=goodput(incidents=many)), PLAIN)
    assert "the first 20; 480 more" in text and text.count("DIED-001") < 30
