"""Where does the level of a series change? Ranks and permutations, cut after cut.

The strongest cut of a series is the one whose two sides' ranks differ most (Wilcoxon's rank sum, each
cut standardised), so that a single outlier is no level. It counts when the strongest cuts of the same
values in random order rarely reach it; then both parts are looked at in the same way, each allowed a
chance of a wrong cut in proportion to its length (N. Meinshausen, Hierarchical testing of variable
importance, 2008), so that the whole series has 5 %. (A. N. Pettitt, A
non-parametric approach to the change-point problem, 1979; binary segmentation: A. J. Scott and M. Knott,
1974. The idea for benchmark histories: D. Daly et al., The use of change point detection to identify
software performance regressions in a continuous integration system, 2020.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = ["LEAST", "Cut", "cuts"]

LEAST = 8
"""Below this many runs no order is rare enough: of 3 and 4 runs there are 35 orders."""
_SHORTEST = 3
"""Runs of a level; two that differ from the rest may be one bad day."""
_ORDERS = 1999


@dataclass(frozen=True, slots=True)
class Cut:
    at: int
    """Index of the first value after it."""
    p: float


def cuts(values: Sequence[float], *, level: float = 0.05, seed: int = 1) -> list[Cut]:
    """The changes of level, in order; their p-values allow for the cuts within parts.

    The same values always give the same answer.
    """
    import numpy as np

    found: list[Cut] = []
    parts = [(0, len(values))]
    while parts:
        start, end = parts.pop()
        if end - start < LEAST:
            continue
        cut = _strongest(np.asarray(values[start:end], dtype=np.float64), seed)
        adjusted = min(1.0, cut.p * len(values) / (end - start))
        if adjusted < level:
            found.append(Cut(start + cut.at, adjusted))
            parts += [(start, start + cut.at), (start + cut.at, end)]
    return sorted(found, key=lambda cut: cut.at)


def _strongest(values: "np.ndarray[Any, Any]", seed: int) -> Cut:
    """The strongest cut and its probability among random orders of the same values."""
    import numpy as np

    ranks = _ranks(values)
    if np.ptp(ranks) == 0:
        return Cut(0, 1.0)
    rng = np.random.default_rng(seed)
    orders = rng.permuted(np.tile(ranks, (_ORDERS, 1)), axis=1)
    own, others = _scores(ranks[None, :])[0], _scores(orders)
    best = int(np.argmax(own))
    as_strong = int(np.count_nonzero(others.max(axis=1) >= own[best] - 1e-9))
    return Cut(best + _SHORTEST, (1 + as_strong) / (1 + _ORDERS))


def _scores(ranks: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """How far the rank sum before each cut is from its mean, in its standard deviations.

    ranks: shape (orders, n); the answer (orders, n - 2 * shortest + 1), a column a cut.
    """
    import numpy as np

    n = ranks.shape[1]
    sizes = np.arange(_SHORTEST, n - _SHORTEST + 1)
    sums = np.cumsum(ranks, axis=1)[:, sizes - 1]
    spread = np.sqrt(sizes * (n - sizes) / n)
    scores: np.ndarray[Any, Any] = np.abs(sums - sizes * (n + 1) / 2) / spread
    return scores


def _ranks(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """1 for the smallest; equal values share the mean of their ranks."""
    import numpy as np

    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: np.ndarray[Any, Any] = (ends - (counts - 1) / 2)[inverse]
    return ranks
