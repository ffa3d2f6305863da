"""A watched job in text: what was seen, where a step goes, who was last, what changed."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from wirespeed.model.codec import from_json, to_json
from wirespeed.model.records import Run
from wirespeed.model.watch_records import StepChange, Traffic, Watched, WatchWindow
from wirespeed.runs.schema import load_schema
from wirespeed.views import Style, md, prometheus, render, table
from wirespeed.views.watched import conclusion, lateness, ranks_of, watched_lines

PLAIN = Style(width=200)
EVIL = "<script>alert(1)</script>\x1b[31m|*x*"


def lines_of(run: Run, format: str = "table", style: Style = PLAIN) -> list[str]:
    return render(run, format, style).splitlines()


def told(run: Run, **more: Any) -> Run:
    assert run.watched is not None
    return replace(run, watched=replace(run.watched, **more))


def test_the_record_goes_to_json_and_back(watched: Run, crowd: Run) -> None:
    for run in (watched, crowd):
        data = json.loads(render(run, "json", PLAIN))
        Draft202012Validator(load_schema()).validate(data)
        assert to_json(from_json(Run, data))["watched"] == data["watched"]
    assert "watched" not in to_json(replace(watched, watched=None))


def test_the_sentences(watched: Run) -> None:
    seen, step, last, most = conclusion(watched.watched)  # type: ignore[arg-type]
    assert seen == "watched 200 steps of 4 ranks on 2 hosts; a step ends with the optimizer's step"
    assert step.startswith(
        "a step takes 59.1 ms (95 %: 57.9 ms … 60.9 ms); ranks wait in communication"
    )
    assert "communication for 58.0 % of it (95 %: 55.0 % … 60.0 %)" in step
    assert last == "last most often: rank 2 on node-1, in 74.0 % of the steps"
    first, second = most.split("; ")
    assert first.startswith("would bring most: rank 2 as quick as the others, 49.0 % of a step")
    assert first.endswith(" (95 %: 47.0 % … 51.0 %) WATCH-001")
    assert second.startswith("all communication hidden behind work, 10.1 % of a step")


def test_parts_are_bars_and_those_that_took_no_time_are_left_out(watched: Run) -> None:
    lines = lines_of(watched)
    (blocked,) = (line for line in lines if line.split()[:1] == ["blocked"])
    assert "35.1 ms" in blocked and "58.8 %" in blocked and blocked.count("█") == 12
    assert not any(line.split()[:1] == ["gc"] for line in lines)
    (change,) = (line for line in lines if "48 … 51" in line)
    assert change.split()[0] == "50" and "rank 2" in change and "1.94×" in change


def test_it_stands_after_the_findings_and_before_the_verdict(watched: Run) -> None:
    text = render(watched, "table", PLAIN)
    assert text.index("WATCH-001") < text.index("watched 200 steps") < text.index("\nNOT READY")


def test_wide_has_every_rank_and_every_window(watched: Run) -> None:
    lines = lines_of(watched, "wide")
    at = next(n for n, line in enumerate(lines) if line.split()[:2] == ["rank", "host"])
    late = lines[at + 3].split()
    assert late[:2] == ["2", "node-1"] and late[4].startswith("+21.")
    assert sum("+29." in line or "+28." in line for line in lines) == 15, "15 of 20 windows"
    assert not any(line.split()[:2] == ["rank", "host"] for line in lines_of(watched))


def test_a_loader_that_takes_no_time_is_0_s(watched: Run) -> None:
    assert watched.watched is not None
    windows = tuple(replace(one, data=(0.0,) * 4) for one in watched.watched.windows)
    lines = lines_of(told(watched, windows=windows), "wide")
    at = next(n for n, line in enumerate(lines) if line.split()[:2] == ["rank", "host"])
    assert lines[at + 1].endswith(" 0 s")


def test_lateness_is_against_the_median_of_the_ranks_that_are_known() -> None:
    window = WatchWindow(first_step=0, steps=1, since_s=0, step=0.05, own=(0.02, -1.0, 0.05, 0.02))
    assert lateness(window) == [0.0, None, pytest.approx(0.03), 0.0]
    none = replace(window, own=(-1.0, -1.0))
    assert lateness(none) == [None, None]


def test_means_weigh_windows_by_their_steps() -> None:
    short = WatchWindow(first_step=0, steps=1, since_s=0, step=0.05, own=(0.04, 0.02), data=(-1.0,))
    long = replace(short, first_step=1, steps=3, own=(0.08, 0.02))
    seen = Watched(ranks=2, world_size=2, hosts=("a", "b"), steps=4, windows=(short, long))
    first, second = ranks_of(seen)
    assert first.own == pytest.approx(0.07) and second.late == pytest.approx(-0.025)
    assert first.data is None and second.blocked is None and first.name == "rank 0 on a"


def test_where_nothing_is_known_it_says_so(unknown: Run) -> None:
    text = "\n".join(watched_lines(unknown, PLAIN))
    assert text.startswith("watched 0 steps of 2 of 4 ranks on 2 hosts")
    assert "not seen: steps: the job called no optimizer" in text
    assert "takes" not in text and "last" not in text
    assert watched_lines(replace(unknown, watched=None), PLAIN) == []
    for format in ("wide", "md", "csv", "jsonl"):
        assert "nan" not in render(unknown, format, PLAIN).lower()


def test_one_window_without_ranks_and_changes_from_nothing(unknown: Run) -> None:
    window = WatchWindow(first_step=7, steps=1, since_s=0.0, step=0.0)
    change = StepChange(step=7, low_step=7, high_step=7, before=0.0, after=0.1)
    run = told(unknown, steps=1, windows=(window,), changes=(change,), parts_ms={"odd": 3.0})
    lines = lines_of(run, "wide")
    assert any(line.split()[:3] == ["7", "0", "s"] for line in lines)
    assert any(line.split()[:1] == ["odd"] for line in lines), "a part that this version lacks"
    assert any("job" in line and "–" in line for line in lines)


def test_many_collectives_are_cut_but_not_in_wide(watched: Run) -> None:
    many = tuple(
        Traffic(group=f"dp {n}", ranks=2, op="all_gather", calls=1, bytes_per_step=1e6, exposed=1e-6 * n)
        for n in range(50)
    )  # fmt: skip
    run = told(watched, traffic=many)
    text = render(run, "table", PLAIN)
    assert "the first 20, 30 more in the JSON" in text
    assert "dp 49" in text and "dp 29" not in text, "what costs most stays"
    assert "dp 0 " in render(run, "wide", PLAIN)


def test_csv_has_a_row_of_the_job_and_of_each_part(watched: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(render(watched, "csv", PLAIN))))
    assert [row["row"] for row in rows] == ["job", *["window"] * 20, "change", *["traffic"] * 2]
    assert rows[0]["parts_ms.blocked"] == "35.1" and rows[1]["own_ms"].count(" ") == 3


@pytest.mark.hostile("hostile values")
def test_hostile_names_are_inert(watched: Run) -> None:
    traffic = (Traffic(group=EVIL, ranks=0, op=EVIL, calls=1, bytes_per_step=0.0),)
    change = StepChange(step=1, low_step=1, high_step=2, subject=EVIL, before=1.0, after=2.0)
    run = told(
        watched, hosts=(EVIL,) * 4, traffic=traffic, changes=(change,), unseen=(EVIL,),
        boundary=EVIL, parts_ms={EVIL: 5.0},
    )  # fmt: skip
    for text in (table.render(run, PLAIN), table.render_wide(run, PLAIN), md.render(run, PLAIN)):
        assert "\x1b" not in text
    assert "<script>" not in md.render(run, PLAIN)


def samples(run: Run) -> dict[str, list[str]]:
    """By metric its lines, without the name."""
    found: dict[str, list[str]] = {}
    for line in prometheus.render(run, PLAIN).splitlines():
        if line.startswith("wirespeed_watched_"):
            name, _, rest = line.removeprefix("wirespeed_watched_").partition("{")
            found.setdefault(name, []).append(rest)
    return found


def test_gauges(watched: Run) -> None:
    found = samples(watched)
    assert found["step_seconds"] == ['command="launch",ranks="4"} 0.059107']
    assert found["exposed_ratio"][0].endswith(" 0.58") and found["changes"][0].endswith(" 1")
    assert found["part_seconds"][0] == 'command="launch",ranks="4",part="data"} 0.0022'
    assert len(found["part_seconds"]) == 8
    late = found["rank_late_seconds"]
    assert late[0].startswith('command="launch",rank="2",host="node-1"} 0.021') and len(late) == 4
    assert len(found["traffic_bytes"]) == 2 and len(found["traffic_exposed_seconds"]) == 1


def test_gauges_are_bounded_and_what_was_not_seen_has_none(crowd: Run, unknown: Run) -> None:
    late = samples(crowd)["rank_late_seconds"]
    assert len(late) == prometheus.MOST_RANKS and 'rank="77"' in late[0]
    assert set(samples(unknown)) == {"steps", "changes"}
