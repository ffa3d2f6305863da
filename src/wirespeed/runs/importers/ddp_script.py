"""The JSON of a known benchmark script for DDP: {name, world_size, timestamp, config, results}.

Source: distributed-training/benchmarks/distributed_benchmarks.py of sdodlapati3/cuda-lab. What it
writes, and what of it can be taken:

- communication: `time_ms` is the mean over calls back to back with a barrier at their end, on rank
  0's clock, always after 10 calls over 100 (whatever --warmup and --iters say). `bandwidth_GB_s` is
  busbw as nccl-tests has it; for p2p the time holds a barrier.
- training: the mean step of torch's DDP on rank 0's clock. `memory_gb` is read right after the
  counter was reset, so it is no peak and is left out.
- memory: activations are taken without gradients, and gradients are not measured: left out.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from wirespeed.errors import InputError
from wirespeed.model.records import Choice, Measurement, Run, World
from wirespeed.model.training_records import Spread, Training
from wirespeed.runs.findings import make_finding
from wirespeed.runs.importers.table import OPERATIONS, one_figure
from wirespeed.runs.importers.told import GIGA, imported

_OPS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "p2p": "send_recv",
}
_CALLS, _WARMUP = 100, 10
_MOST_RANKS = 1 << 20


def run_of_script(data: Mapping[str, Any], *, name: str) -> Run:
    """The run; InputError where the document holds no figures."""
    ranks, results = data["world_size"], data["results"]
    if not isinstance(ranks, int) or not 1 <= ranks <= _MOST_RANKS or not isinstance(results, dict):
        raise InputError(
            f"{name}: world_size {str(ranks)[:40]!r} with results of another kind",
            expected="a number of ranks, and an object of results",
        )
    measurements = tuple(_communication(results.get("communication"), ranks, name))
    training = tuple(_training(results.get("training"), data.get("config"), ranks, name))
    if not measurements and not training:
        raise InputError(
            f"{name}: no figures of communication or training in it",
            expected="results with `communication` or `training`",
        )
    config = data.get("config")
    memory = "training" in results or "memory" in results
    why = "the script writes one mean, from rank 0's clock alone"
    return imported(
        [make_finding("memory_left_out")] if memory else [],
        {"source": name, **(config if isinstance(config, dict) else {})},
        started=_started(data["timestamp"]),
        world=World(size=ranks, nodes=(), backend="nccl", launcher="torchrun"),
        choices=(Choice("interval", "not known", why),),
        measurements=measurements,
        training=training,
    )


def _communication(part: object, ranks: int, name: str) -> Iterator[Measurement]:
    for theirs, rows in _items(part):
        if theirs not in _OPS:
            continue
        op = OPERATIONS[_OPS[theirs]]
        for label, row in _items(rows):
            seconds = _positive(row, "time_ms", name) / 1e3
            busbw = _positive(row, "bandwidth_GB_s", name) * GIGA
            factor = op.bus_factor(ranks) or 1.0
            algbw = busbw / factor
            size = _bytes(label, name) * (ranks if op.name == "all_gather" else 1)
            yield Measurement(
                op=op.name,
                engine="torch",
                dtype="float32",
                redop="sum" if op.reduces else "none",
                root=-1,
                in_place=op.name == "all_reduce",
                size_bytes=size,
                count=size // 4,
                ranks=ranks,
                timing="batch",
                warmup=_WARMUP,
                iterations=_CALLS,
                time=one_figure(seconds),
                algbw=algbw,
                busbw=busbw,
            )


def _training(part: object, config: object, ranks: int, name: str) -> Iterator[Training]:
    rows = part.get("training_results") if isinstance(part, dict) else None
    steps = config.get("benchmark_iters") if isinstance(config, dict) else None
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict):
            raise InputError(f"{name}: a training result that is no object", expected="an object")
        mean = _positive(row, "time_per_step_ms", name) / 1e3
        batch = int(_positive(row, "global_batch_size", name))
        yield Training(
            strategy="ddp",
            bucket_mb=25.0,
            model=f"{str(row.get('model_size', 'unknown'))[:40]} (script's MLP)",
            ranks=ranks,
            nodes=0,
            batch=batch,
            rounds=1,
            step=Spread(
                mean=mean,
                std=0.0,
                low=mean,
                high=mean,
                samples=steps if isinstance(steps, int) and steps > 0 else 1,
            ),
            samples_per_s=_positive(row, "samples_per_sec", name),
        )


def _items(part: object) -> list[tuple[str, Any]]:
    return list(part.items()) if isinstance(part, dict) else []


def _positive(row: object, key: str, name: str) -> float:
    value = row.get(key) if isinstance(row, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e15:
        raise InputError(f"{name}: {key} is {str(value)[:40]!r}", expected="a number above 0")
    return float(value)


def _bytes(label: str, name: str) -> int:
    number = label.removesuffix("KB")
    if not number.isdecimal() or len(number) > 12:
        raise InputError(f"{name}: size {label[:40]!r}", expected="such as 1024KB")
    return int(number) * 1024


def _started(stamp: object) -> str:
    """ISO 8601; the script writes local time without a zone, which is taken as UTC."""
    try:
        return datetime.fromisoformat(str(stamp)).isoformat(timespec="milliseconds") + "Z"
    except ValueError:
        return "1970-01-01T00:00:00.000Z"
