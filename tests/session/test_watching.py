"""The session of a watched job: what it says while the job runs, and what it comes to."""

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from processes import until
from wirespeed.model.codec import validated
from wirespeed.runs.folder import PatientFolder
from wirespeed.runs.place import LIVE
from wirespeed.session import watching
from wirespeed.session.status_line import StatusLine
from wirespeed.session.watching import JobWatch
from wirespeed.views.live import LiveJob, LiveStep


class Heard:
    def __init__(self) -> None:
        self.shown: list[LiveJob] = []
        self.said: list[str] = []


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def watch(heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobWatch]:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))
    monkeypatch.setattr(watching, "_SHARE", 1.0)
    monkeypatch.setattr(watching, "LOOK_S", 0.02)
    monkeypatch.setattr(watching, "_JUDGE_S", 0.05)
    monkeypatch.setattr(watching, "_STORE_S", 0.05)
    folder = PatientFolder.create("launch", {})
    made = JobWatch(4, folder, heard.shown.append, heard.said.append)
    yield made
    made.close()


def tell(watch: JobWatch, rank: int, **message: Any) -> None:
    watch.take(rank, json.dumps({"r": rank, **message}), whole=True)


def train(watch: JobWatch, *, late: int = -1, steps: int = 120) -> None:
    """Steps of 20 ms, of which ranks work 10; from step 60 on one of them works 30 ms longer."""
    for rank in range(4):
        tell(watch, rank, k="hi", w=4, h="node-1", p=100 + rank, b="optimizer")
        for first in range(0, steps, 20):
            rows = []
            for number in range(first, first + 20):
                jitter = (number * 7 + rank * 3) % 11
                slow = 3000 if number >= 60 and late >= 0 else 0
                own = 1000 + jitter + (slow if rank == late else 0)
                rows.append([2000 + jitter + slow, 2000 + jitter + slow - own, 5, 400, 500, 50])
            tell(watch, rank, k="s", n=first, e=1, t=1000.0 + first / 50, d=rows)


def test_who_is_late_is_said_once_and_stored(watch: JobWatch, heard: Heard) -> None:
    train(watch, late=2)
    until(lambda: bool(heard.said))
    until(lambda: len(heard.shown) > 20)
    (said,) = heard.said
    assert "rank 2 on node-1" in said and said.endswith("WATCH-001")
    assert heard.shown[-1].now.last == "rank 2" and 57 <= heard.shown[-1].now.since_step <= 63
    findings, watched = watch.close()
    assert [(one.id, one.subject.name) for one in findings if one.status == "fail"] == [
        ("WATCH-001", "rank 2")
    ]
    assert watched and watched.steps == 120 and watched.hosts == ("node-1",) * 4
    kinds = {
        json.loads(line)["kind"]
        for line in (watch.folder.path / "records.jsonl").read_text().splitlines()
    }
    assert "watched" in kinds


