"""Does the stop rule keep its promises? Simulated engines of known noise, on a simulated clock.

For each noise: the samples that an oracle would need (the smallest fixed count at which half of the
runs reach the precision), the samples that the rule took, how often it looked, how often the time
ended it, and how often the interval that it shows holds the truth. The truth is the median of all
times that the engine would give over the period that was sampled: for a drifting engine it depends
on when the run stopped. A second table shows what the warm-up leaves.

Exit code 1 when a promise is broken. Run: python benchmarks/adaptive_stop.py
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

import numpy as np

from wirespeed.collectives.stopping import StopRule, WarmUp
from wirespeed.statistics import median_interval, sure_interval

RUNS, ORACLE_RUNS, WARM_RUNS = 4000, 301, 400
MOST = 4000
LEAST_COVERAGE = 0.93
MOST_RATIO = 1.3
FAST, SLOW = 1e-4, 2e-2
"""Seconds of one operation: 20,000 and 100 of them in the rule's 2 s."""

Draw = Callable[[np.random.Generator, int], np.ndarray]


@dataclass(frozen=True)
class Noise:
    """An engine whose undisturbed operation takes 1 (times `unit_s`)."""

    name: str
    draw: Draw
    truth: Callable[[int], float]
    """Median of the period in which n samples were taken."""
    unit_s: float = FAST
    precision: float = 0.05
    promised: bool = True
    ends_by_time: bool = False
    """The time is up before the precision is reached: there is no oracle to compare with."""


@dataclass(frozen=True)
class Outcome:
    count: int
    looks: int
    hit: bool
    by_time: bool


def gaussian(cv: float) -> Draw:
    return lambda rng, n: rng.normal(1, cv, n)


