"""Compared settings in every form: figures, verdicts, the winner, hostile values."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from wirespeed.model.bench_records import Setting, SettingFigures
from wirespeed.model.codec import to_json, validated
from wirespeed.model.records import Run
from wirespeed.model.training_records import Ratio
from wirespeed.runs.schema import load_schema
from wirespeed.views import data, md, table
from wirespeed.views.combinations import winner_lines
from wirespeed.views.data import render_csv, render_json
from wirespeed.views.text import Style

PLAIN = Style(width=10_000)


def figures(ms: float, ratio: Ratio | None = None, verdict: str = "") -> SettingFigures:
    return SettingFigures(
        case="all_reduce float32 1 MiB",
        median=ms / 1e3,
        low=ms / 1.1e3,
        high=ms / 0.9e3,
        round_times=(ms / 1e3,) * 9,
        ratio=ratio,
        verdict=verdict,
    )


def setting(name: str, ms: float, ratio: float, verdict: str, **fields: Any) -> Setting:
    found = Ratio(value=ratio, low=ratio - 0.02, high=ratio + 0.02)
    variable, _, value = name.partition("=")
    return Setting(
        name=name,
        values={variable: value},
        verdict=verdict,
        ratio=found,
        rounds=tuple(range(1, 10)),
        figures=(figures(ms, found, verdict),),
        **fields,
    )


DEFAULT = Setting(
    name="default", unset=("A",), verdict="default", rounds=(1, 2), figures=(figures(2.5),)
)
WINNER = setting("A=quick", 2.0, 0.8, "faster", winner=True, unset=("B",))
SLOW = setting("A=slow", 5.0, 2.0, "slower")
BAD = Setting(name="A=bad", verdict="failed", reason="rank 1 died " * 9)
OPEN = setting("A=open", 2.5, 1.0, "not enough rounds")


@pytest.fixture(name="compared")
def _compared(bench: Run) -> Run:
    measured = tuple(replace(m, setting="A=quick") for m in bench.measurements)
    every = (DEFAULT, WINNER, SLOW, BAD, OPEN)
    return replace(bench, settings=every, measurements=measured)


def test_the_table_has_times_with_intervals_and_a_verdict_each(compared: Run) -> None:
    text = table.render(compared, PLAIN)
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("  A=")}
    assert "2.00 ms  1.82 ms … 2.22 ms" in rows["A=quick"]
    assert "0.80× (0.78 … 0.82)  faster" in rows["A=quick"]
    assert "2.00× (1.98 … 2.02)  slower" in rows["A=slow"]
    assert "failed" in rows["A=bad"]
    assert rows["A=bad"].endswith("…")
    assert "not enough rounds: the figures decide neither way; about --rounds 10 may do" in text
    assert "busbw GB/s" not in text, "single sizes stand in the wide view"


def test_few_rounds_have_no_interval(compared: Run) -> None:
    few = tuple(replace(one, round_times=one.round_times[:3]) for one in SLOW.figures)
    run = replace(compared, settings=(DEFAULT, replace(SLOW, rounds=(1, 2, 3), figures=few)))
    (row,) = [line for line in table.render(run, PLAIN).splitlines() if "A=slow" in line]
    assert "5.00 ms  3 rounds, no interval  " in row
    assert "2.00×  slower" in row


def test_the_winner_is_told_as_lines_to_set(compared: Run) -> None:
    text = table.render(compared, PLAIN)
    assert "winner: 1.25× (1.22 … 1.28) faster than the default over 9 rounds; to set it:" in text
    assert "\n  export A=quick\n  unset B\n" in text
    other = replace(compared, settings=(DEFAULT, SLOW, OPEN))
    (line,) = winner_lines(other)
    assert line == "no winner: keep the default; not decided: A=open"


def test_a_damaged_ratio_of_zero_is_told(compared: Run) -> None:
    zero = replace(WINNER, ratio=Ratio(value=0.0, low=0.0, high=0.0))
    assert "winner: " in winner_lines(replace(compared, settings=(DEFAULT, zero)))[0]


def test_several_cases_have_a_table_each(compared: Run) -> None:
    more = replace(figures(9.0, Ratio(value=1.5, low=1.4, high=1.6), "slower"), case="broadcast")
    both = replace(WINNER, figures=(*WINNER.figures, more), verdict="mixed", winner=False)
    run = replace(compared, settings=(DEFAULT, both))
    text = table.render(run, PLAIN)
    assert "settings · 2 cases · 9 rounds" in text
    assert "\nall_reduce float32 1 MiB\n" in text
    assert "1.50× (1.40 … 1.60)  slower" in text
    assert "faster in one case and slower in another: A=quick" in text


def test_every_form_tells_the_setting(compared: Run) -> None:
    text = md.render(compared, PLAIN)
    assert "| A=quick | 2.00 ms | 1.82 ms … 2.22 ms | 9 | 0.80× (0.78 … 0.82)  faster |" in text
    assert "export A=quick" in text
    assert "A=quick" in table.render_wide(compared, PLAIN)
    assert {row["setting"] for row in csv.DictReader(io.StringIO(render_csv(compared, PLAIN)))} == {
        "A=quick"
    }
    data = json.loads(render_json(compared, PLAIN))
    assert data["settings"][1]["figures"][0]["median_us"] == pytest.approx(2000)


def test_it_is_stored_as_the_schema_says_and_read_back(compared: Run) -> None:
    data = json.loads(json.dumps(to_json(compared)))
    Draft202012Validator(load_schema()).validate(data)
    assert to_json(validated(Run, data, source="run")) == data, "every key is described"
    del data["settings"][1]["verdict"]
    with pytest.raises(Exception, match="verdict"):
        validated(Run, data, source="run")


def test_runs_without_settings_have_none_of_their_keys(bench: Run) -> None:
    text = json.dumps(to_json(bench))
    assert '"setting"' not in text
    assert '"settings"' not in text


@pytest.mark.hostile("hostile values")
def test_hostile_values_are_inert(compared: Run) -> None:
    evil = "\x1b[31m<script>|=cmd()`x`"
    hostile = replace(WINNER, name=f"A={evil}", values={"A": evil}, reason=evil)
    run = replace(compared, settings=(DEFAULT, hostile))
    for render in (table.render, table.render_wide, md.render):
        text = render(run, PLAIN)
        assert "\x1b" not in text
    outside = md.render(run, PLAIN).split("```")
    assert all("<script>" not in part for part in outside[::2])
    assert "export A='" in table.render(run, PLAIN)


@pytest.mark.parametrize(
    ("ratio", "rounds", "told"),
    [
        (Ratio(value=1.0, low=0.9, high=1.1), 9, "about --rounds 36 may do"),
        (Ratio(value=1.1, low=0.9, high=1.3), 9, "about --rounds 36 may do"),
        (Ratio(value=1.0, low=0.5, high=2.0), 9, "a quieter machine"),
        (Ratio(value=1.0, low=0.5, high=2.0), 2, "about --rounds 7 may do"),
    ],
)
def test_how_many_rounds_may_decide(bench: Run, ratio: Ratio, rounds: int, told: str) -> None:
    one = replace(OPEN, ratio=ratio, rounds=tuple(range(1, rounds + 1)), needed=7)
    text = table.render(replace(bench, settings=(DEFAULT, one)), PLAIN)
    assert told in text


def test_the_table_of_nccl_tests_has_the_default_only(compared: Run) -> None:
    text = data.render_nccl_tests(compared, PLAIN)
    assert text.startswith("# no measurements")
    plain = replace(compared.measurements[0], setting="")
    run = replace(compared, measurements=(plain, *compared.measurements))
    rows = [
        line for line in data.render_nccl_tests(run, PLAIN).splitlines() if line.startswith("   ")
    ]
    assert len(rows) == 1
