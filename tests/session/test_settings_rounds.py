"""The rounds of compared settings, on worlds that are only pretended: order, failures, signals."""

import os
import random
import signal
from contextlib import contextmanager

import pytest

import usual
from wirespeed.errors import UsageError
from wirespeed.launchers.base import Job
from wirespeed.model.codec import to_json
from wirespeed.model.records import Finding, Verification, WrongData
from wirespeed.plan import Case, Measure, Plan, Step
from wirespeed.reference import NoReference
from wirespeed.runs import store
from wirespeed.runs.folder import RunFolder
from wirespeed.session.backends import run_workload
from wirespeed.session.record_stream import apply_settings, order
from wirespeed.session.recording import Session
from wirespeed.session.remote import ordered
from wirespeed.session.settings import (
    SCREEN_ROUNDS,
    ComparedSettings,
    Comparison,
    combinations_of,
    estimate,
)
from wirespeed.watchdog import Outcome

STEP = Step(case=Case(op="all_reduce", redop="sum", size_bytes=1024), measure=Measure())
PLAN = Plan(command="bench", steps=(STEP,))
FINE = Outcome(kind="finished")
DIED = Outcome(
    kind="died",
    findings=(Finding(id="DIED-001", status="fail", title="rank 1 died", because="a cause"),),
)


class Silent:
    def __init__(self):
        self.labels = []

    def step(self, index, of, label):
        self.labels.append((index, of, label))

    def phase(self, text):
        pass

    def close(self):
        pass


def timed(seconds):
    return usual.measurement(seconds, iterations=9)


def checked(wrong):
    error = WrongData(
        rank=1, host="b", wrong=wrong, elements=256, first_byte=0, last_byte=9,
        chunk="all", guess="bit flip", example="[0] 1, expected 2",
    )  # fmt: skip
    return Verification(
        op="all_reduce", engine="torch", dtype="float32", redop="sum", root=-1, in_place=False,
        size_bytes=1024, count=256, ranks=2, wrong=wrong, elements=256, errors=(error,) if wrong else (),
    )  # fmt: skip


class Pretended:
    """A backend whose worlds take `seconds[name]`; `act(world number, name)` may end one otherwise."""

    def __init__(self, seconds, act=lambda number, name: FINE, wrong=()):
        self.seconds, self.act, self.wrong = seconds, act, wrong
        self.begun, self.verified = [], []
        self._noise = random.Random(3)

    def start(self, recorder, plan, variables):
        name = " ".join(f"{k}={v}" for k, v in variables.items() if v is not None) or "default"
        self.begun.append(name)
        assert recorder.logs.is_dir()
        outcome = self.act(len(self.begun), name)
        if not outcome.ok:
            return outcome
        if plan.steps[0].verify:
            self.verified.append(name)
            recorder.on_record(0, "verification", to_json(checked(5 * (name in self.wrong))))
        seconds = self.seconds(name) * self._noise.uniform(0.99, 1.01)
        recorder.on_record(0, "measurement", to_json(timed(seconds)))
        return outcome

    @contextmanager
    def backend(self, session):
        yield self.start


@pytest.fixture
def compare(tmp_path, monkeypatch):
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))

    def run(variables, pretended, rounds=9, search=False):
        asked = Comparison(combinations=combinations_of(variables), rounds=rounds, search=search)
        session = Session(
            PLAN, RunFolder.create("bench", {}), Silent(), launcher="local", world_size=2,
            config={}, choices=(), reference=NoReference(),
        )  # fmt: skip
        run = run_workload(session, pretended.backend, ComparedSettings(session, PLAN, asked))
        stored = store.load(session.folder.path)
        assert [(s.name, s.verdict) for s in stored.settings] == [
            (s.name, s.verdict) for s in run.settings
        ]
        assert stored.findings == run.findings
        return run

    return run


def by_name(run):
    return {one.name: one for one in run.settings}


def test_each_round_has_each_once_in_an_order_of_its_own(compare):
    pretended = Pretended(lambda name: {"A=1": 0.5, "A=2": 1.0}.get(name, 1.0))
    run = compare({"A": ["1", "2"]}, pretended, rounds=10)
    rounds = [tuple(pretended.begun[i : i + 3]) for i in range(0, 30, 3)]
    assert all(sorted(one) == ["A=1", "A=2", "default"] for one in rounds)
    assert len(set(rounds)) > 2
    assert rounds[0][0] == "default"
    assert pretended.verified == list(rounds[0]), "data are checked once a setting"
    assert (run.verdict, run.exit_code) == ("MEASURED", 0)
    assert {name: one.verdict for name, one in by_name(run).items()} == {
        "default": "default",
        "A=1": "faster",
        "A=2": "same",
    }
    assert by_name(run)["A=1"].winner
    assert [(m.setting, m.iterations) for m in run.measurements] == [
        ("", 10), ("A=1", 10), ("A=2", 10),
    ]  # fmt: skip


def test_a_setting_that_fails_is_told_and_the_rest_goes_on(compare):
    def act(_, name):
        return DIED if name == "A=bad" else FINE

    pretended = Pretended(lambda name: 1.0, act)
    run = compare({"A": ["bad", "1"]}, pretended)
    assert pretended.begun.count("A=bad") == 1
    assert by_name(run)["A=bad"].verdict == "failed"
    assert by_name(run)["A=1"].verdict == "same"
    assert run.exit_code == 0
    (told,) = [one for one in run.findings if one.id == "SET-001"]
    assert (told.status, told.because) == ("warn", "a cause")
    assert "A=bad" in told.title


