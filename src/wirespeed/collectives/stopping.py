"""When to stop sampling, and when a warm-up is over.

Both rules are pure: they see only figures that every rank has gathered (the slowest rank's time of
each sample, and the longest elapsed time), so that all ranks decide alike. docs/statistics.md says
what they promise; benchmarks/adaptive_stop.py measures it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from wirespeed.records import StopReason
from wirespeed.statistics import relative_half_width, time_stats

__all__ = ["StopRule", "WarmUp"]

_LEAST_FOR_INTERVAL = 6
"""Fewer samples have no 95 % interval of the median, so they reach no precision."""
_GROWTH = (0.10, 0.60)
"""Least and most samples until the next look, as a share of those that there are."""


@dataclass(frozen=True, slots=True)
class StopRule:
    """Sample until the 95 % interval of the median is narrow enough, or the time is up."""

    precision: float = 0.05
    """Half width of the interval, relative to the median."""
    max_time_s: float = 2.0
    min_iterations: int = 8
    """Below 6 there is no 95 % interval; 8 keep the first look from stopping by luck."""
    max_iterations: int = 20_000
    fixed: int | None = None
    """Exactly that many samples, whatever they show."""

    def next_chunk(self, samples: Sequence[float], elapsed_s: float) -> int:
        """How many samples to take until the next look; 0 to stop."""
        done = len(samples)
        if self.fixed is not None:
            return max(0, self.fixed - done)
        if done < self.min_iterations:
            return self._start(done, elapsed_s)
        if self._reason(samples, elapsed_s) is not None:
            return 0
        return self._towards_precision(samples, elapsed_s)

    def reason(self, samples: Sequence[float], elapsed_s: float) -> StopReason:
        """Why it stopped, once `next_chunk` gave 0."""
        return self._reason(samples, elapsed_s) or "time"

    def _reason(self, samples: Sequence[float], elapsed_s: float) -> StopReason | None:
        if self.fixed is not None:
            return "count"
        enough = len(samples) >= _LEAST_FOR_INTERVAL
        if enough and relative_half_width(time_stats(samples)) <= self.precision:
            return "precision"
        if elapsed_s >= self.max_time_s:
            return "time"
        return "count" if len(samples) >= self.max_iterations else None

    def _start(self, done: int, elapsed_s: float) -> int:
        """Two first, to see how long one takes; slow operations stop at 2, before an interval."""
        if done == 0:
            return min(2, self.min_iterations)
        return 0 if elapsed_s >= 4 * self.max_time_s else self.min_iterations - done

    def _towards_precision(self, samples: Sequence[float], elapsed_s: float) -> int:
        """The interval narrows with the square root of the samples: aim at what is missing."""
        done = len(samples)
        missing = done * ((relative_half_width(time_stats(samples)) / self.precision) ** 2 - 1)
        least, most = (max(1, math.ceil(share * done)) for share in _GROWTH)
        chunk = min(max(math.ceil(missing / 2), least), most, self.max_iterations - done)
        each = elapsed_s / done
        in_time = math.ceil((self.max_time_s - elapsed_s) / each) if each > 0 else chunk
        return max(1, min(chunk, in_time))


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Run until the times no longer fall: connections, first touch and tuning are over then."""

    fixed: int | None = None
    max_time_s: float = 2.0
    """At most half of this is spent on warming up."""
    window: int = 3
    tolerance: float = 0.05
    """The last window may be this much quicker than the one before it."""
    max_iterations: int = 200

    def next_chunk(self, samples: Sequence[float], elapsed_s: float) -> int:
        """How many more to run before the next look; 0 when warm."""
        done = len(samples)
        if self.fixed is not None:
            return max(0, self.fixed - done)
        if done == 0:
            return 1
        if elapsed_s >= self.max_time_s / 2 or done >= self.max_iterations:
            return 0
        if done < 2 * self.window:
            return 2 * self.window - done
        before = median(samples[-2 * self.window : -self.window])
        now = median(samples[-self.window :])
        return 0 if now >= before * (1 - self.tolerance) else self.window
