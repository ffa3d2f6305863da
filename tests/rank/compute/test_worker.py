"""A device that refuses, one that breaks, and how many samples are enough."""

import gc
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from wirespeed.plan import ComputeWork, Measure
from wirespeed.rank.compute import jobs
from wirespeed.rank.compute import worker as module
from wirespeed.rank.compute.devices import Cores, Fire, Spent
from wirespeed.rank.compute.sensors import Felt
from wirespeed.rank.compute.units import Unit
from wirespeed.rank.compute.worker import Worker
from wirespeed.rank.faulty_engine import Fault

HOW = Measure(iterations=6)
GEMM = ComputeWork(op="gemm", on="cpu", shape=(32, 32, 32))


def worker(*faults: str) -> Worker:
    place: Any = SimpleNamespace(
        hosts=("here",),
        rank=0,
        gpus=("",),
        device=torch.device("cpu"),
        tick=lambda: None,
        cache_bytes=1 << 20,
    )
    unit = Unit("cpu", "NUMA node 0", "CPU", 0, (0, 0), (0,), ((0, 0),))
    return Worker(place, unit, [Fault.parse(text) for text in faults], 1)


def timed(one: Worker, work: ComputeWork) -> Any:
    with ExitStack() as stack:
        one.prepare(stack, work, sharing=1)
        one.begin(0)
        while one.look(HOW)[0] < 6:
            one.chunk(HOW)
        return one.told(work, Felt(), together=True)


def test_a_rate_is_operations_over_seconds_of_the_cores() -> None:
    told = timed(worker(), GEMM)
    assert (told.samples, told.reason, told.shape) == (6, "", "32x32x32")
    assert told.own_per_second >= 0.99 * told.per_second > 0
    assert told.slowest == "core 0"


def test_a_running_sum_counts_additions() -> None:
    told = timed(worker(), ComputeWork(op="chain", on="cpu"))
    assert told.own_per_second > 1e7, "and no bytes"
    assert told.text(1.3e9) == "1.30 GFLOP/s"


def test_what_slows_a_core_down_now_and_then_is_not_its_own_rate() -> None:
    unit, often, once = worker().unit, [70.0] * 15 + [100.0] * 5, [70.0] * 19 + [100.0]
    assert (module.own_rate(unit, often), module._spread(unit, often)) == (100, 0)
    assert module._spread(unit, once) > 0.2, "one sample alone is not sure"


def test_buffers_are_gone_when_the_next_ones_are_made() -> None:
    def large() -> int:
        return sum(
            isinstance(one, torch.Tensor) and one.numel() == 3 << 19 for one in gc.get_objects()
        )

    one = worker()
    timed(one, ComputeWork(op="copy", on="cpu", size_bytes=3 << 21))
    assert large()
    one.release()
    assert not large()


_PEAK = """
import sys
from pathlib import Path
import torch
from wirespeed.rank.compute.products import operands
def peak():  # rusage would tell of who started this process, too
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10
operands(sys.argv[1], (8, 8, 8), torch.device("cpu"), 1)
Path("/proc/self/clear_refs").write_text("5")  # what it took so far is forgotten: proc(5)
before = peak()
operands(sys.argv[1], (8, 4096, 4096), torch.device("cpu"), 1)
print((peak() - before) / 4096**2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "int8"])
def test_operands_take_no_more_memory_than_they_are_counted_for(dtype: str) -> None:
    words = [sys.executable, "-c", _PEAK, dtype]
    peak = float(subprocess.run(words, capture_output=True, timeout=60, check=True).stdout)
    assert 8 < peak <= jobs._ELEMENT_BYTES * 1.1


def test_what_torch_does_not_have_is_no_fault() -> None:
    told = timed(worker(), ComputeWork(op="gemm", on="cpu", dtype="tf32", shape=(8, 8, 8)))
    assert (told.broke, told.reason) == (False, "this device has no TF32")
    told = timed(worker(), ComputeWork(op="copy", on="cpu", size_bytes=1 << 60))
    assert "are free" in told.reason
    assert not told.broke


def test_a_device_that_breaks_is_not_asked_again(monkeypatch: Any) -> None:
    one, asked = worker(), []

    def fails(self: Cores, fires: Sequence[Fire], counts: Sequence[int]) -> list[Spent]:
        asked.append(counts)
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")

    monkeypatch.setattr(Cores, "timed", fails)
    told = timed(one, GEMM)
    assert (told.broke, told.per_second) == (True, 0.0)
    assert "uncorrectable" in told.reason
    again = timed(one, GEMM)
    assert "before" in again.reason
    assert again.broke
    assert one.proof(GEMM, 0.0).broke
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("error", "broke"),
    [
        ("mat2 shape (32x100) must be divisible by 16", False),
        ("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul`", False),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`", True),
    ],
)
def test_a_refusal_of_one_product_does_not_end_the_others(
    monkeypatch: Any, error: str, broke: bool
) -> None:
    one, times = worker(), Cores.timed

    def fails(self: Cores, fires: Sequence[Fire], counts: Sequence[int]) -> list[Spent]:
        raise RuntimeError(error)

    monkeypatch.setattr(Cores, "timed", fails)
    told = timed(one, GEMM)
    assert (told.broke, told.reason) == (broke, error)
    monkeypatch.setattr(Cores, "timed", times)
    assert bool(timed(one, GEMM).reason) == broke


def test_copies_are_compared_with_their_source(monkeypatch: Any) -> None:
    for op in ("copy", "numa", "triad"):
        work = ComputeWork(op=op, on="cpu", size_bytes=1 << 16)
        assert timed(worker(), work).wrong == 0
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, *_, **__: self)
    assert timed(worker(), ComputeWork(op="copy", on="cpu", size_bytes=1 << 16)).wrong > 0


def test_the_fault_slow_takes_five_percent() -> None:
    assert module.slowness(worker("slow:rank=0").unit, [Fault.parse("slow:rank=0")]) == 1.05
