"""Readings of several runs of `locate` at one level, that of a day or of a size of message taken out."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

from wirespeed.errors import CannotMeasure
from wirespeed.locate.pair_figures import Pair, Reading
from wirespeed.model.records import Located

SHARED = 6
"""Pairs of nodes by which two runs are brought to one level, at least."""
_ByPair = dict[Pair, list[float]]


def readings(located: Sequence[Located], number: Mapping[str, int]) -> list[Reading]:
    """One a pair, round and rail: latencies, or rates where none was measured.

    Each run is brought to the level of those before it, by the pairs that they share: a run within one
    switch and a run across two differ in their medians by the very distance that is looked for.
    """
    late = any(one.latency for run in located for one in run.pairs)
    left = [_figures(run, number, late=late) for run in located]
    known: _ByPair = {}
    found: list[Reading] = []
    while left:
        left.sort(key=lambda run: len(known.keys() & run.keys()) if known else len(run))
        run = left.pop()
        own = {pair: median(told) for pair, told in run.items() if told}
        shared = [own[pair] / median(known[pair]) for pair in own.keys() & known.keys()]
        if known and own and len(shared) < SHARED:
            raise CannotMeasure(
                f"a run shares {len(shared)} pairs of nodes with the others",
                expected=f"{SHARED} at least, by which its level is told from the others'",
                next="wirespeed locate --exhaustive with all these nodes, then topo --from last",
            )
        level = median(shared or own.values() or [1.0])
        for pair, told in run.items():
            values = tuple(one / level for one in told)
            found.append(
                Reading(pair, (), (), latency=values) if late else Reading(pair, values, values)
            )
            if values and left:
                known.setdefault(pair, []).extend(values)
    return found


def _figures(run: Located, number: Mapping[str, int], *, late: bool) -> _ByPair:
    """By pair its latencies, or its rates (of both ways the geometric mean); none where not known."""
    found: _ByPair = {}
    for one in run.pairs:
        if one.first == one.second or not {one.first, one.second} <= number.keys():
            continue  # a run that was changed by hand
        a, b = number[one.first], number[one.second]
        told = found.setdefault((min(a, b), max(a, b)), [])
        figure = (one.latency or 0.0) if late else math.sqrt(one.forth * one.back)
        if figure > 0:
            told.append(figure)
    return found
