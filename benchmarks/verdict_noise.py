"""Runs for benchmarks/verdicts.py: simulated ones of known noise, and real ones of this machine."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wirespeed.collectives.stopping import StopRule, WarmUp
from wirespeed.records import Measurement, NodeFacts, Run, World
from wirespeed.runs.store import load
from wirespeed.statistics import time_stats

SAMPLES = 40
Moods = Callable[[np.random.Generator, int, int], np.ndarray]
"""Logarithms of what the moment does to a run: shape (runs, figures)."""
Samples = Callable[[np.random.Generator, int], np.ndarray]


def gaussian(sigma: float, shared: float = 0.5) -> Moods:
    """shared: the part of the variance that all figures of a run have in common."""

    def draw(rng: np.random.Generator, runs: int, figures: int) -> np.ndarray:
        common = rng.normal(0, sigma * math.sqrt(shared), (runs, 1))
        return common + rng.normal(0, sigma * math.sqrt(1 - shared), (runs, figures))

    return draw


def heavy(sigma: float) -> Moods:
    """Student's t with 3 degrees of freedom: now and then a run far off."""
    return lambda rng, runs, figures: rng.standard_t(3, (runs, figures)) * sigma


def two_states(share: float, apart: float, sigma: float) -> Moods:
    """That share of the runs got the slower cores, or the other path, for all of its figures."""

    def draw(rng: np.random.Generator, runs: int, figures: int) -> np.ndarray:
        state = np.where(rng.random((runs, 1)) < share, math.log1p(apart), 0.0)
        return state + rng.normal(0, sigma, (runs, figures))

    return draw


def neighbours(sigma: float, correlation: float) -> Moods:
    """A load that comes and goes: each run resembles the one before it."""

    def draw(rng: np.random.Generator, runs: int, figures: int) -> np.ndarray:
        level = rng.normal(0, sigma, figures)
        rows = []
        for _ in range(runs):
            rows.append(level)
            fresh = rng.normal(0, sigma * math.sqrt(1 - correlation**2), figures)
            level = correlation * level + fresh
        return np.array(rows)

    return draw


def tailed(rng: np.random.Generator, n: int) -> np.ndarray:
    """Lognormal, with one sample in twenty 2 to 10 times as long."""
    late = np.where(rng.random(n) < 0.05, rng.uniform(2, 10, n), 1.0)
    return rng.lognormal(0, 0.08, n) * late


@dataclass(frozen=True)
class Model:
    name: str
    moods: Moods
    honest: bool = True
    """Runs are independent: what repeats can promise anything about."""


MODELS = (
    Model("quiet: σ 1 %", gaussian(0.01)),
    Model("usual: σ 3 %", gaussian(0.03)),
    Model("busy: σ 15 %", gaussian(0.15)),
    Model("one mood for all figures of a run, σ 5 %", gaussian(0.05, shared=1.0)),
    Model("heavy tails: t of 3 degrees, scale 3 %", heavy(0.03)),
    Model("two states: 30 % of runs 15 % slower", two_states(0.3, 0.15, 0.01)),
    Model("each like the one before, ρ 0.5, σ 3 %", neighbours(0.03, 0.5), honest=False),
)


def simulated(
    rng: np.random.Generator, model: Model, runs: int, figures: int, slow_from: int, slow: float
) -> list[Run]:
    """Runs in the order of time; those from `slow_from` on are slower by the share `slow`."""
    moods = model.moods(rng, runs, figures)
    return [
        _run(
            f"{k:08x}",
            [
                _measurement(
                    2 ** (10 + 2 * j),
                    (100e-6 * 2**j)
                    * math.exp(moods[k, j])
                    * (1 + slow if k >= slow_from else 1)
                    * tailed(rng, SAMPLES),
                )
                for j in range(figures)
            ],
        )
        for k in range(runs)
    ]


def _run(id: str, measurements: list[Measurement]) -> Run:
    node = NodeFacts(host="node", ranks=(0, 1), facts={"torch": "2"})
    return Run(
        id=id,
        command="bench",
        verdict="READY",
        exit_code=0,
        started="2026-01-01T00:00:00Z",
        seconds=1.0,
        world=World(size=2, nodes=(node,), backend="gloo", launcher="local"),
        measurements=tuple(measurements),
    )


def _measurement(size: int, times: np.ndarray) -> Measurement:
    stats = time_stats(times.tolist())
    return Measurement(
        op="all_reduce",
        engine="torch",
        dtype="float32",
        redop="sum",
        root=-1,
        in_place=False,
        size_bytes=size,
        count=size // 4,
        ranks=2,
        iterations=len(times),
        time=stats,
        algbw=size / stats.median,
        busbw=size / stats.median,
    )


# Real runs.

SLEEP_S = 1e-3
"""The fake engine's operation beside its work: a sleep, which `slow` makes longer."""


def real_gloo(home: Path, count: int, ranks: int) -> Iterator[Run]:
    """`wirespeed bench`, run after run, in a home of its own; those that are there are taken first."""
    folder = home / "runs"
    present = sorted(folder.iterdir()) if folder.is_dir() else []
    yield from (load(path) for path in present[:count])
    words = ["bench", "all_reduce", "all_gather", "-b", "4K", "-e", "1M", "-f", "16", "-c", "0"]
    words += ["--ranks", str(ranks), "--max-time", "0.3", "-q", "-o", "json"]
    for _ in range(count - len(present)):
        before = set(folder.iterdir()) if folder.is_dir() else set()
        subprocess.run(
            [sys.executable, "-m", "wirespeed", *words],
            env={**os.environ, "WIRESPEED_HOME": str(home)},
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=120,
        )
        (made,) = set(folder.iterdir()) - before
        yield load(made)


def fake_engine(slow: float) -> Run:
    """A process of its own with two engines, timed by the rules of a run; see `fake_process`."""
    done = subprocess.run(
        [sys.executable, __file__, str(slow)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    rows = [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
    found = [_measurement(2 ** (12 + 4 * j), np.array(row)) for j, row in enumerate(rows)]
    return _run(os.urandom(4).hex(), found)


def fake_process(slow: float) -> None:
    """Prints the samples of operations of 1 and 4 times `SLEEP_S`, each beside some copying."""
    buffer = np.ones(2**16)
    for factor in (1, 4):

        def sample(factor: int = factor) -> float:
            start = time.perf_counter()
            buffer.copy()
            # The slow-down: the sleep in the timed path is longer by that share.
            time.sleep(SLEEP_S * factor * (1 + slow))
            return time.perf_counter() - start

        warm, rule, began = WarmUp(), StopRule(max_time_s=0.3), time.monotonic()
        times: list[float] = []
        while chunk := warm.next_chunk(times, time.monotonic() - began):
            times += [sample() for _ in range(chunk)]
        times, began = [], time.monotonic()
        while chunk := rule.next_chunk(times, time.monotonic() - began):
            times += [sample() for _ in range(chunk)]
        print(*times)


if __name__ == "__main__":
    fake_process(float(sys.argv[1]))
