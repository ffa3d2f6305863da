"""Buffers of one configuration, and the oracle: what an output must hold, bit for bit.

The oracle is computed apart from the collective. Outputs are compared slice by slice, so that a check
needs the input, the output and a few slices of whole numbers, which the C library keeps while the timing
goes on: it comes after the check, with buffers of its own, rotated past the cache, in place as views of
one tensor. The tolerance is 0 ulp. Exception: an engine may announce one (`Engine.ulps`); the only one
today is NCCL's average over a number of ranks that is no power of two, where NCCL multiplies by the
rounded 1/n before it adds.

What needs torch runs in ranks only.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wirespeed.collectives.collective import Collective, Copy, Geometry, Segment
from wirespeed.collectives.patterns import Pattern

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
    copied = collective.scratch.get(backend)
    count = collective.input_count if copied == "input" else collective.output_count
    scratch = count(geometry) * itemsize if copied else 0
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
    return min(-(-2 * cache_bytes // bytes_per_slot), MOST_SLOTS)


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
    import torch

    n_in, n_out = collective.input_count(geometry), collective.output_count(geometry)

    def one() -> Buffers:
        if not in_place or collective.in_place_slice is None:
            given = torch.zeros(n_in, dtype=dtype, device=device)
            output = torch.zeros(n_out, dtype=dtype, device=device)
            return Buffers(given, output, output)
        input_at, output_at = collective.in_place_slice(geometry)
        size = buffer_elements(collective, geometry, in_place=True)
        whole = torch.zeros(size, dtype=dtype, device=device)
        given = whole[input_at : input_at + n_in]
        return Buffers(given, whole[output_at : output_at + n_out], whole)

    return [one() for _ in range(slots)]


_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
_KEPT = 64
"""Wrong elements kept with their values, for the guess at what happened."""


@dataclass(slots=True)
class Mismatch:
    """What is wrong in one rank's output."""

    elements: int = 0
    """Elements compared."""
    wrong: int = 0
    first: int = -1
    """Index of the first wrong element in the output buffer."""
    last: int = -1
    segment: Segment | None = None
    """The layout segment that the first wrong element lies in."""
    samples: list[tuple[int, int, int]] = field(default_factory=list)
    """(index, bits seen, bits expected) of the first wrong elements."""
    segments_wrong: int = 0


def bits(tensor: "torch.Tensor") -> "torch.Tensor":
    """The same memory as integers of the same width, so that NaN equals itself."""
    import torch

    return tensor.view(getattr(torch, _BITS[tensor.element_size()]))


def sentinel_fill(tensor: "torch.Tensor") -> None:
    """Fill with a value that no pattern holds: NaN in floats, the lowest integer, 255 in uint8."""
    import torch

    if tensor.dtype.is_floating_point:
        width = tensor.element_size()
        bits(tensor).fill_(0x7F if width == 1 else 2 ** (8 * width - 1) - 1)
    elif tensor.dtype == torch.uint8:
        tensor.fill_(255)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).min)


@dataclass(frozen=True, slots=True)
class Oracle:
    """Fills inputs and judges outputs of one configuration on one rank."""

    collective: Collective
    geometry: Geometry
    pattern: Pattern
    ulps: int = 0

    def fill_input(self, tensor: "torch.Tensor", *, rank: int | None = None) -> None:
        """Write this rank's seeded input (or another's, to act out a fault)."""
        source = self.geometry.rank if rank is None else rank
        for start, part in _slices(tensor):
            part.copy_(self.pattern.values(source, start, part.numel(), tensor.device))

    def fill_decoy(self, tensor: "torch.Tensor") -> None:
        """Write what this rank would send were it the root; the sentinel where that is right too.

        So a broadcast from the wrong root shows whose data came, and no stale element is missed.
        """
        sentinel_fill(tensor)
        marker = tensor[:1].clone()
        for start, part in _slices(tensor):
            given = (start, part.numel(), tensor.device)
            mine = self.pattern.values(self.geometry.rank, *given)
            roots = self.pattern.values(self.geometry.root, *given)
            part.copy_(mine)
            bits(part).masked_fill_(mine == roots, int(bits(marker)[0]))

    def expected(
        self, segment: Segment, start: int, length: int, like: "torch.Tensor"
    ) -> "torch.Tensor":
        """Elements [start, start + length) of a segment, as `like`'s type."""
        source = segment.source
        if isinstance(source, Copy):
            values = self.pattern.values(source.rank, source.offset + start, length, like.device)
        else:
            values = self.pattern.reduced(source.offset + start, length, like.device)
        return values.to(like.dtype)

    def compare(self, output: "torch.Tensor") -> Mismatch:
        """Count the wrong elements of this rank's output and keep the first of them."""
        found = Mismatch()
        for segment in self.collective.layout(self.geometry):
            before = found.wrong
            whole = output[segment.start : segment.start + segment.length]
            for start, part in _slices(whole):
                self._tally(found, segment, start, part)
            found.segments_wrong += found.wrong > before
        return found

    def _tally(self, found: Mismatch, segment: Segment, start: int, part: "torch.Tensor") -> None:
        found.elements += part.numel()
        seen = bits(part)
        wanted = bits(self.expected(segment, start, part.numel(), part))
        wrong = (seen != wanted).nonzero().flatten()
        if self.ulps and wrong.numel():
            distance = (seen[wrong].long() - wanted[wrong].long()).abs()
            wrong = wrong[distance > self.ulps]
        if not wrong.numel():
            return
        base = segment.start + start
        if found.first < 0:
            found.first, found.segment = base + int(wrong[0]), segment
        found.last = base + int(wrong[-1])
        found.wrong += wrong.numel()
        for index in wrong[: _KEPT - len(found.samples)].tolist():
            found.samples.append((base + index, int(seen[index]), int(wanted[index])))


def _slices(tensor: "torch.Tensor") -> Iterator[tuple[int, "torch.Tensor"]]:
    for start in range(0, tensor.numel(), SLICE):
        yield start, tensor[start : start + SLICE]
