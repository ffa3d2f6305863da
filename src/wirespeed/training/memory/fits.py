"""The largest batch that fits, by doubling and bisection; nothing here needs torch."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What the search found."""

    samples: int
    """The most that fitted; 0: not even one did."""
    too_many: int | None
    """The fewest that did not fit; None: none of those tried."""
    tried: tuple[int, ...]
    """In the order in which they were tried."""
    ended: bool
    """It was told to end before the two above met."""


def largest_that_fits(
    fits: Callable[[int], bool],
    *,
    first: int = 1,
    most: int = 1 << 20,
    within: float = 0.0,
    more: Callable[[], bool] = lambda: True,
) -> Fit:
    """Try `first` samples, twice as many and so on up to `most`, then halve what is left between.

    fits: whether that many fit; what fits once is taken to fit with fewer. Where ranks search
    together it must answer alike on all. within: stop when the gap is at most this share of what
    fitted (0: to the last sample). more: asked before each try but the first; False ends the search.
    """
    tried: list[int] = []

    def fit(samples: int) -> bool:
        tried.append(samples)
        return fits(samples)

    def wide(good: int, bad: int | None) -> bool:
        return good < most if bad is None else bad - good > max(1, within * good)

    good, bad, ended = 0, None, False
    while wide(good, bad):
        if tried and not more():
            ended = True
            break
        doubled = min(2 * good, most) if good else max(1, min(first, most))
        samples = doubled if bad is None else (good + bad) // 2
        if fit(samples):
            good = samples
        else:
            bad = samples
    return Fit(samples=good, too_many=bad, tried=tuple(tried), ended=ended)
