"""The pages: what they tell of a fleet, and that names and references of others are inert."""

import json
import re
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

import fleet_lab as lab
from wirespeed.cli import run
from wirespeed.errors import InputError, UsageError
from wirespeed.fleet.job_ends import JobEnd
from wirespeed.fleet.job_store import keep_jobs
from wirespeed.fleet.node_state import Said
from wirespeed.model.codec import to_json
from wirespeed.model.records import Finding
from wirespeed.runs.folder import RunFolder
from wirespeed.runs.index import Index
from wirespeed.runs.place import LIVE
from wirespeed.runs.source import opened, reading_from
from wirespeed.runs.store import load, save
from wirespeed.site.fleet import whole
from wirespeed.site.framing import Beside
from wirespeed.site.live_pages import job_page, live_page
from wirespeed.site.node_pages import _title, lemons_page, node_page, nodes_page, overview
from wirespeed.site.pages import _told as metrics_of_names
from wirespeed.site.pages import metrics
from wirespeed.site.pictures import Point, lanes
from wirespeed.site.run_pages import compare_page, run_page, runs_page
from wirespeed.site.trend_pages import trends_page
from wirespeed.views.live import LiveJob, LiveStep
from wirespeed.views.prometheus import STATES
from wirespeed.views.text import kind_of

FIRST = {
    "overview": overview,
    "nodes": nodes_page,
    "lemons": lemons_page,
    "runs": runs_page,
    "trends": trends_page,
    "live": live_page,
}


def newest(home: Path) -> str:
    return max(path.name for path in (home / "runs").iterdir())


