"""Does the stop rule keep its promises? Simulated engines of known noise, no clock involved.

For each noise: the samples that an oracle would need (the smallest fixed n whose interval is narrow
enough in half of the runs), the samples that the rule took, and how often its interval holds the
true median. Exit code 1 when a promise is broken. Run: python benchmarks/adaptive_stop.py
"""

import sys
from collections.abc import Callable
from statistics import median

import numpy as np

from wirespeed.collectives.stopping import StopRule
from wirespeed.statistics import relative_half_width, time_stats

RUNS = 1500
MOST = 4000
LEAST_COVERAGE = 0.93
MOST_RATIO = 1.3
SECONDS_EACH = 1e-4

Noise = Callable[[np.random.Generator, int], np.ndarray]


def quiet(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(1, 0.005, n)


def gaussian(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(1, 0.08, n)


def lognormal(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.lognormal(0, 0.3, n)


def outliers(rng: np.random.Generator, n: int) -> np.ndarray:
    slow = np.where(rng.random(n) < 0.05, rng.uniform(5, 20, n), 1)
    return rng.normal(1, 0.1, n) * slow


def drifting(rng: np.random.Generator, n: int) -> np.ndarray:
    """1 % slower over each 100 samples: what is promised is the median of the samples' period."""
    return rng.normal(1, 0.08, n) * (1 + np.arange(n) / 10_000)


def run_once(noise: Noise, rng: np.random.Generator, rule: StopRule) -> list[float]:
    stream = noise(rng, MOST).clip(0.01)
    taken = 0
    while chunk := rule.next_chunk(stream[:taken].tolist(), taken * SECONDS_EACH):
        taken = min(MOST, taken + chunk)
        if taken == MOST:
            break
    return stream[:taken].tolist()


def oracle(noise: Noise, rng: np.random.Generator, rule: StopRule) -> int:
    """The smallest n at which half of the runs reach the precision, not below the rule's least."""
    streams = [noise(rng, MOST).clip(0.01).tolist() for _ in range(101)]
    low, high = rule.min_iterations, MOST
    while low < high:
        n = (low + high) // 2
        widths = [relative_half_width(time_stats(stream[:n])) for stream in streams]
        low, high = (low, n) if median(widths) <= rule.precision else (n + 1, high)
    return low


def truth(noise: Noise, n: int) -> float:
    big = np.random.default_rng(99)
    if noise is drifting:
        return float(np.median(np.concatenate([noise(big, n) for _ in range(200)])))
    return float(np.median(noise(big, 2_000_000)))


def main() -> int:
    rng, rule, broken = np.random.default_rng(7), StopRule(max_time_s=1e9), 0
    print("| noise | oracle's samples | ours (median) | ratio | interval holds the truth |")
    print("|---|---|---|---|---|")
    for noise in (quiet, gaussian, lognormal, outliers, drifting):
        needed = oracle(noise, rng, rule)
        fixed_truth = truth(noise, 1)
        counts, hits = [], 0
        for _ in range(RUNS):
            taken = run_once(noise, rng, rule)
            stats = time_stats(taken)
            true = truth_of_period(len(taken)) if noise is drifting else fixed_truth
            counts.append(len(taken))
            hits += stats.low <= true <= stats.high
        ratio, coverage = median(counts) / needed, hits / RUNS
        kept = ratio <= MOST_RATIO and coverage >= LEAST_COVERAGE
        broken += not kept
        print(
            f"| {noise.__name__} | {needed} | {median(counts):.0f} | {ratio:.2f} | {coverage:.1%}"
            f"{'' if kept else ' **broken**'} |"
        )
    return 1 if broken else 0


def truth_of_period(n: int) -> float:
    """The median of the drifting engine over its first n samples: the middle one's, by symmetry."""
    return 1 + (n - 1) / 2 / 10_000


if __name__ == "__main__":
    sys.exit(main())
