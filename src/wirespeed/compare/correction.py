"""Many comparisons at once: some differ by luck alone, unless that is allowed for."""

from collections.abc import Sequence

__all__ = ["benjamini_hochberg", "holm"]


def benjamini_hochberg(values: Sequence[float]) -> list[float]:
    """The p-values, adjusted: calling those below 0.05 makes at most 5 % of what is called wrong.

    Where nothing differs at all, the probability to call anything is at most 5 %. (Y. Benjamini and
    Y. Hochberg, Controlling the false discovery rate, 1995; for figures that vary together, as those of
    one run do: Y. Benjamini and D. Yekutieli, 2001, theorem 1.2.)
    """
    n = len(values)
    adjusted, least = [1.0] * n, 1.0
    for rank, index in zip(range(n, 0, -1), _falling(values), strict=True):
        least = min(least, values[index] * n / rank)
        adjusted[index] = least
    return adjusted


def holm(values: Sequence[float]) -> list[float]:
    """Adjusted so that the probability of even one wrong call is at most 5 % (S. Holm, 1979)."""
    n = len(values)
    adjusted, most = [1.0] * n, 0.0
    for rank, index in enumerate(reversed(_falling(values))):
        most = max(most, min(1.0, values[index] * (n - rank)))
        adjusted[index] = most
    return adjusted


def _falling(values: Sequence[float]) -> list[int]:
    return sorted(range(len(values)), key=lambda i: values[i], reverse=True)
