"""Are the verdicts of `wirespeed compare` true? Markdown for docs/statistics.md, on stdout.

(a) A against A: how often is something called different that is not, in simulated runs of known noise,
    in runs of a fake engine with the real clock, and with --gloo in real runs of `wirespeed bench`.
(b) Slow-downs of 5, 10 and 20 %: how often they are found, in simulated runs, by a longer sleep in the
    timed path of a fake engine, and by tc on one link of a lab.
(c) Intervals: how often that of a median, and that of a ratio, holds the truth.

Exit code 1 when a promise is broken where runs are independent: more than 5 % of the A/A comparisons
called different, or an interval that holds the truth less often than in 93 %.

    python benchmarks/verdicts.py                      simulated, 5 minutes on one core
    python benchmarks/verdicts.py --gloo 206           206 real runs of gloo, at most 12 minutes
    python benchmarks/verdicts.py --engine             a fake engine on this machine, 6 minutes
    python benchmarks/verdicts.py --tc                 a lab on this machine (root), 6 minutes

The real runs stand in the order of time, and a window slides over them: 206 runs are 201 comparisons of
3 + 3. Neighbouring windows share runs; those that share none are counted apart ("of these with runs of
their own"), and a promise is judged by their number.
"""

import argparse
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist

import numpy as np

from verdict_many import Verdicts, checked, judged_at_once
from verdict_noise import MODELS, Medians, Model, gaussian, intervals
from verdict_runs import LAB_MBIT, SLOWER, Round, engine_rounds, lab_rounds, real_gloo
from wirespeed.compare.compare import SideRuns, compare
from wirespeed.compare.estimate import LEAST_RUNS
from wirespeed.model.derived_records import Row
from wirespeed.model.records import Run
from wirespeed.statistics import LEAST_SAMPLES, median_interval

FIGURES = 12
HISTORY = 8
MOST_FALSE = 0.05
COVERED = 0.93
SIDES = ((1, 1), (5, 1), (2, 2), (3, 3), (5, 3), (5, 5), (10, 3), (20, 3), (10, 10))


@dataclass
class Tally:
    """What became of comparisons."""

    comparisons: int = 0
    with_difference: int = 0
    """Comparisons in which any row was called WORSE or better."""
    rows: int = 0
    covered: int = 0
    """Rows whose interval holds the true ratio."""
    calls: dict[str, int] = field(default_factory=dict)

    def add(self, rows: Sequence[Row], truth: float = 1.0) -> None:
        self.comparisons += 1
        for one in rows:
            self.calls[one.verdict] = self.calls.get(one.verdict, 0) + 1
        self.with_difference += any(one.verdict in ("WORSE", "better") for one in rows)
        self.rows += len(rows)
        self.covered += sum(row.low <= truth <= row.high for row in rows)

    def add_many(self, found: Verdicts) -> None:
        self.comparisons += len(found.same)
        self.with_difference += int((found.worse | found.better).any(axis=-1).sum())
        self.rows += found.same.size
        self.covered += int(found.covered.sum())
        for name, flags in (("WORSE", found.worse), ("better", found.better), ("same", found.same)):
            self.calls[name] = self.calls.get(name, 0) + int(flags.sum())

    def share(self, *verdicts: str) -> str:
        return percent(sum(self.calls.get(one, 0) for one in verdicts), self.rows)

    def falsely(self, independent: int = 0) -> bool:
        """More than 5 %, by more than the luck of so many comparisons (3 sigma)."""
        count = independent or self.comparisons
        luck = 3 * math.sqrt(MOST_FALSE * (1 - MOST_FALSE) / max(1, count))
        return self.with_difference > (MOST_FALSE + luck) * self.comparisons

    def uncovered(self) -> bool:
        luck = 3 * math.sqrt(COVERED * (1 - COVERED) / max(1, self.comparisons))
        return self.covered < (COVERED - luck) * self.rows


def percent(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.1f} %"


