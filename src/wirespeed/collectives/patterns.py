"""Seeded inputs whose reductions are exact, so that the tolerance can be 0 ulp.

Every value is an integer that comes from (seed, rank, element); the range is cut so that each
partial sum or product over all ranks, in any order, is exactly representable in the type. What a
rank must hold afterwards is therefore known bit for bit without knowing how the library reduces.
Values differ between ranks and between neighbours, so misplaced, repeated and missing chunks show.
The idea of exactly summable hashed inputs is that of NVIDIA/nccl-tests (verifiable/); the
arithmetic here is our own, in torch, on whatever device the buffers live.

All functions return int64 tensors; they run in ranks only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wirespeed.collectives.collective import DType

if TYPE_CHECKING:
    import torch


_MASK31 = (1 << 31) - 1
_SUM_RANGE = 1 << 20
"""Sums need no wider range than this to tell values apart, however wide the type is."""

_INT64_EXPONENT = 62
"""Expected values are computed in int64."""


def _mix(value: int) -> int:
    """A 32-bit integer hash (the finaliser of MurmurHash3, Appleby 2011)."""
    value &= 0xFFFFFFFF
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return value ^ (value >> 16)


def _hash(seed: int, start: int, length: int, device: "torch.device") -> "torch.Tensor":
    """31 bits for each element index in [start, start + length)."""
    import torch

    x = torch.arange(start, start + length, dtype=torch.int64, device=device)
    x.mul_(0x9E3779B1).add_(_mix(seed)).bitwise_and_(0xFFFFFFFF)
    x.bitwise_xor_(x >> 16).mul_(0x85EBCA6B).bitwise_and_(0xFFFFFFFF)
    x.bitwise_xor_(x >> 13).mul_(0x45D9F3B).bitwise_and_(0xFFFFFFFF)
    x.bitwise_xor_(x >> 16)
    return x.bitwise_and_(_MASK31)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Values in [low, low + span), as powers of two where `powers`, times `scale`."""

    seed: int
    ranks: int
    redop: str
    """What the values are made for; `none` where nothing is reduced."""
    low: int
    span: int
    scale: int = 1
    powers: bool = False
    contributors: int = 0
    """Ranks that hold more than the neutral element at one index; 0: all of them."""
    neutral: int = 0
    folded_by: str = ""
    """The reduction to act out on these values, if it is another than `redop`."""

    def values(self, rank: int, start: int, length: int, device: "torch.device") -> "torch.Tensor":
        """What `rank` hands in at elements [start, start + length)."""
        return self._of(rank, start, _hash(self.seed, start, length, device))

    def reduced(self, start: int, length: int, device: "torch.device") -> "torch.Tensor":
        """What the reduction over all ranks must give there."""
        return self.reduced_over(range(self.ranks), start, length, device)

    def reduced_over(
        self, ranks: Sequence[int], start: int, length: int, device: "torch.device"
    ) -> "torch.Tensor":
        """The reduction over some of the ranks (to recognise a partial result)."""
        hashed = _hash(self.seed, start, length, device)
        total = self._of(ranks[0], start, hashed)
        for rank in ranks[1:]:
            _fold(self.folded_by or self.redop, total, self._of(rank, start, hashed))
        if (self.folded_by or self.redop) == "avg":
            total.div_(self.ranks, rounding_mode="floor")
        return total

    def _of(self, rank: int, start: int, hashed: "torch.Tensor") -> "torch.Tensor":
        """Mix the rank in by its own odd factor, so that ranks are not shifts of each other."""
        factor = _mix(2 * rank + self.seed * 31) & _MASK31 | 1
        value = hashed * factor
        value.bitwise_right_shift_(17).bitwise_and_(_MASK31)
        value.remainder_(self.span).add_(self.low)
        if self.redop in ("min", "max") and self.ranks > 1:
            self._raise_holder(rank, start, value)
        if self.contributors:
            self._thin(rank, hashed, value)
        if self.powers:
            value = value.new_ones(()).bitwise_left_shift(value)
        return value.mul_(self.scale) if self.scale != 1 else value

    def _raise_holder(self, rank: int, start: int, value: "torch.Tensor") -> None:
        """Let ranks hold the extreme in turn: the one at element i is (i + seed) modulo the ranks.

        The holder's own input is the right answer there, so that a stale element does not show.
        Two checks with seeds one apart have different holders everywhere, and miss nothing.
        """
        import torch

        half = self.span // 2
        value.sub_(self.low).remainder_(half).add_(self.low)
        index = torch.arange(start, start + value.numel(), device=value.device)
        holds = (index + self.seed) % self.ranks == rank
        if self.redop == "min":
            holds.logical_not_()
        value.add_(holds, alpha=half)

    def _thin(self, rank: int, hashed: "torch.Tensor", value: "torch.Tensor") -> None:
        """Leave the neutral element in all but `contributors` ranks, others at each index."""
        step = -(-self.ranks // self.contributors)
        value.masked_fill_((hashed + rank) % step != 0, self.neutral)


def _fold(redop: str, total: "torch.Tensor", value: "torch.Tensor") -> None:
    import torch

    if redop in ("sum", "avg"):
        total.add_(value)
    elif redop == "prod":
        total.mul_(value)
    elif redop == "min":
        torch.minimum(total, value, out=total)
    else:
        torch.maximum(total, value, out=total)


def pattern_for(dtype: DType, redop: str, ranks: int, seed: int) -> Pattern:
    """The widest pattern of which every partial reduction over `ranks` ranks stays exact."""
    if redop in ("sum", "avg"):
        return _for_sum(dtype, redop, ranks, seed)
    if redop == "prod":
        return _for_product(dtype, ranks, seed)
    return _for_choice(dtype, redop, ranks, seed)


def _for_sum(dtype: DType, redop: str, ranks: int, seed: int) -> Pattern:
    """From 1 up: with no zeros, a maximum or a missing rank always differs from the sum."""
    scale = ranks if redop == "avg" else 1
    limit = min(dtype.exact, _SUM_RANGE * ranks * scale) // scale
    at_most = max(1, limit // 4)
    contributors = min(ranks, at_most)
    span = max(1, limit // contributors)
    return Pattern(
        seed, ranks, redop, 1, span, scale, contributors=0 if contributors == ranks else at_most
    )


def _for_product(dtype: DType, ranks: int, seed: int) -> Pattern:
    """Powers of two: the exponents add up to at most the largest that the type holds."""
    at_most = min(dtype.max_exponent, _INT64_EXPONENT)
    contributors = min(ranks, at_most)
    span = max(1, min(at_most // contributors, 4))
    thinned = 0 if contributors == ranks else at_most
    return Pattern(seed, ranks, "prod", 1, span, powers=True, contributors=thinned)


def _for_choice(dtype: DType, redop: str, ranks: int, seed: int) -> Pattern:
    """min, max and plain moves never leave the inputs: use all that the type holds exactly."""
    high = min(dtype.exact, _MASK31 - 1)
    low = -min(high, _MASK31 // 2) if dtype.signed else 0
    span = min(high - low, _MASK31) + (0 if high == _MASK31 - 1 else 1)
    return Pattern(seed, ranks, redop, low, span)


def why_not_exact(dtype: DType, redop: str, ranks: int) -> str:
    """The reason why no exact pattern exists, or nothing. The one documented gap of the oracle."""
    if redop == "avg" and ranks * 2 > dtype.exact:
        return f"an average over {ranks} ranks has no exact values in {dtype.name}"
    return ""
