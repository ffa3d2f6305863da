"""The fabric or the code, from what a replay and the job's record say."""

from dataclasses import replace

import pytest

import usual
from wirespeed.checks.job_traffic import replay_findings, shape_findings
from wirespeed.model.bench_records import MedianTime, Replay, ReplayedCall
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Measurement, NodeFacts, World
from wirespeed.model.training_records import LoadFigures, Ratio

MS = 1e-3


def median(ms: float, spread: float = 0.05) -> MedianTime:
    return MedianTime(
        median=ms * MS, low=ms * MS * (1 - spread), high=ms * MS * (1 + spread), samples=30
    )


def alone(size: int, ms: float, ranks: int = 4) -> Measurement:
    return usual.measurement(ms * MS, size, 0.05, ranks=ranks)


def call(size: int, calls: int, in_job: float | None, last: float | None) -> ReplayedCall:
    return ReplayedCall(
        op="all_reduce",
        dtype="float32",
        groups="all",
        size_bytes=size,
        calls=calls,
        in_job=None if in_job is None else median(in_job),
        last=None if last is None else last * MS,
    )


def replay(*calls: ReplayedCall, step: float | None = 100, unbroken: float = 8) -> Replay:
    return Replay(
        source="traces",
        job_ranks=4,
        job_steps=30,
        job_step=None if step is None else median(step),
        own=0.05,
        calls=calls,
        unbroken=median(unbroken),
        paced=median(60),
    )


ALONE = [alone(1024, 1), alone(4096, 2)]


@pytest.mark.parametrize(
    ("small", "large", "said"),
    [
        ((3, 1.1), (6, 2.2), "the code, not the fabric"),
        ((1.0, 0.9), (2.0, 1.9), "the fabric, not the code"),
        ((1.5, 1.4), (3, 2.9), "both, or not to be told apart"),
    ],
)
def test_which_of_the_two(small, large, said):
    job = replay(call(1024, 2, *small), call(4096, 3, *large))
    (finding,) = replay_findings(job, ALONE)
    assert (finding.id, finding.status) == ("REPLAY-001", "pass")
    assert finding.title.startswith(said)
    assert "8.00 ms [7.60 ms to 8.40 ms] alone" in finding.title


def test_waiting_for_late_ranks_is_told_of_the_code_alone():
    (code,) = replay_findings(replay(call(1024, 2, 5, 1)), ALONE)
    assert "8.00 ms is ranks waiting for one that comes later" in code.title
    (fabric,) = replay_findings(replay(call(1024, 2, 1, 1)), ALONE)
    assert "waiting" not in fabric.title


@pytest.mark.parametrize(
    ("step", "said"),
    [(100, "the code"), (8.5, "the fabric"), (12, "both"), (None, "whether it is")],
)
def test_without_ends_of_calls_the_step_is_the_measure(step, said):
    (finding,) = replay_findings(replay(call(1024, 8, None, None), step=step), ALONE)
    assert finding.title.startswith(said)
    assert (finding.status == "not_checked") == (step is None)


@pytest.mark.parametrize("in_job", [3.0, None])
def test_few_samples_decide_nothing(in_job: float | None) -> None:
    few = [replace(one, iterations=5) for one in ALONE]
    job = replay(call(1024, 2, in_job, None))
    job = replace(job, unbroken=replace(job.unbroken, samples=2))
    (finding,) = replay_findings(job, few)
    assert (finding.id, finding.status) == ("REPLAY-001", "not_checked")
    assert f"n={5 if in_job else 2}, no interval" in finding.because


def test_few_rounds_warn_of_nothing() -> None:
    slow = figures("a", "b", LOSS)
    cores = replace(WORLD, nodes=(node(ranks=2, cpus=8),))
    assert [one.status for one in shape_findings([slow], cores)] == ["warn"]
    (finding,) = shape_findings([replace(slow, rounds=5)], cores)
    assert finding.status == "pass"
    assert "5 rounds, no interval" in finding.evidence[0]


def test_a_job_of_another_size_is_no_measure():
    small = [replace(one, ranks=2) for one in ALONE]
    (finding,) = replay_findings(replay(call(1024, 2, 3, 1)), small)
    assert (finding.status, finding.next) == ("not_checked", "wirespeed --ranks 4")


def test_a_call_that_was_refused_leaves_the_step():
    (finding,) = replay_findings(replay(call(1024, 2, 3, 1), call(2048, 1, 1, 1)), ALONE)
    assert "a step of the job" in finding.title


def figures(name: str, beside: str, gain: Ratio | None) -> LoadFigures:
    return LoadFigures(
        name=name,
        beside=beside,
        alone=0.01,
        together=0.02,
        ratio=Ratio(value=2.0, low=1.9, high=2.1),
        rounds=8,
        gain=gain,
    )


def node(ranks: int, cpus: int) -> NodeFacts:
    return NodeFacts(host="a", ranks=tuple(range(ranks)), facts=Facts(cpu_logical=cpus))


WORLD = World(size=2, nodes=(node(ranks=2, cpus=2),), backend="gloo", launcher="local")
GOOD = Ratio(value=1.8, low=1.7, high=1.9)
NOISY = Ratio(value=0.9, low=0.6, high=1.2)
LOSS = Ratio(value=0.7, low=0.6, high=0.8)


def test_each_comparison_is_told_once_by_its_first_figure() -> None:
    load = [
        *(figures("product", "data", GOOD), figures("data", "product", GOOD)),
        *(figures("data", "tensor", NOISY), figures("tensor", "data", NOISY)),
        figures("all_to_all_v", "even shares", None),
    ]
    (found,) = shape_findings(load, WORLD)
    assert (found.id, found.status) == ("SHAPE-001", "pass")
    assert found.title == "at once gets 0.90 to 1.80 times as much done as one after the other"
    assert found.evidence == (
        "product beside data: 1.80× (1.70 to 1.90)",
        "data beside tensor: 0.90× (0.60 to 1.20)",
    )


def test_a_sure_loss_warns_and_names_who() -> None:
    load = [figures("product", "data", GOOD), figures("data", "tensor", LOSS)]
    (found,) = shape_findings(load, WORLD)
    assert (found.status, found.saw) == ("warn", "data beside tensor: 0.70× (0.60 to 0.80)")
    assert "in 1 of 2 comparisons" in found.title
    (crowded,) = shape_findings(load, replace(WORLD, nodes=(node(ranks=8, cpus=2),)))
    assert (crowded.status, crowded.title[-11:]) == ("pass", "share cores")


def test_nothing_timed_is_not_checked() -> None:
    assert [one.status for one in shape_findings([], WORLD)] == ["not_checked"]