def table(title: str, columns: Sequence[str]) -> None:
    print(f"\n**{title}**\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def machine() -> str:
    cores = len(os.sched_getaffinity(0))
    where = f"{platform.system()} {platform.release().split('-')[0]}, {platform.machine()}"
    load = os.getloadavg()[0]
    return f"{time.strftime('%Y-%m-%d', time.gmtime())}, {cores} cores, {where}, load {load:.1f} before"


# Simulated.


def judged(
    medians: Medians,
    model: Model,
    sides: tuple[int, int],
    count: int,
    *,
    slow: float = 0.0,
    fail_on: float = 0.05,
    history: int = 0,
) -> Tally:
    """Simulated comparisons, a thousand at once."""
    rng, tally, done = np.random.default_rng(7), Tally(), 0
    while done < count:
        shape = (min(1000, count - done), FIGURES, history + sum(sides))
        logs, errors = medians.taken(rng, model, shape)
        logs[..., history + sides[0] :] += math.log1p(slow)
        found = judged_at_once(logs, errors, history, sides[0], fail_on, 1 + slow)
        checked(found, logs, errors, history, sides[0], fail_on)
        tally.add_many(found)
        done += shape[0]
    return tally


def a_against_a(count: int) -> bool:
    """A table each of what was called different, called the same, and covered."""
    good, medians = True, Medians.drawn(np.random.default_rng(3))
    cells: dict[str, dict[str, list[str]]] = {"different": {}, "same": {}, "covered": {}}
    for model in MODELS:
        for sides in SIDES:
            history = HISTORY if sides == (1, 1) else 0
            tally = judged(medians, model, sides, count, history=history)
            false, low = tally.falsely(), min(sides) >= LEAST_RUNS and tally.uncovered()
            good &= not (model.honest and (false or low))
            different = percent(tally.with_difference, tally.comparisons)
            told = {
                "different": different + marked(model, false),
                "same": tally.share("same"),
                "covered": percent(tally.covered, tally.rows) + marked(model, low),
            }
            for name, cell in told.items():
                cells[name].setdefault(model.name, []).append(cell)
        print(f"simulated: {model.name}", file=sys.stderr, flush=True)
    titles = {
        "different": f"A against A, {count} comparisons of {FIGURES} figures: any called different",
        "same": "Of these, figures called the same within 5 %",
        "covered": "Of these, intervals of the change that hold its true value, none",
    }
    for name, title in titles.items():
        table(title, ("noise from run to run", *(sided_name(one) for one in SIDES)))
        for model_name, one in cells[name].items():
            row(model_name, *one)
    return good


def sided_name(sides: tuple[int, int]) -> str:
    return f"{sides[0]} + {sides[1]}{f' ({HISTORY} stored)' if sides == (1, 1) else ''}"


def marked(model: Model, broken: bool) -> str:
    return " BROKEN" if broken and model.honest else ""


def power(count: int) -> None:
    columns = ("σ of runs", "runs", "--fail-on", *SLOWER, "called better")
    table(f"Slow-downs found (rows called WORSE), {count} comparisons each, simulated", columns)
    medians = Medians.drawn(np.random.default_rng(3))
    for sigma in (0.01, 0.02, 0.05):
        for sides in ((3, 3), (5, 5), (10, 3), (20, 3), (10, 10)):
            for fail_on in (0.02, 0.05):
                model, found = Model("", gaussian(sigma)), []
                for slow in SLOWER.values():
                    found.append(judged(medians, model, sides, count, slow=slow, fail_on=fail_on))
                wrong = sum(one.calls.get("better", 0) for one in found)
                cells = (one.share("WORSE") for one in found)
                row(
                    f"{sigma:.0%}",
                    f"{sides[0]} + {sides[1]}",
                    f"{fail_on * 100:g} %",
                    *cells,
                    wrong,
                )


# Intervals of medians.

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def heavy_tails(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return 1 + rng.pareto(1.5, shape)


def drifting(over: float) -> Draw:
    """Noise of 5 % beside a drift of `over` from the first sample to the last."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return rng.normal(1, 0.05, shape) + np.linspace(-over / 2, over / 2, shape[1])

    return draw


def two_modes(share: float) -> Draw:
    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return rng.lognormal(0, 0.05, shape) * np.where(rng.random(shape) < share, 1.3, 1.0)

    return draw


def coarse(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """A clock that tells fifths of sigma: many samples are equal."""
    return np.round(rng.normal(1.003, 0.10, shape) / 0.02) * 0.02


def middle_of_two(share: float) -> float:
    """The median of `two_modes`: where its distribution function is a half, by bisection."""
    log, low, high = NormalDist(0, 0.05), -1.0, 1.0
    for _ in range(60):
        x = (low + high) / 2
        below = (1 - share) * log.cdf(x) + share * log.cdf(x - math.log(1.3))
        low, high = (x, high) if below < 0.5 else (low, x)
    return math.exp(low)


SHAPES: dict[str, tuple[Draw, float]] = {
    "heavy tails: Pareto, α 1.5": (heavy_tails, 2 ** (1 / 1.5)),
    "drift: 4 % over the run, noise 5 %": (drifting(0.04), 1.0),
    "drift: 20 % over the run, noise 5 %": (drifting(0.20), 1.0),
    "two modes: 30 % are 1.3 times as long": (two_modes(0.3), middle_of_two(0.3)),
    "two modes: 45 % are 1.3 times as long": (two_modes(0.45), middle_of_two(0.45)),
    "two modes: half are 1.3 times as long": (two_modes(0.5), middle_of_two(0.5)),
    "a coarse clock: steps of a fifth of σ": (coarse, 50 * 0.02),
}
"""How samples are drawn, and their true median."""


def coverage(count: int) -> bool:
    """Numbers of samples that the stopping rule takes first, and larger ones."""
    counts = (LEAST_SAMPLES, 7, 8, 9, 10, 11, 12, 13, 20, 100, 400)
    title = f"Intervals of the median hold the true one, {count} times each"
    table(title, ("samples", *(f"n = {n}" for n in counts)))
    good, exact = True, []
    for n in counts:
        exact.append(f"{100 * median_interval(list(range(n))).coverage:.1f} %")
    row("as computed", *exact)
    for name, (draw, truth) in SHAPES.items():
        rng, cells = np.random.default_rng(5), []
        for n in counts:
            low, high = intervals(np.sort(draw(rng, (count, n)), axis=1))
            share = float(np.mean((low <= truth) & (truth <= high)))
            kept = share >= COVERED - 3 * math.sqrt(COVERED * (1 - COVERED) / count)
            good &= kept
            cells.append(f"{100 * share:.1f} %{'' if kept else ' BROKEN'}")
        row(name, *cells)
    return good


# Real runs.


def sided(before: Sequence[Run], after: Sequence[Run]) -> list[SideRuns]:
    return [SideRuns(tuple(before)), SideRuns(tuple(after))]


def rows_between(before: Sequence[Run], after: Sequence[Run]) -> tuple[Row, ...]:
    return compare(sided(before, after)).versus[0].rows


def gloo(runs: Sequence[Run], before: str) -> bool:
    """Windows that slide over real runs in the order of time, A the first half or every other one."""
    title = f"A against A: {len(runs)} runs of `wirespeed bench` over gloo, one after another"
    columns = ("runs", "order", "comparisons", "any difference", "of these with runs of their own")
    table(f"{title} ({before})", (*columns, "rows different", "same"))
    good = True
    for side in (3, 5):
        for order in ("A…B…", "ABAB…"):
            tally, apart = Tally(), Tally()
            for start in range(len(runs) - 2 * side + 1):
                window = list(runs[start : start + 2 * side])
                if order == "ABAB…":
                    window = window[::2] + window[1::2]
                rows = rows_between(window[:side], window[side:])
                tally.add(rows)
                if start % (2 * side) == 0:
                    apart.add(rows)
            good &= order == "A…B…" or not tally.falsely(apart.comparisons)
            row(
                f"{side} + {side}",
                order,
                tally.comparisons,
                percent(tally.with_difference, tally.comparisons),
                f"{apart.with_difference} of {apart.comparisons}",
                tally.share("WORSE", "better"),
                tally.share("same"),
            )
    return good


def sliding(found: Sequence[Round], title: str) -> bool:
    """Windows of whole rounds: A against B, which are alike, and A against each that is slower."""
    columns = ("slow-down", "runs", "comparisons", "with runs of their own", "any difference")
    table(title, (*columns, "WORSE", "better", "same", "median change", "interval holds it"))
    good = True
    for side in (3, 5):
        for kind, slow in {"B": 0.0, **SLOWER}.items():
            tally, changes = Tally(), []
            for start in range(len(found) - side + 1):
                window = found[start : start + side]
                rows = rows_between([one["A"] for one in window], [one[kind] for one in window])
                tally.add(rows, 1 + slow)
                changes += [one.ratio - 1 for one in rows]
            if not changes:
                continue
            apart = len(found) // side
            good &= bool(slow) or not tally.falsely(apart)
            row(
                kind if slow else "none (A/A)",
                f"{side} + {side}",
                tally.comparisons,
                apart,
                percent(tally.with_difference, tally.comparisons),
                *(tally.share(one) for one in ("WORSE", "better", "same")),
                f"{100 * float(np.median(changes)):+.1f} %",
                percent(tally.covered, tally.rows),
            )
    return good


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--comparisons", type=int, default=10_000, help="of each kind, simulated")
    parser.add_argument("--engine", action="store_true", help="a fake engine with the real clock")
    parser.add_argument("--gloo", type=int, metavar="RUNS", help="that many real runs of bench")
    parser.add_argument("--tc", action="store_true", help="a lab with one slower link; needs root")
    parser.add_argument("--minutes", type=float, help="limit for the real runs: 11.5, or 5.5")
    parser.add_argument(
        "--rounds", type=int, default=200, help="at most so many, of --engine, --tc"
    )
    parser.add_argument(
        "--home", type=Path, help="keep the real runs here; --gloo takes what is there"
    )
    parser.add_argument("--nodes", type=int, default=2, help="of the lab of --tc")
    parser.add_argument("--ranks", type=int, default=2, help="ranks of --gloo")
    return parser.parse_args()


def measured(options: argparse.Namespace, home: Path) -> bool:
    limit_s, before = 60 * (options.minutes or (11.5 if options.gloo else 5.5)), machine()
    if options.gloo:
        return gloo(real_gloo(home, options.gloo, options.ranks, limit_s), before)
    if options.tc:
        found = lab_rounds(home, options.nodes, options.rounds, limit_s)
        what = f"Lab of {options.nodes} nodes, links of {LAB_MBIT} Mbit/s, node-0's slower by tc"
    else:
        found = engine_rounds(options.rounds, limit_s)
        what = "Fake engine with a longer sleep in its timed path"
    return sliding(found, f"{what}: {len(found)} rounds of A, B and three slower runs ({before})")


def main() -> int:
    options = asked()
    if options.gloo or options.tc or options.engine:
        with tempfile.TemporaryDirectory() as own:
            return 0 if measured(options, options.home or Path(own)) else 1
    print(f"Measured {machine()}.")
    good = a_against_a(options.comparisons)
    power(max(1, options.comparisons // 5))
    good &= coverage(2 * options.comparisons)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
