"""Many worlds of one soak, only pretended: failures, what they cost, interruption, faults once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from wirespeed.launchers.children import JobLogs
from wirespeed.model.lasting_records import Soak
from wirespeed.model.records import Finding, Run, Subject
from wirespeed.plan import Case, Plan, SoakPlan
from wirespeed.rank.faulty_engine import Fault
from wirespeed.reference import NoReference
from wirespeed.runs import store
from wirespeed.runs.folder import PatientFolder
from wirespeed.session.backends import FRUITLESS, RestartLoop, run_workload
from wirespeed.session.recording import Session
from wirespeed.session.soaking import SoakLedger, SoakWork
from wirespeed.watchdog import Outcome

CASE = Case(op="all_reduce", redop="sum", size_bytes=4084)
PLAN = Plan(
    command="check",
    steps=(),
    soak=SoakPlan(cases=(CASE,), for_s=600.0, window_s=10.0),
    faults=("kill:rank=1,after=3", "flip:rank=1,every=9"),
)
FINE = Outcome(kind="finished")
RANK = Finding(id="DIED-001", status="fail", title="rank 1 died", subject=Subject("rank", "rank 1"))
DIED = Outcome(kind="died", findings=(RANK,))
WINDOW = {
    "turn": 3,
    "seconds": 0.01,
    "calls": 10,
    "checked_bytes": 1000,
    "wrong": 0,
    "stalls": 0,
    "stalled_s": 0.0,
    "cells": [],
    "last_share": [0.5, 0.5],
    "rss_bytes": [1, 1],
    "waited": [0.0, 0.0],
    "free_bytes": {"a": 1},
}


class Teller:
    def __init__(self) -> None:
        self.said: list[str] = []

    def step(self, index: int, of: int, label: str) -> None: ...

    def phase(self, text: str) -> None: ...

    def say(self, text: str) -> None:
        self.said.append(text)

    def close(self) -> None: ...


class Pretended:
    """Worlds that end as listed, each after a beat and a window, unless it gets nowhere."""

    def __init__(self, *ends: Outcome, silent: bool = False, act: Any = None) -> None:
        self.ends = list(ends)
        self.plans: list[Plan] = []
        self.silent = silent
        self.act = act

    @contextmanager
    def __call__(self, _: Session) -> Iterator[Any]:
        yield self.start

    def start(self, recorder: Any, plan: Plan, variables: Any) -> Outcome:
        self.plans.append(plan)
        if not self.silent:
            recorder.on_record(0, "soak_begin", {})
            recorder.on_record(0, "soak_beat", {"calls": 5, "checked_bytes": 5})
            recorder.on_record(0, "soak_window", dict(WINDOW))
        if self.act:
            self.act()
        return self.ends.pop(0) if self.ends else FINE


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("wirespeed.session.backends._PAUSE_S", 0.0)
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))


def soaked(place: Pretended, for_s: float = 600.0, ranks: int = 2) -> tuple[Run, Teller]:
    teller = Teller()
    folder = PatientFolder.create("check", {"level": "soak"})
    ledger = SoakLedger(PLAN, folder, teller, Soak(for_s=for_s, elapsed_s=0.0, window_s=10.0))
    session = Session(
        PLAN,
        folder,
        teller,
        launcher="local",
        world_size=ranks,
        config={},
        choices=(),
        reference=NoReference(),
        ledger=ledger,
    )
    return run_workload(session, place, RestartLoop(SoakWork(session, ledger, PLAN), for_s)), teller


def test_a_world_that_dies_is_an_incident_and_the_next_goes_on() -> None:
    place = Pretended(DIED, FINE)
    run, teller = soaked(place, for_s=1.2)
    assert run.soak is not None
    (died,) = run.soak.incidents
    assert (died.id, died.subject, died.world) == ("DIED-001", "rank 1", 1)
    assert run.soak.worlds >= 2
    assert run.exit_code == 1
    assert "DIED-001" in teller.said[0]
    assert "+0:0" in teller.said[0]
    found = {one.id: one for one in run.findings}
    assert found["SOAK-004"].subject.name == "rank 1"
    assert store.load(store.find(run.id)).soak == run.soak


@pytest.mark.parametrize(
    ("ranks", "word", "code", "skipped"),
    [(2, "READY", 0, set()), (1, "UNKNOWN", 3, {"WORLD-005"})],
)
def test_a_soak_of_one_rank_sends_nothing(
    ranks: int, word: str, code: int, skipped: set[str]
) -> None:
    run, _ = soaked(Pretended(), for_s=0.2, ranks=ranks)
    assert (run.verdict, run.exit_code, run.speed_judged) == (word, code, False)
    left = {one.id for one in run.findings if one.status == "not_checked"}
    assert {id for id in left if id.startswith("WORLD")} == skipped


def test_each_world_has_data_of_its_own_and_a_fatal_fault_strikes_once() -> None:
    place = Pretended(DIED, DIED, FINE)
    soaked(place, for_s=1.5)
    turns = [one.soak.turn for one in place.plans if one.soak]
    assert len(set(turns)) == len(turns) >= 2
    assert place.plans[0].faults == PLAN.faults
    assert place.plans[1].faults == ("flip:rank=1,every=9",)
    left = [one.soak.for_s for one in place.plans if one.soak]
    assert left == sorted(left, reverse=True)


def test_worlds_that_get_nowhere_end_it() -> None:
    place = Pretended(*[DIED] * 9, silent=True)
    run, _ = soaked(place)
    assert len(place.plans) == FRUITLESS
    assert run.exit_code == 1
    assert "SOAK-001" in {one.id for one in run.findings if one.status == "not_checked"}


def test_an_interruption_keeps_what_is_known_and_says_how_to_go_on() -> None:
    place = Pretended(DIED, act=lambda: os.kill(os.getpid(), signal.SIGINT))
    run, _ = soaked(place)
    assert run.exit_code == 130
    assert run.soak is not None
    assert run.soak.calls == 10
    nexts = {one.next for one in run.findings if one.id == "INT-001"}
    assert nexts == {f"wirespeed check --resume {run.id}"}


@pytest.mark.slow
def test_logs_of_many_worlds_are_bounded() -> None:
    place = Pretended(*[DIED] * 30)
    run, _ = soaked(place, for_s=3.0)
    logs = store.find(run.id) / "logs"
    assert len(place.plans) > 12
    assert len(list(logs.iterdir())) < 10


def test_a_renamed_log_is_begun_anew(tmp_path: Path) -> None:
    logs = JobLogs(tmp_path)
    logs.rank(0, "one", whole=True)
    (tmp_path / "rank-0.log").rename(tmp_path / "rank-0.log.1")
    logs.rank(0, "two", whole=True)
    logs.close()
    assert (tmp_path / "rank-0.log.1").read_text() == "one\n"
    assert (tmp_path / "rank-0.log").read_text() == "two\n"


@pytest.mark.slow
def test_a_rank_whose_log_was_renamed_prints_into_the_new_one(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    script = (
        "import os, sys; from wirespeed.rank.own_log import reopen_log\n"
        "print('one', flush=True); reopen_log(); os.rename(sys.argv[1], sys.argv[1] + '.1')\n"
        "reopen_log(); print('two', flush=True)"
    )
    with log.open("ab") as out:
        environ = {**os.environ, "WIRESPEED_LOG": str(log)}
        words = [sys.executable, "-c", script, str(log)]
        subprocess.run(words, check=True, stdout=out, stderr=out, env=environ)
    assert (tmp_path / "rank-0.log.1").read_text() == "one\n"
    assert log.read_text() == "two\n"


def test_the_grammar_of_faults_that_come_now_and_then() -> None:
    fault = Fault.parse("stall:rank=1,at=all_reduce,after=5,every=7")
    assert (fault.kind, fault.after, fault.every) == ("stall", 5, 7)
