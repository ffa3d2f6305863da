"""What NCCL can reduce, and which errors only say that it cannot."""

import pytest
import torch
import torch.distributed as dist

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.engines.torch_engine import TorchEngine, is_refusal


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
