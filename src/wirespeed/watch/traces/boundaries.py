"""Where steps begin and end in a trace, by the best sign that it has."""

import math
from collections.abc import Sequence
from itertools import pairwise

from wirespeed.watch.calls import Call
from wirespeed.watch.period import repeating_block
from wirespeed.watch.traces.rank_trace import Mark, RankTrace


def steps_in(trace: RankTrace) -> tuple[str, list[Mark]]:
    """(what ends a step, as `Watched.boundary`, the steps in order); numbers count up.

    Annotated steps, else ends of `Optimizer.step`, several of which make one step where no backward
    lies between them, else begins of backward, else of the sequence of collectives that repeats.
    Empty: nothing tells.
    """
    if steps := [one for one in _ordered(trace.steps) if one.end_s > one.begin_s]:
        return "annotation", _numbered(steps)
    ends = [one.end_s for one in _one_a_step(trace)]
    if len(ends) > 2:
        return "optimizer", _between(ends)
    begins = [one.begin_s for one in _ordered(trace.roots)]
    if len(begins) > 2:
        return "backward", _between(begins)
    begins = _repeats(trace.calls)
    return ("collectives", _between(begins)) if begins else ("", [])


def _ordered(marks: list[Mark]) -> list[Mark]:
    return sorted(marks, key=lambda one: one.begin_s)


def _numbered(steps: list[Mark]) -> list[Mark]:
    """As they are told where these numbers rise, else counted."""
    if all(a.number < b.number for a, b in pairwise(steps)) and steps[0].number >= 0:
        return steps
    return [Mark(begin_s=one.begin_s, end_s=one.end_s, number=n) for n, one in enumerate(steps)]


def _one_a_step(trace: RankTrace) -> list[Mark]:
    """Optimizers that a backward follows, or nothing."""
    marks = _ordered(trace.optimizers)
    begins = trace.backward.parts()[:, 0].tolist()
    kept, at = [], 0
    for one, after in pairwise(marks):
        while at < len(begins) and begins[at] < one.end_s:
            at += 1
        if not begins or (at < len(begins) and begins[at] < after.begin_s):
            kept.append(one)
    return kept + marks[-1:]


_LEAST_REPEATS = 8


def _repeats(calls: Sequence[Call]) -> list[float]:
    """When repeats of the same collectives began."""
    begins = [one.begin_s for one in calls]
    timed = len(begins) > 1 and begins[-1] > begins[0]
    starts = repeats_in(calls) if timed else []
    return [begins[at] for at in starts] if len(starts) >= _LEAST_REPEATS else []


def repeats_in(calls: Sequence[Call]) -> list[int]:
    """Which calls begin a repeat of the same sequence, as long as these follow each other."""
    begins = [one.begin_s for one in calls]
    kinds: dict[object, int] = {}
    signs = [
        kinds.setdefault((one.op, one.group, one.group_name, one.size_bytes), len(kinds))
        for one in calls
    ]
    gaps = [math.nan, *(b - a for a, b in pairwise(begins))]
    block = repeating_block(signs, gaps)
    if block is None:
        return []
    starts = list(block.starts)
    ends = [b for a, b in pairwise(starts) if b != a + block.length]
    since = ends[-1] if ends else starts[0]
    return [at for at in starts if at >= since]


def _between(edges: list[float]) -> list[Mark]:
    return [
        Mark(begin_s=begin, end_s=end, number=number)
        for number, (begin, end) in enumerate(pairwise(edges))
        if end > begin
    ]
