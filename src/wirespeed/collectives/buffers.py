"""Buffers of one configuration, rotated past the cache, in place as views of one tensor; their memory.

A data check and the timing come one after the other, each with buffers of its own. The check compares
slice by slice (`oracle.SLICE`), so beside the buffers it holds a few slices of whole numbers, and the C
library keeps these while the timing goes on.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wirespeed.collectives.collective import Collective, Geometry

if TYPE_CHECKING:
    import torch


SLICE = 1 << 20
"""Elements that are compared at a time."""
_CHECKED = 112
"""Bytes an element of a slice: hashes, values and sums of 8 bytes each, masks, a decoy."""
_SMALL = 4 << 20
"""Segments, in which backends send, and what torch keeps of each size that it sees first."""


def buffer_elements(collective: Collective, geometry: Geometry, *, in_place: bool) -> int:
    """Elements of input and output together; in place of the one tensor that holds both."""
    n_in, n_out = collective.input_count(geometry), collective.output_count(geometry)
    if not in_place or collective.in_place_slice is None:
        return n_in + n_out
    input_at, output_at = collective.in_place_slice(geometry)
    return max(input_at + n_in, output_at + n_out)


def needed_bytes(
    collective: Collective,
    geometry: Geometry,
    itemsize: int,
    *,
    in_place: bool,
    check: bool,
    backend: str,
    slots: int = 1,
) -> int:
    """Bytes at most, at any one time, on the rank that `geometry` names.

    itemsize: bytes of an element; check: whether the data are compared first; slots: buffers that the
    timing rotates through.
    """
    elements = buffer_elements(collective, geometry, in_place=in_place)
    counts = {"input": collective.input_count, "output": collective.output_count}
    copied = collective.scratch.get(backend)
    scratch = counts[copied](geometry) * itemsize if copied else 0
    checking = _CHECKED * min(SLICE, elements) if check else 0
    return elements * itemsize * slots + checking + scratch + _SMALL


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
