"""The session's book: records in, a run with a verdict out; no rank is started here."""

from types import SimpleNamespace
from typing import Any

import pytest

import usual
from wirespeed.checks.strictness import Strictness
from wirespeed.model.codec import from_json, to_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import (
    Finding,
    NodeFacts,
    WrongData,
)
from wirespeed.plan import Case, Plan, Step
from wirespeed.reference import NoReference
from wirespeed.runs import store
from wirespeed.runs.folder import RunFolder
from wirespeed.session.joined_world import SLACK_S, _SessionLoss
from wirespeed.session.recording import Session
from wirespeed.watchdog import Outcome

PLAN = Plan(command="bench", steps=(Step(case=Case(op="all_reduce", redop="sum")),))


class Silent:
    def step(self, index, of, label):
        pass

    def phase(self, text):
        pass

    def close(self):
        pass


@pytest.fixture
def session(tmp_path, monkeypatch):
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))
    return opened()


def opened(plan=PLAN, **more):
    return Session(
        plan,
        RunFolder.create(plan.command, {}),
        Silent(),
        launcher="local",
        world_size=2,
        config={},
        choices=(),
        reference=NoReference(),
        **more,
    )


def measurement():
    return to_json(usual.measurement(1e-3, iterations=8, wrong=0))


def verification(wrong, errors=()):
    return to_json(usual.verification(wrong=wrong, errors=errors))


def feed(session):
    session.on_record(0, "joined", {"backend": "gloo", "hosts": ["a", "a"]})
    session.on_record(0, "node", to_json(NodeFacts(host="a", ranks=(0, 1), facts=Facts())))
    session.on_record(0, "progress", {"index": 0, "of": 1, "label": "all_reduce"})


def test_a_good_run_is_measured_and_stored(session):
    feed(session)
    session.on_record(0, "verification", verification(0))
    session.on_record(0, "measurement", measurement())
    run = session.close(Outcome(kind="finished"))
    assert (run.verdict, run.exit_code, run.world.size) == ("MEASURED", 0, 2)
    assert run.measurements[0].time.median == 1e-3
    assert store.load(session.folder.path) == run


def test_wrong_data_fails_and_names_the_rank(session):
    feed(session)
    error = WrongData(
        rank=1,
        host="a",
        wrong=3,
        elements=256,
        first_byte=0,
        last_byte=11,
        chunk="reduced chunk at element 0",
        guess="bit flip",
        example="element 0: saw 1, expected 2",
    )
    session.on_record(0, "verification", verification(3, (error,)))
    run = session.close(Outcome(kind="finished"))
    failed = next(f for f in run.findings if f.status == "fail")
    assert (run.verdict, run.exit_code) == ("FAILED", 1)
    assert (failed.id, failed.subject.kind, failed.subject.name) == ("COL-001", "rank", "rank 1")


def test_nothing_measured_is_unknown(session):
    feed(session)
    run = session.close(Outcome(kind="finished"))
    assert (run.verdict, run.exit_code) == ("UNKNOWN", 3)


def test_an_interruption_is_130_and_keeps_what_was_measured(session):
    feed(session)
    session.on_record(0, "measurement", measurement())
    run = session.close(
        Outcome(
            kind="interrupted",
            findings=(Finding(id="INT-001", status="not_checked", title="interrupted"),),
        )
    )
    assert (run.verdict, run.exit_code, len(run.measurements)) == ("INTERRUPTED", 130, 1)


def test_a_refusal_is_unknown_with_its_own_exit_code_and_no_failure(session):
    told = {"rank": 1, "saw": "no GPU", "expected": "a GPU", "next": "gloo", "exit_code": 3}
    session.on_record(1, "refusal", told)
    raised = Finding(id="RAISED-001", status="fail", title="rank 1 raised WorldError")
    run = session.close(Outcome(kind="raised", findings=(raised,)))
    assert (run.verdict, run.exit_code) == ("UNKNOWN", 3)
    assert [f.id for f in run.findings] == ["WORLD-002"]


@pytest.mark.parametrize("code", [0, 1, None, "0"])
def test_no_rank_can_refuse_a_run_into_a_good_end(session, code):
    told = {"rank": 1, "saw": "no GPU", "expected": "a GPU", "next": "gloo", "exit_code": code}
    session.on_record(1, "refusal", told)
    run = session.close(Outcome(kind="raised", findings=()))
    assert (run.verdict, run.exit_code) == ("UNKNOWN", 3)


def test_what_somebody_else_wrote_in_the_store_is_told_once(session):
    feed(session)
    for saw in ("no door", "no letter", "no door", *map(str, range(20))):
        session.on_record(0, "odd", {"saw": saw})
    run = session.close(Outcome(kind="finished", findings=()))
    told = [one for one in run.findings if one.id == "WORLD-004"]
    assert [one.saw for one in told][:2] == ["no door", "no letter"]
    assert len(told) == 8
    assert {one.status for one in told} == {"warn"}