def test_what_is_shown_lies_beside_the_records_while_the_job_runs(
    watch: JobWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`wirespeed serve` reads it."""
    monkeypatch.setattr(watching, "_KEEP_S", 0.05)
    file = watch.folder.path / LIVE

    def known() -> LiveJob:
        return validated(LiveJob, json.loads(file.read_text()), source="live.json")

    train(watch, late=2)
    until(lambda: file.exists() and bool(known().findings))
    assert known().now.last == "rank 2" and known().hosts == ("node-1",) * 4
    assert file.stat().st_mode & 0o777 == 0o600
    watch.close()
    assert not file.exists()


def test_an_even_job_has_nobody_named(watch: JobWatch, heard: Heard) -> None:
    train(watch)
    until(lambda: len(heard.shown) > 10)
    findings, watched = watch.close()
    assert heard.said == [] and watched is not None
    assert not [one for one in findings if one.status in ("fail", "warn") and one.id != "WATCH-013"]


def test_nobody_told_anything(watch: JobWatch) -> None:
    findings, watched = watch.close()
    assert watched is None
    assert [(one.id, one.status) for one in findings] == [("WATCH-014", "not_checked")]


@pytest.mark.parametrize("ended", [False, True])
def test_a_hang_is_told_and_that_it_is_over(
    watch: JobWatch, heard: Heard, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """Who is ended moves, too: a hung job that somebody interrupts does not go on."""
    train(watch)
    now = [time.monotonic()]
    monkeypatch.setattr(watching.time, "monotonic", lambda: now[0])

    def beat(moves: int, *ranks: int, phase: str = "sync") -> None:
        now[0] += 1
        for rank in ranks:
            tell(watch, rank, k="t", s=119, m=moves, p=phase, i=0.1, q={}, c=5.0, io=1)

    beat(1, 0, 1, 2, 3)
    for _ in range(12):
        beat(1, 0, 1, 3)
    tell(watch, 2, k="o", pid=102, st="T", stack=["train (job.py:8)"])
    now[0] += 0.1
    watch._once(now[0])
    assert any("rank 2 on node-1 is stopped" in one and "job.py:8" in one for one in heard.said)
    if ended:
        watch.ended(0, -15)
    for moves in (5, 6):
        beat(moves, *range(int(ended), 4))
    watch._once(now[0])
    assert any("the job goes on" in one for one in heard.said) is not ended
    findings, _ = watch.close()
    (hung,) = [one for one in findings if one.id == "WATCH-008"]
    assert hung.status == ("fail" if ended else "warn")
    assert ("stood still" in hung.costs) is not ended


def test_a_restart_begins_anew(watch: JobWatch) -> None:
    train(watch, late=2)
    for rank in range(4):
        tell(watch, rank, k="hi", w=4, h="node-1", p=500 + rank, b="optimizer")
    findings, watched = watch.close()
    assert watched and watched.launches == 2
    assert not [one for one in findings if one.id == "WATCH-001"]


def test_a_fault_of_the_watch_is_told_and_is_no_fault_of_the_job(
    watch: JobWatch, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(watching, "live_job", broken)
    train(watch)
    until(lambda: bool(heard.said))
    assert "the watch is broken, the job is not: RuntimeError" in heard.said[0]
    monkeypatch.undo()
    findings, watched = watch.close()
    assert watched and any("broke off" in text for text in watched.unseen)
    assert any(one.id == "WATCH-014" for one in findings)


def test_a_sampled_step_with_many_collectives_is_taken(watch: JobWatch) -> None:
    train(watch)
    kind = ["0", "default_pg", [0, 1, 2, 3], "gloo:all_reduce", [[1024, 64]], ["Float"]]
    spans = [["forward", 0, 900], ["sync", 1000, 9000]]
    for rank in range(4):
        tell(watch, rank, k="sp", s=64, t=1001.0, x=spans, g=[kind], f=[[0, 1, 10]] * 150, of=150)
    _, watched = watch.close()
    assert watched and watched.traffic[0].calls == 150
    assert (watch.folder.path / "trace.json").is_file()
    assert (watch.folder.path / "calls.jsonl").is_file()


def test_ranks_may_speak_while_they_are_judged(
    watch: JobWatch, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = watching.judge

    def judge(*args: Any, **known: Any) -> Any:
        for rank in range(200):
            tell(watch, rank, k="hurt", why="x")
        return judged(*args, **known)

    monkeypatch.setattr(watching, "judge", judge)
    train(watch)
    until(lambda: len(heard.shown) > 5)
    assert heard.said == []


@pytest.mark.hostile("forged messages")
def test_parts_without_end_are_bounded(watch: JobWatch) -> None:
    for _ in range(100):
        watch.take(1, "x" * 10_000, whole=False)
    assert sum(map(len, watch._parts.values())) <= 1 << 18
    watch.take(1, "", whole=True)
    train(watch)
    assert watch.close()[1] is not None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def job(step: int) -> LiveJob:
    return LiveJob(now=LiveStep(step=step, step_s=0.02, low_s=0.019, high_s=0.022, exposed=0.2))


def test_the_line_makes_room_for_what_ranks_print(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    line = StatusLine(terminal, quiet=False)
    line.show(job(7))
    with line.away():
        terminal.write("rank 0: loss 3\n")
    line.say("found")
    line.close()
    text = terminal.getvalue()
    assert text.startswith("\r\x1b[Kstep 7 ") and "\r\x1b[Krank 0: loss 3\nstep 7" in text
    assert "\r\x1b[Kwirespeed: found\nstep 7" in text and text.endswith("\r\x1b[K")


def test_without_a_terminal_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    line = StatusLine(stream, quiet=False)
    for step in range(5):
        line.show(job(step))
    assert stream.getvalue() == ""
    line._written_at -= 31
    line.show(job(9))
    line.show(job(10))
    assert stream.getvalue().count("\n") == 1 and "step 9 " in stream.getvalue()
    quiet = StatusLine(stream, quiet=True)
    quiet.say("no word")
    assert "no word" not in stream.getvalue()
