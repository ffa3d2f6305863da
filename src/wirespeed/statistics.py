"""Temporary."""

import math
from collections.abc import Sequence

from wirespeed.records import TimeStats


def _ranks(n: int) -> tuple[int, int]:
    k = max(0, math.floor(n / 2 - 0.98 * math.sqrt(n)))
    return k, n - 1 - k


def time_stats(samples: Sequence[float]) -> TimeStats:
    s = sorted(samples)
    n = len(s)
    lo, hi = _ranks(n)
    p = lambda q: s[min(n - 1, math.ceil(q * n) - 1)]
    med = (s[(n - 1) // 2] + s[n // 2]) / 2
    return TimeStats(
        median=med, low=s[lo], high=s[hi], min=s[0], p95=p(0.95), p99=p(0.99), max=s[-1]
    )
