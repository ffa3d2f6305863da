"""One figure over many runs: its levels, and what was different when a level changed."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from wirespeed.compare.changepoints import LEAST, Cut, cuts
from wirespeed.compare.correction import benjamini_hochberg
from wirespeed.compare.estimate import LEVEL, Figure, estimate
from wirespeed.compare.facts import differences, facts_of
from wirespeed.compare.figures import figures_of
from wirespeed.records import Run
from wirespeed.records_comparison import Change, Series, Trend, What

__all__ = ["trend"]


@dataclass(slots=True)
class _Points:
    runs: list[Run]
    figures: list[Figure]


def trend(runs: Sequence[Run], only: Collection[str] = (), fail_on: float | None = None) -> Trend:
    """Series of everything that at least two runs measured, in the order in which the runs started.

    only: operations or strategies, all if empty. Figures of wrong data are left out. Runs of other
    backends and numbers of nodes are series of their own.
    """
    found: dict[tuple[What, str, int], _Points] = {}
    for run in sorted(runs, key=lambda run: (run.started, run.id)):
        for what, figure in figures_of(run).items():
            wanted = not only or what.get("op") in only or what.get("strategy") in only
            if wanted and not figure.wrong:
                key = (what, run.world.backend, run.world.node_count)
                points = found.setdefault(key, _Points([], []))
                points.runs.append(run)
                points.figures.append(figure)
    keys = [key for key, points in found.items() if len(points.runs) > 1]
    located = _located([found[key] for key in keys])
    series = [
        _series(key[0], key[1], found[key], places)
        for key, places in zip(keys, located, strict=True)
    ]
    return Trend(series=tuple(series), fail_on=fail_on)


def _located(all_points: Sequence[_Points]) -> list[list[Cut]]:
    """The cuts of each series that remain when all series are allowed for."""
    found = [cuts([f.log for f in points.figures]) for points in all_points]
    judged = [k for k, points in enumerate(all_points) if len(points.runs) >= LEAST]
    first = [min((cut.p for cut in found[k]), default=1.0) for k in judged]
    kept: list[list[Cut]] = [[] for _ in all_points]
    for k, own, adjusted in zip(judged, first, benjamini_hochberg(first), strict=True):
        factor = adjusted / own
        kept[k] = [Cut(c.at, c.p * factor) for c in found[k] if c.p * factor < LEVEL]
    return kept


def _series(what: What, backend: str, points: _Points, found: Sequence[Cut]) -> Series:
    edges = [0, *(cut.at for cut in found), len(points.runs)]
    return Series(
        what=what,
        backend=backend,
        runs=tuple(run.id for run in points.runs),
        at=tuple(run.started for run in points.runs),
        times=tuple(math.exp(f.log) for f in points.figures),
        busbw=tuple(f.busbw for f in points.figures),
        changes=tuple(_change(points, edges[k], cut, edges[k + 2]) for k, cut in enumerate(found)),
        judged=len(points.runs) >= LEAST,
    )


def _change(points: _Points, start: int, cut: Cut, end: int) -> Change:
    """The levels on both sides, up to the neighbouring changes, compared as `compare` does."""
    before, after = points.figures[start : cut.at], points.figures[cut.at : end]
    one = estimate(before, after)
    reach = one.reach(0.95)
    last, first = points.runs[cut.at - 1], points.runs[cut.at]
    different, _, _ = differences(facts_of([last]), facts_of([first]))
    return Change(
        run=first.id,
        at=first.started,
        last_before=last.id,
        ratio=math.exp(one.change),
        low=math.exp(one.change - reach),
        high=math.exp(one.change + reach),
        p=cut.p,
        runs=(len(before), len(after)),
        differences=different,
    )
