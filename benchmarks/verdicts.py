"""Are the verdicts of `wirespeed compare` true? Markdown for docs/statistics.md, on stdout.

(a) A against A: how often is something called different that is not, in simulated runs of known noise,
    in runs of a fake engine with the real clock, and with --gloo in real runs of `wirespeed bench`.
(b) Slow-downs of 5, 10 and 20 %: how often they are found, in simulated runs, and by a longer sleep in
    the timed path of a fake engine.
(c) Intervals: how often that of a median, and that of a ratio, holds the truth.

Exit code 1 when a promise is broken: more than 5 % of the A/A comparisons called different, or an
interval outside of 93 to 97 %, where runs are independent.

    python benchmarks/verdicts.py                      simulated, 3 minutes
    python benchmarks/verdicts.py --engine             a fake engine on this machine, 30 minutes
    python benchmarks/verdicts.py --gloo 206           206 real runs of gloo, 15 to 30 minutes
"""

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verdict_noise import MODELS, Model, fake_engine, gaussian, real_gloo, simulated
from wirespeed.compare.compare import SideRuns, compare
from wirespeed.compare.repeats import floors_of
from wirespeed.records import Run
from wirespeed.records_comparison import Comparison
from wirespeed.statistics import median_interval

FIGURES = 12
HISTORY = 8
MOST_FALSE = 0.05
COVERED = (0.93, 0.97)


@dataclass
class Tally:
    """What became of comparisons."""

    comparisons: int = 0
    with_difference: int = 0
    """Comparisons in which any row was called WORSE or better."""
    rows: int = 0
    worse: int = 0
    better: int = 0
    same: int = 0
    covered: int = 0
    """Rows whose interval holds the true ratio."""

    def add(self, one: Comparison, truth: float = 1.0) -> None:
        self.comparisons += 1
        worse, better = one.count("WORSE"), one.count("better")
        self.with_difference += bool(worse or better)
        self.rows += len(one.rows)
        self.worse, self.better = self.worse + worse, self.better + better
        self.same += one.count("same")
        self.covered += sum(row.low <= truth <= row.high for row in one.rows)

    def share(self, count: int) -> str:
        return f"{100 * count / max(1, self.rows):.1f} %"

    @property
    def false(self) -> float:
        return self.with_difference / max(1, self.comparisons)

    @property
    def certainly_false(self) -> bool:
        """More than 5 %, by more than the luck of so many comparisons (3 sigma)."""
        luck = 3 * math.sqrt(MOST_FALSE * (1 - MOST_FALSE) / max(1, self.comparisons))
        return self.false > MOST_FALSE + luck


