"""One shape fitted to measured times: robust, weighted, in log space, no coefficient below 0.

Least squares of log(model / measured), so that 1 KB counts as much as 1 GB, with Huber's weights
(P. J. Huber, 1964), so that a few disturbed times do not bend it, by the method of Levenberg and
Marquardt on the logarithms of the coefficients, which keeps them positive.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wirespeed.statistics import MAD_TO_SIGMA

__all__ = ["Solved", "latency_share", "log_times", "solve"]

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


def log_times(matrix: Array, bandwidth: Flags, power: float, theta: Array) -> Array:
    """log T by place (last axis); theta may have leading axes (draws)."""
    latency = theta[..., ~bandwidth] @ matrix[:, ~bandwidth].T
    transfer = theta[..., bandwidth] @ matrix[:, bandwidth].T
    return _log_sum(latency, transfer, power)


def latency_share(matrix: Array, bandwidth: Flags, power: float, theta: Array) -> Array:
    """How much of the time is latency, 0 to 1, by place: A^p / (A^p + B^p)."""
    latency = np.maximum(matrix[:, ~bandwidth] @ theta[~bandwidth], 1e-300)
    transfer = np.maximum(matrix[:, bandwidth] @ theta[bandwidth], 1e-300)
    share: Array = 1 / (1 + np.exp(np.clip(power * np.log(transfer / latency), -50, 50)))
    return share


def _log_sum(latency: Array, transfer: Array, power: float) -> Array:
    larger = np.maximum(np.maximum(latency, transfer), 1e-300)
    # The larger one taken out, so that no power overflows.
    parts = (np.maximum(latency, 0) / larger) ** power + (np.maximum(transfer, 0) / larger) ** power
    summed: Array = np.log(larger) + np.log(parts) / power
    return summed


def solve(
    matrix: Array,
    bandwidth: Flags,
    power: float,
    seconds: Array,
    weights: Array,
    start: Array | None = None,
) -> Solved:
    """The coefficients with the least robust squares.

    matrix: a row a point, a column a term, none of them all 0. weights: by point, about 1. start:
    coefficients to begin at, where those of nearly the same points are known.
    """
    scale = matrix.mean(axis=0)
    scaled, target = matrix / scale, np.log(seconds)
    floor = np.log(_LEAST * seconds.max())
    begin = _begin(scaled, bandwidth, seconds) if start is None else start * scale
    phi = np.maximum(np.log(np.maximum(begin, 1e-300)), floor)
    phi = _descend(scaled, bandwidth, power, target, weights, phi, floor)
    theta = np.exp(phi)
    residuals = target - log_times(scaled, bandwidth, power, theta)
    slopes = _slopes(scaled, bandwidth, power, theta) / theta
    robust = weights * _huber(residuals)
    normal = slopes.T @ (slopes * robust[:, None])
    covariance = np.linalg.pinv(normal, rcond=1e-10, hermitian=True)
    freedom = max(len(seconds) - matrix.shape[1], 1)
    return Solved(theta / scale, residuals, covariance / np.outer(scale, scale), freedom)


def _begin(scaled: Array, bandwidth: Flags, seconds: Array) -> Array:
    """The quickest time shared by the latencies, the longest by the bandwidths."""
    slowest = int(np.argmax(seconds))
    begin = np.full(len(bandwidth), seconds.min() / max(int((~bandwidth).sum()), 1))
    own = np.maximum(scaled[slowest, bandwidth], 1e-9) * max(int(bandwidth.sum()), 1)
    begin[bandwidth] = seconds[slowest] / own
    return begin


def _descend(
    scaled: Array,
    bandwidth: Flags,
    power: float,
    target: Array,
    weights: Array,
    phi: Array,
    floor: float,
) -> Array:
    damping = 1e-2
    for _ in range(_ROUNDS):
        theta = np.exp(phi)
        residuals = target - log_times(scaled, bandwidth, power, theta)
        robust = weights * _huber(residuals)
        cost = float(robust @ residuals**2)
        slopes = _slopes(scaled, bandwidth, power, theta)
        normal = slopes.T @ (slopes * robust[:, None])
        pull = slopes.T @ (robust * residuals)
        for _ in range(_TRIES):
            damped = normal + np.diag(damping * np.diag(normal) + 1e-12)
            step = np.clip(np.linalg.solve(damped, pull), -3, 3)
            trial = np.maximum(phi + step, floor)
            left = target - log_times(scaled, bandwidth, power, np.exp(trial))
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


def _slopes(scaled: Array, bandwidth: Flags, power: float, theta: Array) -> Array:
    """d log T / d log theta, a row a point."""
    parts = scaled * theta
    latency = parts[:, ~bandwidth].sum(axis=1)
    transfer = parts[:, bandwidth].sum(axis=1)
    whole = np.exp(_log_sum(latency, transfer, power))
    share = np.where(bandwidth, (transfer / whole)[:, None], (latency / whole)[:, None])
    slopes: Array = parts / whole[:, None] * share ** (power - 1)
    return slopes
