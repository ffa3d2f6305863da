"""A guess at what happened to wrong data, from the values that were seen.

Each hypothesis predicts what the wrong elements would hold if it were so; the first that explains
nearly all of the kept samples is named. "unexplained" is an answer too. Runs in ranks only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wirespeed.collectives.collective import Copy, Reduce, Segment
from wirespeed.collectives.oracle import Mismatch, Oracle, bits, sentinel_fill

if TYPE_CHECKING:
    import torch


_ENOUGH = 0.9
_MAX_RANKS = 64
"""Ranks tried as the culprit of a partial or doubled sum."""


@dataclass(frozen=True, slots=True)
class Guess:
    text: str
    suspect: int | None = None
    """Rank within the group that it blames, where it blames one."""


@dataclass(frozen=True, slots=True)
class _Case:
    """What is wrong on this rank, and what hypotheses are tested with."""

    oracle: Oracle
    output: "torch.Tensor"
    found: Mismatch
    previous: int | None

    def holds(self, other: Oracle, shift: int = 0) -> bool:
        """Whether what was seen is what that oracle expects, `shift` elements further."""
        total = self.output.numel()
        return self.explains(lambda index: self._expected(other, (index + shift) % total))

    def holds_input(self, rank: int, offset: int, segment: Segment | None = None) -> bool:
        """Whether it is that rank's input from `offset` on (of one segment of the output: there)."""
        end = segment.start + segment.length if segment else self.output.numel()
        values = self.oracle.pattern.values
        return self.explains(
            lambda index: self._bits(values(rank, offset + index, 1, self.output.device)), end
        )

    def holds_sum(self, ranks: Sequence[int]) -> bool:
        """Whether it is the reduction over those ranks only."""
        layout = self.oracle.collective.layout(self.oracle.geometry)
        reductions = [one for one in layout if isinstance(one.source, Reduce)]
        starts = [one.source.offset - one.start for one in reductions]
        reduced = self.oracle.pattern.reduced_over
        return bool(ranks and starts) and self.explains(
            lambda index: self._bits(reduced(ranks, starts[0] + index, 1, self.output.device))
        )

    def explains(self, predict: Callable[[int], int | None], end: int | None = None) -> bool:
        """Whether the prediction equals what was seen; 16 samples tell, and more would be slow."""
        kept = [one for one in self.found.samples if end is None or one[0] < end]
        return _mostly([predict(index) == seen for index, seen, _ in kept[:16]])

    def _expected(self, oracle: Oracle, index: int) -> int | None:
        for segment in oracle.collective.layout(oracle.geometry):
            if segment.start <= index < segment.start + segment.length:
                at = index - segment.start
                return self._bits(oracle.expected(segment, at, 1, self.output))
        return None

    def _bits(self, value: "torch.Tensor") -> int:
        return int(bits(value.to(self.output.dtype))[0])


def guess(oracle: Oracle, output: "torch.Tensor", found: Mismatch, previous: int | None) -> Guess:
    """The first hypothesis that explains the wrong elements; `unexplained` if none does.

    previous: the seed of the operation before, to recognise its leftovers; None if there was none.
    """
    case = _Case(oracle, output, found, previous)
    for hypothesis in _HYPOTHESES if found.samples else ():
        if said := hypothesis(case):
            return said if isinstance(said, Guess) else Guess(said)
    return Guess("unexplained")


def describe_value(found: Mismatch, dtype: "torch.dtype") -> str:
    """`element 7: saw 3.0, expected 12.0` of the first wrong element."""
    import torch

    index, seen, wanted = found.samples[0]
    kind = bits(torch.empty(0, dtype=dtype)).dtype
    readable = torch.float64 if dtype.is_floating_point else torch.int64
    pair = torch.tensor([seen, wanted], dtype=kind).view(dtype).to(readable).tolist()
    return f"element {index}: saw {pair[0]}, expected {pair[1]}"


