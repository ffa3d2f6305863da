"""The largest batch that fits, by doubling and bisection; nothing here needs torch."""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Fit", "largest_that_fits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What the search found."""

    samples: int
    """The most that fitted; 0: not even one did."""
    too_many: int | None
    """The fewest that did not fit; None: none of those tried."""
    tried: tuple[int, ...]
    """In the order in which they were tried."""


def largest_that_fits(
    fits: Callable[[int], bool], *, first: int = 1, most: int = 1 << 20, within: float = 0.0
) -> Fit:
    """Try `first` samples, twice as many and so on up to `most`, then halve what is left between.

    fits: whether that many fit; what fits once is taken to fit with fewer. Where ranks search
    together it must answer alike on all. within: stop when the gap is at most this share of what
    fitted (0: to the last sample).
    """
    tried: list[int] = []

    def fit(samples: int) -> bool:
        tried.append(samples)
        return fits(samples)

    good, bad, samples = 0, None, max(1, min(first, most))
    while bad is None and good < most:
        if fit(samples):
            good, samples = samples, min(2 * samples, most)
        else:
            bad = samples
    while bad is not None and bad - good > max(1, within * good):
        middle = (good + bad) // 2
        if fit(middle):
            good = middle
        else:
            bad = middle
    return Fit(samples=good, too_many=bad, tried=tuple(tried))
