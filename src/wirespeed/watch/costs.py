"""What lateness costs: the time of a step as it is, and as it would be without."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wirespeed.statistics import mean_interval
from wirespeed.watch.late import Late
from wirespeed.watch.own_work import Floats, Matrix, highest

_BLOCKS = 20


@dataclass(frozen=True, slots=True)
class Cost:
    """How many times longer a step takes for it, and the 95 % interval."""

    ratio: float
    low: float
    high: float


Blame = tuple[Sequence[int], Late]
"""The units that are late together (the ranks of a node), and how."""


def mended(work: Matrix, blamed: Sequence[Blame]) -> Matrix:
    """What work would be if all of them were well."""
    if not blamed:
        return work
    well = work.copy()
    for units, late in blamed:
        well[list(units)] = np.maximum(well[list(units)] - late.delay, 0)
    return well


def cost_of_late(
    work: Matrix, top: Matrix, blame: Blame, blamed: Sequence[Blame], base: Floats, each: Floats
) -> Cost:
    """top: the most work of any rank by row, base: the time of a step, if nothing were wrong.

    blamed: all, of which others may be of the same units.
    """
    units, late = blame
    span = _span(late)
    elsewise = sum(other.delay for them, other in blamed if them == units and other is not late)
    solo = np.where(late.delay > 0, np.maximum(highest(work[list(units)]) - elsewise - top, 0), 0)
    return cost_of(solo[span], base[span], each[span])


def _span(late: Late) -> slice:
    """Rows over which its cost is told: from its onset to its end."""
    begin = int(np.argmax(late.delay > 0)) if late.onset is not None else 0
    return slice(begin, late.over if late.over >= 0 else None)


def cost_of(extra: Floats, base: Floats, each: Floats) -> Cost:
    """extra: by row, what a step takes more than `base` for it; the interval by means of blocks of rows,
    long enough to hold two of what happens now and then."""
    lost, well = extra * each, np.maximum(base, 1e-9) * each
    times = int(np.count_nonzero(np.diff(np.concatenate(([0], extra > 0))) > 0))
    often = np.count_nonzero(extra > 0) > len(extra) / 3
    blocks = _BLOCKS if often else min(_BLOCKS, max(2, times // 2))
    parts = [part for part in np.array_split(np.arange(len(lost)), blocks) if len(part)]
    usual = well.sum() / each.sum()  # a single block may have next to none
    interval = mean_interval([float(lost[one].sum() / each[one].sum() / usual) for one in parts])
    ratio, reach = 1 + float(lost.sum() / well.sum()), (interval.high - interval.low) / 2
    return Cost(ratio, max(1.0, ratio - reach), ratio + reach)
