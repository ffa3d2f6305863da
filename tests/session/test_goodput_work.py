"""Worlds that are only pretended: restarts, what they cost, refusals, and when enough is enough."""

import json
import time
from contextlib import contextmanager

import pytest

from wirespeed.errors import StorageError
from wirespeed.model.records import Finding, Subject
from wirespeed.plan import LastingPlan, Plan, TrainCase, TrainPlan
from wirespeed.reference import NoReference
from wirespeed.runs import store
from wirespeed.runs.folder import PatientFolder
from wirespeed.session import backends as lasting
from wirespeed.session.backends import run_workload
from wirespeed.session.goodput import GoodputWork
from wirespeed.session.recording import Session
from wirespeed.watchdog import Outcome

FINE = Outcome(kind="finished")
DIED = Outcome(
    kind="died",
    findings=(
        Finding(
            id="DIED-001",
            status="fail",
            title="rank 1 on a died: killed by signal 9 (SIGKILL)",
            subject=Subject("rank", "rank 1"),
            because="a person killed it",
        ),
    ),
)
CASE = TrainCase(strategy="ddp", bucket_mb=25.0, ranks=2, samples=8)
LASTING = LastingPlan(for_s=60.0, until=0.0, folder="", checkpoint_s=5.0)
PLAN = Plan(
    command="train",
    steps=(),
    training=TrainPlan(model="tiny", model_options={}, cases=(CASE,), lasting=LASTING),
    faults=("kill:rank=1,after=3",),
)


class Silent:
    def __init__(self):
        self.said = []

    def step(self, index, of, label):
        pass

    def phase(self, text):
        self.said.append(text)

    def close(self):
        pass


@pytest.fixture
def session(tmp_path, monkeypatch):
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))
    monkeypatch.setattr(lasting, "_PAUSE_S", 0.0)
    return Session(
        PLAN,
        PatientFolder.create("train", {}),
        Silent(),
        launcher="local",
        world_size=2,
        config={},
        choices=(),
        reference=NoReference(),
    )


class Worlds:
    """A place whose worlds do what they are told, one list of (event, …) a world, then its outcome."""

    def __init__(self, *scripts):
        self.scripts, self.plans, self.logs = list(scripts), [], []

    def start(self, recorder, plan, variables):
        self.plans.append(plan)
        self.logs.append(recorder.logs)
        *records, outcome = self.scripts.pop(0)
        for kind, data in records:
            recorder.on_record(0, kind, data)
        return outcome

    @contextmanager
    def __call__(self, session):
        yield self.start


def event(what, **data):
    return "lasting", {"event": what, **data}


def ready(step, refused=()):
    return event("ready", step=step, restore_s=0.0, tokens=512, refused=list(refused))


def steps(step, count=10):
    return event("steps", step=step, seconds=0.001 * count, count=count, loss=5.5, left_s=30.0)


def saved(step, why=""):
    return event("saved", step=step, seconds=0.0005, why=why)


def run(session, *scripts, plan=PLAN):
    worlds = Worlds(*scripts)
    found = run_workload(session, worlds, lasting.RestartLoop(GoodputWork(session, plan), 60.0))
    assert not worlds.scripts, "fewer worlds than expected"
    return found, worlds


def troubles(found):
    return [one for one in found.findings if one.status in ("fail", "warn")]


def test_a_rank_that_is_killed_is_an_incident_and_the_job_goes_on(session):
    found, worlds = run(
        session,
        [ready(0), steps(10), saved(10), steps(15, 5), DIED],
        [ready(10), steps(20), saved(20), event("over", loss=5.4), FINE],
    )
    one = found.goodput
    assert (one.restarts, one.failures, one.last_step, one.lost_steps) == (1, 1, 20, 5)
    assert sum(one.parts_s.values()) == pytest.approx(one.wall_s)
    assert one.parts_s["useful"] == pytest.approx(0.02) and one.parts_s["lost"] == pytest.approx(
        0.005
    )
    (failed,) = troubles(found)
    assert failed.subject.name == "rank 1" and "SIGKILL" in failed.title
    assert "training went on from step 10" in failed.costs
    (incident,) = one.incidents
    assert incident.subject == "rank 1" and incident.lost_s >= 0.005 and incident.world == 1
    assert (found.verdict, found.exit_code) == ("FAILED", 1)
    assert store.load(store.find(found.id)).goodput == one
    first, second = (plan.training.lasting for plan in worlds.plans)
    assert not first.resume and second.resume and second.for_s <= first.for_s
    assert first.folder == second.folder == str(session.folder.path / "checkpoints")
    assert worlds.plans[0].faults and not worlds.plans[1].faults  # a fault strikes once
    assert worlds.logs[0] != worlds.logs[1]


def test_training_that_nothing_disturbs(session):
    found, _ = run(session, [ready(0), steps(10), saved(10), event("over", loss=5.4), FINE])
    assert (found.verdict, found.exit_code) == ("MEASURED", 0)
    assert found.goodput.mtbf_s is None and found.goodput.best_interval_s is None
    assert found.goodput.loss_at_most_s >= 5.0 and not troubles(found)


def test_two_failures_tell_a_time_between_them(session):
    one, _ = run(
        session,
        [ready(0), steps(10), saved(10), DIED],
        [ready(10), steps(20), saved(20), DIED],
        [ready(20), steps(30), saved(30), event("over", loss=1.0), FINE],
    )
    one = one.goodput
    assert one.mtbf_s == pytest.approx(one.wall_s / 2)
    assert one.mtbf_low_s < one.mtbf_s < one.mtbf_high_s
    assert one.best_interval_s == pytest.approx((2 * one.checkpoint_s * one.mtbf_s) ** 0.5)


