"""Where steps begin and end in a trace, by the best sign that it has."""

from itertools import pairwise

from wirespeed.watch.traces.rank_trace import Mark, RankTrace


def steps_in(trace: RankTrace) -> tuple[str, list[Mark]]:
    """(what ends a step, as `Watched.boundary`, the steps in order); numbers count up.

    Annotated steps, else ends of `Optimizer.step`, several of which make one step where no backward
    lies between them, else begins of backward. Empty: nothing tells.
    """
    if steps := [one for one in _ordered(trace.steps) if one.end_s > one.begin_s]:
        return "annotation", _numbered(steps)
    ends = [one.end_s for one in _one_a_step(trace)]
    if len(ends) > 2:
        return "optimizer", _between(ends)
    begins = [one.begin_s for one in _ordered(trace.roots)]
    if len(begins) > 2:
        return "backward", _between(begins)
    return "", []


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
    begins = [begin for begin, _ in trace.backward.parts()]
    kept, at = [], 0
    for one, after in zip(marks, [*marks[1:], None], strict=True):
        while at < len(begins) and begins[at] < one.end_s:
            at += 1
        if after is None or not begins or (at < len(begins) and begins[at] < after.begin_s):
            kept.append(one)
    return kept


def _between(edges: list[float]) -> list[Mark]:
    return [
        Mark(begin_s=begin, end_s=end, number=number)
        for number, (begin, end) in enumerate(pairwise(edges))
        if end > begin
    ]
