"""How often jobs fail by chance: by what they run, and by what nodes of their group do.

And which failures count at all: one of a crash loop, and none of an outage.
"""

from dataclasses import dataclass
from math import exp, lgamma, log

import numpy as np
from numpy.typing import NDArray

from wirespeed.fleet.job_ends import FAILED, NODE, JobTable

DAY_S = 86400.0
EARLY_S = 600.0
"""A job that fails sooner failed as it started: another rate, as most mistakes of users show there."""
SAME_S = 150.0
"""Failures of one node that are closer have one cause; so have those of many jobs (an outage)."""
_LOOP_S = DAY_S
"""A workload that has failed on a node and fails there again so soon has one cause."""
_OUTAGE = 0.005
"""So rarely do so many unrelated jobs fail together by chance."""
_MOST_BESIDE = 500
"""Failures that are looked at beside one, so that thousands at once take no hours."""
_TRIM = 0.03
"""Of the nodes those with the most failures, which the rate of good ones is taken without."""
_BEST = 1 / (2000 * DAY_S)
"""Fewer failures a second of a node's use are believed of no fleet: the best of two large ones that
were published had 2.3 in 1,000 node-days (A. Kokolis et al., Revisiting Reliability in Large-Scale
Machine Learning Research Clusters, 2024)."""

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
_Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Chance:
    """By job of a table."""

    counted: _Flags
    """Whether it is a failure that counts."""
    loop: _Flags
    """A failure of a workload that had failed on one of the same nodes just before."""
    outage: _Flags
    """A failure together with many unrelated ones."""
    node_rate: _Floats
    """Failures a second of use that a good node of its group causes."""
    rate: _Floats
    """Failures a second by chance at the moment of its end, were all its nodes good."""
    expected: _Floats
    """Failures by chance of the whole job."""


def chance_of(table: JobTable) -> Chance:
    """What to expect of these jobs; nodes are taken for as good as most are."""
    failed = table.how == FAILED
    loop = _loops(table)
    outage = np.zeros(len(table), dtype=bool)
    for kind in (failed & ~loop, table.how == NODE):
        outage |= _outages(table, kind)
    counted = (failed | (table.how == NODE)) & ~loop & ~outage
    node_rate = _node_rates(table, counted & (table.how == NODE))[table.group]
    start, late = _workload_rates(table, counted & failed)
    seconds = table.seconds
    # One node more than there are: a good one may be twice as bad as most.
    nodes = (table.sizes + 1) * node_rate
    own = np.where(seconds < EARLY_S, start / EARLY_S, late)
    return Chance(
        counted,
        loop,
        outage,
        node_rate,
        rate=nodes + np.where(failed, own, 0.0),
        expected=2 * nodes * seconds + start + late * np.maximum(seconds - EARLY_S, 0.0),
    )


def _loops(table: JobTable) -> _Flags:
    """Failures where the same workload had failed on one of the same nodes within a day before.

    Program or node: nothing tells, until it has run elsewhere or ended well there.
    """
    rows = table.rows
    order = np.lexsort((table.end[rows], table.members, table.workload[rows]))
    job, node = rows[order], table.members[order]
    same = (table.workload[job[1:]] == table.workload[job[:-1]]) & (node[1:] == node[:-1])
    failed = table.how[job] == FAILED
    soon = table.end[job[1:]] - table.end[job[:-1]] < _LOOP_S
    again = job[1:][same & soon & failed[1:] & failed[:-1]]
    loop = np.zeros(len(table), dtype=bool)
    loop[again] = True
    return loop


def _outages(table: JobTable, kind: _Flags) -> _Flags:
    """Those of some failures with more others at once, on other nodes, than chance gives."""
    found = np.zeros(len(table), dtype=bool)
    rows = np.flatnonzero(kind)
    if len(rows) < 3:
        return found
    times = table.end[rows]
    mean = len(rows) * 2 * SAME_S / max(times[-1] - times[0], DAY_S)
    most = _most_by_chance(mean)
    low = np.searchsorted(times, times - SAME_S)
    high = np.searchsorted(times, times + SAME_S, side="right")
    for k in np.flatnonzero(high - low - 1 > most):
        beside = rows[low[k] : min(high[k], low[k] + _MOST_BESIDE)]
        found[rows[k]] = _unrelated(table, rows[k], beside, most + 1) > most
    return found


def _unrelated(table: JobTable, row: int, beside: _Ints, enough: int) -> int:
    """How many of the others share no node with it or with each other; counted until it is enough."""
    taken = _nodes_of(table, row)
    count = 0
    for other in beside:
        theirs = _nodes_of(table, other)
        if other != row and not theirs & taken:
            count += 1
            taken |= theirs
            if count == enough:
                break
    return count


def _nodes_of(table: JobTable, row: int) -> set[int]:
    return set(table.members[table.first[row] : table.first[row + 1]].tolist())


def _most_by_chance(mean: float) -> int:
    """The largest count that a Poisson variable of that mean passes in fewer than `_OUTAGE` cases."""
    count, below = 0, exp(-mean)
    while 1 - below >= _OUTAGE:
        count += 1
        below += exp(count * log(mean) - mean - lgamma(count + 1))
    return count


def _node_rates(table: JobTable, told: _Flags) -> _Floats:
    """By group: failures a second of a node's use, without the nodes that fail most.

    told: failures of a node. Each of a job's nodes has an equal share in its failure, unless it is
    known which it was; few failures of a group are filled up with the fleet's.
    """
    rows, culprit = table.rows, table.culprit[table.rows]
    equal = (told / np.maximum(table.sizes, 1))[rows]
    share = np.where(culprit < 0, equal, told[rows] & (culprit == table.members))
    by_node = np.bincount(table.members, weights=share, minlength=len(table.nodes))
    kept = by_node[table.members] <= np.quantile(by_node, 1 - _TRIM) if len(by_node) else rows < 0
    groups = int(table.group.max(initial=-1)) + 1
    group = table.group[rows][kept]
    failures = np.bincount(group, weights=share[kept], minlength=groups)
    seconds = np.bincount(group, weights=table.seconds[rows][kept], minlength=groups)
    fleet = max(_BEST, (failures.sum() + 0.5) / max(seconds.sum(), DAY_S))
    return np.asarray((failures + 1) / (seconds + 1 / fleet)).clip(min=_BEST)


def _workload_rates(table: JobTable, failed: _Flags) -> tuple[_Floats, _Floats]:
    """By job: failures that its workload has as it starts, and a second later on.

    A workload of few jobs is expected to be as the fleet's are; each weighs as one failure more.
    """
    count = int(table.workload.max(initial=-1)) + 1
    late = np.maximum(table.seconds - EARLY_S, 0.0)

    def by_workload(weights: _Floats | _Flags) -> _Floats:
        return np.bincount(table.workload, weights=weights, minlength=count).astype(np.float64)

    starts, soon = by_workload(np.ones(len(table))), by_workload(failed & (late == 0))
    time, later = by_workload(late), by_workload(failed & (late > 0))
    usual_start = (soon.sum() + 1) / (starts.sum() + 2)
    usual_late = (later.sum() + 1) / max(time.sum(), DAY_S)
    start = (1 + soon) / (1 / usual_start + starts)
    return start[table.workload], ((1 + later) / (1 / usual_late + time))[table.workload]