def test_worlds_that_get_nowhere_end_the_work_and_are_told_once(session):
    worlds = [[ready(0), steps(5), DIED] for _ in range(lasting.FRUITLESS)]
    found, _ = run(session, *worlds)
    assert found.exit_code == 1 and found.goodput.last_step == 0
    assert len([one for one in found.findings if one.id == "DIED-001"]) == lasting.FRUITLESS
    assert found.goodput.failures == lasting.FRUITLESS


def test_what_a_rank_refuses_is_not_tried_again(session):
    told = {"rank": 0, "saw": "it holds checkpoints", "expected": "--resume", "next": ""}
    raised = Outcome(kind="raised", findings=DIED.findings)
    found, _ = run(session, [("refusal", {**told, "exit_code": 2}), raised])
    assert (found.verdict, found.exit_code) == ("UNKNOWN", 2)


def test_a_full_disk_is_an_incident_and_no_end(session):
    why = "rank 0 on a cannot write /x: No space left on device"
    found, _ = run(
        session,
        [ready(0), steps(10), saved(10), steps(20), saved(20, why), steps(30), saved(30, why),
         event("over", loss=5.0), FINE],
    )  # fmt: skip
    assert found.goodput.last_step == 30 and found.goodput.checkpoints_failed == 2
    assert [one.id for one in found.goodput.incidents] == ["TRAIN-007", "TRAIN-007"]
    (warned,) = troubles(found)
    assert warned.saw == why and "step 10" in warned.costs and found.exit_code == 0


def test_a_run_folder_without_room_ends_nothing(session, monkeypatch):
    """Records wait, and are there once there is room: an incident, and one warning."""
    folder = session.folder
    write, room = PatientFolder.append_line, []

    def append_line(self, line):
        if not room:
            raise StorageError("cannot write /x: No space left on device")
        write(self, line)

    work = GoodputWork(session, PLAN)
    monkeypatch.setattr(PatientFolder, "append_line", append_line)
    logs = folder.path / "logs"
    logs.rename(folder.path / "no-logs")
    logs.touch()  # no folder can be made in it, as where there is no room
    recorder = work.recorder(2)
    for kind, data in (ready(0), steps(10), saved(10)):
        recorder.on_record(0, kind, data)
    (incident,) = work.record().incidents
    assert (incident.id, incident.lost_s) == ("TRAIN-010", 0.0)
    assert recorder.logs.is_dir() and folder.path not in recorder.logs.parents
    (recorder.logs / "rank-0.log").unlink(missing_ok=True)
    recorder.logs.rmdir()
    room.append(True)
    for kind, data in (steps(20), event("over", loss=5.0)):
        recorder.on_record(0, kind, data)
    work.ended(FINE, 1.0)
    work.settle()
    found = session.close(FINE)
    (warned,) = troubles(found)
    assert warned.id == "TRAIN-010" and "No space left" in warned.saw and found.exit_code == 0
    lines = (folder.path / "records.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds.count("goodput") == 2, "what waited was written"


def test_checkpoints_that_were_refused_are_told(session):
    found, _ = run(
        session,
        [ready(0), steps(10), saved(10), DIED],
        [ready(0, ["step-10/rank-0.pt is torn"]), steps(10), event("over", loss=5.0), FINE],
    )
    titles = [one.title for one in troubles(found)]
    assert any("step-10/rank-0.pt is torn" in title for title in titles)
    assert found.goodput.lost_steps == 10
    assert any("began anew" in one.costs for one in troubles(found))


def test_a_loss_that_is_no_number_ends_it(session):
    trouble = {"id": "TRAIN-002", "status": "fail", "title": "no number", "rank": 1}
    found, _ = run(
        session,
        [ready(0), steps(10), saved(10), steps(12, 2), ("trouble", trouble),
         event("stopped", why="nan"), FINE],
    )  # fmt: skip
    assert found.exit_code == 1 and found.goodput.last_step == 10
    assert found.goodput.lost_steps == 2


def test_ctrl_c_keeps_what_is_known(session):
    stopped = Outcome(kind="interrupted")
    found, _ = run(session, [ready(0), steps(10), saved(10), steps(12, 2), stopped])
    assert found.exit_code == 130 and found.goodput.last_step == 10


def test_what_is_known_survives_the_session(session):
    """A run that was cut: the last account in the records."""
    work = GoodputWork(session, PLAN)
    recorder = work.recorder(1)
    for kind, data in (ready(0), steps(10), saved(10)):
        recorder.on_record(0, kind, data)
    work.ended(DIED, 1.0)
    cut = store.load(store.find(session.folder.id))
    assert cut.goodput is not None and cut.goodput.last_step == 10 and cut.exit_code == 3


def test_somebody_elses_launcher_starts_no_second_world(session):
    work = GoodputWork(session, PLAN, restarts=False)
    recorder = work.recorder(1)
    for kind, data in (ready(0), steps(10), saved(10)):
        recorder.on_record(0, kind, data)
    work.ended(DIED, 1.0)
    work.settle()
    found = session.close(DIED)
    assert len([one for one in found.findings if one.id == "DIED-001"]) == 1
    assert found.goodput.last_step == 10


def test_no_world_for_less_than_its_start(session):
    work = GoodputWork(session, PLAN)
    assert work.plan(60.0) is not None
    recorder = work.recorder(1)
    time.sleep(0.02)
    recorder.on_record(0, *ready(0))
    work.ended(DIED, 1.0)
    assert work.plan(0.01) is None and work.plan(30.0) is not None
