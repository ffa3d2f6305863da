"""Stretches of time by rank and lane, and the arithmetic of sets of them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Span", "covered_length", "merged", "stretches", "uncovered_length", "union_length"]

Stretch = tuple[float, float]
"""(begin, end) in seconds of one clock; begin <= end."""


@dataclass(frozen=True, slots=True)
class Span:
    """Something that ran on one rank."""

    rank: int
    lane: str
    """`step` (its phases), `compute`, `communication`."""
    name: str
    begin_s: float
    """Seconds on that rank's clock (`time.perf_counter`), unless somebody has aligned them."""
    end_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


def stretches(spans: Iterable[Span]) -> list[Stretch]:
    """Where spans lie; their rank, lane and name forgotten."""
    return [(span.begin_s, span.end_s) for span in spans]


def merged(parts: Iterable[Stretch]) -> list[Stretch]:
    """The same time as stretches in order that neither overlap nor touch; empty ones are dropped."""
    whole: list[Stretch] = []
    for begin, end in sorted(parts):
        if end <= begin:
            continue
        if whole and begin <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(whole[-1][1], end))
        else:
            whole.append((begin, end))
    return whole


def union_length(parts: Iterable[Stretch]) -> float:
    """Seconds in which at least one of them runs."""
    return sum(end - begin for begin, end in merged(parts))


def covered_length(parts: Iterable[Stretch], by: Iterable[Stretch]) -> float:
    """Seconds in which one of `parts` runs and one of `by` as well."""
    left, right = merged(parts), merged(by)
    total = 0.0
    i = j = 0
    while i < len(left) and j < len(right):
        total += max(0.0, min(left[i][1], right[j][1]) - max(left[i][0], right[j][0]))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return total


def uncovered_length(parts: Iterable[Stretch], by: Iterable[Stretch]) -> float:
    """Seconds in which one of `parts` runs and none of `by`: what nothing hides."""
    left = merged(parts)
    return union_length(left) - covered_length(left, by)
