"""One shape tried on a series: fitted, and asked for every size and world that it was not shown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wirespeed.predict.leftover import Leftover, learn, noise_of
from wirespeed.predict.points import Point, Series
from wirespeed.predict.shapes import Place, Shape, varied
from wirespeed.predict.solve import Solved, latency_share, log_times, solve
from wirespeed.records_prediction import WorldSize

__all__ = ["Drift", "Member", "Trial", "attempt", "near_enough"]

Array = NDArray[np.float64]
Gone = Callable[[Point], bool]
_SURE = 0.1
"""Standard error from which a measurement's own interval lowers its weight, until the residuals tell."""
_WILD, _EXACT = 2.0, 0.01
"""Errors of log time count as no more than the first, those of a group as no less than the second."""
_HOPELESS = 4.0


@dataclass(frozen=True, slots=True)
class Drift:
    """Error of the outermost world or size when it was left out, a doubling, in log time."""

    latency: float | None
    bandwidth: float | None


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
        means = [
            float(np.mean([_log_rms(one) for one in g])) for g in (self.sizes, self.worlds) if g
        ]
        return float(np.exp(np.mean(means))) if means else float("inf")


def near_enough(shapes: Sequence[Shape], series: Series) -> list[Shape]:
    """Those that can be told from the points and do not miss them by several times more than the best:
    the others would have no weight, and each trial takes its time."""
    places = _places(series.points)
    told = [
        shape for shape in (varied(one, places) for one in shapes) if _told(shape, series.points)
    ]
    missed = [_missed(shape, series.points) for shape in told]
    most = _HOPELESS * min(missed, default=0.0)
    return [shape for shape, one in zip(told, missed, strict=True) if one <= most]


def _told(shape: Shape, points: Sequence[Point]) -> bool:
    return len(points) > len(shape.terms) and 0 < shape.bandwidth.sum() < len(shape.terms)


def _missed(shape: Shape, points: Sequence[Point]) -> float:
    """Root mean square of log(measured / model), no less than `_EXACT`."""
    seconds, matrix = np.array([point.seconds for point in points]), shape.matrix(_places(points))
    law = (shape.bandwidth, shape.power)
    found = solve(matrix, *law, seconds, np.ones(len(points)), None, shape.credit)
    return float(np.exp(_log_rms(found.residuals)))


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
    if errors is None or doublings < 0.2:
        return Drift(None, None)
    share = member.share(_places(points))
    return Drift(*(_weighed(errors, weight, doublings) for weight in (share, 1 - share)))


def _weighed(errors: Array, weight: Array, doublings: float) -> float | None:
    """The weighted median a doubling; None where nothing has weight."""
    if weight.sum() < 0.5:
        return None
    order = np.argsort(errors)
    middle = np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)
    # A fifth of a doubling shows no five times larger drift: part of the error is noise.
    return float(errors[order[min(int(middle), len(order) - 1)]] / np.sqrt(doublings))


def _fitted(shape: Shape, points: Sequence[Point], like: Member | None) -> Member:
    """Twice: the first fit tells how noisy latency and bandwidth are, the second weighs by it.

    like: the same shape on nearly the same points, whose noise and kernel are taken over.
    """
    places, seconds = _places(points), np.array([point.seconds for point in points])
    matrix = shape.matrix(places)
    law = (shape.bandwidth, shape.power)
    weights = np.array([_SURE**2 / (_SURE**2 + point.spread**2) for point in points])
    start, noise = (like.solved.theta, like.leftover.noise) if like else (None, None)
    if noise is None:
        first = solve(matrix, *law, seconds, weights, None, shape.credit)
        start = first.theta
        share = _share(shape, matrix, start)
        noise = noise_of(first.residuals, share)
    share = _share(shape, matrix, np.asarray(start))
    spread = np.array([point.spread for point in points])
    weights = np.maximum(noise.sigma(share), spread) ** -2.0
    solved = solve(matrix, *law, seconds, weights, start, shape.credit)
    share = _share(shape, matrix, solved.theta)
    sigma = np.maximum(noise.sigma(share), spread)
    kernel = like.leftover.kernel if like else None
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
