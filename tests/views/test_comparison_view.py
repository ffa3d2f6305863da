"""Comparisons and trends as people and programs read them; text of runs stays inert."""

import json
import math
from dataclasses import replace

import pytest

from wirespeed.errors import UsageError
from wirespeed.model.derived_records import (
    Change,
    Comparison,
    Difference,
    Row,
    Series,
    Side,
    Trend,
    Unpaired,
    Versus,
    What,
)
from wirespeed.views import comparison, trend
from wirespeed.views.text import Style

FIELDS = (("engine", "torch"), ("dtype", "float32"), ("redop", "sum"), ("ranks", 8))


def what(size: int, op: str = "all_reduce") -> What:
    return What("collective", (("op", op), ("size_bytes", size), *FIELDS))


GIB = Row(
    what=what(2**30),
    before=5.2e-3,
    after=5.95e-3,
    busbw_before=358.9e9,
    busbw_after=313.6e9,
    ratio=358.9 / 313.6,
    low=1.126,
    high=1.161,
    p=1e-6,
    adjusted_p=2e-6,
    runs=(3, 3),
    samples=(60, 57),
    noise=0.004,
    noise_from="repeats",
    verdict="WORSE",
    runs_needed=3,
)
MIB = replace(
    GIB,
    what=what(2**20),
    before=38e-6,
    after=38.2e-6,
    busbw_before=48e9,
    busbw_after=47.8e9,
    ratio=1.004,
    low=0.981,
    high=1.026,
    p=0.6,
    adjusted_p=0.6,
    verdict="same",
)
VERSUS = Versus(
    before=Side(name="7f3c+2", runs=("7f3c", "80aa", "8e21"), started="2026-11-03T10:00:00Z"),
    after=Side(name="91ae+2", runs=("91ae", "92b0", "9c55"), started="2026-11-04T10:00:00Z"),
    differences=(Difference("versions", "nccl", "2.28.9", "2.29.1"),),
    alike=("environment", "hosts"),
    unknown=("image",),
    rows=(GIB, MIB),
)
WHOLE = Comparison(fail_on=0.05, versus=(VERSUS,))
PLAIN = Style(width=140)


def test_the_look() -> None:
    lines = comparison.render(WHOLE, "table", PLAIN).splitlines()
    assert lines[0] == (
        "changed between runs: nccl 2.28.9 → 2.29.1     "
        "(environment, hosts: same; image not recorded)"
    )
    assert lines[1] == "torch · float32 · sum · 8 ranks"
    assert [" ".join(line.split()) for line in lines[3:5]] == [
        "all_reduce 1 GiB busbw 359 GB/s 314 GB/s −12.6 % −13.9 … −11.2 % 3+3 60+57 WORSE",
        "all_reduce 1 MiB time 38.0 µs 38.2 µs +0.4 % −1.9 … +2.6 % 3+3 60+57 same",
    ]
    assert lines[-1] == "REGRESSION  1 worse, 1 same, 0 better   exit 1"


def test_every_figure_has_interval_and_count_or_none_is_claimed() -> None:
    unknown = replace(
        MIB,
        low=0.0,
        high=math.inf,
        noise=math.inf,
        noise_from="unknown",
        runs=(1, 1),
        runs_needed=0,
    )
    alone = replace(unknown, verdict="not enough runs")
    text = comparison.render(
        Comparison(fail_on=0.05, versus=(replace(VERSUS, rows=(alone,)),)), "table", PLAIN
    )
    assert "NOT ENOUGH RUNS" in text
    assert "exit 3" in text
    assert "three runs per side" in text
    assert "inf" not in text
    assert " – " in text


def test_what_lies_outside_of_all_runs_is_said_and_not_decided() -> None:
    far = replace(GIB, verdict="not enough runs", runs=(3, 1), ratio=8.0, outside=3)
    whole = Comparison(fail_on=0.05, versus=(replace(VERSUS, rows=(far,)),))
    text = "not enough runs; outside all 3 earlier runs (−87.5 %)"
    for format in ("table", "md"):
        assert text in comparison.render(whole, format, PLAIN)
    row = comparison.document(whole)["versus"][0]["rows"][0]
    assert (row["verdict"], row["outside_of_runs"]) == ("not enough runs", 3)
    assert "NOT ENOUGH RUNS" in comparison.render(whole, "table", PLAIN)
    decided = replace(whole, versus=(replace(VERSUS, rows=(replace(far, verdict="WORSE"),)),))
    assert "outside" not in comparison.render(decided, "table", PLAIN)


