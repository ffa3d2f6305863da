from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from watch_simulator import IDS, Fault, Job, simulate, subject
from wirespeed.model.records import Finding
from wirespeed.model.watch_records import Traffic
from wirespeed.watch.judge import Judged, judge
from wirespeed.watch.steps import COLUMNS, RankUse, StepTable


def judged(job: Job, seed: int = 1) -> Judged:
    return judge(simulate(job, seed), world_size=job.ranks)


def accused(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(one.id, one.subject.name) for one in findings if one.status in ("warn", "fail")]


ONE = [
    Fault(kind="computes", rank=2, step=60),
    Fault(kind="no core", rank=2, step=60),
    Fault(kind="sleeps", rank=2, step=60),
    Fault(kind="bursts", rank=2, step=60, every=10, size=2),
    Fault(kind="node", rank=2, step=60),
    Fault(kind="network", rank=2, step=60),
    Fault(kind="data", rank=2, step=60),
    Fault(kind="data", step=60),
    Fault(kind="gc", step=60, every=5, size=1.5),
    Fault(kind="checkpoint", step=60, every=20, size=6),
    Fault(kind="skew", step=60),
    Fault(kind="change", step=60),
]


@pytest.mark.parametrize("fault", ONE, ids=lambda one: f"{one.kind} {one.rank}")
@pytest.mark.parametrize("ranks", [8, 64])
def test_one_fault_is_one_accusation_with_its_onset(fault: Fault, ranks: int) -> None:
    job = Job(ranks=ranks, per_node=2, steps=200, faults=(fault,))
    found = judged(job)
    assert accused(found.findings) == [(IDS[fault.kind], subject(fault, job))]
    if fault.kind != "network":
        assert [abs(one.step - fault.step) <= 10 for one in found.watched.changes] == [True]
        change = found.watched.changes[0]
        assert change.low_step <= fault.step <= change.high_step
        assert change.before < change.after or fault.every > 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ranks", [2, 4, 64])
def test_a_healthy_job_is_not_accused(ranks: int, seed: int) -> None:
    rough = Job(ranks=ranks, steps=200, jitter=0.15, common=0.1, bursts=0.08)
    assert accused(judged(rough, seed).findings) == []


def test_several_at_once_are_all_named() -> None:
    faults = (
        Fault(kind="sleeps", rank=1, step=50),
        Fault(kind="computes", rank=9, step=50),
        Fault(kind="data", rank=20, step=100),
    )
    found = judged(Job(ranks=32, per_node=4, steps=200, faults=faults))
    names = {("WATCH-001", "rank 1"), ("WATCH-001", "rank 9"), ("WATCH-003", "rank 20")}
    assert {*accused(found.findings)} == names
    because = {one.subject.name: one.because for one in found.findings}
    assert because["rank 1"].startswith("it sleeps")
    assert because["rank 9"].startswith("it computes")


def test_the_cost_is_what_steps_take_more() -> None:
    job = Job(ranks=8, steps=200, faults=(Fault(kind="sleeps", rank=3, size=0.6),), sent=0.2)
    found = judged(job).findings[0]
    assert found.status == "fail"
    assert "in every step since the begin" in found.title
    ratio = float(found.costs.split()[3])
    assert 1.4 < ratio < 1.5  # 0.6 of a step of 1 + 0.2, and the jitter of the last of 8


def test_ranks_of_tensor_groups_that_wait_are_not_late() -> None:
    fault = Fault(kind="computes", rank=5, step=40)
    found = judged(Job(ranks=32, tensor=4, steps=150, faults=(fault,)))
    assert accused(found.findings) == [("WATCH-001", "rank 5")]


def test_too_few_steps_say_so() -> None:
    found = judged(Job(ranks=4, steps=10))
    assert [(one.id, one.status) for one in found.findings] == [("WATCH-014", "not_checked")]
    assert found.watched.steps == 10
    empty = StepTable(
        hosts=["", ""],
        first=np.zeros(0, np.int64),
        each=np.zeros(0, np.int64),
        columns={name: np.zeros((2, 0), np.float32) for name in COLUMNS},
        begin_s=np.zeros(0),
    )
    nothing = judge(empty, world_size=2)
    assert nothing.findings[0].id == "WATCH-014"
    assert (nothing.watched.ranks, nothing.watched.world_size) == (0, 2)


