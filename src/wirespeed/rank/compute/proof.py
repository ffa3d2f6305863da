"""Does a device multiply right? Products whose result is known, and products that are repeated.

Each core of a device makes both in turn, for a while, all devices at once. A known product is compared
with its result bit for bit; a repeated one, of numbers that use every bit, with its own first result,
whose digest tells whether another core or device got another one.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch

from wirespeed.collectives.oracle import bits
from wirespeed.model.compute_records import WrongProducts
from wirespeed.rank.compute.devices import Device
from wirespeed.rank.compute.faults import Corrupt
from wirespeed.rank.compute.products import arithmetic, digest, known, multiplier, operands
from wirespeed.rank.compute.units import Unit

Kind = Literal["known", "repeated"]
CPU_SIDE, GPU_SIDE, GPU_INNER, GPU_TILES = 512, 1024, 2048, 4
_MANTISSA = {torch.float64: 52, torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}
_PERIODS = (4, 8, 16, 32, 64)
"""Of columns that one lane of a vector unit may make."""
_LOOKED_AT = 4096
"""Wrong elements whose bits and places are told."""
_TELLING = 4
"""Wrong columns from which on such an order is told."""


@dataclass(slots=True)
class _Seen:
    """Of one core and kind."""

    made: int = 0
    products: int = 0
    wrong: int = 0
    example: str = ""
    bits: str = ""
    pattern: str = ""

    def take(self, result: torch.Tensor, expected: torch.Tensor, number: int) -> None:
        self.made += 1
        if torch.equal(bits(result), bits(expected)):
            return
        differs = bits(result) != bits(expected)
        if not self.products:
            self._tell(result, expected, differs.nonzero()[:_LOOKED_AT], number)
        self.products += 1
        self.wrong += int(differs.sum())

    def _tell(
        self, result: torch.Tensor, expected: torch.Tensor, at: torch.Tensor, number: int
    ) -> None:
        row, column = at[0].tolist()
        seen, right = result[row, column].item(), expected[row, column].item()
        self.example = (
            f"product {number}, row {row}, column {column}: {seen!r} instead of {right!r}"
        )
        changed = (bits(result) ^ bits(expected))[at[:, 0], at[:, 1]].to(torch.int64).tolist()
        self.bits = _bits_told(changed, result.dtype)
        self.pattern = _pattern({column for _, column in at.tolist()})


def _bits_told(changed: list[int], dtype: torch.dtype) -> str:
    """`mantissa bit 12, 5`: those that differ, the most frequent first."""
    width = torch.empty(0, dtype=dtype).element_size() * 8
    count = Counter(bit for one in changed for bit in range(width) if one >> bit & 1)
    mantissa = _MANTISSA.get(dtype, width)
    named = [
        f"mantissa bit {bit}"
        if bit < mantissa < width
        else "sign"
        if bit == width - 1 and mantissa < width
        else f"exponent bit {bit - mantissa}"
        if mantissa < width
        else f"bit {bit}"
        for bit, _ in count.most_common(4)
    ]
    more = len(count) - len(named)
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _pattern(columns: set[int]) -> str:
    if len(columns) < _TELLING:
        return ""
    for period in reversed(_PERIODS):
        places = {column % period for column in columns}
        if len(places) == 1:
            return f"every one in columns {places.pop()} of each {period}"
    return ""


@dataclass(slots=True)
class _Core:
    """What one core, or the GPU, has seen."""

    known: _Seen = field(default_factory=_Seen)
    repeated: _Seen = field(default_factory=_Seen)
    digest: int = 0
    elements: int = 0


@dataclass(frozen=True, slots=True)
class Proven:
    products: int
    elements: int
    shape: tuple[int, int, int]
    digest: str
    odd: tuple[str, ...]
    faults: tuple[WrongProducts, ...]


def prove(
    unit: Unit,
    device: Device,
    dtype: str,
    *,
    seconds: float,
    seed: int,
    corrupt: dict[int, Corrupt],
    tick: Callable[[], None],
) -> Proven:
    """For `seconds`, but at least two products of a kind. RuntimeError where there is no such product.

    corrupt: what is done to the results of a core on purpose.
    """
    at = device.torch_device
    side, inner, tiles = (
        (GPU_SIDE, GPU_INNER, GPU_TILES) if unit.kind == "gpu" else (CPU_SIDE, CPU_SIDE, 1)
    )
    shape = (side * tiles, side * tiles, inner)
    multiply = multiplier(dtype, at)
    a, b, expected = known(dtype, side, inner, tiles, at, seed)
    given = operands(dtype, shape, at, seed + 1)

    def on_core(lane: int) -> _Core:
        core, spoil = _Core(), corrupt.get(lane, _as_it_is)
        out, first = torch.empty_like(expected), torch.empty_like(given[2])

        def made(one: torch.Tensor, two: torch.Tensor, room: torch.Tensor) -> torch.Tensor:
            room.zero_()  # a result that is not written is not that of the product before
            multiply(one, two, room)
            spoil(room)
            return room

        made(given[0], given[1], first)
        core.digest, end, number = digest(first), time.monotonic() + seconds, 0
        while number < 2 or time.monotonic() < end:
            number += 1
            core.known.take(made(a, b, out), expected, number)
            core.repeated.take(made(given[0], given[1], out), first, number)
            if unit.kind == "gpu":
                tick()
        core.elements = 2 * number * out.numel()
        return core

    with arithmetic(dtype, at):
        cores = device.each(on_core)
    return _told(unit, cores, shape)


def _as_it_is(_: torch.Tensor) -> None:
    return None


def _told(unit: Unit, cores: list[_Core], shape: tuple[int, int, int]) -> Proven:
    names = [f"core {cpu}" for cpu in unit.cpus] or [""]
    (most, times), *rest = Counter(core.digest for core in cores).most_common()
    settled = not rest or times > rest[0][1]
    odd = tuple(name for name, core in zip(names, cores, strict=True) if core.digest != most)
    kinds: tuple[Kind, ...] = ("known", "repeated")
    return Proven(
        products=sum(core.known.made + core.repeated.made for core in cores),
        elements=sum(core.elements for core in cores),
        shape=shape,
        digest=f"{most:016x}" if settled else "",
        odd=odd if settled else tuple(names),
        faults=tuple(
            WrongProducts(
                core=name,
                kind=kind,
                products=seen.products,
                made=seen.made,
                wrong=seen.wrong,
                example=seen.example,
                bits=seen.bits,
                pattern=seen.pattern,
            )
            for name, core in zip(names, cores, strict=True)
            for kind, seen in zip(kinds, (core.known, core.repeated), strict=True)
            if seen.products
        ),
    )
