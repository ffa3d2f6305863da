"""What a device is given to do: calls on buffers of its own, one for each core."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from wirespeed.collectives.oracle import bits
from wirespeed.errors import CannotMeasure
from wirespeed.model.units import format_size
from wirespeed.plan import ComputeWork
from wirespeed.rank.compute.devices import Cores, Device, Fire
from wirespeed.rank.compute.products import arithmetic, multiplier, operands
from wirespeed.rank.compute.units import Unit

_CACHES = 4
"""Arrays of all cores together are so many times the last-level cache (STREAM's rule)."""
_LEAST, _MOST = 16 << 20, 512 << 20
"""Bytes of one array of a core."""
_GPU_BYTES, _LINK_BYTES = 1 << 30, 256 << 20
MEMORY = ("copy", "triad")
OVER_PCIE = ("h2d", "d2h", "h2d_pageable", "d2h_pageable", "both_ways")
"""Operations whose buffers lie in both memories."""
_OF_FREE = 0.25
"""Share of the free memory that the arrays of all devices of a node may take."""
_ELEMENT_BYTES = 12
"""Of an operand while it is made at most: float32 and float64, or int64 and twice int8."""
_CHAIN = 1 << 17
"""Numbers of a running sum: with their sums they lie in a core's own cache."""
_Pair = tuple[torch.Tensor, torch.Tensor]
"""Source and target."""
_NUMBERS = 1021
"""What is copied repeats itself after so many, a prime: a block in another's place is seen."""


@dataclass(frozen=True, slots=True)
class Job:
    fires: list[Fire]
    amount: float
    """Operations, or bytes, of one call."""
    size_bytes: int
    wrong: Callable[[], int] | None
    """Elements of the last results that are not what they must be."""


@contextmanager
def job_for(
    unit: Unit, device: Device, work: ComputeWork, *, cache: int, free: int
) -> Iterator[Job]:
    """Buffers live as long as this. CannotMeasure where that cannot be done here, with the reason.

    cache: bytes of the last-level cache; free: bytes that this device may fill.
    """
    if work.op == "gemm":
        with arithmetic(work.dtype, device.torch_device):
            yield _product(device, work, free)
        return
    if work.op == "chain":
        yield _chain(device)
        return
    arrays = 3 if work.op == "triad" else 4 if work.op == "both_ways" else 2
    size = work.size_bytes or _size(unit, device, cache, work.op)
    most = int(free * _OF_FREE) // arrays // device.lanes
    if size > most and (work.size_bytes or most < _LEAST):
        raise CannotMeasure(
            f"{arrays} arrays of {format_size(size)} a core, or GPU, need more than a quarter of the "
            f"{format_size(free)} that are free"
        )
    count = min(size, most) // 4
    yield _triad(device, count) if work.op == "triad" else _copies(unit, device, work.op, count)


def _size(unit: Unit, device: Device, cache: int, op: str) -> int:
    if unit.kind == "gpu":
        return _LINK_BYTES if op in OVER_PCIE else _GPU_BYTES
    return min(_MOST, max(_LEAST, _CACHES * cache // device.lanes))


def _product(device: Device, work: ComputeWork, free: int) -> Job:
    multiply = multiplier(work.dtype, device.torch_device)
    rows, columns, inner = work.shape
    elements = rows * inner + inner * columns + rows * columns
    if (need := _ELEMENT_BYTES * elements * device.lanes) > free:
        raise CannotMeasure(
            f"operands take {format_size(need)} of {device.lanes} core(s) or GPUs, and "
            f"{format_size(free)} are free"
        )

    def bound(_: int) -> Fire:
        a, b, out = operands(work.dtype, work.shape, device.torch_device)
        return lambda: multiply(a, b, out)

    return Job(device.each(bound), 2.0 * rows * columns * inner, 0, None)


def _chain(device: Device) -> Job:
    """Running sums: each addition waits for the one before, so that their rate follows a core's clock.

    What shares the core, its caches or its memory hardly changes it.
    """

    def bound(_: int) -> Fire:
        numbers, sums = torch.ones(_CHAIN), torch.empty(_CHAIN)
        return lambda: torch.cumsum(numbers, 0, out=sums)

    return Job(device.each(bound), float(_CHAIN), 0, None)


def _triad(device: Device, count: int) -> Job:
    """a = b + 2 c, three arrays: `triad` of J. D. McCalpin's STREAM, 12 bytes an element."""

    def bound(_: int) -> tuple[Fire, torch.Tensor]:
        a, b, c = (
            torch.full((count,), value, device=device.torch_device) for value in (0.0, 3.0, 2.0)
        )
        return lambda: torch.add(b, c, alpha=2, out=a), a

    found = device.each(bound)
    outs = [out for _, out in found]
    return Job(
        [fire for fire, _ in found],
        12.0 * count,
        4 * count,
        lambda: sum(device.each(lambda lane: int((outs[lane] != 7.0).sum()))),
    )


def _copies(unit: Unit, device: Device, op: str, count: int) -> Job:
    """Within a device a byte counts twice, read and written; over a link once."""
    if unit.kind == "gpu":
        pairs = [_gpu_pairs(device.torch_device, op, count)]
    elif op == "numa":
        pairs = _far_pairs(unit, device, count)
    else:
        pairs = device.each(lambda _: [_pair(count)])

    def fire(own: list[_Pair]) -> Fire:
        if len(own) == 1:
            source, target = own[0]
            return lambda: target.copy_(source, non_blocking=True)
        side = torch.cuda.Stream(device.torch_device)

        def both() -> None:
            side.wait_stream(torch.cuda.current_stream(device.torch_device))
            own[0][1].copy_(own[0][0], non_blocking=True)
            with torch.cuda.stream(side):
                own[1][1].copy_(own[1][0], non_blocking=True)
            torch.cuda.current_stream(device.torch_device).wait_stream(side)

        return both

    def differing(lane: int) -> int:
        return sum(int((bits(a.to(b.device)) != bits(b)).sum()) for a, b in pairs[lane])

    amount = 4.0 * count * (2 if op in ("copy", "both_ways") else 1)
    return Job([fire(own) for own in pairs], amount, 4 * count, lambda: sum(device.each(differing)))


def _pair(count: int) -> _Pair:
    """Touched first by who calls: both lie at its NUMA node."""
    return _numbers(count, torch.device("cpu")), torch.zeros(count)


def _numbers(count: int, device: torch.device) -> torch.Tensor:
    return (torch.arange(count, device=device, dtype=torch.int64) % _NUMBERS).to(torch.float32)


def _far_pairs(unit: Unit, device: Device, count: int) -> list[list[_Pair]]:
    """Sources lie at the next NUMA node, targets at the own one."""
    far = Cores(unit.beside, lambda: None)
    share = [lane % far.lanes for lane in range(device.lanes)]
    sources = far.each(
        lambda there: {
            lane: _numbers(count, device.torch_device)
            for lane, at in enumerate(share)
            if at == there
        }
    )
    targets = device.each(lambda _: torch.zeros(count))
    return [[(sources[share[lane]][lane], target)] for lane, target in enumerate(targets)]


def _gpu_pairs(here: torch.device, op: str, count: int) -> list[_Pair]:
    """Two where both ways are copied at once."""

    def host(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if op.endswith("pageable") else tensor.pin_memory()

    def up() -> _Pair:
        return host(_numbers(count, torch.device("cpu"))), torch.zeros(count, device=here)

    def down() -> _Pair:
        return _numbers(count, here), host(torch.zeros(count))

    if op == "peer":
        return [(_numbers(count, here), torch.zeros(count, device=_peer(here)))]
    if op == "both_ways":
        return [up(), down()]
    if op == "copy":
        return [(_numbers(count, here), torch.zeros(count, device=here))]
    return [up() if op.startswith("h2d") else down()]


def _peer(here: torch.device) -> torch.device:
    """The next GPU that this process sees."""
    seen = torch.cuda.device_count()
    if seen < 2:
        raise CannotMeasure("this rank sees no other GPU (CUDA_VISIBLE_DEVICES)")
    return torch.device("cuda", ((here.index or 0) + 1) % seen)
