"""From traces to the table of steps, traffic and order of arrival."""

import gc
import json
import shutil
import tracemalloc
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from trace_making import event, job, write
from wirespeed.watch.traces import cover, json_list, rank_trace
from wirespeed.watch.traces.analysis import Analysed, analysed
from wirespeed.watch.traces.judging import late_of

MADE = Path(__file__).parent / "made"


def of_job(folder: Path, steps: int, **told: object) -> Analysed:
    for rank in range(4):
        write(folder / f"{rank}.json", rank, job(rank, steps, **told))  # type: ignore[arg-type]
    return analysed([str(folder)])


def column(found: Analysed, name: str) -> np.ndarray:
    return found.table.columns[name] * 1e3


def test_a_late_rank_works_and_the_others_wait(tmp_path: Path) -> None:
    found = of_job(tmp_path, 6, work_ms=lambda rank, step: 25.0 if rank == 2 else 10.0)
    assert found.table.boundary == "annotation"
    assert found.table.hosts == ["host0", "host1", "host2", "host3"]
    expected = {"step": 29, "data": 1, "optimizer": 1}
    for name, ms in expected.items():
        np.testing.assert_allclose(column(found, name), ms, rtol=1e-3)
    np.testing.assert_allclose(column(found, "blocked")[[0, 1, 3]], 17, rtol=1e-3)
    np.testing.assert_allclose(column(found, "blocked")[2], 2, rtol=1e-3)
    np.testing.assert_allclose(column(found, "forward")[2], 12.5, rtol=1e-3)
    np.testing.assert_allclose(column(found, "backward")[2], 12.5, rtol=1e-3)
    (row,) = found.traffic
    assert (row.group, row.op, row.ranks, row.calls) == ("default_pg (0)", "all_reduce", 4, 1.0)
    assert row.bytes_per_step == 4000
    assert row.exposed == pytest.approx((3 * 17 + 2) / 4 / 1e3, rel=1e-3)


def test_real_traces_show_who_slept_and_who_waited() -> None:
    """Rank 1 slept 30 ms in the forward of step 5, the last of these four."""
    found = analysed([str(MADE / "ddp_rank*.json.gz")])
    assert found.table.first.tolist() == [2, 3, 4, 5]
    step, blocked, forward = (column(found, name) for name in ("step", "blocked", "forward"))
    assert forward[1, 3] > 30 > forward[0, 3]
    assert blocked[0, 3] > 30 > blocked[1, 3]
    assert (blocked < step).all()
    assert not found.unseen


def test_steps_of_a_gpu_are_when_it_came_to_them() -> None:
    """Two ranks of DDP on one H100, by NCCL: the host was some 100 ms ahead of the GPU."""
    found = analysed([str(MADE / "h100_rank*.json.gz")])
    step, blocked = column(found, "step"), column(found, "blocked")
    assert found.table.first.tolist() == [33, 34, 35, 36, 37]
    assert step.min() > 25 and step.max() < 40  # the host's annotations take 3.6 ms
    assert (blocked <= step).all() and blocked.min() > 0.9 * step.min()
    (row,) = found.traffic
    assert (row.op, row.calls, row.bytes_per_step) == ("all_reduce", 4, 4 * 262656 * 4)
    assert 0 < row.exposed * 1e3 <= step.max()
    assert not found.unseen


def test_waits_within_a_backward_are_no_work() -> None:
    found = analysed([str(MADE / "fsdp_rank*.json.gz")])
    total = sum(column(found, one) for one in ("data", "forward", "backward", "optimizer"))
    assert (total + column(found, "blocked") < 1.02 * column(found, "step")).all()
    assert (column(found, "blocked") > 10).all(), "copies on gloo's own thread hide nothing"


@pytest.mark.parametrize(
    ("dropped", "boundary", "steps"),
    [
        ("ProfilerStep", "optimizer", 29),
        ("Optimizer", "backward", 29),
        ("autograd", "collectives", 28),
    ],
)
def test_without_annotations_the_next_best_sign_ends_a_step(
    tmp_path: Path, dropped: str, boundary: str, steps: int
) -> None:
    names = ("ProfilerStep", "Optimizer", "autograd")
    gone = names[: names.index(dropped) + 1]
    for rank in range(4):
        events = (one for one in job(rank, 30) if not one["name"].startswith(gone))
        write(tmp_path / f"{rank}.json", rank, events)
    found = analysed([str(tmp_path)])
    assert found.table.boundary == boundary
    assert abs(len(found.table.first) - steps) <= 1
    np.testing.assert_allclose(np.median(column(found, "step")), 14, rtol=1e-2)


def test_two_optimizers_make_one_step(tmp_path: Path) -> None:
    events = [one for one in job(0, 9) if not one["name"].startswith("ProfilerStep")]
    second = [
        {**one, "ts": one["ts"] + one["dur"]} for one in events if one["name"].startswith("Opt")
    ]
    write(tmp_path / "0.json", 0, iter([*events, *second]))
    assert len(analysed([str(tmp_path)]).table.first) == 8


