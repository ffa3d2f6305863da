"""Devices that compute wrong or slowly on purpose, so that anybody can see a check catch it."""

import itertools
from collections.abc import Callable, Sequence
from random import Random

import torch

from wirespeed.collectives.oracle import bits
from wirespeed.rank.compute.units import Unit
from wirespeed.rank.faulty_engine import Fault

Corrupt = Callable[[torch.Tensor], None]
"""Changes a product in place."""

SLOWER = 1.05
"""Of a device that is slow on purpose, times are told so many times as long."""
_LANES, _STUCK = 16, 3
_RARE = 1_000_000


def corruptions(unit: Unit, faults: Sequence[Fault]) -> dict[int, Corrupt]:
    """By number of the core that they strike."""
    found = {}
    for lane, rank in unit.stricken:
        for fault in faults:
            if fault.rank == rank and fault.kind in _CHANGES:
                found[lane] = _in_turn(fault, _CHANGES[fault.kind]())
    return found


def slowness(unit: Unit, faults: Sequence[Fault]) -> float:
    """Times as long as the device really takes; 1: as it is."""
    slow = {fault.rank for fault in faults if fault.kind == "slow"}
    return SLOWER if any(rank in slow for _, rank in unit.stricken) else 1.0


def _in_turn(fault: Fault, change: Corrupt) -> Corrupt:
    """After `after` products, in every `every`-th."""
    numbers = itertools.count(1)

    def corrupt(product: torch.Tensor) -> None:
        late = next(numbers) - fault.after
        if late > 0 and late % fault.every == 0:
            change(product)

    return corrupt


def _mantissa() -> Corrupt:
    """Two bits of one element in the middle, of the lower half of its mantissa."""

    def flip(product: torch.Tensor) -> None:
        bits(product.view(-1))[product.numel() // 3].bitwise_xor_(0b101)

    return flip


def _lane() -> Corrupt:
    """One lane of sixteen always has its lowest bit set."""

    def stick(product: torch.Tensor) -> None:
        bits(product)[:, _STUCK::_LANES].bitwise_or_(1)

    return stick


def _rare() -> Corrupt:
    """One result in a million has its lowest bit flipped, at places that are drawn."""
    draw = Random(1)

    def flip(product: torch.Tensor) -> None:
        place = -1
        while (place := place + 1 + int(draw.expovariate(1 / _RARE))) < product.numel():
            bits(product.view(-1))[place].bitwise_xor_(1)

    return flip


_CHANGES: dict[str, Callable[[], Corrupt]] = {"mantissa": _mantissa, "lane": _lane, "rare": _rare}
