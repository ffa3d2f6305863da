"""What a gate does to its scheduler, by one that keeps what it is told."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from wirespeed.errors import CannotMeasure
from wirespeed.fleet.gate import worker
from wirespeed.fleet.gate.decision import (
    Decision,
    Fleet,
    Memory,
    Remembered,
    Rules,
    Seen,
    Standing,
)
from wirespeed.fleet.gate.guarded import Asked
from wirespeed.fleet.gate.worker import Kept, recall
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, Subject
from wirespeed.runs.index import Index

NOW = 1_800_000_000.0
BAD = Seen(
    at=NOW,
    findings=(Finding(id="GPU-002", status="fail", title="n1: x", subject=Subject("node", "n1")),),
)
GOOD = Seen(at=NOW)
LONG = Memory(looks=(Remembered(at=NOW - 1, health="good", first=NOW - 900, looks=9),))
OURS = Standing(out=True, ours=True)


@dataclass
class Scheduler:
    stands: Standing = field(default_factory=Standing)
    others: tuple[str, ...] = ()
    before: int = 0
    """How many turn out to have been taken before this node."""
    refuses: bool = False
    away: bool = False
    silent: str = ""
    """Where it gives no answer once the node was changed: `place`, `give_back` or `told`."""
    said: list[str] = field(default_factory=list)

    def standing(self, memory: Memory) -> Standing:
        if self.away:
            raise CannotMeasure("no answer")
        return self.stands

    def fleet(self) -> Fleet:
        return Fleet(nodes=40, taken=self.others)

    def place(self) -> int:
        self._answer("place")
        return self.before

    def take(self, why: str) -> None:
        self._change("take")

    def give_back(self) -> None:
        self._answer("give_back")
        self._change("give back")

    def told(self, decision: Decision) -> None:
        self._answer("told")
        self.said.append(f"told {decision.act}")

    def _answer(self, what: str) -> None:
        if self.silent == what:
            raise CannotMeasure("no answer")

    def _change(self, what: str) -> None:
        if self.refuses:
            raise CannotMeasure("Invalid user id")
        self.said.append(what)


def done(
    monkeypatch: pytest.MonkeyPatch,
    scheduler: Scheduler,
    seen: Seen,
    memory: Memory = LONG,
    **rules: Any,
) -> tuple[str, list[str], list[str]]:
    """(act, what the scheduler was told, what could not be done)."""
    monkeypatch.setattr(worker, "_site", lambda _: scheduler)
    monkeypatch.setattr(worker, "_say", lambda **_: None)
    asked = Asked(node="n1", rules=Rules(**{"purpose": "slurm-health", **rules}), quiet_s=1.0)
    decision, problems = worker._decided(asked, seen, memory)
    return decision.act, scheduler.said, problems


def test_taken_kept_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    assert done(monkeypatch, Scheduler(), BAD) == ("take", ["take", "told take"], [])
    assert done(monkeypatch, Scheduler(OURS), BAD) == ("keep", ["told keep"], [])
    returned = done(monkeypatch, Scheduler(OURS), GOOD)
    assert returned == ("return", ["give back", "told return"], [])
    assert done(monkeypatch, Scheduler(), GOOD) == ("pass", ["told pass"], [])


def test_what_slurm_took_by_our_exit_code_gets_our_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(Standing(out=True, ours=True, unnamed=True, reason="Prolog error"))
    assert done(monkeypatch, scheduler, BAD)[1] == ["take", "told keep"]


def test_of_many_at_the_same_moment_those_beyond_the_limit_give_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """5 % of 40 nodes: the first two stay out."""
    for before, act in ((0, "take"), (1, "take"), (2, "hold"), (30, "hold")):
        scheduler = Scheduler(before=before)
        assert done(monkeypatch, scheduler, BAD)[0] == act
        assert ("give back" in scheduler.said) == (act == "hold")
    assert done(monkeypatch, Scheduler(others=("a", "b")), BAD)[:2] == ("hold", ["told hold"])


def test_what_could_not_be_done_is_not_said_to_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = done(monkeypatch, Scheduler(refuses=True), BAD)
    assert refused == ("hold", [], ["Invalid user id"])
    assert done(monkeypatch, Scheduler(OURS, refuses=True), GOOD)[0] == "keep"
    assert done(monkeypatch, Scheduler(away=True), BAD) == ("hold", [], ["no answer"])
    assert done(monkeypatch, Scheduler(away=True), GOOD) == ("pass", [], ["no answer"])


@pytest.mark.parametrize("silent", ["place", "give_back", "told"])
def test_what_fails_after_the_node_was_taken_leaves_it_taken(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = Scheduler(silent=silent, before=30 if silent == "give_back" else 0)
    assert done(monkeypatch, scheduler, BAD) == ("take", ["take"], ["no answer"])


def test_what_fails_after_the_node_came_back_leaves_it_in_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    returned = done(monkeypatch, Scheduler(OURS, silent="told"), GOOD)
    assert returned == ("return", ["give back"], ["no answer"])


def test_a_dry_run_tells_the_scheduler_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheduler, seen in ((Scheduler(), BAD), (Scheduler(OURS), GOOD)):
        assert done(monkeypatch, scheduler, seen, dry_run=True)[1] == []


def test_a_prolog_counts_only_when_it_is_about_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "STAGGER_S", 0.0)
    words = {"purpose": "slurm-prolog"}
    assert done(monkeypatch, Scheduler(), BAD, **words) == ("take", [], [])
    assert done(monkeypatch, Scheduler(others=("a", "b")), BAD, **words)[0] == "hold"
    monkeypatch.setattr(worker, "_counted", lambda *_: pytest.fail("asked for nothing"))
    assert done(monkeypatch, Scheduler(), GOOD, **words)[0] == "pass"


def test_the_same_answer_is_stored_once_and_each_act_always() -> None:
    """A dry run on a bad node says the same for days."""
    rules, take = Rules(purpose="slurm-health"), Decision(act="take", health="bad", why="")
    told = "take bad ['GPU-002']"
    assert worker._is_news(rules, take, told, told)
    dry = replace(rules, dry_run=True)
    assert worker._is_news(dry, take, told, "")
    assert not worker._is_news(dry, take, told, told)


@pytest.mark.usefixtures("home")
def test_what_a_prolog_takes_during_a_look_of_the_health_program_is_kept() -> None:
    """Else nobody knows that Slurm's `Prolog error` is ours, and the node never comes back."""
    take, none = (Decision(act=act, health="bad", why="") for act in ("take", "pass"))
    for purpose, decision, at in (("slurm-prolog", take, NOW), ("slurm-health", none, NOW + 1)):
        asked = Asked(node="n1", rules=Rules(purpose=purpose), quiet_s=1.0)
        worker._remember(asked, decision, "", at, Kept(), None)
    kept = recall("n1")
    assert kept.memory.takes == (NOW,)
    brought_back = Asked(node="n1", rules=Rules(purpose="slurm-health"), quiet_s=1.0)
    worker._remember(brought_back, none, "", NOW + 90, kept, None)
    assert recall("n1").memory.takes == ()


def test_a_stored_look_tells_what_was_good_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it closes what an earlier run failed of the node."""
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    good = Finding(id="GPU-006", status="pass", title="no critical Xid")
    seen = Seen(at=NOW, findings=BAD.findings, good=(good,))
    decision = Decision(act="take", health="bad", why="x", counted=BAD.findings)
    node = NodeFacts(host="n1", ranks=(0,), facts=Facts())
    worker.run_of("n1", node, Rules(purpose="slurm-health"), decision, seen, (), 1.0)
    with Index.opened() as index:
        (row,) = index.runs()
        (told,) = index.nodes()
    assert (row.judged, told.failed) == ("GATE-002,GPU-002,GPU-006", "GATE-002,GPU-002")