def test_what_was_not_seen_is_said() -> None:
    table = simulate(Job(ranks=4, steps=60), 1)
    table.columns["step"][2] = np.nan
    table.columns["blocked"][:] = np.nan
    found = judge(table, world_size=4, unseen=["CUDA"])
    texts = [one.title + one.because for one in found.findings if one.id == "WATCH-014"]
    assert len(texts) == 3
    assert "of rank 2 no steps came" in texts[0]
    assert "own work is not known" in texts[1]
    assert "CUDA" in texts[2]


def test_memory_that_grows_and_a_loss_that_is_no_number() -> None:
    table = simulate(Job(ranks=4, steps=200), 1)
    table.use = [
        RankUse(rank, step, 100_000_000 + (rank == 2) * step * 1_000_000)
        for rank in range(4)
        for step in range(0, 200, 5)
    ]
    table.bad_loss = {1: 120, 3: 119, 0: 120}
    found = {one.id: one for one in judge(table, world_size=4).findings}
    assert found["WATCH-010"].subject.name == "rank 2"
    assert "rank 2 on node-0 grows by 953.7 MiB each" in found["WATCH-010"].title
    assert found["WATCH-012"].subject.name == "rank 3"
    assert "since step 119" in found["WATCH-012"].title


def test_whose_threads_lack_cores_since_all_wait_is_named() -> None:
    job = Job(ranks=4, steps=200, faults=(Fault(kind="change", step=60),))

    def found(lacks: dict[int, float], since: int = 60) -> list[tuple[str, str]]:
        table = simulate(job, 1)
        table.use = [
            RankUse(rank, step, 1 << 28, 1.0, lacks.get(rank, 0.1) if step > since else 0.1)
            for rank in (*range(4), *(rank for rank in lacks if rank > 3))
            for step in range(0, 200, 20)
        ]
        return accused(judge(table, world_size=4).findings)

    assert found({2: 1.2}) == [("WATCH-001", "rank 2")]
    nobody = [("WATCH-011", "job")]
    assert found({}) == found({0: 1.2, 1: 1.1, 2: 1.2, 3: 0.9}) == nobody, "all lack cores alike"
    assert found({900: 5.0}) == nobody, "no rank of the job"
    assert found({2: 1.2}, since=-1) == nobody, "it did so before"
    assert found({2: 1.2}, since=160) == nobody, "since later"


def test_who_is_late_and_lacks_cores_since_the_same_step_is_accused_once() -> None:
    faults = Fault(kind="no core", rank=2, step=60), Fault(kind="change", step=60)
    table = simulate(Job(ranks=4, steps=200, faults=faults), 1)
    table.use = [
        RankUse(rank, step, 1 << 28, 1.0, 1.2 if rank == 2 and step > 60 else 0.1)
        for rank in range(4)
        for step in range(0, 200, 20)
    ]
    found = judge(table, world_size=4)
    assert accused(found.findings) == [("WATCH-001", "rank 2")]
    assert [one.subject for one in found.watched.changes] == ["rank 2"]
    assert found.findings[0].status == "fail"
    assert "times slower for it" in found.findings[0].costs
    assert "; beyond that steps take 1." in found.findings[0].costs
    (seen,) = found.findings[0].evidence
    assert "had no core 1.2 s a second, another rank's at most 0.1; steps of all ranks" in seen


def in_rows_of(table: StepTable, steps: int) -> StepTable:
    """As agents tell steps that are shorter than what a kilobyte a second has room for."""
    rows = len(table.first) // steps

    def mean(values: np.ndarray) -> np.ndarray:
        return values[..., : rows * steps].reshape(*values.shape[:-1], rows, steps).mean(-1)

    table.first, table.each = table.first[: rows * steps : steps], table.each[:rows] * steps
    table.columns = {name: mean(values) for name, values in table.columns.items()}
    table.begin_s = table.begin_s[: rows * steps : steps]
    return table


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("steps", [1, 2, 3, 4])
@pytest.mark.parametrize("ranks", [2, 4])
def test_now_and_then_is_found_in_rows_of_several_steps(ranks: int, steps: int, seed: int) -> None:
    """Two of five rows, or three, hold one that is long: nobody's noise, and one accusation."""
    fault = Fault(kind="bursts", rank=1, step=45, every=5, size=5)
    job = Job(ranks=ranks, steps=150, jitter=0.15, bursts=0.02, faults=(fault,))
    found = judge(in_rows_of(simulate(job, seed), steps), world_size=ranks)
    assert accused(found.findings) == [("WATCH-001", "rank 1")]
    assert [abs(one.step - 45) <= 10 for one in found.watched.changes] == [True]


