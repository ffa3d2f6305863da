"""What NCCL can reduce, and which errors only say that it cannot."""

import sys

import pytest
import torch
import torch.distributed as dist

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.engines import open_engine
from wirespeed.collectives.engines.torch_engine import TorchEngine, is_refusal
from wirespeed.errors import CannotMeasure


@pytest.mark.parametrize(
    ("backend", "capability", "op", "why"),
    [
        ("nccl", 90, "all_reduce", ""),
        ("nccl", 89, "all_reduce", "compute capability 9.0 or later, not 8.9"),
        ("nccl", 80, "all_gather", ""),
        ("gloo", 0, "all_reduce", "gloo does not reduce"),
    ],
    ids=["Hopper", "one older GPU in the world", "nothing to reduce", "gloo"],
)
def test_float8_is_reduced_where_every_gpu_can(
    backend: str, capability: int, op: str, why: str
) -> None:
    engine = TorchEngine(backend, torch.device("cpu"), capability=capability)
    said = engine.why_not(CATALOGUE[op], "float8_e4m3fn", "sum", False)
    assert why in said
    assert bool(why) == bool(said)


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (RuntimeError("Invalid scalar type"), True),
        (TypeError("Unconvertible NCCL type Short"), True),
        (RuntimeError("Float8 dtypes are not currenlty supported for NCCL reductions"), True),
        (RuntimeError("CUDA error: operation not supported"), False),
        (dist.DistBackendError("NCCL error: Cuda failure 'operation not supported'"), False),
    ],
)
def test_a_device_that_fails_is_no_backend_that_refuses(error: Exception, refused: bool) -> None:
    assert is_refusal(error) == refused


CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("engine", "package", "extra"),
    [("deepspeed", "deepspeed", "deepspeed"), ("mpi4py", "mpi4py", "mpi")],
)
def test_missing_extra(
    monkeypatch: pytest.MonkeyPatch, engine: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "wirespeed.collectives.engines.mpi_engine", raising=False)
    with pytest.raises(CannotMeasure) as caught:
        open_engine(engine, "gloo", CPU)
    assert engine in caught.value.saw
    assert caught.value.next == f"pip install 'wirespeed[{extra}]'"
    assert caught.value.exit_code == 3
