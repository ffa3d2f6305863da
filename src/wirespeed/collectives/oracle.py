"""The oracle: what an output must hold, bit for bit, computed apart from the collective.

Outputs are compared slice by slice, so that a check needs the input, the output and one slice of
expected values. The tolerance is 0 ulp. Exception: an engine may announce one (`Engine.ulps`); the
only one today is NCCL's average over a number of ranks that is no power of two, where NCCL
multiplies by the rounded 1/n before it adds.

Runs in ranks only (torch).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wirespeed.collectives.buffers import SLICE
from wirespeed.collectives.collective import Collective, Copy, Geometry, Segment
from wirespeed.collectives.patterns import Pattern

if TYPE_CHECKING:
    import torch


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
        for start in range(0, tensor.numel(), SLICE):
            part = tensor[start : start + SLICE]
            part.copy_(self.pattern.values(source, start, part.numel(), tensor.device))

    def fill_decoy(self, tensor: "torch.Tensor") -> None:
        """Write what this rank would send were it the root; the sentinel where that is right too.

        So a broadcast from the wrong root shows whose data came, and no stale element is missed.
        """
        sentinel_fill(tensor)
        marker = tensor[:1].clone()
        for start in range(0, tensor.numel(), SLICE):
            part = tensor[start : start + SLICE]
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
            for start, part in _slices(segment, output):
                expected = self.expected(segment, start, part.numel(), output)
                self._tally(found, segment, start, part, expected)
            found.segments_wrong += found.wrong > before
        return found

    def _tally(
        self,
        found: Mismatch,
        segment: Segment,
        start: int,
        part: "torch.Tensor",
        expected: "torch.Tensor",
    ) -> None:
        found.elements += part.numel()
        seen, wanted = bits(part), bits(expected)
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


def _slices(segment: Segment, output: "torch.Tensor") -> Iterator[tuple[int, "torch.Tensor"]]:
    for start in range(0, segment.length, SLICE):
        length = min(SLICE, segment.length - start)
        yield start, output[segment.start + start : segment.start + start + length]