@pytest.mark.parametrize("seed", [2, 4, 8, 11])
def test_a_steady_lateness_counts_beside_bursts_that_are_more(seed: int) -> None:
    table = simulate(Job(ranks=2, steps=300), seed)
    dice, extra = np.random.default_rng(seed), np.full(300, 0.008)
    for step in np.nonzero(dice.random(300) < 0.04)[0]:
        extra[step] += dice.exponential(0.25)
    for name in ("step", "forward"):
        table.columns[name][1] += extra.astype(np.float32)
    table.columns["step"][:] = table.columns["step"].max(axis=0)
    own = table.columns["step"] - table.columns["blocked"]
    table.columns["blocked"][0] += np.maximum(own[0] - (own[1] - extra), 0).astype(np.float32)
    found = judge(table, world_size=2).findings
    assert ("WATCH-001", "rank 1") in accused(found)


@pytest.mark.parametrize("seed", range(3))
def test_a_rank_that_is_only_noisy_is_not_accused(seed: int) -> None:
    """Its own differences from step to step are its noise; nothing of them stands off."""
    table = simulate(Job(ranks=8, steps=300, jitter=0.005, bursts=0.0), seed)
    work = table.columns["step"] - table.columns["blocked"]
    noisy = work[0] * np.exp(np.random.default_rng(seed).normal(0, 0.25, 300)) - work[0]
    table.columns["forward"][0] += noisy
    work[0] += noisy
    table.columns["step"][:] = work.max(axis=0) + 0.02
    table.columns["blocked"][:] = table.columns["step"] - work
    assert [one for one in accused(judge(table, world_size=8).findings) if one[1] != "job"] == []


def test_exposed_communication_is_told_by_group() -> None:
    traffic = Traffic(
        group="data", ranks=4, op="all_reduce", calls=3, bytes_per_step=1e6, exposed=0.05
    )
    table = simulate(Job(ranks=4, steps=100, sent=1.0), 1)
    found = judge(table, world_size=4, traffic=[traffic])
    assert [(one.id, one.status) for one in found.findings] == [("WATCH-013", "warn")]
    assert "all_reduce of data" in found.findings[0].saw
    assert found.watched.exposed_low < found.watched.exposed < found.watched.exposed_high


def test_the_record_of_a_job() -> None:
    job = Job(ranks=4, per_node=2, steps=300, faults=(Fault(kind="sleeps", rank=2, step=50),))
    kept = judged(job).watched
    assert len(kept.windows) == 240
    assert sum(window.steps for window in kept.windows) == 300 - 3
    assert (kept.last_rank, kept.hosts[3]) == (2, "node-1")
    assert kept.last_share > 0.7
    late = kept.windows[-1]
    assert late.own[2] > 1.2 * late.own[0]
    assert late.blocked[2] < late.blocked[0]
    assert kept.windows[-1].since_s == pytest.approx(0.15 * 299, rel=0.1)
    assert sum(kept.parts_ms.values()) == pytest.approx(1e3 * kept.step, rel=0.1)
    assert (kept.changes[0].subject_kind, kept.changes[0].subject) == ("rank", "rank 2")


def test_of_two_ranks_the_slow_loader_of_one_is_not_both_ranks() -> None:
    found = judged(
        Job(ranks=2, per_node=2, steps=200, faults=(Fault(kind="data", rank=1, step=60),))
    )
    assert accused(found.findings) == [("WATCH-003", "rank 1")]


def test_what_shows_once_a_gpu_is_late_is_no_change_of_the_job() -> None:
    """What its host hid before: the job's own rise is small beside the rank's, and begins with it."""
    late, change = Fault(kind="sleeps", rank=2, step=60), Fault(kind="change", step=60, size=0.1)
    told = simulate(Job(ranks=4, per_node=2, steps=200, faults=(late, change)), 1)
    named = [one for one, _ in accused(judge(told, world_size=4).findings)]
    assert named == ["WATCH-001", "WATCH-011"]
    on_gpus = judge(replace(told, device="cuda"), world_size=4)
    assert accused(on_gpus.findings) == [("WATCH-001", "rank 2")]


def test_gpus_that_tell_nothing_of_their_waits_are_no_good_sign() -> None:
    told = simulate(Job(ranks=4, per_node=2, steps=200), 1)
    columns = {**told.columns, "blocked": np.full_like(told.columns["blocked"], np.nan)}
    silent = replace(told, columns=columns, device="cuda", waits_known=False)
    found = judge(silent, world_size=4).findings
    assert [(one.id, one.status) for one in found] == [("WATCH-014", "not_checked")]
