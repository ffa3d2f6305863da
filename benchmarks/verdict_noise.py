"""Runs of known noise for benchmarks/verdicts.py: simulated, as figures."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from wirespeed.statistics import median_interval

SAMPLES = 40
Moods = Callable[[np.random.Generator, int, int], np.ndarray]
"""Logarithms of what the moment does to a run: shape (runs, figures)."""
Samples = Callable[[np.random.Generator, int], np.ndarray]


def gaussian(sigma: float, shared: float = 0.5) -> Moods:
    """shared: the part of the variance that all figures of a run have in common."""

    def draw(rng: np.random.Generator, runs: int, figures: int) -> np.ndarray:
        common = rng.normal(0, sigma * math.sqrt(shared), (runs, 1))
        return common + rng.normal(0, sigma * math.sqrt(1 - shared), (runs, figures))

    return draw


def heavy(sigma: float) -> Moods:
    """Student's t with 3 degrees of freedom: now and then a run far off."""
    return lambda rng, runs, figures: rng.standard_t(3, (runs, figures)) * sigma


def two_states(share: float, apart: float, sigma: float) -> Moods:
    """That share of the runs got the slower cores, or the other path, for all of its figures."""

    def draw(rng: np.random.Generator, runs: int, figures: int) -> np.ndarray:
        state = np.where(rng.random((runs, 1)) < share, math.log1p(apart), 0.0)
        return state + rng.normal(0, sigma, (runs, figures))

    return draw


def late(scale: float) -> Moods:
    """Never earlier, now and then much later: exponential delays, each figure its own."""
    return lambda rng, runs, figures: rng.exponential(scale, (runs, figures))


def neighbours(sigma: float, correlation: float) -> Moods:
    """A load that comes and goes: each run resembles the one before it."""

    def draw(rng: np.random.Generator, runs: int, figures: int) -> np.ndarray:
        level = rng.normal(0, sigma, figures)
        rows = []
        for _ in range(runs):
            rows.append(level)
            fresh = rng.normal(0, sigma * math.sqrt(1 - correlation**2), figures)
            level = correlation * level + fresh
        return np.array(rows)

    return draw


def tailed(rng: np.random.Generator, n: int) -> np.ndarray:
    """Lognormal, with one sample in twenty 2 to 10 times as long."""
    late = np.where(rng.random(n) < 0.05, rng.uniform(2, 10, n), 1.0)
    return rng.lognormal(0, 0.08, n) * late


@dataclass(frozen=True)
class Model:
    name: str
    moods: Moods
    honest: bool = True
    """Runs are independent: what repeats can promise anything about."""


MODELS = (
    Model("quiet: σ 1 %", gaussian(0.01)),
    Model("usual: σ 3 %", gaussian(0.03)),
    Model("busy: σ 15 %", gaussian(0.15)),
    Model("one mood for all figures of a run, σ 5 %", gaussian(0.05, shared=1.0)),
    Model("heavy tails: t of 3 degrees, scale 3 %", heavy(0.03)),
    Model("two states: 30 % of runs 15 % slower", two_states(0.3, 0.15, 0.01)),
    Model("two states: half of the runs 15 % slower", two_states(0.5, 0.15, 0.01)),
    Model("delays: exponential, mean 10 %", late(0.10)),
    Model("each like the one before, ρ 0.5, σ 3 %", neighbours(0.03, 0.5), honest=False),
)


def intervals(ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of the product's interval of the median, for each row of sorted samples."""
    n = ordered.shape[1]
    ranks = median_interval(list(range(n)))
    first = math.floor(ranks.low)
    share = ranks.low - first
    low, high = ordered[:, first], ordered[:, n - 1 - first]
    if share == 0:
        return low, high
    within, below = ordered[:, first + 1], ordered[:, n - 2 - first]
    return low + share * (within - low), high - share * (high - below)


@dataclass(frozen=True)
class Medians:
    """What 40 samples of a run say, drawn beforehand: 100,000 of them, to be taken by lot."""

    logs: np.ndarray
    """Of the medians over the true one."""
    errors: np.ndarray
    """Standard errors, by each run's own interval."""

    @staticmethod
    def drawn(rng: np.random.Generator, count: int = 100_000) -> "Medians":
        samples = np.sort(tailed(rng, count * SAMPLES).reshape(count, SAMPLES), axis=1)
        low, high = intervals(samples)
        logs = np.log(samples[:, SAMPLES // 2 - 1 : SAMPLES // 2 + 1].mean(axis=1))
        errors = np.log(high / low) / (2 * NormalDist().inv_cdf(0.975))
        return Medians(logs - np.median(logs), errors)

    def taken(
        self, rng: np.random.Generator, model: Model, shape: tuple[int, int, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms and standard errors by comparison, figure and run (in the order of time)."""
        count, figures, runs = shape
        which = rng.integers(len(self.logs), size=shape)
        # Figures of all comparisons would share a run's mood, so each comparison is drawn alone.
        moods = np.array([model.moods(rng, runs, figures).T for _ in range(count)])
        return moods + self.logs[which], self.errors[which]
