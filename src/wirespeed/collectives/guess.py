"""A guess at what happened to wrong data, from the values that were seen.

Each hypothesis predicts what the wrong elements would hold if it were so; the first that explains
nearly all of the kept samples is named. "unexplained" is an answer too. Runs in ranks only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wirespeed.collectives.collective import Copy, Geometry, Reduce, Segment
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


def guess(oracle: Oracle, output: "torch.Tensor", found: Mismatch, previous: int | None) -> Guess:
    """The first hypothesis that explains the wrong elements; `unexplained` if none does.

    previous: the seed of the operation before, to recognise its leftovers; None if there was none.
    """
    for hypothesis in _HYPOTHESES if found.samples else ():
        said = hypothesis(oracle, output, found, previous)
        if said:
            return said if isinstance(said, Guess) else Guess(said)
    return Guess("unexplained")


def describe_value(found: Mismatch, dtype: "torch.dtype") -> str:
    """`element 7: saw 3.0, expected 12.0` of the first wrong element."""
    import torch

    index, seen, wanted = found.samples[0]
    width = torch.empty(0, dtype=dtype).element_size()
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[width]
    pair = torch.tensor([seen, wanted], dtype=kind).view(dtype).to(_readable(dtype)).tolist()
    return f"element {index}: saw {pair[0]}, expected {pair[1]}"


def _readable(dtype: "torch.dtype") -> "torch.dtype":
    import torch

    return torch.float64 if dtype.is_floating_point else torch.int64


def _unwritten(_: Oracle, output: "torch.Tensor", found: Mismatch, __: int | None) -> str:
    marker = output.new_empty(1)
    sentinel_fill(marker)
    stale = int(bits(marker)[0])
    hits = [seen == stale for _, seen, _ in found.samples]
    return "stale: never written" if _mostly(hits) else ""


def _leftover(oracle: Oracle, output: "torch.Tensor", found: Mismatch, previous: int | None) -> str:
    if previous is None:
        return ""
    older = replace(oracle, pattern=replace(oracle.pattern, seed=previous))
    matches = _explains(found.samples, lambda index: _expected_at(older, index, output))
    return "stale: result of the operation before" if matches else ""


def _unchanged_input(oracle: Oracle, output: "torch.Tensor", found: Mismatch, _: int | None) -> str:
    # In place, the output may be a part of the input: what lay there before begins at its offset.
    start = int(output.storage_offset())

    def mine(index: int) -> int | None:
        return _value(oracle, oracle.geometry.rank, start + index, output)

    return "stale: this rank's own input" if _explains(found.samples, mine) else ""


def _one_bit(_: Oracle, __: "torch.Tensor", found: Mismatch, ___: int | None) -> str:
    flips = [bin((seen ^ wanted) & (2**64 - 1)).count("1") for _, seen, wanted in found.samples]
    few = found.wrong <= max(8, found.elements // 1000)
    return "bit flip" if few and all(count == 1 for count in flips) else ""


def _other_root(oracle: Oracle, output: "torch.Tensor", found: Mismatch, _: int | None) -> str:
    if not oracle.collective.rooted or oracle.collective.reduces:
        return ""
    for root in range(min(oracle.geometry.ranks, _MAX_RANKS)):
        if root in (oracle.geometry.root, oracle.geometry.rank):
            # This rank's own data mean that nothing came at all (see `_unchanged_input`).
            continue
        other = replace(oracle, geometry=replace(oracle.geometry, root=root))

        def at_root(index: int, other: Oracle = other) -> int | None:
            return _expected_at(other, index, output)

        if _explains(found.samples, at_root):
            return f"wrong root: data of rank {root}"
    return ""


def _swapped(oracle: Oracle, output: "torch.Tensor", found: Mismatch, _: int | None) -> str:
    segment = found.segment
    if segment is None or not isinstance(segment.source, Copy):
        return ""
    for other in oracle.collective.layout(oracle.geometry)[:_MAX_RANKS]:
        if other == segment or not isinstance(other.source, Copy):
            continue
        source = other.source

        def moved(index: int, source: Copy = source) -> int | None:
            inside = index - segment.start
            return _value(oracle, source.rank, source.offset + inside, output)

        inside = [s for s in found.samples if s[0] < segment.start + segment.length]
        if _explains(inside, moved):
            return f"swapped chunks: holds the chunk from rank {source.rank}"
    return ""


def _shifted(oracle: Oracle, output: "torch.Tensor", found: Mismatch, _: int | None) -> str:
    total = output.numel()
    half = total // 2
    for shift in (1, -1, half, -half, *_powers(total)):
        if shift == 0:
            continue

        def neighbour(index: int, shift: int = shift) -> int | None:
            return _expected_at(oracle, (index + shift) % total, output)

        if len(found.samples) > 1 and _explains(found.samples, neighbour):
            return f"shifted by {shift} elements"
    return ""


def _powers(total: int) -> list[int]:
    sizes = [2**power for power in range(1, 20) if 2**power < total]
    return [sign * size for size in sizes for sign in (1, -1)]


def _other_redop(oracle: Oracle, output: "torch.Tensor", found: Mismatch, _: int | None) -> str:
    if not oracle.collective.reduces:
        return ""
    for redop in ("sum", "prod", "max", "min"):
        if redop == oracle.pattern.redop:
            continue
        other = replace(oracle, pattern=replace(oracle.pattern, folded_by=redop))

        def reduced(index: int, other: Oracle = other) -> int | None:
            return _expected_at(other, index, output)

        if _explains(found.samples, reduced):
            return f"{redop} instead of {oracle.pattern.redop}"
    return ""


def _partial_or_doubled(
    oracle: Oracle, output: "torch.Tensor", found: Mismatch, _: int | None
) -> Guess | None:
    n = oracle.geometry.ranks
    if not oracle.collective.reduces or oracle.pattern.redop in ("min", "max"):
        return None
    for culprit in range(min(n, _MAX_RANKS)):
        without = [rank for rank in range(n) if rank != culprit]
        for ranks, said in (
            (without, f"partial sum: rank {culprit} is missing"),
            ([*range(n), culprit], f"rank {culprit} contributes twice"),
            ([culprit], f"only rank {culprit} contributes"),
        ):

            def over(index: int, ranks: Sequence[int] = ranks) -> int | None:
                return _reduced_at(oracle, ranks, index, output)

            if ranks and _explains(found.samples, over):
                return Guess(said, culprit)
    return None


Predict = Callable[[int], int | None]


def _explains(samples: Sequence[tuple[int, int, int]], predict: Predict) -> bool:
    """Whether the prediction equals what was seen; 16 samples tell, and more would be slow."""
    return _mostly([predict(index) == seen for index, seen, _ in samples[:16]])


def _mostly(hits: list[bool]) -> bool:
    return bool(hits) and sum(hits) >= _ENOUGH * len(hits)


def _as_bits(value: "torch.Tensor", like: "torch.Tensor") -> int:
    return int(bits(value.to(like.dtype))[0])


def _value(oracle: Oracle, rank: int, index: int, like: "torch.Tensor") -> int | None:
    if index < 0:
        return None
    return _as_bits(oracle.pattern.values(rank, index, 1, like.device), like)


def _reduced_at(
    oracle: Oracle, ranks: Sequence[int], index: int, like: "torch.Tensor"
) -> int | None:
    offset = _reduce_offset(oracle.collective.layout(oracle.geometry), index)
    if offset is None:
        return None
    return _as_bits(oracle.pattern.reduced_over(ranks, offset, 1, like.device), like)


def _reduce_offset(layout: Sequence[Segment], index: int) -> int | None:
    for segment in layout:
        if isinstance(segment.source, Reduce):
            return segment.source.offset + index - segment.start
    return None


def _expected_at(oracle: Oracle, index: int, like: "torch.Tensor") -> int | None:
    geometry: Geometry = oracle.geometry
    for segment in oracle.collective.layout(geometry):
        if segment.start <= index < segment.start + segment.length:
            return _as_bits(oracle.expected(segment, index - segment.start, 1, like), like)
    return None


_HYPOTHESES = (
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