def table(title: str, columns: Sequence[str]) -> None:
    print(f"\n**{title}**\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def sided(runs: Sequence[Run], first: int) -> list[SideRuns]:
    return [SideRuns(tuple(runs[:first])), SideRuns(tuple(runs[first:]))]


def judged(
    rng: np.random.Generator,
    model: Model,
    sides: tuple[int, int],
    count: int,
    *,
    slow: float = 0.0,
    fail_on: float = 0.05,
    history: int = 0,
    figures: int = FIGURES,
) -> Tally:
    tally, (first, second) = Tally(), sides
    for _ in range(count):
        total = history + first + second
        runs = simulated(rng, model, total, figures, history + first, slow)
        floors = floors_of(runs[:history]) if history else None
        pair = sided(runs[history:], first)
        tally.add(compare(pair, fail_on, floors=floors), 1 + slow)
    return tally


def a_against_a(count: int) -> bool:
    columns = ("noise from run to run", "runs", "called different", "same", "interval holds 1")
    table(f"A against A: {count} comparisons of {FIGURES} figures each, simulated", columns)
    good = True
    kinds = (((1, 1), HISTORY), ((5, 1), 0), ((2, 2), 0), ((3, 3), 0), ((5, 3), 0), ((5, 5), 0))
    for model in MODELS:
        for sides, history in kinds:
            rng = np.random.default_rng(7)
            tally = judged(rng, model, sides, count, history=history)
            known = f", {history} stored" if history else ""
            broken = model.honest and tally.certainly_false
            good &= not broken
            row(
                model.name,
                f"{sides[0]} + {sides[1]}{known}",
                f"{100 * tally.false:.1f} %{' BROKEN' if broken else ''}",
                tally.share(tally.same),
                tally.share(tally.covered),
            )
    return good


def power(count: int) -> None:
    columns = ("σ of runs", "runs", "--fail-on", "5 %", "10 %", "20 %", "called better")
    table(f"Slow-downs found (rows called WORSE), {count} comparisons each, simulated", columns)
    for sigma in (0.01, 0.02, 0.05):
        model = Model("", gaussian(sigma))
        for side in (3, 5, 10):
            for fail_on in (0.02, 0.05):
                found = [
                    judged(
                        np.random.default_rng(11),
                        model,
                        (side, side),
                        count,
                        slow=slow,
                        fail_on=fail_on,
                    )
                    for slow in (0.05, 0.10, 0.20)
                ]
                wrong = sum(one.better for one in found)
                cells = (one.share(one.worse) for one in found)
                row(f"{sigma * 100:g} %", f"{side} + {side}", f"{fail_on * 100:g} %", *cells, wrong)


def coverage(count: int) -> bool:
    table(f"Intervals of the median, {count} times each", ("samples", "n", "hold the median"))
    good, rng = True, np.random.default_rng(5)
    for name, n, draws, truth in _shapes(rng, count):
        ends = [median_interval(samples.tolist()) for samples in draws]
        share = float(np.mean([end.low <= truth <= end.high for end in ends]))
        good &= COVERED[0] <= share <= COVERED[1]
        row(name, n, f"{100 * share:.1f} %")
    return good


def _shapes(rng: np.random.Generator, count: int) -> "list[tuple[str, int, np.ndarray, float]]":
    """(name, n, samples of shape (count, n), their true median)."""
    found = []
    for n in (20, 100, 400):
        shape = (count, n)
        found.append(("heavy tails: Pareto, α 1.5", n, 1 + rng.pareto(1.5, shape), 2 ** (1 / 1.5)))
        trend = np.linspace(-0.02, 0.02, n)
        found.append(
            ("drift: 4 % over the run, noise 5 %", n, rng.normal(1, 0.05, shape) + trend, 1.0)
        )
        slow = np.where(rng.random(shape) < 0.3, 1.3, 1.0)
        modes = rng.lognormal(0, 0.05, shape) * slow
        middle = float(
            np.median(rng.lognormal(0, 0.05, 10**6) * np.where(rng.random(10**6) < 0.3, 1.3, 1))
        )
        found.append(("two modes: 30 % are 1.3 times as long", n, modes, middle))
    return found


def engine(count: int, side: int) -> bool:
    """A/A and slow-downs with the real clock: a fake engine, each run a process of its own."""
    columns = ("slow-down", "comparisons", "any difference", "WORSE", "better", "same")
    table(f"Fake engine on this machine, {side} + {side} runs, taken in turns", columns)
    good = True
    for slow in (0.0, 0.05, 0.10, 0.20):
        tally = Tally()
        for _ in range(count if slow == 0 else max(1, count // 4)):
            pairs = [(fake_engine(0.0), fake_engine(slow)) for _ in range(side)]
            sides = [SideRuns(tuple(runs)) for runs in zip(*pairs, strict=True)]
            tally.add(compare(sides), 1 + slow)
        good &= bool(slow) or not tally.certainly_false
        row(
            f"{slow * 100:g} %",
            tally.comparisons,
            f"{100 * tally.false:.1f} %",
            *(tally.share(n) for n in (tally.worse, tally.better, tally.same)),
        )
    return good


def gloo(runs: Sequence[Run]) -> bool:
    """Windows that slide over real runs in the order of time, A the first half or every other one."""
    columns = ("runs", "order", "comparisons", "any difference", "rows different", "same")
    table(
        f"A against A: {len(runs)} runs of `wirespeed bench` over gloo, one after another", columns
    )
    good = True
    for side in (3, 5):
        for order in ("A…B…", "ABAB…"):
            tally = Tally()
            for start in range(len(runs) - 2 * side + 1):
                window = list(runs[start : start + 2 * side])
                if order == "ABAB…":
                    window = window[::2] + window[1::2]
                tally.add(compare(sided(window, side)))
            good &= order == "A…B…" or not tally.certainly_false
            different = tally.share(tally.worse + tally.better)
            row(
                f"{side} + {side}",
                order,
                tally.comparisons,
                f"{100 * tally.false:.1f} %",
                different,
                tally.share(tally.same),
            )
    return good


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--comparisons", type=int, default=200, help="of each kind")
    parser.add_argument("--engine", action="store_true", help="a fake engine with the real clock")
    parser.add_argument("--gloo", type=int, metavar="RUNS", help="that many real runs of bench")
    parser.add_argument("--home", type=Path, help="keep the real runs here, and take what is there")
    parser.add_argument("--side", type=int, default=3, help="runs a side of --engine")
    parser.add_argument("--ranks", type=int, default=2, help="ranks of --gloo")
    return parser.parse_args()


def main() -> int:
    options = asked()
    count = options.comparisons
    if options.gloo:
        with tempfile.TemporaryDirectory() as own:
            home = options.home or Path(own)
            good = gloo(list(real_gloo(home, options.gloo, options.ranks)))
    elif options.engine:
        good = engine(count, options.side)
    else:
        good = a_against_a(count)
        power(max(1, count // 2))
        good &= coverage(10 * count)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
