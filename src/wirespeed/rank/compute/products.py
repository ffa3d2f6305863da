"""Matrix products by type: how each is called, and operands whose product is known bit for bit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isqrt

import torch

from wirespeed.collectives.oracle import bits
from wirespeed.errors import CannotMeasure

Multiply = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]
"""(a, b, out)."""


@dataclass(frozen=True, slots=True)
class _Type:
    """How products of one type are made."""

    operands: torch.dtype
    result: torch.dtype
    exact_to: int
    """Whole numbers up to this are exact in the result, in whatever order they are added up."""
    largest: int
    """Whole numbers up to this are exact in the operands."""


_TYPES = {
    "float64": _Type(torch.float64, torch.float64, 2**53, 2**20),
    "float32": _Type(torch.float32, torch.float32, 2**24, 2**24),
    "tf32": _Type(torch.float32, torch.float32, 2**24, 2**11),
    "float16": _Type(torch.float16, torch.float16, 2**11, 2**11),
    "bfloat16": _Type(torch.bfloat16, torch.bfloat16, 2**8, 2**8),
    "float8_e4m3fn": _Type(torch.float8_e4m3fn, torch.bfloat16, 2**8, 2**4),
    "int8": _Type(torch.int8, torch.int32, 2**31 - 1, 63),
}
"""int8: oneDNN without AVX-512 VNNI shifts one operand to 0 to 255 and adds up pairs in 16 bits, which
numbers beyond 63 may overflow: a product that is wrong by design. float8: 16 is the last of the whole
numbers without a gap; its products are added up in 14 bits or more on sm90 without fast accumulation."""


_TF32_FROM = (8, 0)


def multiplier(dtype: str, device: torch.device) -> Multiply:
    """The call; RuntimeError where this torch or device has no such product, once it is tried.

    CannotMeasure for TF32 before sm80: float32 would be multiplied, and nothing said.
    """
    if dtype == "tf32" and (
        device.type != "cuda" or torch.cuda.get_device_capability(device) < _TF32_FROM
    ):
        raise CannotMeasure("this device has no TF32")
    if dtype == "int8":
        return lambda a, b, out: torch._int_mm(a, b, out=out)
    if dtype == "float8_e4m3fn":
        one = torch.ones((), device=device)
        return lambda a, b, out: torch._scaled_mm(
            a, b, scale_a=one, scale_b=one, out_dtype=out.dtype, out=out
        )
    return lambda a, b, out: torch.mm(a, b, out=out)


@contextmanager
def arithmetic(dtype: str, device: torch.device) -> Iterator[None]:
    """TF32 only where it is asked for, and no sums of halves that are halves themselves."""
    if device.type != "cuda":
        yield
        return
    flags = torch.backends.cuda.matmul
    names = (
        "allow_tf32",
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    )
    before = [getattr(flags, name) for name in names]
    try:
        for name in names:
            setattr(flags, name, name == "allow_tf32" and dtype == "tf32")
        yield
    finally:
        for name, value in zip(names, before, strict=True):
            setattr(flags, name, value)


def operands(
    dtype: str, shape: tuple[int, int, int], device: torch.device, seed: int | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(a, b, room for the result), of numbers that use all bits of the mantissa.

    With a seed the same on all devices, which the host then draws: seconds for a large product.
    """
    kind = _TYPES[dtype]
    rows, columns, inner = shape
    draw = None if seed is None else torch.Generator().manual_seed(seed)
    at = device if draw is None else torch.device("cpu")
    sizes = (rows, inner), (inner, columns)
    if dtype == "int8":
        a, b = (torch.randint(-127, 128, size, generator=draw, device=at) for size in sizes)
    else:
        a, b = (torch.randn(size, generator=draw, device=at) for size in sizes)
    out = torch.empty(rows, columns, dtype=kind.result, device=device)
    return a.to(kind.operands).to(device), _second(dtype, b.to(kind.operands).to(device)), out


def _second(dtype: str, b: torch.Tensor) -> torch.Tensor:
    """By columns where the kernels of small types take it so: float8 only, int8 at its full speed."""
    return b.t().contiguous().t() if dtype in ("float8_e4m3fn", "int8") else b


def known(
    dtype: str, side: int, inner: int, tiles: int, device: torch.device, seed: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(a, b, their product) of whole numbers whose sums are exact in any order.

    a is `tiles` times the same `side` rows, b the same of columns, so that all blocks of the product are
    equal. It is computed with integers, by other units of a processor than those that are proven. Where
    sums could grow beyond what the result holds exactly, the rest of a row of `a` is zero.
    """
    kind = _TYPES[dtype]
    most = max(1, min(kind.largest, isqrt(kind.exact_to // inner)))
    draw = torch.Generator().manual_seed(seed)
    a, b = (
        torch.randint(-most, most + 1, size, generator=draw)
        for size in ((side, inner), (inner, side))
    )
    a *= a.abs().cumsum(1) <= kind.exact_to // most
    product = (a @ b).repeat(tiles, tiles).to(kind.result)
    a, b = a.repeat(tiles, 1).to(kind.operands), b.repeat(1, tiles).to(kind.operands)
    return a.to(device), _second(dtype, b.to(device)), product.to(device)


_ODD = 0x1E3779B97F4A7C15
"""The golden ratio's digits: neighbouring places get factors that have little in common."""


def digest(result: torch.Tensor) -> int:
    """64 bits of all bits of a tensor and their places, the same on any device.

    The sum of each element's bits times an odd number of its place, in integers that wrap around.
    """
    whole = bits(result.contiguous()).flatten().to(torch.int64)
    places = torch.arange(1, 2 * whole.numel(), 2, device=result.device)
    return int(((whole + 1) * (places * _ODD)).sum()) % 2**64
