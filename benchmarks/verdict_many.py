"""The verdicts of thousands of simulated comparisons at once: `compare`'s rule over arrays.

The same formulas as in wirespeed/compare/estimate.py and compare.py; `checked` puts some of the
comparisons to these themselves, and ends the benchmark where a verdict differs. Intervals are asked
by probabilities: what lies within the 95 % interval has a p of 5 % or more.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from wirespeed.compare.compare import rows_of
from wirespeed.compare.estimate import LEAST_RUNS, LEVEL, Figure, Floor
from wirespeed.model.derived_records import What

__all__ = ["Verdicts", "checked", "judged_at_once"]

Array = np.ndarray[Any, np.dtype[np.float64]]
_LEAST2 = 1e-18
_STEPS, _TINY = 300, 1e-300
_CHECKED = 25
_EDGE = 1e-3
"""Closer than this to a limit the two may differ by rounding (the quantiles have three digits)."""
_log_gamma = np.vectorize(math.lgamma, otypes=[float])


@dataclass
class Verdicts:
    """By comparison and figure."""

    worse: np.ndarray
    better: np.ndarray
    same: np.ndarray
    covered: np.ndarray
    """Whether the 95 % interval holds the truth."""
    near: np.ndarray
    """Too near to a limit to be checked."""


def judged_at_once(
    logs: Array, errors: Array, history: int, first: int, fail_on: float, truth: float
) -> Verdicts:
    """logs, errors: by comparison, figure and run (stored ones, then one side, then the other)."""
    before, after = logs[..., history : history + first], logs[..., history + first :]
    change = after.mean(-1) - before.mean(-1)
    within = (errors[..., history : history + first], errors[..., history + first :])
    pairs = _errors(before, after, within, logs[..., :history])
    p = np.maximum.reduce([two_sided_p(change / error, freedom) for error, freedom in pairs])
    off = np.abs(change - math.log(truth))
    held = np.maximum.reduce([two_sided_p(off / e, f) for e, f in pairs])
    margin = math.log1p(fail_on)
    left = margin - np.abs(change)
    outside = np.maximum.reduce([two_sided_p(left / e, f) for e, f in pairs])
    same = (left > 0) & (outside < 2 * LEVEL)
    adjusted = _adjusted(p)
    enough = min(first, after.shape[-1]) >= LEAST_RUNS
    called = ~same & enough & (left <= 0) & (adjusted < LEVEL)
    near = (np.abs(outside / (2 * LEVEL) - 1) < _EDGE) | (np.abs(adjusted / LEVEL - 1) < _EDGE)
    return Verdicts(called & (change > 0), called & (change < 0), same, held >= LEVEL, near)


def _errors(
    before: Array, after: Array, within: tuple[Array, Array], stored: Array
) -> list[tuple[Array, Any]]:
    """(standard error, degrees of freedom), each of which has to bear the verdict."""
    m, n = before.shape[-1], after.shape[-1]
    squares = [_squares(one) for one in (before, after, stored)]
    if min(m, n) < LEAST_RUNS:
        freedom = m + n - 2 + max(stored.shape[-1] - 1, 0)
        own = np.maximum((np.concatenate(within, -1) ** 2).mean(-1), _LEAST2)
        noise = np.maximum(sum(squares) / freedom, own)
        return [(np.sqrt(noise * (1 / m + 1 / n)), freedom)]
    noises = [
        np.maximum(np.maximum(s / (k - 1), (w**2).mean(-1)), _LEAST2)
        for s, k, w in zip(squares, (m, n), within, strict=False)
    ]
    parts = noises[0] / m, noises[1] / n
    welch = sum(parts) ** 2 / (parts[0] ** 2 / (m - 1) + parts[1] ** 2 / (n - 1))
    pooled = (noises[0] * (m - 1) + noises[1] * (n - 1)) / (m + n - 2)
    student = np.sqrt(pooled * (1 / m + 1 / n)), m + n - 2
    return [(np.sqrt(sum(parts)), np.maximum(1.0, welch)), student]


def _squares(runs: Array) -> Any:
    if not runs.shape[-1]:
        return 0.0
    return ((runs - runs.mean(-1, keepdims=True)) ** 2).sum(-1)


def _adjusted(p: Array) -> Array:
    """By Benjamini and Hochberg along the last axis."""
    count = p.shape[-1]
    order = np.argsort(p, axis=-1)
    ranked = np.take_along_axis(p, order, -1) * count / np.arange(1, count + 1)
    least = np.minimum.accumulate(ranked[..., ::-1], axis=-1)[..., ::-1]
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.minimum(least, 1.0), -1)
    return adjusted


def two_sided_p(t: Array, freedom: Any) -> Array:
    """P(|T| > |t|), as wirespeed/compare/student.py."""
    freedom = np.broadcast_to(np.asarray(freedom, dtype=float), t.shape)
    a, half = freedom / 2, np.full(t.shape, 0.5)
    x = freedom / (freedom + t * t)
    swap = x >= (a + 1) / (a + half + 2)
    front = _beta_front(freedom, a, x)
    one, other = np.where(swap, half, a), np.where(swap, a, half)
    value = front * _fraction(one, other, np.where(swap, 1 - x, x)) / one
    return np.clip(np.where(swap, 1 - value, value), 0.0, 1.0)


def _beta_front(freedom: Array, a: Array, x: Array) -> Array:
    if np.ptp(freedom) == 0:
        only = float(freedom.flat[0]) / 2
        log_beta: Any = math.lgamma(only) + math.lgamma(0.5) - math.lgamma(only + 0.5)
    else:
        log_beta = _log_gamma(a) + math.lgamma(0.5) - _log_gamma(a + 0.5)
    safe = np.clip(x, _TINY, 1 - 1e-16)
    return np.where(
        (x > 0) & (x < 1), np.exp(a * np.log(safe) + 0.5 * np.log1p(-safe) - log_beta), 0
    )


def _fraction(a: Array, b: Array, x: Array) -> Array:
    c, d = np.ones_like(x), 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            value = value * c * d
        if np.abs(c * d - 1).max() < 1e-12:
            break
    return value


def _away(value: Array) -> Array:
    return np.where(np.abs(value) > _TINY, value, _TINY)


def checked(
    found: Verdicts, logs: Array, errors: Array, history: int, first: int, fail_on: float
) -> None:
    """The first comparisons by the product itself; SystemExit where it says something else."""
    whats = [What("collective", (("size_bytes", 2**k),)) for k in range(logs.shape[1])]
    for one in range(min(_CHECKED, len(logs))):
        runs = [
            [Figure(log=log, within=error) for log, error in zip(*pair, strict=True)]
            for pair in zip(logs[one].tolist(), errors[one].tolist(), strict=True)
        ]
        floors = {w: _floor(r[:history]) for w, r in zip(whats, runs, strict=True) if history}
        sides = [
            {w: r[part] for w, r in zip(whats, runs, strict=True)}
            for part in (slice(history, history + first), slice(history + first, None))
        ]
        for k, row in enumerate(rows_of(sides[0], sides[1], fail_on, floors=floors)):
            flags = found.worse[one, k], found.better[one, k], found.same[one, k]
            ours = dict(zip(flags, ("WORSE", "better", "same"), strict=True)).get(True)
            if row.verdict != (ours or "not enough runs") and not found.near[one, k]:
                raise SystemExit(f"wirespeed says {row.verdict}, the benchmark {ours}: {row}")


def _floor(stored: list[Figure]) -> Floor:
    squares = float(np.var([one.log for one in stored], ddof=1))
    return Floor(squares, len(stored) - 1, "history")