def test_one_failure_among_many_rounds_costs_that_round_only(compare):
    def act(number, name):
        return DIED if number == 6 else FINE

    pretended = Pretended(lambda name: 1.0 if name == "default" else 0.5, act)
    run = compare({"A": ["1"]}, pretended)
    assert len(pretended.begun) == 18
    rival = by_name(run)["A=1"]
    assert len(rival.rounds) == 8
    assert rival.verdict == "faster"


def test_a_default_that_fails_ends_it_with_its_own_verdict(compare):
    pretended = Pretended(lambda name: 1.0, lambda number, name: DIED)
    run = compare({"A": ["1"]}, pretended)
    assert pretended.begun == ["default"]
    assert (run.verdict, run.exit_code, run.settings) == ("FAILED", 1, ())
    assert run.findings[0].id == "DIED-001"


def test_wrong_data_under_a_setting_is_a_failure_that_names_it(compare):
    run = compare({"A": ["1"]}, Pretended(lambda name: 1.0, wrong=("A=1",)))
    (told,) = [one for one in run.findings if one.status == "fail"]
    assert told.title.startswith("A=1: ")
    assert (told.id, run.verdict, run.exit_code) == ("COL-001", "FAILED", 1)
    assert {v.setting: v.wrong for v in run.verifications} == {"": 0, "A=1": 5}


def test_a_signal_between_two_worlds_keeps_what_is_there(compare):
    def act(number, name):
        if number == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return FINE

    pretended = Pretended(lambda name: 1.0, act)
    run = compare({"A": ["1"]}, pretended)
    assert len(pretended.begun) == 7
    assert (run.verdict, run.exit_code) == ("INTERRUPTED", 130)
    assert len(by_name(run)["A=1"].rounds) == 3
    assert by_name(run)["A=1"].verdict == "not enough rounds"
    assert [m.setting for m in run.measurements] == ["", "A=1"]


def test_a_signal_within_a_world(compare):
    interrupted = Outcome(
        kind="interrupted", findings=(Finding(id="INT-001", status="not_checked", title="Ctrl-C"),)
    )
    pretended = Pretended(lambda name: 1.0, lambda number, _: interrupted if number == 4 else FINE)
    run = compare({"A": ["1"]}, pretended)
    assert len(pretended.begun) == 4
    assert run.exit_code == 130
    assert [one.title for one in run.findings if one.id == "INT-001"] == ["Ctrl-C"]


def test_the_search_drops_the_slow_finds_the_quick_and_says_what_it_left_out(compare):
    def seconds(name):
        return 1.0 if name == "default" else 2.0 - 0.1 * int(name.partition("=")[2])

    pretended = Pretended(seconds)
    asked = Comparison(
        combinations=combinations_of({"A": list("0123456789")} | {"B": [None]}), rounds=9
    )
    run = compare({"A": [str(n) for n in range(13)]}, pretended, rounds=10, search=True)
    found = by_name(run)
    assert found["A=12"].winner
    assert found["A=12"].rounds == tuple(range(3 * SCREEN_ROUNDS + 1, 3 * SCREEN_ROUNDS + 11))
    kept = [one for one in run.settings if one.verdict not in ("dropped", "default")]
    assert {one.name for one in kept} == {"A=10", "A=11", "A=12"}
    (told,) = [one for one in run.findings if one.id == "SET-003"]
    assert told.status == "not_checked"
    assert "10 of 13" in told.title
    assert len(asked.stages) == 0, "without --search nothing is dropped"
    expected = Comparison(
        combinations=combinations_of({"A": [str(n) for n in range(13)]}), rounds=10, search=True
    )
    assert len(pretended.begun) == expected.worlds == SCREEN_ROUNDS * (14 + 8 + 5) + 4 * 10


def test_too_few_rounds_are_told(compare):
    run = compare({"A": ["1"]}, Pretended(lambda name: 1.0), rounds=3)
    (told,) = [one for one in run.findings if one.id == "SET-002"]
    assert told.next.endswith("--rounds 6")
    assert run.exit_code == 0


def test_the_combinations_begin_with_the_default_and_have_each_once():
    found = combinations_of({"A": ["1", None], "B": ["x y", "z", None]})
    assert [one.name for one in found] == [
        "default", "A=1 B='x y'", "A=1 B=z", "A=1", "B='x y'", "B=z",
    ]  # fmt: skip
    assert found[3].values == {"A": "1"}
    assert found[3].unset == ("B",)
    with pytest.raises(UsageError, match="nothing to compare"):
        combinations_of({"A": [None]})
    with pytest.raises(UsageError, match="1,089 combinations"):
        combinations_of({"A": list(map(str, range(33))), "B": list(map(str, range(33)))})


def test_the_estimate_counts_worlds_and_time():
    asked = Comparison(combinations=combinations_of({"A": ["1"]}), rounds=9)
    text = estimate(asked, PLAN, 4)
    assert "18 worlds of 4 ranks" in text
    assert "about 36 s to 4 min" in text, "18 × 2 s; 18 × (10 + 2 × 1.5) s"


def test_an_order_carries_the_settings_and_what_an_engine_chose_stays():
    job = Job(command=(), environment={"GLOO_SOCKET_IFNAME": "ib0", "NCCL_DEBUG": "WARN"})
    variables = {"A": "x", "B": None, "GLOO_SOCKET_IFNAME": None, "NCCL_DEBUG": "INFO"}
    there = {"B": "of the node", "GLOO_SOCKET_IFNAME": "ib0", "A": "old"}
    one = ordered(job, PLAN, "gloo", "python3", variables)
    assert one.environment["NCCL_DEBUG"] == "INFO"
    apply_settings(one.environment["WIRESPEED_JOB"], there)
    assert there == {"GLOO_SOCKET_IFNAME": "ib0", "A": "x", "NCCL_DEBUG": "INFO"}
    apply_settings(order(PLAN, "gloo"), there)
    assert there["A"] == "x"
