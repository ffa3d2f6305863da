"""What is healthy, and how much it varies: from the fleet itself, never from a table of rates."""

import numpy as np

from wirespeed.locate.evidence import MEDIAN_TO_MEAN, cautious, spread
from wirespeed.locate.problem import UNEVEN, Problem
from wirespeed.locate.table import LOST, Floats, middle, upper

__all__ = ["from_fleet", "noise"]


def from_fleet(problem: Problem, crosses: Floats) -> Floats:
    """Residuals against the fleet, apart for pairs within a group and across groups."""
    figures = problem.figures
    result, idle = figures.copy(), problem.partner < 0
    for kind in (crosses, ~crosses):
        rows = np.where((kind & ~idle)[..., None], figures, np.nan)
        result = np.where(kind[..., None], figures - _healthy(problem, rows), result)
    residuals: Floats = np.maximum(result, LOST)
    return residuals


def _healthy(problem: Problem, rows: Floats) -> float:
    """What a healthy pair reaches: with few nodes most pairs may hold a slow one, so the fast
    partners of each node speak for it, and the upper half of the nodes for the fleet."""
    if np.isnan(rows).all():
        return 0.0
    if not problem.small:
        return float(upper(np.array([np.nanmedian(rows[..., r]) for r in range(rows.shape[2])])))
    pairs = _of_pairs(problem, rows)
    pairs = (pairs + np.swapaxes(pairs, 0, 1)) / 2
    doubtful = sorted(problem.doubtful)
    if len(doubtful) <= problem.nodes - 2:
        pairs[doubtful] = pairs[:, doubtful] = np.nan
    best = np.nanmax(np.where(np.isnan(pairs), LOST, pairs), axis=1)
    start = float(upper(best[best > LOST / 2].ravel())) if (best > LOST / 2).any() else 0.0
    error = MEDIAN_TO_MEAN * _of_repeats(problem, rows) / (2 * problem.repeats) ** 0.5
    limit = start - problem.least - 2 * error
    good = best > limit
    among = np.where(good[:, None] & good[None], pairs, np.nan)
    near = among[among > limit]
    return float(np.nanmedian(near)) if near.size else start


def _of_pairs(problem: Problem, rows: Floats) -> Floats:
    """[nodes, nodes, rails]: medians of the rounds (small worlds only)."""
    n = problem.nodes
    result = np.full((n, n, rows.shape[2]), np.nan, np.float32)
    for a in range(n):
        for b in set(problem.partner[:, a].tolist()) - {-1}:
            result[a, b] = middle(rows[problem.partner[:, a] == b, a].T)
    return result


def _of_repeats(problem: Problem, figures: Floats) -> float:
    """Sigma between rounds of the same schedule: nothing but noise. [rounds, …]"""
    cycle = problem.cycle
    if not cycle or figures.shape[0] <= cycle:
        return 0.1
    differences = figures[cycle:] - figures[:-cycle]
    known = np.abs(differences[np.isfinite(differences)])
    sigma = 1.4826 * float(np.median(known)) / 2**0.5 if known.size else 0.1
    return cautious(sigma, known.size)


def noise(problem: Problem, series: Floats) -> float:
    if not problem.small:
        return max(spread(series), 1e-3)
    return float(np.hypot(_of_repeats(problem, series.T), UNEVEN * problem.repeats**0.5))
