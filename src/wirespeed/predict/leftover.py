"""What a shape leaves over: a Gaussian process over (log size, log ranks, run), in log space.

Real collectives change protocol and algorithm with size, and a run has its mood; so residuals of
neighbouring sizes and worlds resemble each other. Kriging (C. E. Rasmussen and C. K. I. Williams,
Gaussian Processes for Machine Learning, 2006, chapter 2) adds to a forecast what its neighbours
left over, and says how uncertain it is: more the farther from any measurement.

Latency is noisier than bandwidth (a scheduler's tick, a busy neighbour), so residuals are measured in
sigmas of their own: sigma^2 = share of latency * its variance + the rest * that of bandwidth.

    correlation = smooth · exp(-|Δ log2 size| / reach - |Δ log2 ranks| / reach')
                  + run · [same run] + noise
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from wirespeed.predict.points import Point
from wirespeed.predict.shapes import Place
from wirespeed.statistics import MAD_TO_SIGMA

__all__ = ["Kernel", "Leftover", "Noise", "learn", "noise_of"]

Array = NDArray[np.float64]
_SMOOTH, _RUN, _REACH_SIZE, _REACH_WORLD = (0.0, 0.5, 0.8, 0.95), (0.0, 0.3, 0.6), (1, 4), (0.5, 3)
_QUIETEST = 0.005
"""No timing is repeatable to better than this share of itself."""
_LEAST = 1e-3


@dataclass(frozen=True, slots=True)
class Kernel:
    """Shares of the variance, and over how many doublings a residual is felt."""

    smooth: float
    run: float
    reach_size: float
    reach_world: float

    @property
    def noise(self) -> float:
        return 1 - self.smooth - self.run


_NEIGHBOURS = Kernel(smooth=1.0, run=0.0, reach_size=1, reach_world=0.5)


@dataclass(frozen=True, slots=True)
class Noise:
    """Variances of log time where all is latency, and where all is bandwidth."""

    latency: float
    bandwidth: float

    def sigma(self, share: Array) -> Array:
        """By place, from its share of latency."""
        return np.sqrt(share * self.latency + (1 - share) * self.bandwidth)


def noise_of(residuals: Array, share: Array) -> Noise:
    """Both variances from the residuals; where one kind is rare, nearly that of all together."""
    whole = _robust(residuals, np.ones(len(residuals))) ** 2
    return Noise(_variance(residuals, share, whole), _variance(residuals, 1 - share, whole))


def _variance(residuals: Array, weight: Array, whole: float) -> float:
    """Of one kind: squares beyond 3 of its own robust sigmas count as no more than that."""
    clip = (3 * _robust(residuals, weight)) ** 2 + _QUIETEST**2
    squares = np.minimum(residuals**2, clip)
    return max((float(weight @ squares) + whole) / (float(weight.sum()) + 1), _QUIETEST**2)


def _robust(residuals: Array, weight: Array) -> float:
    """Sigma from the weighted median of the absolute residuals."""
    size, total = np.abs(residuals), float(weight.sum())
    if total <= 0:
        return _QUIETEST
    order = np.argsort(size)
    middle = int(np.searchsorted(np.cumsum(weight[order]), total / 2))
    return max(MAD_TO_SIGMA * float(size[order[min(middle, len(order) - 1)]]), _QUIETEST)


@dataclass(frozen=True, slots=True)
class Leftover:
    """The residuals at some points, ready to be asked about other places."""

    kernel: Kernel
    noise: Noise
    variance: float
    """Of a residual in sigmas, about 1."""
    _at: Array
    _spread: Array
    """Standard error of each point's own log time."""
    _solved: Array
    _inverse: Array

    def at(self, places: Sequence[Place], share: Array) -> tuple[Array, Array]:
        """(mean, standard deviation) of the residual of a new run at these places.

        share: of latency, by place. A new measurement is no surer of its own median than its
        neighbours are of theirs.
        """
        where = _where(places)
        across = self.kernel.smooth * _near(where, self._at, self.kernel)
        told = np.einsum("ij,jk,ik->i", across, self._inverse, across)
        close = _near(where, self._at, _NEIGHBOURS) + 1e-12
        spread = np.sqrt(close @ self._spread**2 / close.sum(axis=1))
        sigma = np.maximum(self.noise.sigma(share), spread)
        left = np.sqrt(self.variance * np.maximum(1 - told, self.kernel.noise))
        return sigma * (across @ self._solved), sigma * left


def learn(
    points: Sequence[Point],
    residuals: Array,
    sigma: Array,
    noise: Noise,
    *,
    freedom: int,
    kernel: Kernel | None = None,
) -> Leftover:
    """The kernel of the greatest likelihood, unless it is given; the variance that goes with it.

    sigma: what `noise` gives at each point.
    """
    residuals = residuals / sigma
    spread = np.array([point.spread for point in points])
    at = _where([(point.world, point.size_bytes) for point in points])
    runs = np.array([point.run for point in points])
    same = (runs[:, None] == runs[None, :]).astype(float)
    if kernel is None:
        kernels = _kernels(bool(same.all()))
        kernel = max(kernels, key=lambda one: _likelihood(one, at, same, residuals))
    inverse = np.asarray(np.linalg.inv(_correlation(kernel, at, same)), dtype=np.float64)
    solved = inverse @ residuals
    variance = max(float(residuals @ solved) / freedom, _LEAST)
    return Leftover(kernel, noise, variance, at, spread, solved, inverse)


def _kernels(one_run: bool) -> list[Kernel]:
    # With one run its mood is part of the coefficients.
    runs = (0.0,) if one_run else _RUN
    found = [Kernel(0.0, run, 1, 1) for run in runs]
    for smooth, run, size, world in product(_SMOOTH[1:], runs, _REACH_SIZE, _REACH_WORLD):
        if smooth + run <= 0.951:
            found.append(Kernel(smooth, run, size, world))
    return found


def _where(places: Sequence[Place]) -> Array:
    return np.array([(np.log2(float(size)), np.log2(float(world.ranks))) for world, size in places])


def _near(one: Array, other: Array, kernel: Kernel) -> Array:
    apart = np.abs(one[:, None, :] - other[None, :, :])
    near: Array = np.exp(-apart[..., 0] / kernel.reach_size - apart[..., 1] / kernel.reach_world)
    return near


def _correlation(kernel: Kernel, at: Array, same: Array) -> Array:
    near = _near(at, at, kernel)
    return kernel.smooth * near + kernel.run * same + kernel.noise * np.eye(len(at))


def _likelihood(kernel: Kernel, at: Array, same: Array, residuals: Array) -> float:
    """Log likelihood with the variance that suits best, up to a constant."""
    try:
        factor = np.linalg.cholesky(_correlation(kernel, at, same))
    except np.linalg.LinAlgError:
        return -np.inf
    white = np.linalg.solve(factor, residuals)
    variance = max(float(white @ white) / len(residuals), _LEAST)
    return float(-len(residuals) / 2 * np.log(variance) - np.log(np.diag(factor)).sum())
