"""The way of a GPU's works without one: a device that pretends, for control flow only."""

import time
from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from wirespeed.model.compute_records import ComputeRate
from wirespeed.plan import ComputeWork, Measure
from wirespeed.rank.compute import jobs, proof
from wirespeed.rank.compute.sensors import Felt
from wirespeed.rank.compute.units import Unit
from wirespeed.rank.compute.worker import Worker
from wirespeed.rank.faulty_engine import Fault

HOW = Measure(iterations=6)
H100 = "NVIDIA H100 80GB HBM3"


class Event:
    """A clock that counts in milliseconds, as CUDA's."""

    def __init__(self, **_: Any) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        return None

    def elapsed_time(self, later: "Event") -> float:
        return max(later.at - self.at, 1e-6) * 1e3


@pytest.fixture
def cuda(monkeypatch: Any) -> Any:
    stream = SimpleNamespace(wait_stream=lambda _: None)
    for name, value in (
        ("Event", Event),
        ("Stream", lambda *_: stream),
        ("current_stream", lambda *_: stream),
        ("stream", lambda _: nullcontext()),
        ("mem_get_info", lambda _: (1 << 30, 1 << 30)),
        ("device_count", lambda: 1),
        ("empty_cache", lambda: None),
    ):
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self.clone())
    monkeypatch.setattr(jobs, "_LEAST", 1 << 10)
    for name, value in (("GPU_SIDE", 32), ("GPU_INNER", 64), ("GPU_TILES", 2)):
        monkeypatch.setattr(proof, name, value)
    return monkeypatch


def worker(*faults: str) -> Worker:
    place: Any = SimpleNamespace(
        hosts=("here",),
        rank=0,
        gpus=("",),
        device=torch.device("cpu"),
        tick=lambda: None,
        cache_bytes=1 << 20,
    )
    unit = Unit("gpu", "cuda:0", H100, 0, stricken=((0, 0),))
    return Worker(place, unit, [Fault.parse(text) for text in faults], 1)


def timed(work: ComputeWork) -> ComputeRate:
    one = worker()
    with ExitStack() as stack:
        one.prepare(stack, work, sharing=1)
        one.begin(1)
        while one.look(HOW)[0] < 6:
            one.chunk(HOW)
        told = one.told(work, Felt(), together=True)
    one.release()
    return told


@pytest.mark.parametrize("op", ["copy", "triad", *jobs.OVER_PCIE])
def test_each_copy_is_timed_and_compared(cuda: Any, op: Any) -> None:
    told = timed(ComputeWork(op=op, on="gpu", size_bytes=1 << 16))
    assert (told.reason, told.samples, told.wrong) == ("", 6, 0)
    assert told.own_per_second == told.per_second > 0
    assert told.slowest == ""
    assert told.peak == (3.35e12 if op in jobs.MEMORY else 0)


def test_without_another_gpu_nothing_goes_there(cuda: Any) -> None:
    assert "no other GPU" in timed(ComputeWork(op="peer", on="gpu", size_bytes=1 << 16)).reason


def test_products_have_their_peak(cuda: Any) -> None:
    told = timed(ComputeWork(op="gemm", on="gpu", dtype="bfloat16", shape=(32, 32, 32)))
    assert (told.reason, told.peak, told.shape) == ("", 989.4e12, "32x32x32")


def test_a_gpu_is_proven_in_tiles(cuda: Any) -> None:
    work = ComputeWork(op="gemm", on="gpu", dtype="bfloat16")
    good = worker().proof(work, 0.0)
    assert (good.shape, good.faults, good.reason) == ("64x64x64", (), "")
    (fault, *_) = worker("mantissa:rank=0").proof(work, 0.0).faults
    assert (fault.core, fault.kind) == ("", "known")