AMBER = "\x1b[33m"


def test_what_is_not_decided_is_amber() -> None:
    undecided = replace(MIB, verdict="not enough runs")
    text = comparison.render(
        Comparison(fail_on=0.05, versus=(replace(VERSUS, rows=(undecided,)),)),
        "table",
        Style(width=200, color=True),
    )
    assert f"{AMBER}not enough runs" in text
    assert f"{AMBER}NOT ENOUGH RUNS" in text


@pytest.mark.parametrize(
    ("rows", "strict", "word", "code"),
    [
        ((), False, "NOTHING IN COMMON", 3),
        ((MIB,), False, "NO REGRESSION", 0),
        ((replace(MIB, verdict="better"),), True, "NO REGRESSION", 0),
        ((GIB, MIB), False, "REGRESSION", 1),
        ((replace(MIB, verdict="wrong data"),), False, "WRONG DATA", 1),
        ((replace(MIB, verdict="not enough runs"),), False, "NOT ENOUGH RUNS", 3),
        ((MIB, replace(MIB, verdict="not enough runs")), False, "NO REGRESSION", 0),
        ((MIB, replace(MIB, verdict="not enough runs")), True, "NOT ALL DECIDED", 3),
    ],
)
def test_conclusions(rows: tuple[Row, ...], strict: bool, word: str, code: int) -> None:
    whole = Comparison(fail_on=0.05, versus=(replace(VERSUS, rows=rows),), strict=strict)
    assert whole.exit_code == code
    for format in ("table", "md"):
        assert word in comparison.render(whole, format, PLAIN)
    assert comparison.document(whole)["conclusion"] == word


def test_fields_that_differ_stand_in_the_rows() -> None:
    def with_fields(**fields: str | bool) -> Row:
        return replace(GIB, what=What("collective", (*what(2**30).fields[:2], *fields.items())))

    rows = (with_fields(dtype="float32"), with_fields(dtype="int32"))
    text = comparison.render(replace(WHOLE, versus=(replace(VERSUS, rows=rows),)), "table", PLAIN)
    assert "all_reduce 1 GiB float32 busbw" in text
    assert "all_reduce 1 GiB int32 busbw" in text
    # What the usual has no word for must still tell two rows apart.
    rows = (with_fields(in_place=False), with_fields(in_place=True))
    text = comparison.render(replace(WHOLE, versus=(replace(VERSUS, rows=rows),)), "table", PLAIN)
    assert "all_reduce 1 GiB busbw" in text
    assert "all_reduce 1 GiB in place busbw" in text


def test_training_stands_apart_from_collectives() -> None:
    step = What("training", (("strategy", "ddp"), ("bucket_mb", None), ("ranks", 8), ("batch", 64)))
    rows = (GIB, replace(GIB, what=step, busbw_before=0.0, busbw_after=0.0))
    both = replace(WHOLE, versus=(replace(VERSUS, rows=rows),))
    for format in ("table", "md"):
        text = comparison.render(both, format, PLAIN)
        assert "torch · float32 · sum · 8 ranks\n" in text
        assert "8 ranks · batch 64\n" in text
        assert "ddp step" in text
        assert "None" not in text


def test_json_is_whole() -> None:
    data = json.loads(comparison.render(WHOLE, "json", PLAIN))
    assert (data["schema"], data["exit_code"], data["fail_on"]) == (
        "wirespeed.comparison/1",
        1,
        0.05,
    )
    row = data["versus"][0]["rows"][0]
    assert row["measured"] == {"op": "all_reduce", "size_bytes": 2**30, **dict(FIELDS)}
    assert row["busbw_before_GBps"] == pytest.approx(358.9)
    assert (row["time_before_us"], row["verdict"]) == (pytest.approx(5200), "WORSE")
    unknown = replace(GIB, low=0.0, high=math.inf, noise=math.inf)
    text = comparison.render(
        replace(WHOLE, versus=(replace(VERSUS, rows=(unknown,)),)), "json", PLAIN
    )
    assert "Infinity" not in text


