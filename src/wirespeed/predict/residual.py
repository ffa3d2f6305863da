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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from wirespeed.model.derived_records import WorldSize
from wirespeed.predict.points import Place, Point, Series, Shape, varied
from wirespeed.predict.solve import Solved, latency_share, log_times, solve
from wirespeed.statistics import MAD_TO_SIGMA

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
    if weight.sum() <= 0:
        return _QUIETEST
    return max(MAD_TO_SIGMA * _weighted_median(np.abs(residuals), weight), _QUIETEST)


def _weighted_median(values: Array, weight: Array) -> float:
    order = np.argsort(values)
    middle = int(np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2))
    return float(values[order[min(middle, len(order) - 1)]])


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
    return np.exp(-apart[..., 0] / kernel.reach_size - apart[..., 1] / kernel.reach_world)


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


Gone = Callable[[Point], bool]
_SURE = 0.1
"""Standard error from which a measurement's own interval lowers its weight, until the residuals tell."""
_WILD, _EXACT = 2.0, 0.01
"""Errors of log time count as no more than the first, those of a group as no less than the second."""
_HOPELESS = 4.0
_DRIFT = 0.04
"""What a doubling beyond the measured worlds or sizes adds (as a share of the time, one sigma) until
the runs' own outermost worlds and sizes tell: one such error is taken as seen beforehand."""


@dataclass(frozen=True, slots=True)
class Drift:
    """One sigma of log time that a doubling beyond what was measured adds."""

    latency: float
    bandwidth: float

    def sigma(self, share: Array) -> Array:
        """By place, from its share of latency."""
        return np.sqrt(share * self.latency**2 + (1 - share) * self.bandwidth**2)


@dataclass(frozen=True, slots=True)
class Member:
    """One shape, fitted."""

    shape: Shape
    solved: Solved
    leftover: Leftover

    def share(self, places: Sequence[Place]) -> Array:
        """Of latency, by place."""
        return _share(self.shape, self.shape.matrix(places), self.solved.theta)

    def log_times(self, places: Sequence[Place], theta: Array) -> Array:
        """By the shape alone."""
        shape = self.shape
        matrix = shape.matrix(places)
        return log_times(matrix, shape.bandwidth, shape.power, theta, shape.credit)


@dataclass(frozen=True, slots=True)
class Trial:
    """A shape with what it said of each group that was left out."""

    member: Member
    sizes: tuple[Array, ...]
    """By size that was left out: log(measured / predicted)."""
    worlds: tuple[Array, ...]
    """By world."""
    drift_size: Drift
    drift_world: Drift

    @property
    def score(self) -> float:
        """Geometric mean of the groups' root mean square errors; worlds count as much as sizes.

        Geometric, because small messages are noisier than large ones: each group has a scale of its
        own, and a shape is better where it is so by a factor.
        """
        groups = [one for one in (self.sizes, self.worlds) if one]
        means = [float(np.mean([_log_rms(errors) for errors in group])) for group in groups]
        return float(np.exp(np.mean(means))) if means else float("inf")


def near_enough(shapes: Sequence[Shape], series: Series) -> list[Shape]:
    """Those that can be told from the points and do not miss them by several times more than the best:
    the others would have no weight, and each trial takes its time."""
    places = _places(series.points)
    told = [one for one in (varied(each, places) for each in shapes) if _told(one, series.points)]
    missed = [_missed(shape, series.points) for shape in told]
    most = _HOPELESS * min(missed, default=0.0)
    return [shape for shape, one in zip(told, missed, strict=True) if one <= most]


def _told(shape: Shape, points: Sequence[Point]) -> bool:
    return len(points) > len(shape.terms) and 0 < shape.bandwidth.sum() < len(shape.terms)


def _missed(shape: Shape, points: Sequence[Point]) -> float:
    """Root mean square of log(measured / model), no less than `_EXACT`."""
    found = _solved(shape, shape.matrix(_places(points)), points, np.ones(len(points)))
    return float(np.exp(_log_rms(found.residuals)))


def _solved(
    shape: Shape,
    matrix: Array,
    points: Sequence[Point],
    weights: Array,
    start: Array | None = None,
) -> Solved:
    seconds = np.array([point.seconds for point in points])
    return solve(matrix, shape.bandwidth, shape.power, seconds, weights, start, shape.credit)


