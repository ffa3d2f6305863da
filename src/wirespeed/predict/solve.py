"""One shape fitted to measured times: robust, weighted, in log space, no coefficient below 0.

Least squares of log(model / measured), so that 1 KB counts as much as 1 GB, with Huber's weights
(P. J. Huber, 1964), so that a few disturbed times do not bend it, by the method of Levenberg and
Marquardt on the logarithms of the coefficients, which keeps them positive.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wirespeed.statistics import MAD_TO_SIGMA

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
_HUBER, _QUIETEST = 1.345, 0.01
"""Residuals above 1.345 robust sigmas count linearly; a sigma is never taken below 1 %."""
_ROUNDS, _TRIES = 60, 8
_LEAST = 1e-7
"""A coefficient is never below this share of the longest time at its mean term: nearly 0."""


@dataclass(frozen=True, slots=True)
class Solved:
    """Coefficients, what they leave over, and how well they are known."""

    theta: Array
    """By term, in the term's unit."""
    residuals: Array
    """log(measured / model) by point."""
    covariance: Array
    """Of theta for residuals of variance 1; multiply with theirs."""
    freedom: int
    """Points less coefficients, at least 1."""


def log_times(
    matrix: Array, bandwidth: Flags, power: float, theta: Array, credit: float = 0.0
) -> Array:
    """log T by place (last axis); theta may have leading axes (draws)."""
    latency = theta[..., ~bandwidth] @ matrix[:, ~bandwidth].T
    transfer = theta[..., bandwidth] @ matrix[:, bandwidth].T
    return _log_sum(latency, transfer - credit * latency, power)


def latency_share(
    matrix: Array, bandwidth: Flags, power: float, theta: Array, credit: float = 0.0
) -> Array:
    """How much of the time is latency, 0 to 1, by place: A^p / (A^p + B^p)."""
    latency = np.maximum(matrix[:, ~bandwidth] @ theta[~bandwidth], 1e-300)
    transfer = matrix[:, bandwidth] @ theta[bandwidth] - credit * latency
    transfer = np.maximum(transfer, 1e-300)
    return 1 / (1 + np.exp(np.clip(power * np.log(transfer / latency), -50, 50)))


@dataclass(frozen=True, slots=True)
class _Law:
    """How the terms become a time."""

    bandwidth: Flags
    power: float
    credit: float

    def log_times(self, scaled: Array, theta: Array) -> Array:
        return log_times(scaled, self.bandwidth, self.power, theta, self.credit)

    def slopes(self, scaled: Array, theta: Array) -> Array:
        """d log T / d log theta, a row a point."""
        parts = scaled * theta
        latency = parts[:, ~self.bandwidth].sum(axis=1)
        transfer = parts[:, self.bandwidth].sum(axis=1) - self.credit * latency
        whole = np.exp(_log_sum(latency, transfer, self.power))
        by_latency = (latency / whole) ** (self.power - 1)
        by_transfer = np.where(transfer > 0, np.maximum(transfer, 0) / whole, 0.0)
        by_transfer = np.where(transfer > 0, by_transfer ** (self.power - 1), 0.0)
        by_latency = by_latency - self.credit * by_transfer
        share = np.where(self.bandwidth, by_transfer[:, None], by_latency[:, None])
        return parts / whole[:, None] * share


def _log_sum(latency: Array, transfer: Array, power: float) -> Array:
    larger = np.maximum(np.maximum(latency, transfer), 1e-300)
    # The larger one taken out, so that no power overflows.
    parts = (np.maximum(latency, 0) / larger) ** power + (np.maximum(transfer, 0) / larger) ** power
    return np.log(larger) + np.log(parts) / power


def solve(
    matrix: Array,
    bandwidth: Flags,
    power: float,
    seconds: Array,
    weights: Array,
    start: Array | None = None,
    credit: float = 0.0,
) -> Solved:
    """The coefficients with the least robust squares.

    matrix: a row a point, a column a term, none of them all 0. weights: by point, about 1. start:
    coefficients to begin at, where those of nearly the same points are known. credit: see
    `points.Shape`.
    """
    law = _Law(bandwidth, power, credit)
    scale = matrix.mean(axis=0)
    scaled, target = matrix / scale, np.log(seconds)
    floor = np.log(_LEAST * seconds.max())
    begin = _begin(scaled, bandwidth, seconds) if start is None else start * scale
    phi = np.maximum(np.log(np.maximum(begin, 1e-300)), floor)
    phi = _descend(scaled, law, target, weights, phi, floor)
    theta = np.exp(phi)
    residuals = target - law.log_times(scaled, theta)
    slopes = law.slopes(scaled, theta) / theta
    robust = weights * _huber(residuals)
    normal = slopes.T @ (slopes * robust[:, None]) + np.diag(1 / _most(scaled, seconds) ** 2)
    covariance = np.linalg.pinv(normal, rcond=1e-10, hermitian=True)
    freedom = max(len(seconds) - matrix.shape[1], 1)
    return Solved(theta / scale, residuals, covariance / np.outer(scale, scale), freedom)


def _most(scaled: Array, seconds: Array) -> Array:
    """By term: the coefficient with which it alone takes longer than one measurement in ten did. So
    large is the standard error of a coefficient before any measurement."""
    with np.errstate(divide="ignore"):
        alone = np.where(scaled > 0, seconds[:, None] / np.maximum(scaled, 1e-300), np.inf)
    found: Array = np.quantile(alone, 0.1, axis=0, method="lower")
    return np.minimum(found, 1e300)


def _begin(scaled: Array, bandwidth: Flags, seconds: Array) -> Array:
    """The quickest time shared by the latencies, the longest by the bandwidths."""
    slowest = int(np.argmax(seconds))
    begin = np.full(len(bandwidth), seconds.min() / max(int((~bandwidth).sum()), 1))
    own = np.maximum(scaled[slowest, bandwidth], 1e-9) * max(int(bandwidth.sum()), 1)
    begin[bandwidth] = seconds[slowest] / own
    return begin


def _descend(
    scaled: Array, law: "_Law", target: Array, weights: Array, phi: Array, floor: float
) -> Array:
    damping = 1e-2
    for _ in range(_ROUNDS):
        theta = np.exp(phi)
        residuals = target - law.log_times(scaled, theta)
        robust = weights * _huber(residuals)
        cost = float(robust @ residuals**2)
        slopes = law.slopes(scaled, theta)
        normal = slopes.T @ (slopes * robust[:, None])
        pull = slopes.T @ (robust * residuals)
        for _ in range(_TRIES):
            damped = normal + np.diag(damping * np.diag(normal) + 1e-12)
            step = np.clip(np.linalg.solve(damped, pull), -3, 3)
            trial = np.maximum(phi + step, floor)
            left = target - law.log_times(scaled, np.exp(trial))
            gained = cost - float(robust @ left**2)
            if gained >= 0:
                break
            damping *= 5
        else:
            return phi
        phi, damping = trial, max(damping / 5, 1e-9)
        if gained <= 1e-7 * cost + 1e-14:
            break
    return phi


def _huber(residuals: Array) -> Array:
    size = np.abs(residuals)
    sigma = max(MAD_TO_SIGMA * float(np.median(size)), _QUIETEST)
    return np.minimum(1.0, _HUBER * sigma / np.maximum(size, 1e-12))