def test_a_death_comes_first_and_what_was_proven_stays(session):
    feed(session)
    session.on_record(0, "verification", verification(0))
    died = Finding(id="DIED-001", status="fail", title="rank 1 died")
    run = session.close(Outcome(kind="died", findings=(died,)))
    assert (run.verdict, run.exit_code) == ("FAILED", 1)
    assert run.findings[0].id == "DIED-001"
    assert "COL-001" in [f.id for f in run.findings if f.status == "pass"]


def test_records_survive_without_a_close(session):
    feed(session)
    session.on_record(0, "measurement", measurement())
    run = store.load(session.folder.path)
    assert (run.verdict, len(run.measurements), run.world.nodes[0].host) == ("UNKNOWN", 1, "a")
    assert "RUN-001" in [f.id for f in run.findings]


def in_zones(session, *zones):
    for rank, zone in enumerate(zones):
        session.on_record(rank, "seat", {"rank": rank, "host": f"n{rank}", "space": str(rank)})
        facts = {"placement.zone": zone, "placement.region": "r", "placement.source": "aws"}
        session.on_record(
            rank,
            "node",
            to_json(NodeFacts(host=f"n{rank}", ranks=(rank,), facts=from_json(Facts, facts))),
        )
    return session.close(Outcome(kind="finished"))


@pytest.mark.parametrize(
    "strict, verdict",
    [
        (Strictness(), ("FAILED", 1)),
        (Strictness(allow=frozenset({"PLACE-001"})), ("PASSED", 0)),
        (Strictness("warn", frozenset({"PLACE-001"})), ("PASSED", 0)),
    ],
)
def test_two_zones_fail_where_placement_alone_is_asked_for(tmp_path, monkeypatch, strict, verdict):
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))
    plan = Plan(command="check", steps=(), facts_only=True)
    only = frozenset({"PLACE-001", "PLACE-002"})
    run = in_zones(opened(plan, only=only, strictness=strict), "a", "b")
    assert (run.verdict, run.exit_code) == verdict
    assert store.load(run.id and store.find(run.id)) == run, "what was allowed is stored"
    one = in_zones(opened(plan, only=only, strictness=strict), "a", "a")
    assert (one.verdict, one.exit_code) == ("PASSED", 0)


@pytest.mark.parametrize(
    ("only", "verdict"),
    [("PLACE-001", "UNKNOWN"), ("PLACE-001,WORLD-001", "PASSED"), ("", "UNKNOWN")],
)
def test_measured_and_nothing_judged_of_what_was_asked_for_is_unknown(
    tmp_path, monkeypatch, only, verdict
):
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))
    plan = Plan(command="check", steps=())
    session = opened(plan, only=frozenset(filter(None, only.split(","))))
    feed(session)
    session.on_record(0, "measurement", measurement())
    run = session.close(Outcome(kind="finished"))
    asked = [one.status for one in run.findings if one.id == "PLACE-001"]
    assert (run.verdict, asked) == (verdict, ["not_applicable"])


def test_a_run_that_broke_off_is_not_to_be_allowed(tmp_path, monkeypatch):
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))
    session = opened(strictness=Strictness(allow=frozenset({"DIED-001"})))
    feed(session)
    session.on_record(0, "measurement", measurement())
    died = Finding(id="DIED-001", status="fail", title="rank 1 died")
    run = session.close(Outcome(kind="died", findings=(died,)))
    assert (run.verdict, run.exit_code) == ("FAILED", 1)


def counted(rank, seconds, **grown):
    return {
        "rank": rank,
        "seconds": seconds,
        "watched": {"RDMA mlx5_0 port 1": 20},
        "grown": {"RDMA mlx5_0 port 1": grown} if grown else {},
        **{key: [] for key in ("reset", "full", "came", "gone")},
        "unread": {},
    }


def test_counters_that_grew_fail_the_run_and_add_up(tmp_path, monkeypatch):
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))
    session = opened(Plan(command="check", steps=PLAN.steps))
    feed(session)
    session.on_record(0, "verification", verification(0))
    session.on_record(0, "counters", counted(0, 60.0, link_downed=1, port_rcv_packets=7))
    session.on_record(0, "counters", counted(0, 60.0, link_downed=2))
    run = session.close(Outcome(kind="finished"))
    assert (run.verdict, run.exit_code) == ("NOT READY", 1)
    (found,) = [one for one in run.findings if one.id == "COUNT-001"]
    assert found.title == "a: RDMA mlx5_0 port 1: link_downed +3 in 2 min 0 s of our traffic"
    assert store.load(session.folder.path) == run


def test_work_that_was_announced_may_take_its_time() -> None:
    """A rank that imports or compiles for a minute was ended by itself after 45 s."""
    plan = Plan(command="check", steps=(), op_timeout_s=30.0, startup_timeout_s=120.0)
    nobody: Any = None
    loss = _SessionLoss(nobody, plan, "node-0")

    def bound_s(announced_s: float, *, started: bool = True) -> float:
        heartbeat: Any = SimpleNamespace(announced_s=announced_s)
        return loss._bound_s(heartbeat, started=started) - SLACK_S

    assert [bound_s(0.0), bound_s(0.0, started=False), bound_s(140.0)] == [30.0, 120.0, 140.0]