def words(text: str) -> str:
    """Without tags, so that what a person reads can be looked for."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text))


@pytest.mark.parametrize("name", FIRST)
def test_an_empty_store_has_pages_too(name: str, empty: Path, shown: Any) -> None:
    assert "<h1>" in shown(FIRST[name])


@pytest.mark.parametrize(
    ("counts", "title"),
    [
        ({}, "No run has told of a node yet"),
        ({"pass": 1}, "The only node is healthy"),
        ({"pass": 5}, "All 5 nodes healthy"),
        ({"pass": 2, "warn": 1, "": 2}, "2 of 5 nodes healthy, 1 with warnings, 2 not known"),
        ({"": 1}, "0 of 1 node healthy, 1 not known"),
        ({"pass": 4, "fail": 1}, "1 of 5 nodes fails"),
        ({"pass": 3, "fail": 2}, "2 of 5 nodes fail"),
    ],
)
def test_the_overview_says_healthy_only_of_nodes_that_were_found_good(
    counts: dict[Said, int], title: str
) -> None:
    assert _title(Counter(counts)) == title


def test_the_overview_tells_who_fails_and_why(fleet: Any, shown: Any) -> None:
    text = shown(overview)
    said = words(text)
    assert re.search(r"\d of 48 nodes fail", said)
    assert "What fails" in said and "GB/s of NVLink" in said
    assert "gpu-b-*" in said and "NOT READY" in said and "READY" in said
    assert "seen for the first time" in said
    cells = re.findall(r'<a class="[fwgu]" href', text)
    assert len(cells) == 48


def test_a_run_that_comes_is_in_the_fleet_soon(empty: Path) -> None:
    lab.stored(empty, 8, 1)
    fleets = Beside(whole)

    def hosts() -> int:
        with opened() as index:
            return len(fleets.of(index, opened, here=True).nodes)

    assert hosts() == 8
    empty.rename(empty.with_name("old"))
    lab.stored(empty, 9, 2)
    end = time.monotonic() + 30
    while hosts() != 9:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_who_fails_jobs_is_named(empty: Path, shown: Any) -> None:
    now, bad = time.time(), "<b>n3"
    (empty / "runs").mkdir(mode=0o700, parents=True)
    host = f"{bad}.lab.example"  # Slurm leaves out the domain
    lab.write(empty / "runs", lab._check(lab.Fleet([host]), [host], 1.0, datetime.now(), Random(1)))
    keep_jobs(
        [
            JobEnd(
                job=f"{node}-{slot}",
                workload="ann/llm",
                start_s=now - 21600 * (slot + 1),
                end_s=now - 21600 * slot - 60,
                nodes=(node,),
                how="failed" if node == bad and slot % 2 else "good",
            )
            for node in ("n1", "n2", bad)
            for slot in range(100)
        ],
        {},
    )
    end = time.monotonic() + 30
    while "being read" in (text := shown(lemons_page)):
        assert time.monotonic() < end
    said = words(text)
    assert "1 lemon " in said and "&lt;b&gt;n3 LEMON 50 of 100 jobs" in said and "<b>n3" not in text
    assert f'href="/nodes/{quote(host, safe="")}"' in text
    assert "LEMON: 50 of 100 jobs failed" in shown(node_page, host=host)


def test_nodes_are_found_by_name_and_state(fleet: Any, shown: Any) -> None:
    text = shown(nodes_page)
    rows = re.findall(r'<th scope="row" class="left name"><a href="([^"]+)"', text)
    assert len(rows) == 48
    failing = words(shown(nodes_page, {"state": "fail"}))
    assert "failing" in failing and "gpu-b-0002 " not in failing
    assert "1 node, " in words(shown(nodes_page, {"name": "gpu-b-0002"}))
    assert "No node is like that" in shown(nodes_page, {"name": "nobody"})
    assert "<h1>Nodes" in shown(nodes_page, {"page": "99999999999999999999", "state": "x'"})


def test_a_node_has_a_time_line_and_its_events(fleet: Any, shown: Any) -> None:
    text = shown(node_page, host="gpu-b-0002")
    said = words(text)
    assert "NCCL 2.28.9 → 2.29.1" in said and "kernel 6.8.0-79 → 6.8.0-85" in said
    assert "NVIDIA B200" in said and "Its newest runs" in said
    assert text.count('<rect class="dot') > 12
    for host in ("nobody", ""):
        with pytest.raises(UsageError, match="knows a node"):
            shown(node_page, host=host)


def test_runs_are_filtered_and_paged(fleet: Any, fleet_home: Path, shown: Any) -> None:
    text = shown(runs_page)
    assert "24 runs" in words(text) and text.count('name="run"') == 24
    failed = shown(runs_page, {"verdict": "fail"})
    assert "NOT READY" in failed and ">READY<" not in failed
    assert "24 runs" in words(shown(runs_page, {"node": "", "gpu": "b200", "command": "check"}))
    assert "No run is like that" in shown(runs_page, {"command": "train"})
    before = shown(runs_page, {"before": newest(fleet_home)})
    assert before.count('name="run"') == 23 and ">newest<" in before
    assert "No run is like that" in shown(runs_page, {"before": "../../etc"})


def test_a_run_is_told_whole(fleet: Any, fleet_home: Path, shown: Any) -> None:
    name = newest(fleet_home)
    text = shown(run_page, run=name)
    assert "NOT READY" in text and "How fast each operation is" in text
    assert "/static/plotly.js?" in text and "<script>" not in text
    assert shown(run_page, run=name.rpartition("-")[2]) != ""


@pytest.mark.hostile("foreign requests")
@pytest.mark.parametrize(
    "run",
    ["..", "../x", "/etc", "last", "*", "7", "", "20261103-101112-91ae33fe", "\0", "9" * 5000],
)
def test_nothing_but_a_run_is_read(
    run: str, fleet: Any, shown: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither another folder, nor a run of the working directory."""
    (tmp_path / "20261103-101112-91ae33fe").mkdir()
    (tmp_path / "20261103-101112-91ae33fe" / "run.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    for page in (run_page, job_page):
        with pytest.raises(UsageError):
            shown(page, run=run)


def test_two_runs_are_compared_and_no_other_number(
    fleet: Any, fleet_home: Path, shown: Any
) -> None:
    names = sorted(path.name for path in (fleet_home / "runs").iterdir())
    old, new = names[-4], names[-2]
    text = shown(compare_page, [("run", new), ("run", old)])
    assert "Better, worse or noise" in text and "wirespeed report" not in text
    for chosen in ([], [old], [old, old], [old, new, names[0]]):
        with pytest.raises(UsageError, match="were chosen"):
            shown(compare_page, [("run", one) for one in chosen])


def test_trends_show_when_a_level_changed(fleet: Any, shown: Any) -> None:
    text = shown(trends_page, {"op": "all_reduce", "last": "300"})
    assert "Trend of all_reduce" in text and 'class="change"' in text
    assert "changed their level" in text and "GB/s" in text
    assert "Trend of all_" in shown(trends_page, {"op": "<script>", "last": "x"})


def test_metrics_tell_the_newest_run_of_each_command(fleet: Any, shown: Any) -> None:
    text = shown(metrics)
    assert 'wirespeed_verdict{command="check",verdict="NOT READY"} 1' in text


def test_pages_and_metrics_show_the_state_that_nodes_list_shows(
    fleet: Any, shown: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["nodes", "list", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    by_state = {
        state: [one["host"] for one in listed if (one["said"] or "unknown") == state]
        for state in STATES
    }
    assert by_state["fail"] and by_state["pass"]
    text = shown(metrics)
    for state, hosts in by_state.items():
        assert f'wirespeed_nodes{{state="{state}"}} {len(hosts)}' in text
        told = re.findall(rf'wirespeed_node_state{{host="([^"]*)",state="{state}"}} 1', text)
        assert len(told) == len(hosts)
        assert f"{len(hosts)} node" in words(shown(nodes_page, {"state": state}))
    failing = next(one for one in listed if one["said"] == "fail" and "<" not in one["host"])
    page, (first, *_) = words(shown(node_page, host=failing["host"])), failing["open"]
    assert first["id"] in page and first["look_again"] in page


def test_a_fault_that_was_acted_out_alarms_nobody(empty: Path, shown: Any) -> None:
    lab.stored(empty, 8, 1)
    real, told = load(empty / "runs" / newest(empty)), shown(metrics)
    save(replace(real, id="0" * 8, verdict="NOT READY", config={"inject": "slow-link"}))
    assert real.id in told and shown(metrics) == told
    assert "fault injected on purpose: NOT READY" in words(shown(overview))


def test_a_run_that_could_not_be_read_is_read_by_the_next_scrape(
    empty: Path, shown: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.stored(empty, 8, 1)

    def busy(path: Path) -> Any:
        raise InputError("the store does not answer")

    metrics_of_names.cache_clear()  # runs of that name are in other tests' stores
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("wirespeed.site.pages.load", busy)
        assert "wirespeed_verdict" not in shown(metrics)
    assert "wirespeed_verdict" in shown(metrics)


@pytest.mark.hostile("hostile values")
def test_names_of_nodes_are_text_wherever_they_stand(
    fleet: Any, fleet_home: Path, shown: Any, count_attacks: Any
) -> None:
    pages = [
        shown(overview),
        shown(nodes_page),
        shown(node_page, host=fleet.EVIL),
        shown(node_page, host="'; DROP TABLE nodes; --"),
        shown(runs_page),
        shown(runs_page, {"node": fleet.EVIL}),
        shown(nodes_page, {"name": f'"><img src=x onerror=alert(1)>{fleet.EVIL}'}),
        shown(run_page, run=newest(fleet_home)),
        shown(trends_page, {"op": fleet.EVIL}),
    ]
    for text in pages:
        assert "<script>" not in text and "<img" not in text
    assert sum(text.count("&lt;script&gt;") for text in pages) > 10
    count_attacks("hostile values", len(pages))


@pytest.fixture
def watched(empty: Path) -> RunFolder:
    """A job that is being watched."""
    folder = RunFolder.create("launch --watch", {})
    findings = (Finding(id="WATCH-003", status="warn", title="rank 1 <b>waits</b> for its loader"),)
    now = LiveStep(step=812, step_s=0.031, low_s=0.03, high_s=0.033, exposed=0.2, last="rank 1")
    job = LiveJob(
        now=now,
        hosts=("node-a", "node-a", "<script>"),
        late_s=(0.0, 0.02, None),
        recent_s=(0.03, 0.031, 0.09),
        findings=findings,
    )
    folder.keep(LIVE, json.dumps(to_json(job)))
    return folder


def test_a_watched_job_is_shown_as_it_goes(watched: RunFolder, shown: Any) -> None:
    assert "step 812" in shown(live_page)
    text = shown(job_page, run=watched.path.name)
    assert 'data-again="3.0"' in text and "step 812" in text and 'id="live"' in text
    assert "rank 1 &lt;b&gt;waits" in text and "<script>" not in text
    assert 'class="f" title="rank 1: +20.0 ms' in text and 'class="slow"' in text


def test_a_job_of_this_machine_is_shown_beside_the_runs_of_a_common_store(
    watched: RunFolder, shown: Any
) -> None:
    """Which has none of it before it ends."""
    store = SimpleNamespace(opened=Index.opened, find=lambda reference: None)
    with reading_from(store):  # type: ignore[arg-type]
        link = re.findall(r'href="/live/([^"]+)"', shown(live_page))
        assert link == [watched.path.name]
        assert "step 812" in shown(job_page, run=link[0])


def test_what_is_no_live_job_is_said_so(watched: RunFolder, shown: Any) -> None:
    (watched.path / LIVE).write_text('{"now": []}')
    assert "expected" in shown(live_page) or "$.now" in shown(live_page)
    (watched.path / LIVE).unlink()
    assert shown(job_page, run=watched.path.name, status=302) == ""
    assert "No job is being watched" in shown(live_page)


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [("READY", "pass"), ("NOT READY", "fail"), ("UNKNOWN", "warn"), ("?", "warn")],
)
def test_the_colour_of_a_run_is_its_verdicts(verdict: str, kind: str) -> None:
    """Not its exit code's: a watched job ends with its own."""
    assert kind_of(verdict) == kind


NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


@pytest.mark.parametrize("year", [1, 1970, 2026, 9999])
def test_a_clock_that_was_wrong_hides_no_other_run(year: int) -> None:
    """A run may tell of any time that there is."""
    odd = datetime(year, 12, 31, 23, 59, tzinfo=UTC)
    text = lanes("runs", [("runs", [Point(at=NOW, label="a"), Point(at=odd, label="b")])], NOW)
    assert text.count('class="dot') == 2 and 'class="soft middle"' in text
