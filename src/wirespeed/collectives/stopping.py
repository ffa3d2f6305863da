"""Temporary."""

from collections.abc import Sequence
from dataclasses import dataclass

from wirespeed.statistics import time_stats


@dataclass(frozen=True)
class StopRule:
    precision: float = 0.05
    max_time_s: float = 2.0
    min_iterations: int = 8
    max_iterations: int = 10000
    fixed: int | None = None

    def next_chunk(self, done: int, elapsed_s: float, samples: Sequence[float]) -> int:
        if self.fixed is not None:
            return self.fixed - done
        if done == 0:
            return self.min_iterations
        if self.reason(done, elapsed_s, samples):
            return 0
        return max(1, min(done // 4, int((self.max_time_s - elapsed_s) / (elapsed_s / done)) + 1))

    def reason(self, done: int, elapsed_s: float, samples: Sequence[float]) -> str:
        if self.fixed is not None:
            return "count"
        s = time_stats(samples)
        if max(s.high - s.median, s.median - s.low) <= self.precision * s.median:
            return "precision"
        if elapsed_s >= self.max_time_s or done >= self.max_iterations:
            return "time"
        return ""


@dataclass(frozen=True)
class WarmUp:
    fixed: int | None = None
    max_time_s: float = 2.0

    def next_chunk(self, done: int, elapsed_s: float, samples: Sequence[float]) -> int:
        if self.fixed is not None:
            return self.fixed - done
        return 2 if done < 4 and elapsed_s < self.max_time_s else 0
