"""When to stop sampling, and when a warm-up is over.

Both rules are pure functions of figures that every rank has gathered: the slowest rank's time of
each sample, and the longest elapsed time over the ranks. Never hand them a rank's own clock: ranks
that decide differently issue different collectives and hang. docs/statistics.md says what the rules
promise; benchmarks/adaptive_stop.py measures it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from wirespeed.model.records import StopReason
from wirespeed.statistics import LEAST_SAMPLES, relative_half_width

_GROWTH = (0.10, 0.60)
"""Least and most samples until the next look, as a share of those that there are.

Slower growth makes more looks, and each is a chance to stop on a lucky interval; faster growth takes
samples that nobody needs. docs/statistics.md has what was measured of both."""
_OVERRUN = 2
"""A slow operation may take this many times the time limit to get the samples of an interval."""

_LEAST_WARM = 2


@dataclass(frozen=True, slots=True)
class StopRule:
    """Sample until the 95 % interval of the median is narrow enough, or the time is up."""

    precision: float = 0.05
    """Half width of the interval, relative to the median."""
    max_time_s: float = 2.0
    interval_s: float = 0.0
    """Seconds that a slow operation may take for the samples of an interval, where that is more than
    twice the time."""
    min_iterations: int = 8
    """The range of 8 samples, which the first look judges by, holds the median with 99 %, so that it
    hardly ever stops by luck. 9, whose interval holds it with 96 %, breaks the promise on noise of
    two modes."""
    max_iterations: int = 20_000
    fixed: int | None = None
    """Exactly that many samples, whatever they show."""

    def next_chunk(self, samples: Sequence[float], elapsed_s: float) -> int:
        """How many samples to take until the next look; 0 to stop.

        samples: the slowest rank's seconds, of all samples so far; elapsed_s: since the first began.
        """
        done = len(samples)
        if self.fixed is not None:
            return max(0, self.fixed - done)
        if done < min(self.min_iterations, self.max_iterations):
            return self._start(done, elapsed_s)
        width = _width(samples)
        if self._reason(done, width, elapsed_s) is not None:
            return 0
        return self._towards_precision(done, width, elapsed_s)

    def reason(self, samples: Sequence[float], elapsed_s: float) -> StopReason:
        """Why it stopped, once `next_chunk` gave 0."""
        return self._reason(len(samples), _width(samples), elapsed_s) or "time"

    def _reason(self, done: int, width: float, elapsed_s: float) -> StopReason | None:
        if self.fixed is not None:
            return "count"
        if width <= self.precision:
            return "precision"
        if elapsed_s >= self.max_time_s:
            return "time"
        return "count" if done >= self.max_iterations else None

    def _start(self, done: int, elapsed_s: float) -> int:
        """Two first, to see how long one takes; then all that the first look needs.

        A slow operation gets what fits into the time; up to twice the time, or `interval_s`, if that
        makes the samples that a 95 % interval needs; else it stops without an interval.
        """
        least = min(self.min_iterations, self.max_iterations)
        if done == 0:
            return min(2, least)
        each = elapsed_s / done
        in_time = _fitting(self.max_time_s, each, least)
        for_interval_s = max(_OVERRUN * self.max_time_s, self.interval_s)
        if in_time < LEAST_SAMPLES <= _fitting(for_interval_s, each, least):
            in_time = LEAST_SAMPLES
        return max(0, in_time - done)

    def _towards_precision(self, done: int, width: float, elapsed_s: float) -> int:
        """The interval narrows with the square root of the samples: aim at half of what is missing."""
        least, most = (max(1, math.ceil(share * done)) for share in _GROWTH)
        # Beyond twice the precision (which may be 0, the width infinite) it is `most` anyway.
        ratio = 2.0 if width >= 2 * self.precision else width / self.precision
        missing = math.ceil(done * (ratio**2 - 1) / 2)
        chunk = min(max(missing, least), most, self.max_iterations - done)
        in_time = _fitting(self.max_time_s, elapsed_s / done, done + chunk) - done
        return max(1, min(chunk, in_time))


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Run until the times no longer fall: connections, first touch and tuning are over then.

    At least 2 calls, whatever the time: the first one connects.
    """

    fixed: int | None = None
    max_time_s: float = 2.0
    """The time that a size has; at most half of it is spent on warming up."""
    buffers: int = 1
    """Rotated buffers: each is used once (registered, mapped), as far as the time allows."""
    max_iterations: int = 1000
    tolerance: float = 0.05
    """The last window may be this much quicker than the one before it."""

    def next_chunk(self, samples: Sequence[float], elapsed_s: float) -> int:
        """How many more to run before the next look; 0 when warm.

        samples: the slowest rank's seconds, of all calls so far; elapsed_s: since the first began.
        """
        done = len(samples)
        if self.fixed is not None:
            return max(0, self.fixed - done)
        if done < _LEAST_WARM:
            return _LEAST_WARM - done
        if elapsed_s >= self.max_time_s / 2 or done >= self.max_iterations:
            return 0
        window = self._window(samples)
        enough = max(2 * window, self.buffers)
        if done >= enough and not self._falling(samples, window):
            return 0
        chunk = max(enough - done, window)
        in_time = _fitting(self.max_time_s / 2 - elapsed_s, min(samples), chunk)
        return max(1, min(chunk, in_time, self.max_iterations - done))

    def _window(self, samples: Sequence[float]) -> int:
        """3 to 16, as two windows fit into 1 % of the time; later a third of what was run.

        Large windows see a trend through noise, and a slow one at all; quick operations afford them.
        """
        quick = _fitting(0.005 * self.max_time_s, min(samples), 16)
        return max(3, quick, len(samples) // 3)

    def _falling(self, samples: Sequence[float], window: int) -> bool:
        before = median(samples[-2 * window : -window])
        return median(samples[-window:]) < before * (1 - self.tolerance)


def _width(samples: Sequence[float]) -> float:
    """The relative half width; infinite below the count at which a 95 % interval exists.

    Of the sure interval, which is never narrower than the one that is reported: looking at that
    stops on a lucky one too often (two modes: what is reported holds the truth in 92.6 %)."""
    if len(samples) < LEAST_SAMPLES:
        return math.inf
    return relative_half_width(samples)


def _fitting(budget_s: float, each_s: float, most: int) -> int:
    """How many operations of `each_s` fit into `budget_s`, at most `most`."""
    return most if each_s * most <= budget_s else max(0, int(budget_s / each_s))