def attempt(shape: Shape, series: Series) -> Trial:
    """shape: one of those that are `near_enough`."""
    points = series.points
    member = _fitted(shape, points, None)
    classes, worlds = series.classes, series.worlds
    size_errors = [_left_out(member, points, _of_sizes(one)) for one in classes]
    tried = worlds[1:] if len(worlds) > 2 else ()
    world_errors = [_left_out(member, points, _of_world(one)) for one in tried]
    further = np.log2(classes[-1][-1] / classes[-2][-1]) if len(classes) > 2 else 0.0
    apart = np.log2(worlds[-1].ranks / worlds[-2].ranks) if tried else 0.0
    largest = [point for point in points if point.size_bytes in classes[-1]]
    widest = [point for point in points if point.world == worlds[-1]]
    return Trial(
        member=member,
        sizes=tuple(one for one in size_errors if one is not None),
        worlds=tuple(one for one in world_errors if one is not None),
        drift_size=_drift(member, largest, size_errors[-1], further),
        drift_world=_drift(member, widest, world_errors[-1] if tried else None, apart),
    )


def _of_sizes(sizes: tuple[int, ...]) -> Gone:
    return lambda point: point.size_bytes in sizes


def _of_world(world: WorldSize) -> Gone:
    return lambda point: point.world == world


def _log_rms(errors: Array) -> float:
    square = float(np.mean(np.minimum(np.abs(errors), _WILD) ** 2))
    return float(np.log(max(np.sqrt(square), _EXACT)))


def _drift(
    member: Member, points: Sequence[Point], errors: Array | None, doublings: float
) -> Drift:
    """From the outermost world or size, when it was left out."""
    if errors is None or doublings < 0.2:
        return Drift(_DRIFT, _DRIFT)
    share = member.share(_places(points))
    return Drift(*(_of_kind(errors, weight, doublings) for weight in (share, 1 - share)))


def _of_kind(errors: Array, weight: Array, doublings: float) -> float:
    """Sigma a doubling, from the weighted median of the errors and what is taken as seen before."""
    if weight.sum() < 0.5:
        return _DRIFT
    # A fifth of a doubling shows no five times larger drift: part of the error is noise.
    seen = float(_weighted_median(errors, weight) / np.sqrt(doublings))
    return float(np.sqrt((_DRIFT**2 + seen**2) / 2))


def _fitted(shape: Shape, points: Sequence[Point], like: Member | None) -> Member:
    """Twice: the first fit tells how noisy latency and bandwidth are, the second weighs by it.

    like: the same shape on nearly the same points, whose noise and kernel are taken over.
    """
    matrix = shape.matrix(_places(points))
    spread = np.array([point.spread for point in points])
    if like is None:
        sure = np.array([_SURE**2 / (_SURE**2 + point.spread**2) for point in points])
        first = _solved(shape, matrix, points, sure)
        start, kernel = first.theta, None
        noise = noise_of(first.residuals, _share(shape, matrix, start))
    else:
        start, kernel, noise = like.solved.theta, like.leftover.kernel, like.leftover.noise
    weights = np.maximum(noise.sigma(_share(shape, matrix, start)), spread) ** -2.0
    solved = _solved(shape, matrix, points, weights, start)
    sigma = np.maximum(noise.sigma(_share(shape, matrix, solved.theta)), spread)
    freedom = solved.freedom
    leftover = learn(points, solved.residuals, sigma, noise, freedom=freedom, kernel=kernel)
    return Member(shape, solved, leftover)


def _share(shape: Shape, matrix: Array, theta: Array) -> Array:
    """Of latency, by row of the matrix."""
    return latency_share(matrix, shape.bandwidth, shape.power, theta, shape.credit)


def _left_out(member: Member, points: Sequence[Point], out: Gone) -> Array | None:
    """log(measured / predicted) of the points that are left out; None where too few stay."""
    kept = [point for point in points if not out(point)]
    asked = [point for point in points if out(point)]
    shape = member.shape
    if len(kept) <= len(shape.terms) or len(varied(shape, _places(kept)).terms) < len(shape.terms):
        return None
    again, places = _fitted(shape, kept, member), _places(asked)
    mean, _ = again.leftover.at(places, again.share(places))
    told = again.log_times(places, again.solved.theta) + mean
    errors: Array = np.log(np.array([point.seconds for point in asked])) - told
    return errors


def _places(points: Sequence[Point]) -> list[Place]:
    return [(point.world, point.size_bytes) for point in points]
