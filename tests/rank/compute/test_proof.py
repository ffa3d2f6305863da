"""Products that are known bit for bit, and devices that are made to compute wrong."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from wirespeed.rank.compute import faults, proof
from wirespeed.rank.compute.devices import Cores
from wirespeed.rank.compute.faults import corruptions, slowness
from wirespeed.rank.compute.products import digest, known, multiplier, operands
from wirespeed.rank.compute.proof import Proven, prove
from wirespeed.rank.compute.units import Unit
from wirespeed.rank.faulty_engine import Fault

CPU = torch.device("cpu")
TYPES = ("float64", "float32", "bfloat16", "float16", "int8", "float8_e4m3fn")


@pytest.mark.parametrize("dtype", TYPES)
def test_the_known_product_is_what_this_machine_computes(dtype: str) -> None:
    a, b, expected = known(dtype, 64, 128, 2, CPU, seed=3)
    out = torch.empty_like(expected)
    multiplier(dtype, CPU)(a, b, out)
    assert torch.equal(out, expected)
    assert expected.shape == (128, 128)
    assert len(set(expected.flatten().tolist())) > 20, "not a constant"


@pytest.mark.parametrize(
    ("dtype", "most"), [("float32", 2**24), ("float16", 2**11), ("bfloat16", 2**8)]
)
def test_sums_stay_exact_in_any_order(dtype: str, most: int) -> None:
    a, b, _ = known(dtype, 64, 512, 1, CPU, seed=3)
    assert float((a.abs().double() @ b.abs().double()).max()) <= most


_INT8 = """
import torch
from wirespeed.rank.compute.products import known, multiplier
cpu = torch.device("cpu")
a, b, expected = known("int8", 512, 512, 1, cpu, seed=3)
out = torch.empty_like(expected)
multiplier("int8", cpu)(a, b, out)
raise SystemExit(not torch.equal(out, expected))
"""


@pytest.mark.slow
@pytest.mark.parametrize("units", ["SSE41", "AVX2", "AVX512_CORE"])
def test_processors_without_vnni_multiply_int8_right(units: str) -> None:
    """oneDNN adds up pairs in 16 bits there."""
    told = {**os.environ, "ONEDNN_MAX_CPU_ISA": units}
    assert subprocess.run([sys.executable, "-c", _INT8], env=told, timeout=60).returncode == 0


def test_a_digest_sees_one_bit_and_a_change_of_places() -> None:
    result = operands("float32", (32, 32, 32), CPU, 1)[0]
    before = digest(result)
    flipped, swapped = result.clone(), result.clone()
    flipped.view(torch.int32)[5, 7] ^= 1
    swapped[0, 0], swapped[0, 1] = result[0, 1], result[0, 0]
    assert len({before, digest(flipped), digest(swapped)}) == 3
    assert digest(result.clone()) == before


@pytest.fixture(autouse=True)
def small(monkeypatch: Any) -> None:
    """Products that take no time."""
    monkeypatch.setattr(proof, "CPU_SIDE", 64)
    monkeypatch.setattr(faults, "_RARE", 1000)


def proven(*told: str, cores: int = 3) -> Proven:
    """On cores that are all the machine's first: the thread's number is what counts."""
    stricken = tuple((n, n) for n in range(cores))
    unit = Unit("cpu", "NUMA node 0", "CPU", 0, tuple(range(cores)), stricken=stricken)
    return prove(
        unit,
        Cores((0,) * cores, lambda: None),
        "float32",
        seconds=0.0,
        seed=1,
        corrupt=corruptions(unit, [Fault.parse(text) for text in told]),
        tick=lambda: None,
    )


def test_good_cores_agree() -> None:
    one = proven()
    assert (one.faults, one.odd, one.products) == ((), (), 12)
    assert one.digest
    assert one.digest == proven(cores=1).digest


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("mantissa:rank=1", {"bits": "mantissa bit 0, mantissa bit 2"}),
        ("lane:rank=1", {"bits": "mantissa bit 0", "pattern": "every one in columns 3 of each 16"}),
        ("rare:rank=1,after=1", {"kind": "known"}),
    ],
)
def test_a_fault_is_found_on_its_core(fault: str, told: dict[str, Any]) -> None:
    one = proven(fault)
    assert {wrong.core for wrong in one.faults} == {"core 1"}
    assert all(getattr(one.faults[0], name) == value for name, value in told.items())


def test_wrong_the_same_way_every_time_is_seen_beside_the_other_cores() -> None:
    assert proven("lane:rank=2").odd == ("core 2",)


def test_wrong_now_and_then_is_seen_by_repeats() -> None:
    kinds = {wrong.kind for wrong in proven("mantissa:rank=0,after=2", cores=1).faults}
    assert "repeated" in kinds


def test_a_slow_device_is_slow_as_a_whole() -> None:
    unit = Unit("cpu", "NUMA node 0", "CPU", 0, (0, 1), stricken=((0, 0), (1, 3)))
    assert slowness(unit, [Fault.parse("slow:rank=3")]) == 1.05
    assert slowness(unit, [Fault.parse("slow:rank=2")]) == 1.0
