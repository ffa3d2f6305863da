"""Buffers of one configuration: rotated past the cache, in place as views of one tensor."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wirespeed.collectives.collective import Collective, Geometry
from wirespeed.collectives.need import buffer_elements

if TYPE_CHECKING:
    import torch

__all__ = ["Buffers", "allocate", "rotation"]

MOST_SLOTS = 64
"""Below a 64th of the cache the latency hides where the data lie; more slots only cost memory."""


@dataclass(frozen=True, slots=True)
class Buffers:
    """One slot: `input` and `output` overlap if and only if the operation works in place."""

    input: "torch.Tensor"
    output: "torch.Tensor"
    whole: "torch.Tensor"
    """In place: the tensor that both are views of; else the output."""


def rotation(bytes_per_slot: int, cache_bytes: int | None) -> int:
    """How many slots to rotate through so that a slot has left the cache when its turn comes."""
    if not cache_bytes or bytes_per_slot <= 0 or bytes_per_slot >= 2 * cache_bytes:
        return 1
    needed = -(-2 * cache_bytes // bytes_per_slot)
    return needed if needed <= MOST_SLOTS else MOST_SLOTS


def allocate(
    collective: Collective,
    geometry: Geometry,
    dtype: "torch.dtype",
    device: "torch.device",
    *,
    in_place: bool,
    slots: int = 1,
) -> list[Buffers]:
    """`slots` pairs of buffers, zeroed (so that every page is touched before the clock starts)."""
    return [_one(collective, geometry, dtype, device, in_place) for _ in range(slots)]


def _one(
    collective: Collective,
    geometry: Geometry,
    dtype: "torch.dtype",
    device: "torch.device",
    in_place: bool,
) -> Buffers:
    import torch

    n_in, n_out = collective.input_count(geometry), collective.output_count(geometry)
    if not in_place or collective.in_place_slice is None:
        given = torch.zeros(n_in, dtype=dtype, device=device)
        output = torch.zeros(n_out, dtype=dtype, device=device)
        return Buffers(given, output, output)
    input_at, output_at = collective.in_place_slice(geometry)
    size = buffer_elements(collective, geometry, in_place=True)
    whole = torch.zeros(size, dtype=dtype, device=device)
    given = whole[input_at : input_at + n_in]
    return Buffers(given, whole[output_at : output_at + n_out], whole)