def _unwritten(case: _Case) -> str:
    marker = case.output.new_empty(1)
    sentinel_fill(marker)
    stale = int(bits(marker)[0])
    hits = [seen == stale for _, seen, _ in case.found.samples]
    return "stale: never written" if _mostly(hits) else ""


def _leftover(case: _Case) -> str:
    if case.previous is None:
        return ""
    pattern = replace(case.oracle.pattern, seed=case.previous)
    older = replace(case.oracle, pattern=pattern)
    return "stale: result of the operation before" if case.holds(older) else ""


def _unchanged_input(case: _Case) -> str:
    # In place, the output may be a part of the input: what lay there before begins at its offset.
    mine = case.holds_input(case.oracle.geometry.rank, int(case.output.storage_offset()))
    return "stale: this rank's own input" if mine else ""


def _one_bit(case: _Case) -> str:
    samples = case.found.samples
    flips = [bin((seen ^ wanted) & (2**64 - 1)).count("1") for _, seen, wanted in samples]
    few = case.found.wrong <= max(8, case.found.elements // 1000)
    return "bit flip" if few and all(count == 1 for count in flips) else ""


def _other_root(case: _Case) -> str:
    oracle, geometry = case.oracle, case.oracle.geometry
    if not oracle.collective.rooted or oracle.collective.reduces:
        return ""
    for root in range(min(geometry.ranks, _MAX_RANKS)):
        # This rank's own data mean that nothing came at all (see `_unchanged_input`).
        other = replace(oracle, geometry=replace(geometry, root=root))
        if root not in (geometry.root, geometry.rank) and case.holds(other):
            return f"wrong root: data of rank {root}"
    return ""


def _swapped(case: _Case) -> str:
    segment = case.found.segment
    if segment is None or not isinstance(segment.source, Copy):
        return ""
    for other in case.oracle.collective.layout(case.oracle.geometry)[:_MAX_RANKS]:
        source = other.source
        if other == segment or not isinstance(source, Copy):
            continue
        if case.holds_input(source.rank, source.offset - segment.start, segment):
            return f"swapped chunks: holds the chunk from rank {source.rank}"
    return ""


def _shifted(case: _Case) -> str:
    total = case.output.numel()
    powers = [2**power for power in range(1, 20) if 2**power < total]
    for size in (1, total // 2, *powers) if len(case.found.samples) > 1 else ():
        for shift in (size, -size):
            if shift and case.holds(case.oracle, shift):
                return f"shifted by {shift} elements"
    return ""


def _other_redop(case: _Case) -> str:
    pattern = case.oracle.pattern
    if not case.oracle.collective.reduces:
        return ""
    for redop in ("sum", "prod", "max", "min"):
        other = replace(case.oracle, pattern=replace(pattern, folded_by=redop))
        if redop != pattern.redop and case.holds(other):
            return f"{redop} instead of {pattern.redop}"
    return ""


def _partial_or_doubled(case: _Case) -> Guess | None:
    n = case.oracle.geometry.ranks
    if not case.oracle.collective.reduces or case.oracle.pattern.redop in ("min", "max"):
        return None
    for culprit in range(min(n, _MAX_RANKS)):
        without = [rank for rank in range(n) if rank != culprit]
        for ranks, said in (
            (without, f"partial sum: rank {culprit} is missing"),
            ([*range(n), culprit], f"rank {culprit} contributes twice"),
            ([culprit], f"only rank {culprit} contributes"),
        ):
            if case.holds_sum(ranks):
                return Guess(said, culprit)
    return None


def _mostly(hits: list[bool]) -> bool:
    return bool(hits) and sum(hits) >= _ENOUGH * len(hits)


_HYPOTHESES: tuple[Callable[[_Case], str | Guess | None], ...] = (
    _unwritten,
    _one_bit,
    _leftover,
    _other_root,
    _swapped,
    _unchanged_input,
    _other_redop,
    _partial_or_doubled,
    _shifted,
)
