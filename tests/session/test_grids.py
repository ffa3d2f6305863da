"""A grid on worlds that are only pretended: order, what is missing and why, failures, signals."""

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

import usual
from wirespeed.model.bench_records import GridPoint
from wirespeed.model.codec import to_json
from wirespeed.model.records import Finding
from wirespeed.plan import Case, Measure, Plan, Step
from wirespeed.reference import NoReference
from wirespeed.runs import store
from wirespeed.runs.folder import RunFolder
from wirespeed.session.backends import run_workload
from wirespeed.session.grids import Grid, GridWorld
from wirespeed.session.local import local_backend
from wirespeed.session.recording import Session
from wirespeed.views import data, md, table
from wirespeed.views.html.page import page
from wirespeed.views.text import Style
from wirespeed.watchdog import Outcome

SIZES = (1 << 10, 1 << 20)
STEPS = tuple(
    Step(case=Case(op="all_reduce", redop="sum", size_bytes=size), measure=Measure())
    for size in SIZES
)
PLAN = Plan(command="bench", steps=STEPS)
FINE = Outcome(kind="finished")
DIED = Outcome(kind="died", findings=(Finding(id="DIED-001", status="fail", title="rank 1 died"),))
PLAIN = Style(width=10_000)


def timed(ranks, size, seconds=0.001):
    return usual.measurement(seconds, size, ranks=ranks, iterations=9)


class Pretended:
    """Worlds of which `act` may end one otherwise; they say over which backend they joined."""

    def __init__(self, act=lambda ranks, recorder: FINE):
        self.act, self.begun = act, []

    def world(self, ranks, backend="gloo", reason=""):
        point = GridPoint(ranks=ranks, backend=backend, reason=reason)
        if reason:
            return GridWorld(point=point)

        def start(recorder, plan, variables):
            self.begun.append(ranks)
            recorder.on_record(0, "joined", {"backend": "gloo", "hosts": ["a"] * ranks})
            outcome = self.act(ranks, recorder)
            if outcome.ok:
                for size in SIZES:
                    recorder.on_record(0, "measurement", to_json(timed(ranks, size)))
            return outcome

        @contextmanager
        def backend(session):
            yield start

        return GridWorld(point=point, plan=PLAN, backend=backend)


@pytest.fixture
def grid(tmp_path, monkeypatch):
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))

    def run(*worlds):
        silent = SimpleNamespace(**dict.fromkeys(("step", "phase", "close"), lambda *_: None))
        session = Session(
            PLAN, RunFolder.create("bench", {}), silent, launcher="local", world_size=1,
            config={}, choices=(), reference=NoReference(),
        )  # fmt: skip
        found = run_workload(session, local_backend(1, "gloo"), Grid(session, worlds))
        assert store.load(session.folder.path).grid == found.grid
        return found

    return run


def finding(run, id):
    return next(one for one in run.findings if one.id == id)


def test_one_run_holds_all_and_the_largest_world_tells_the_facts(grid):
    worlds = Pretended()
    run = grid(worlds.world(2, "auto"), worlds.world(4), worlds.world(8, "nccl", "no GPU here"))
    assert worlds.begun == [4, 2]
    assert run.world.size == 4
    assert [(one.ranks, one.backend, one.reason) for one in run.grid] == [
        (2, "gloo", ""), (4, "gloo", ""), (8, "nccl", "no GPU here"),
    ]  # fmt: skip
    assert {(m.backend, m.ranks, m.size_bytes) for m in run.measurements} == {
        ("gloo", ranks, size) for ranks in (2, 4) for size in SIZES
    }
    warned = finding(run, "GRID-001")
    assert warned.status == "warn" and "8 ranks, nccl" in warned.title
    assert (run.verdict, run.exit_code) == ("MEASURED", 0)


def test_every_view_has_the_joint_table_and_says_why_not(grid):
    worlds = Pretended()
    run = grid(worlds.world(2), worlds.world(4), worlds.world(4, "nccl", "no GPU here"))
    text = table.render(run, PLAIN)
    rows = [line.split() for line in text.splitlines() if line.strip().startswith("all")]
    assert [(row[3], row[4]) for row in rows[:4]] == [
        ("gloo", "2"), ("gloo", "2"), ("gloo", "4"), ("gloo", "4"),
    ]  # fmt: skip
    assert rows[4][1:3] == ["nccl", "4"] and "no GPU here" in text
    assert "no GPU here |" in md.render(run, PLAIN)
    html = page(run)
    assert "Every world of the grid" in html and "no GPU here" in html
    assert "gloo" in data.render_csv(run, PLAIN).splitlines()[1]


def test_what_does_not_fit_is_a_row_with_its_reason(grid):
    def act(ranks, recorder):
        told = {"label": "all_reduce float32 1 MiB", "size_bytes": SIZES[1], "host": "a"}
        recorder.on_record(0, "memory", {**told, "need_bytes": 2 << 30, "free_bytes": 1 << 30})
        recorder.on_record(0, "measurement", to_json(timed(ranks, SIZES[0])))
        return replace(FINE, kind="finished") if ranks == 2 else FINE

    worlds = Pretended(act)
    worlds_of = worlds.world(2)

    def only_small(recorder, plan, variables):
        recorder.on_record(0, "joined", {"backend": "gloo", "hosts": ["a", "a"]})
        return act(2, recorder)

    @contextmanager
    def backend(session):
        yield only_small

    run = grid(replace(worlds_of, backend=backend))
    (missing,) = run.grid[0].missing
    assert (missing.what, missing.size_bytes) == ("all_reduce float32 sum", SIZES[1])
    assert "it needs 2 GiB of 1 that may be taken" in missing.reason
    assert finding(run, "MEM-001").title.startswith("2 ranks, gloo: all_reduce")
    assert missing.reason in table.render(run, PLAIN)


def test_a_world_that_fails_costs_its_own_rows_and_the_verdict(grid):
    run = grid(*(Pretended(lambda ranks, _: DIED if ranks == 4 else FINE).world(n) for n in (2, 4)))
    assert (run.verdict, run.exit_code) == ("FAILED", 1)
    assert finding(run, "DIED-001").title == "4 ranks, gloo: rank 1 died"
    assert run.grid[1].reason == "rank 1 died"
    assert [one.reason for one in run.grid[1].missing] == ["rank 1 died"] * 2
    assert {m.ranks for m in run.measurements} == {2}


def test_what_a_rank_refuses_is_no_failure(grid):
    def act(ranks, recorder):
        if ranks == 4:
            recorder.on_record(
                3, "refusal", {"rank": 3, "saw": "no GPU 3", "expected": "", "next": ""}
            )
            return DIED
        return FINE

    run = grid(*(Pretended(act).world(n) for n in (2, 4)))
    assert run.grid[1].reason == "no GPU 3"
    assert (run.verdict, run.exit_code) == ("MEASURED", 0)


def test_nothing_that_runs_is_unknown(grid):
    run = grid(Pretended().world(2, "nccl", "no GPU here"), Pretended().world(4, "nccl", "no GPU"))
    assert (run.verdict, run.exit_code) == ("UNKNOWN", 3)


def test_an_interrupt_keeps_what_was_measured(grid):
    def act(ranks, recorder):
        return Outcome(kind="interrupted") if ranks == 2 else FINE

    run = grid(*(Pretended(act).world(n) for n in (2, 4)))
    assert run.exit_code == 130
    assert {m.ranks for m in run.measurements} == {4}