def lognormal(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.lognormal(0, 0.3, n)


def outliers(rng: np.random.Generator, n: int) -> np.ndarray:
    slow = np.where(rng.random(n) < 0.05, rng.uniform(5, 20, n), 1)
    return rng.normal(1, 0.05, n) * slow


def two_modes(share: float) -> Draw:
    """That share of the samples is 1.3 times as slow: a second path, an interrupt."""
    return lambda rng, n: rng.normal(1, 0.02, n) * np.where(rng.random(n) < share, 1.3, 1)


def correlated(rng: np.random.Generator, n: int) -> np.ndarray:
    """Each sample carries half of the one before it: no order statistics allow for that."""
    steps = rng.normal(0, 0.08 * math.sqrt(1 - 0.5**2), n)
    steps[0] /= math.sqrt(1 - 0.5**2)
    values = [0.0]
    for step in steps:
        values.append(values[-1] * 0.5 + step)
    return 1 + np.array(values[1:])


def levels(kind: str, n: int) -> np.ndarray:
    """The drifting engines' undisturbed times: 0.1 % more each sample, or 10 % more after 15."""
    index = np.arange(n)
    return 1 + index / 1000 if kind == "slope" else np.where(index < 15, 1.0, 1.1)


def moving(kind: str, cv: float) -> tuple[Draw, Callable[[int], float]]:
    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        found: np.ndarray = rng.normal(1, cv, n) * levels(kind, n)
        return found

    @lru_cache
    def truth(n: int) -> float:
        """The median of the mixture of n normal distributions, by bisection."""
        centres = levels(kind, n).tolist()
        low, high = 0.5, 1.5 * centres[-1]
        for _ in range(40):
            middle = (low + high) / 2
            below = sum(math.erf((middle / c - 1) / (cv * math.sqrt(2))) for c in centres)
            low, high = (middle, high) if below < 0 else (low, middle)
        return low

    return draw, truth


def constant(value: float) -> Callable[[int], float]:
    return lambda n: value


def simulated_truth(draw: Draw) -> Callable[[int], float]:
    return constant(float(np.median(draw(np.random.default_rng(99), 4_000_000))))


def noises() -> list[Noise]:
    one, modes, even_modes = constant(1.0), two_modes(0.45), two_modes(0.48)
    return [
        Noise("quiet, 0.5 %", gaussian(0.005), one),
        Noise("gaussian, 5 %", gaussian(0.05), one),
        Noise("gaussian, 10 %", gaussian(0.10), one),
        Noise("gaussian, 10 %, to ±2 %", gaussian(0.10), one, precision=0.02),
        Noise("lognormal, 0.3", lognormal, one),
        Noise("5 % with 5 % outliers of 5–20 ×", outliers, simulated_truth(outliers)),
        Noise("two modes, 45 % 1.3 × as slow", modes, simulated_truth(modes)),
        Noise("drift, 0.1 % a sample, 8 %", *moving("slope", 0.08)),
        Noise("step, +10 % after 15, 8 %", *moving("step", 0.08)),
        Noise("lognormal, 0.3, slow", lognormal, one, unit_s=SLOW, ends_by_time=True),
        Noise("correlated (0.5), 8 %", correlated, one, promised=False),
        Noise("two modes, 48 %", even_modes, simulated_truth(even_modes), promised=False),
    ]


def run_once(noise: Noise, rng: np.random.Generator, rule: StopRule) -> Outcome:
    times = noise.draw(rng, MOST).clip(0.01) * noise.unit_s
    clock, samples = [0.0, *np.cumsum(times).tolist()], times.tolist()
    done = looks = 0
    while chunk := rule.next_chunk(samples[:done], clock[done]):
        done, looks = done + chunk, looks + 1
    interval = median_interval(samples[:done])
    hit = interval.low <= noise.truth(done) * noise.unit_s <= interval.high
    return Outcome(done, looks, hit, rule.reason(samples[:done], clock[done]) == "time")


def oracle(noise: Noise, rng: np.random.Generator, rule: StopRule) -> int:
    """The smallest n, not below the rule's least, at which half of the runs reach the precision by
    the interval that the rule looks at.

    The ranks of the interval move in steps, so a larger n can be worse: every n is tried.
    """
    streams = np.array([noise.draw(rng, MOST).clip(0.01) for _ in range(ORACLE_RUNS)])
    for n in range(rule.min_iterations, MOST):
        ordered = np.sort(streams[:, :n], axis=1)
        ranks = sure_interval(range(n))
        middle = (ordered[:, (n - 1) // 2] + ordered[:, n // 2]) / 2
        above = ordered[:, int(ranks.high)] - middle
        below = middle - ordered[:, int(ranks.low)]
        if np.median(np.maximum(above, below) / middle) <= rule.precision:
            return n
    raise ValueError(f"{noise.name}: {MOST} samples are too few for the precision")


def row(noise: Noise) -> bool:
    """One line of the table; whether the promises were kept."""
    rng, rule = np.random.default_rng(7), StopRule(precision=noise.precision, max_iterations=MOST)
    runs = [run_once(noise, rng, rule) for _ in range(RUNS)]
    count = median(run.count for run in runs)
    coverage, by_time = (
        sum(f) / RUNS for f in zip(*((r.hit, r.by_time) for r in runs), strict=True)
    )
    needed = 0 if noise.ends_by_time else oracle(noise, rng, rule)
    ratio = count / needed if needed else math.nan
    kept = coverage >= LEAST_COVERAGE and not ratio > MOST_RATIO
    compared = f"{needed} | {count:.0f} | {ratio:.2f}" if needed else f"– | {count:.0f} | –"
    looks = sum(run.looks for run in runs) / RUNS
    mark = "" if kept or not noise.promised else " **broken**"
    name = noise.name if noise.promised else f"{noise.name} (not promised)"
    print(
        f"| {name} | {compared} | {looks:.1f} | {by_time:.0%} | {coverage:.1%}{mark} |",
        flush=True,
    )
    return kept or not noise.promised


def warm_up_row(name: str, shape: np.ndarray, cv: float, unit_s: float) -> None:
    """How many calls the warm-up took, and how much slower than warm the next call would be."""
    rng, counts, left = np.random.default_rng(7), [], []
    for _ in range(WARM_RUNS):
        times = shape * rng.lognormal(0, cv, len(shape)) * unit_s
        clock, samples, done = [0.0, *np.cumsum(times).tolist()], times.tolist(), 0
        while chunk := WarmUp().next_chunk(samples[:done], clock[done]):
            done += chunk
        counts.append(done)
        left.append(float(shape[done]) - 1)
    calls = f"{median(counts):.0f} ({np.quantile(counts, 0.95):.0f})"
    print(f"| {name} | {cv:.0%} | {unit_s * 1e3:g} ms | {calls} | {np.mean(left):.0%} |")


def warm_up_table() -> None:
    index = np.arange(2000)
    shapes = {
        "flat": np.ones(2000),
        "first call 100 ×": np.where(index < 1, 100.0, 1.0),
        "first 16 calls 2 ×": np.where(index < 16, 2.0, 1.0),
        "falls by e in 5 calls from 11 ×": 1 + 10 * np.exp(-index / 5),
        "falls by e in 20 calls from 3 ×": 1 + 2 * np.exp(-index / 20),
        "falls by e in 100 calls from 2 ×": 1 + np.exp(-index / 100),
    }
    print("\n| warm-up | noise | one call | calls (p95) | left above warm |\n|---|---|---|---|---|")
    for name, shape in shapes.items():
        for cv, unit_s in ((0.05, FAST), (0.3, FAST), (0.05, SLOW)):
            warm_up_row(name, shape, cv, unit_s)


def main() -> int:
    head = "noise", "oracle's samples", "ours (median)", "ratio", "looks", "ended by time"
    print("|", " | ".join((*head, "interval holds the truth")), "|")
    print("|---|---|---|---|---|---|---|")
    broken = [noise.name for noise in noises() if not row(noise)]
    warm_up_table()
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
