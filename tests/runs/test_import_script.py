"""The JSON of a DDP benchmark script: what is taken, what is left out, what is refused."""

import json
from typing import Any

import pytest

from wirespeed.errors import InputError
from wirespeed.model.codec import to_json, validated
from wirespeed.model.records import Run
from wirespeed.runs.importers import import_bytes
from wirespeed.views import Style, render


def document(**results: Any) -> dict[str, Any]:
    return {
        "name": "benchmark_4gpu",
        "world_size": 4,
        "timestamp": "2026-03-01T10:20:30.123456",
        "config": {"warmup_iters": 10, "benchmark_iters": 50, "device": "NVIDIA H100 80GB HBM3"},
        "results": results,
    }


COMM = {
    "allreduce": {"1024KB": {"time_ms": 0.05, "bandwidth_GB_s": 31.457}},
    "allgather": {"1024KB": {"time_ms": 0.1, "bandwidth_GB_s": 31.457}},
    "reduce_scatter": {"1024KB": {"time_ms": 0.05, "bandwidth_GB_s": 15.73}},
    "p2p": {"1024KB": {"time_ms": 0.02, "bandwidth_GB_s": 52.4}},
}
TRAINING = {
    "training_results": [
        {
            "model_size": "small",
            "num_parameters": 500_000,
            "batch_size": 16,
            "global_batch_size": 64,
            "samples_per_sec": 12_800.0,
            "time_per_step_ms": 5.0,
            "memory_gb": 0.01,
        }
    ]
}


def read(data: Any) -> Any:
    return import_bytes(json.dumps(data).encode(), name="benchmark_4gpu.json")


def test_all_that_can_be_used_is_taken() -> None:
    (run,) = read(document(communication=COMM, training=TRAINING, memory={}))
    validated(Run, to_json(run), source="import")
    by_op = {m.op: m for m in run.measurements}
    assert set(by_op) == {"all_reduce", "all_gather", "reduce_scatter", "send_recv"}
    assert by_op["all_reduce"].size_bytes == 1 << 20
    assert by_op["all_gather"].size_bytes == 4 << 20, "nccl-tests counts what all ranks gather"
    assert by_op["all_reduce"].time.mean == pytest.approx(50e-6)
    for m in run.measurements:
        assert m.algbw == pytest.approx(m.size_bytes / m.time.mean, rel=0.01)
    (step,) = run.training
    assert (step.strategy, step.batch, step.ranks, step.step.samples) == ("ddp", 64, 4, 50)
    assert step.step.mean == pytest.approx(5e-3)
    assert step.memory is None
    assert [finding.id for finding in run.findings] == ["IMP-007"]
    assert (run.verdict, run.exit_code, run.started) == ("NONE", 0, "2026-03-01T10:20:30.123Z")
    assert "small (script's MLP)" in render(run, "table", Style())


def test_only_communication() -> None:
    (run,) = read(document(communication=COMM))
    assert not run.training
    assert not run.findings


@pytest.mark.parametrize(
    "data",
    [
        document(),
        document(communication={"allreduce": {"1024KB": {"time_ms": 0, "bandwidth_GB_s": 1}}}),
        document(communication={"allreduce": {"big": {"time_ms": 1, "bandwidth_GB_s": 1}}}),
        document(communication={"allreduce": {"1KB": {"time_ms": "1", "bandwidth_GB_s": 1}}}),
        document(training={"training_results": ["x"]}),
        {**document(communication=COMM), "world_size": "four"},
        {**document(communication=COMM), "results": []},
    ],
)
def test_what_is_damaged_is_refused(data: Any) -> None:
    with pytest.raises(InputError) as caught:
        read(data)
    assert "benchmark_4gpu.json" in caught.value.saw


def test_it_is_stored_and_shown(cli: Any, tmp_path: Any) -> None:
    file = tmp_path / "benchmark.json"
    file.write_text(json.dumps(document(training=TRAINING)))
    done = cli.here("runs", "import", str(file))
    assert done.code == 0, done.err
    assert "1 training result, at most 12,800 samples/s" in done.out
    shown = cli.here("runs", "show", "last", "-o", "json")
    assert shown.json["training"][0]["samples_per_s"] == 12_800
