"""One figure over many runs: its levels, and what was different when a level changed."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wirespeed.compare.estimate import LEVEL, Figure, benjamini_hochberg, estimate
from wirespeed.compare.figures import differences, facts_of, figures_of
from wirespeed.model.comparison_records import Change, Series, Trend, What
from wirespeed.model.records import Run

if TYPE_CHECKING:
    import numpy as np


LEAST = 8
"""Below this many runs no order is rare enough: of 3 and 4 runs there are 35 orders."""
_SHORTEST = 3
"""Runs of a level; two that differ from the rest may be one bad day."""
_ORDERS = 1999


@dataclass(frozen=True, slots=True)
class Cut:
    at: int
    """Index of the first value after it."""
    p: float


def cuts(values: Sequence[float], *, level: float = 0.05, seed: int = 1) -> list[Cut]:
    """The changes of level, in order; their p-values allow for the cuts within parts.

    The same values always give the same answer.
    """
    import numpy as np

    found: list[Cut] = []
    parts = [(0, len(values))]
    while parts:
        start, end = parts.pop()
        if end - start < LEAST:
            continue
        cut = _strongest(np.asarray(values[start:end], dtype=np.float64), seed)
        adjusted = min(1.0, cut.p * len(values) / (end - start))
        if adjusted < level:
            found.append(Cut(start + cut.at, adjusted))
            parts += [(start, start + cut.at), (start + cut.at, end)]
    return sorted(found, key=lambda cut: cut.at)


def _strongest(values: "np.ndarray[Any, Any]", seed: int) -> Cut:
    """The strongest cut and its probability among random orders of the same values."""
    import numpy as np

    ranks = _ranks(values)
    if np.ptp(ranks) == 0:
        return Cut(0, 1.0)
    rng = np.random.default_rng(seed)
    orders = rng.permuted(np.tile(ranks, (_ORDERS, 1)), axis=1)
    own, others = _scores(ranks[None, :])[0], _scores(orders)
    best = int(np.argmax(own))
    as_strong = int(np.count_nonzero(others.max(axis=1) >= own[best] - 1e-9))
    return Cut(best + _SHORTEST, (1 + as_strong) / (1 + _ORDERS))


def _scores(ranks: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """How far the rank sum before each cut is from its mean, in its standard deviations.

    ranks: shape (orders, n); the answer (orders, n - 2 * shortest + 1), a column a cut.
    """
    import numpy as np

    n = ranks.shape[1]
    sizes = np.arange(_SHORTEST, n - _SHORTEST + 1)
    sums = np.cumsum(ranks, axis=1)[:, sizes - 1]
    spread = np.sqrt(sizes * (n - sizes) / n)
    scores: np.ndarray[Any, Any] = np.abs(sums - sizes * (n + 1) / 2) / spread
    return scores


def _ranks(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """1 for the smallest; equal values share the mean of their ranks."""
    import numpy as np

    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: np.ndarray[Any, Any] = (ends - (counts - 1) / 2)[inverse]
    return ranks


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