@pytest.mark.parametrize("late", [0, 3])
def test_arrivals_are_compared_on_one_clock(tmp_path: Path, late: int) -> None:
    for rank in range(4):
        events = job(
            rank, 5, work_ms=lambda r, s: 14.0 if r == late else 10.0, clock_ms=70.0 * rank
        )
        write(tmp_path / f"{rank}.json", rank, events)
    found = analysed([str(tmp_path)])
    offsets = found.arrivals.offsets()
    assert [round(1e3 * offsets[rank]) for rank in range(4)] == [0, 70, 140, 210]
    caused = 1e3 * found.arrivals.caused(offsets, found.table.first)
    np.testing.assert_allclose(caused[late], 4, rtol=0.02)
    assert np.delete(caused, late, axis=0).max() < 0.1
    (finding,) = late_of(found)
    assert (finding.id, finding.status, finding.subject.name) == (
        "WATCH-001",
        "fail",
        f"rank {late}",
    )


def test_of_even_ranks_nobody_is_late(tmp_path: Path) -> None:
    noise = np.random.default_rng(3).uniform(9, 11, (4, 8))
    found = of_job(tmp_path, 8, work_ms=lambda rank, step: float(noise[rank, step]))
    assert late_of(found) == []


def test_on_gpus_exposed_is_what_no_other_kernel_covers(tmp_path: Path) -> None:
    told = {"Collective name": "allreduce", "In msg nelems": 10, "dtype": "Float", "Seq": 1}
    events = [
        event("ProfilerStep#0", "user_annotation", 0, 20),
        event("aten::mm", "cpu_op", 0, 20),
        event("gemm", "kernel", 0, 10),
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "kernel", 6, 10, **told),
        event("gemm", "kernel", 15, 2),
    ]
    write(tmp_path / "0.json", 0, iter(events))
    found = analysed([str(tmp_path)])
    np.testing.assert_allclose(column(found, "blocked"), 5, rtol=1e-3)
    assert np.isnan(column(found, "forward")).all(), "the CPU only launches"


def test_launches_alone_do_not_tell_waiting(tmp_path: Path) -> None:
    told = {"Collective name": "allreduce", "In msg nelems": 10, "dtype": "Float"}
    events = [
        event("ProfilerStep#0", "user_annotation", 0, 20),
        event("record_param_comms", "cpu_op", 6, 1, **told),
    ]
    write(tmp_path / "0.json", 0, iter(events))
    found = analysed([str(tmp_path)])
    assert np.isnan(column(found, "blocked")).all()
    assert any("waits in communication" in one for one in found.unseen)


def test_a_trace_that_breaks_off_counts_as_far_as_it_goes(tmp_path: Path) -> None:
    for rank in range(2):
        write(tmp_path / f"{rank}.json", rank, job(rank, 9, ranks=2), world=2)
    path = tmp_path / "1.json"
    text = path.read_bytes()
    path.write_bytes(text[: len(text) // 2])
    found = analysed([str(tmp_path)])
    known = (~np.isnan(found.table.columns["step"])).sum(axis=1)
    assert known[0] == 9 > known[1] > 2
    assert any("1.json" in one and "breaks off" in one for one in found.unseen)


def test_traces_of_two_jobs_are_not_one(tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copy(MADE / "ddp_rank0.json.gz", tmp_path / f"{name}.json.gz")
    assert any("which job" in one for one in analysed([str(tmp_path)]).unseen)


def test_memory_does_not_grow_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight times the operators in as many steps."""
    monkeypatch.setattr(cover, "_MOST", 1 << 9)
    monkeypatch.setattr(json_list, "_BLOCK", 1 << 14)
    peaks, sizes = [], []
    for each in (50, 400):
        ops = (
            event("aten::mul", "cpu_op", 1000 + 14 * step + 0.02 * i, 0.01)
            for step in range(20)
            for i in range(each)
        )
        path = write(tmp_path / "0.json", 0, chain(job(0, 20), ops))
        gc.collect()
        tracemalloc.start()
        found = analysed([str(path)])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        sizes.append(path.stat().st_size)
        np.testing.assert_allclose(column(found, "blocked")[0], 2, rtol=0.01)
    assert sizes[1] > 6 * sizes[0]
    assert peaks[1] < 1.2 * peaks[0]


def test_calls_beyond_the_most_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_trace, "MOST_CALLS", 5)
    monkeypatch.setattr("wirespeed.watch.traces.kineto.MOST_CALLS", 5)
    write(tmp_path / "0.json", 0, job(0, 9))
    assert any("4 collectives beyond" in one for one in analysed([str(tmp_path)]).unseen)


def test_an_execution_trace_tells_traffic_by_its_repeats() -> None:
    found = analysed([str(MADE / "et_rank0.json.gz")])
    (row,) = found.traffic
    assert (row.op, row.ranks, row.bytes_per_step, row.exposed) == ("all_reduce", 2, 526336, None)
    assert found.world_size == 2
    assert any("times" in one for one in found.unseen)


def test_json_of_two_lines_is_no_list(tmp_path: Path) -> None:
    (tmp_path / "note.py").write_text("text = '\"traceEvents\": ['")
    write(tmp_path / "0.json", 0, job(0, 3))
    assert analysed([str(tmp_path)]).unseen == []
    assert json.loads((tmp_path / "0.json").read_text())["traceEvents"]
