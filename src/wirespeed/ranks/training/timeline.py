"""The timelines of all ranks as one Chrome trace: the strategies one after the other."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from wirespeed.ranks.place import Place
from wirespeed.training.spans import Span

__all__ = ["tell_trace"]

_PIECE = 200_000
"""Characters of one record."""
_GAP = 0.1
"""Of a step, between two strategies."""


def tell_trace(
    place: Place, steps: Sequence[Sequence[Span]], tell: Callable[[str, dict[str, Any]], None]
) -> None:
    """steps: this rank's spans of each strategy's step. Collective; rank 0 tells."""
    from wirespeed.training.trace import align, chrome_trace, on_one_clock, passages

    passed = passages(place.control.barrier)
    alignment = align(place.control.objects(passed, ((float, float),) * len(passed)))
    moved: list[Span] = []
    at = 0.0
    for mine in steps:
        told = place.control.objects(list(mine), [Span])
        # Whose they are is known by who sent them.
        spans = [replace(span, rank=rank) for rank, theirs in enumerate(told) for span in theirs]
        if not spans:
            continue
        spans = on_one_clock(spans, alignment)
        begin = min(span.begin_s for span in spans)
        shift, length = at - begin, max(span.end_s for span in spans) - begin
        moved += [
            replace(span, begin_s=span.begin_s + shift, end_s=span.end_s + shift) for span in spans
        ]
        at += length * (1 + _GAP)
    if place.rank:
        return
    text = chrome_trace(
        moved, hosts=place.hosts, about={"clock error, s": max(alignment.errors, default=0.0)}
    )
    for start in range(0, len(text), _PIECE):
        tell("trace", {"text": text[start : start + _PIECE]})
