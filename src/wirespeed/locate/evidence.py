"""Is this part slow? One test for all kinds of parts, on a part's figure round by round.

A part's figures are residuals in natural logarithms: 0 is as fast as the fleet, -0.18 is 1.2 times
slower. Two explanations compete with "healthy": slow always, or slow in some of the rounds. Each is
scored by the logarithm of how much better it fits (a likelihood ratio, in nats). A single figure
counts no more than OUTLIER nats, so that a few wild ones prove nothing (a truncated normal loss), and
the choice of rounds in "some of the rounds" is paid for by its entropy.
"""

import math
from dataclasses import dataclass

import numpy as np

from wirespeed.locate.table import Floats, middle, upper

__all__ = ["Evidence", "Judgement", "cautious", "judge", "spread"]

OUTLIER = 6.0
"""Nats that one figure can count: a reading that is wild for no reason has a chance of e**-6 = 0.25 %
in each round."""
SURPRISE = 6.0
"""Nats beyond ln(parts judged): one false alarm in e**6 = 400 fleets."""
MANY = 64
"""Parts from which on the fleet tells how often a single figure is wild."""
CLEARLY_SLOW = 3.5
"""Sigmas below zero from which a single figure counts as slow."""
OPEN = 2.5
"""A part is settled when this many standard errors below its figure is nothing worth naming."""
MEDIAN_TO_MEAN = 1.2533
"""The standard error of a median over that of a mean, for normal noise."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is asked of the figures: their noise, and the least slow-down that is worth naming."""

    sigma: float
    least: float
    """ln of the factor."""
    parts: int
    """How many were judged at once: the more, the stronger must the evidence be."""

    @property
    def price(self) -> float:
        """Nats that "healthy" has ahead."""
        return SURPRISE + math.log(max(self.parts, 2))


@dataclass(frozen=True, slots=True)
class Evidence:
    """One entry a part. gain: nats over "healthy"; level: ln slow-down in its slow rounds (<= 0)."""

    gain: Floats
    level: Floats
    share: Floats
    """Of the rounds that are slow: 1 where it is slow always."""
    rounds: Floats
    unsettled: Floats
    """1 where more rounds could still show a fault."""
    price: float

    @property
    def guilty(self) -> Floats:
        result: Floats = self.gain > self.price
        return result


def spread(figures: Floats) -> float:
    """Robust sigma of figures that are nearly all healthy: 1.4826 MAD."""
    known = figures[~np.isnan(figures)]
    if known.size == 0:
        return 0.0
    return 1.4826 * float(np.median(np.abs(known - np.median(known))))


def cautious(sigma: float, figures: int) -> float:
    """`sigma`, estimated from so many figures, raised by two of its own standard errors or more: too
    small a noise makes culprits, too large a one only costs rounds."""
    return sigma * (1 + 2 / math.sqrt(max(figures, 1)))


def judge(figures: Floats, asked: Judgement) -> Evidence:
    """figures: [parts, rounds], NaN where a round says nothing about a part."""
    known = ~np.isnan(figures)
    rounds = known.sum(axis=1)
    z = np.where(known, figures, 0.0) / asked.sigma
    level = np.where(rounds > 0, upper(figures), 0.0)
    slow = known & (z < -max(CLEARLY_SLOW, asked.least / asked.sigma))
    most = _most(slow, rounds)
    always = _better(z, known, level / asked.sigma, most) * (level < -asked.least)
    hits = slow.sum(axis=1)
    low = np.where(hits > 0, middle(np.where(slow, figures, np.nan).astype(np.float32)), 0.0)
    share = hits / np.maximum(rounds, 1)
    at_times = _better(z, slow, low / asked.sigma, most) - rounds * _entropy(share)
    at_times = np.where(hits >= 3, at_times, 0.0)
    better = (at_times > always) & (share < 0.8)
    return Evidence(
        gain=np.where(better, at_times, always),
        level=np.where(better, low, level),
        share=np.where(better, share, 1.0),
        rounds=rounds,
        unsettled=_unsettled(level, rounds, asked) | (at_times > asked.price * 2 / 3),
        price=asked.price,
    )


def _most(slow: Floats, rounds: Floats) -> float:
    """Nats that one figure can count: less where the fleet itself is often slow in single rounds (on
    an oversubscribed fabric, say), which takes many parts to know."""
    usual = (rounds > 0) & (slow.sum(axis=1) <= rounds / 2)
    if usual.sum() < MANY:
        return OUTLIER
    chance = float(slow[usual].sum()) / float(rounds[usual].sum())
    return min(OUTLIER, -math.log(max(chance, 1e-9)))


def _better(z: Floats, counted: Floats, level: Floats, most: float) -> Floats:
    """Nats by which the figures that count fit `level` (in sigmas) better than 0."""
    gain = np.minimum(z**2 / 2, most) - np.minimum((z - level[:, None]) ** 2 / 2, most)
    result: Floats = np.where(counted, gain, 0.0).sum(axis=1)
    return result


def _entropy(share: Floats) -> Floats:
    p = np.clip(share, 1e-9, 1 - 1e-9)
    result: Floats = -(p * np.log(p) + (1 - p) * np.log(1 - p))
    return result


def _unsettled(level: Floats, rounds: Floats, asked: Judgement) -> Floats:
    """Twice `least` is what must be excluded: no finite number of rounds tells `least` from less."""
    error = MEDIAN_TO_MEAN * asked.sigma / np.sqrt(np.maximum(rounds, 1))
    result: Floats = (rounds > 0) & (level - OPEN * error < -2 * asked.least)
    return result