def test_unpaired_are_counted() -> None:
    left = Unpaired(before=2, after=1, differ_in=("engine",), example="all_reduce")
    text = comparison.render(
        replace(WHOLE, versus=(replace(VERSUS, unpaired=left),)), "table", PLAIN
    )
    assert "not compared: 2 only in 7f3c+2, 1 only in 91ae+2; --across engine" in text


HOSTILE = "\x1b[31m<script>alert(1)</script>|`x`\n# head"


@pytest.mark.hostile("hostile values")
@pytest.mark.parametrize("format", ["table", "md", "json"])
def test_hostile_names_are_inert(format: str) -> None:
    bad = replace(
        VERSUS,
        before=replace(VERSUS.before, name=HOSTILE),
        differences=(Difference("hosts", HOSTILE, HOSTILE, HOSTILE),),
    )
    text = comparison.render(replace(WHOLE, versus=(bad,)), format, PLAIN)
    assert "\x1b" not in text
    assert "\n# head" not in text
    if format == "md":
        assert "<script" not in text.replace("\\<script", "")


def test_ascii() -> None:
    for format in ("table", "md", "json"):
        assert comparison.render(WHOLE, format, Style(ascii=True)).isascii()


def test_unknown_formats() -> None:
    with pytest.raises(UsageError, match="unknown output format"):
        comparison.render(WHOLE, "html", PLAIN)
    with pytest.raises(UsageError, match="unknown output format"):
        trend.render(Trend(series=()), "html", PLAIN)


DAYS = 10
CHANGE = Change(
    run="r6",
    at="2026-11-07T03:00:00Z",
    last_before="r5",
    ratio=1.2,
    low=1.15,
    high=1.25,
    p=0.001,
    runs=(6, 4),
    differences=(Difference("versions", "nccl", "2.28.9", "2.29.1"),),
)
SERIES = Series(
    what=what(2**30),
    backend="nccl",
    runs=tuple(f"r{k}" for k in range(DAYS)),
    at=tuple(f"2026-11-{k + 1:02d}T03:00:00Z" for k in range(DAYS)),
    times=(5e-3,) * 6 + (6e-3,) * 4,
    busbw=(360e9,) * 6 + (300e9,) * 4,
    changes=(CHANGE,),
)


def test_trend_names_date_size_interval_and_reason() -> None:
    steady = replace(SERIES, what=what(1024), changes=())
    few = replace(steady, what=what(2048), judged=False)
    text = trend.render(Trend(series=(SERIES, steady, few), fail_on=0.05), "table", PLAIN)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "all_reduce 1 GiB busbw torch · float32 · sum · 8 ranks · nccl"
    assert lines[2] == "2026-11-01 03:00 r0 360 GB/s 6"
    assert lines[3] == (
        "2026-11-07 03:00 r6 300 GB/s −16.7 % −20.0 … −13.0 % 4 nccl 2.28.9 → 2.29.1"
    )
    assert any(line.startswith("all_reduce 1 KiB time") and "no change" in line for line in lines)
    assert any(line.startswith("all_reduce 2 KiB") and "not enough runs" in line for line in lines)
    assert lines[-1].startswith("REGRESSION 2 of 3 figures")
    assert lines[-1].endswith("exit 1")


def test_trend_as_markdown_and_json() -> None:
    whole = Trend(series=(SERIES,))
    assert "| 2026-11-07 03:00 | r6 |" in trend.render(whole, "md", PLAIN)
    data = json.loads(trend.render(whole, "json", PLAIN))
    (series,) = data["series"]
    assert len(series["points"]) == DAYS
    assert series["points"][0] == {
        "run": "r0",
        "at": "2026-11-01T03:00:00Z",
        "time_us": pytest.approx(5000),
        "busbw_GBps": pytest.approx(360),
    }
    assert series["changes"][0]["run"] == "r6"
