"""Shapes weighed by how they foretell what they were not shown, and draws of the future from them.

Each size and each world is left out in turn, the shape is fitted to the rest and asked for what is
missing (trial.py). The errors of one such group go together, so a group counts as one piece of
evidence: the weight of a shape is its score to the power of minus the number of groups (the
likelihood of that many normal errors, each of unknown variance). The forecast is a mixture: every
draw takes a shape by its weight, coefficients from their distribution, a residual, and what worlds
and sizes beyond the measured ones may add. Where the shapes disagree, far out, the interval is as
wide as they disagree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wirespeed.predict.points import Series
from wirespeed.predict.shapes import Place, shapes_for
from wirespeed.predict.trial import Drift, Member, Trial, attempt, near_enough
from wirespeed.records_prediction import Estimate

__all__ = ["DRAWS", "Drifts", "Forecast", "estimate", "fit"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Factors = Mapping[str, Array]
DRAWS = 600
_SEED = 20_261_121
_LEAST_WEIGHT = 0.02
_NOT_IN_SOURCE = 0.05
"""Weight of a shape before any measurement, where the backend's source has others (`shapes.known`)."""
_TRIED, _MOST_TERMS = 32, 8
"""Draws of coefficients for each that is needed: those with one below 0 are not taken."""
_DRIFT = 0.04
"""What a doubling beyond the measured worlds or sizes adds (as a share of the time, one sigma) until
the runs' own outermost worlds and sizes tell: one such error is taken as seen beforehand."""


@dataclass(frozen=True, slots=True)
class Drifts:
    """One sigma of log time a doubling beyond what was measured."""

    latency: float
    bandwidth: float

    @staticmethod
    def of(seen: Sequence[Drift]) -> "Drifts":
        return Drifts(*(_drift([getattr(d, n) for d in seen]) for n in ("latency", "bandwidth")))


@dataclass(frozen=True, slots=True)
class Forecast:
    """What can be said of one collective."""

    series: Series
    members: tuple[Member, ...]
    """By weight, the heaviest first."""
    weights: tuple[float, ...]
    """They add up to 1."""
    errors: Array
    """|log(measured / predicted)| of every measurement when it was left out, by the heaviest."""
    world: Drifts
    size: Drifts

    def draws(self, places: Sequence[Place], factors: Factors | None = None) -> Array:
        """Seconds at these places: a row a draw, a column a place.

        factors: by term name, one a draw, that coefficients are multiplied with. The random numbers
        are the same on every call, so that forecasts can be compared draw by draw.
        """
        rng = np.random.default_rng(_SEED)
        freedom = max(3, len(self.series.worlds) + 1)
        shared = rng.standard_normal((DRAWS, 3))
        shared *= np.sqrt(freedom / rng.chisquare(freedom, DRAWS))[:, None]
        deviates = rng.standard_normal((_TRIED * DRAWS, _MOST_TERMS))
        rows = np.empty((DRAWS, len(places)))
        for member, chosen in zip(self.members, self._rows(), strict=True):
            some = None if factors is None else {name: f[chosen] for name, f in factors.items()}
            theta = _coefficients(member, deviates, len(chosen))
            rows[chosen] = self._of(member, places, shared[chosen], theta, some)
        seconds: Array = np.exp(np.clip(rows, -50, 50))
        return seconds

    def _of(
        self,
        member: Member,
        places: Sequence[Place],
        shared: Array,
        theta: Array,
        factors: Factors | None,
    ) -> Array:
        for column, term in enumerate(member.shape.terms):
            if factors is not None and term.name in factors:
                theta[:, column] *= factors[term.name]
        share = member.share(places)
        mean, deviation = member.leftover.at(places, share)
        world, size = self._beyond(places, share)
        told = member.log_times(places, theta) + mean
        return told + shared @ np.stack([deviation, world, size])

    def _rows(self) -> list[Rows]:
        """Draws by member, spread evenly (the golden ratio's multiples)."""
        edges = np.cumsum(self.weights)
        at = (np.arange(DRAWS) * 0.6180339887498949) % 1.0
        which = np.minimum(np.searchsorted(edges, at, side="right"), len(self.members) - 1)
        return [np.flatnonzero(which == k) for k in range(len(self.members))]

    def _beyond(self, places: Sequence[Place], share: Array) -> tuple[Array, Array]:
        """(by world, by size): one sigma of log time at each place, for lying beyond."""
        ranks, sizes = [world.ranks for world in self.series.worlds], self.series.sizes
        worlds = [_doublings(world.ranks, min(ranks), max(ranks)) for world, _ in places]
        far = [_doublings(size, sizes[0], sizes[-1]) for _, size in places]
        return _mixed(self.world, share) * np.array(worlds), _mixed(self.size, share) * np.array(
            far
        )


def estimate(draws: Array) -> Estimate:
    """The median and the interval that holds 95 % of the draws."""
    low, middle, high = np.quantile(draws, (0.025, 0.5, 0.975))
    return Estimate(float(middle), float(low), float(high))


def fit(series: Series) -> Forecast | None:
    """Every shape of the operation tried on the series; None where none can be told from it."""
    shapes = shapes_for(series.op, series.worlds, series.cores, series.backend)
    found = [attempt(shape, series) for shape in near_enough(shapes, series)]
    tried = [one for one in found if one.sizes]
    if not tried:
        return None
    best = min(tried, key=lambda one: one.score)
    groups = len(best.sizes) + len(best.worlds)
    weights = np.array([(best.score / one.score) ** groups * _prior(one) for one in tried])
    weights[weights < _LEAST_WEIGHT * weights.sum()] = 0.0
    order = [int(k) for k in np.argsort(-weights, kind="stable") if weights[k] > 0]
    return Forecast(
        series=series,
        members=tuple(tried[k].member for k in order),
        weights=tuple(float(weights[k] / weights.sum()) for k in order),
        errors=np.abs(np.concatenate(best.sizes + best.worlds)),
        world=Drifts.of([best.drift_world]),
        size=Drifts.of([best.drift_size]),
    )


def _prior(trial: Trial) -> float:
    return 1.0 if trial.member.shape.known else _NOT_IN_SOURCE


def _mixed(drifts: Drifts, share: Array) -> Array:
    return np.sqrt(share * drifts.latency**2 + (1 - share) * drifts.bandwidth**2)


def _drift(seen: Sequence[float | None]) -> float:
    known = [one for one in seen if one is not None]
    return float(np.sqrt((_DRIFT**2 + sum(one**2 for one in known)) / (1 + len(known))))


def _doublings(value: float, least: float, most: float) -> float:
    return float(max(0.0, np.log2(value / most), np.log2(least / value)))


def _coefficients(member: Member, deviates: Array, count: int) -> Array:
    """That many draws of what is known of them, none below 0: a normal that is cut there keeps how the
    coefficients go together, which drawing all and raising some would not."""
    fitted = member.solved.theta
    root = _root(member.solved.covariance * member.leftover.variance)
    theta = fitted + deviates[:, : len(fitted)] @ root
    good = theta[(theta >= 0).all(axis=1)]
    found: Array = (
        np.resize(good, (count, len(fitted))) if len(good) else np.tile(fitted, (count, 1))
    )
    return found


def _root(covariance: Array) -> Array:
    """A matrix whose product with independent deviates has that covariance."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    root: Array = (vectors * np.sqrt(np.maximum(values, 0))).T
    return root
