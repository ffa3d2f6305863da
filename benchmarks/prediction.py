"""Does `predict` keep its promises? Fitted on smaller worlds and fewer sizes, asked for the others.

Studies: `synthetic`, times of a known law with noise, 30 seeds (nothing is measured, 10 s); `lab`,
network namespaces with links shaped by tc (needs root), a rank a node; `loopback`, gloo ranks on this
machine; `steps`, training steps in the lab, on worlds and with buckets that no training run has shown
(prediction_steps.py; fits what `lab` measured). All nodes of the lab share this machine's cores: its
links are so slow (`--rate`) that from some 64 KiB on the network sets the time and not the scheduler, as
it does on nodes with cores of their own. The worlds of a study are measured in turns, and the
rounds of the studies too, so that what disturbs the machine disturbs all alike, as long as a round fits
into `--minutes`; training comes once, at the end. The fit sees the smaller worlds, and of the sizes
every other one up to a quarter of the largest; truth is the median over the rounds of what it did not
see. In the lab it is also asked what links of twice the rate would bring, and they are measured.

Goals: median error at most 10 %, at least 90 % of the truths within their 95 % interval. What `predict`
refuses (a fit that does not hold, an interval wider than a factor of 10) is counted apart. *Again* is
how far one round lies from the median of the others at the same places: no forecast can be expected to
come nearer than that. Exit code 1 where a goal is missed.

Run:    python benchmarks/prediction.py --keep prediction-runs             (at most 10 minutes)
Again:  python benchmarks/prediction.py --keep prediction-runs --again     (no measuring)
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from prediction_steps import measure_steps, step_rows
from wirespeed.model.derived_records import WorldSize
from wirespeed.model.records import Run
from wirespeed.predict.forecast import (
    MOST_SPREAD,
    Forecast,
    estimate,
    factors_of,
    fit,
    parse_improvement,
    refuse_fit,
    refuse_series,
    refuse_world,
)
from wirespeed.predict.points import Point, Series, collect
from wirespeed.runs.store import load

MOST_ERROR, LEAST_COVERAGE = 0.10, 0.90
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
BOUND_S = 900


@dataclass(frozen=True)
class Study:
    name: str
    shown: tuple[int, ...]
    """Worlds that the fit sees."""
    unseen: tuple[int, ...]
    smallest: str
    largest: str
    rate_mbit: int = 0
    """Of the lab's links; 0: no lab."""

    @property
    def label(self) -> str:
        return f"{self.name}, {self.rate_mbit} Mbit/s" if self.rate_mbit else self.name


STUDIES = {
    "lab": Study("lab", (2, 3, 4, 5), (6, 8), "8K", "2M", rate_mbit=100),
    "loopback": Study("loopback", (2, 3, 4), (5, 6), "16K", "16M"),
}
QUICK = {
    "lab": Study("lab", (2, 3, 4), (6,), "8K", "2M", rate_mbit=100),
    "loopback": Study("loopback", (2, 3, 4), (6,), "16K", "4M"),
}


@dataclass(frozen=True)
class Guess:
    op: str
    kind: str
    """`size` (between measured ones), `larger size`, `world`, `world and size`."""
    error: float
    """|log(predicted / measured)|."""
    within: bool
    width: float


def measure(study: Study, world: int, file: Path, seconds: float) -> None:
    """One bench over `world` ranks into `file`, whole or not at all."""
    words = ["bench", *OPS, "-b", study.smallest, "-e", study.largest, "-f", "2", "-c", "0"]
    words += ["--time-per-size", str(seconds), "--precision", "3", "-q", "-o", "json"]
    ours = [sys.executable, "-m", "wirespeed", *words]
    if study.rate_mbit:
        ours = [*inside_lab(world), *ours]
    else:
        ours += ["--ranks", str(world)]
    done = subprocess.run(ours, capture_output=True, text=True, timeout=BOUND_S + 60, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{' '.join(ours)} ended with {done.returncode}\n{done.stderr[-2000:]}")
    json.loads(done.stdout)
    file.write_text(done.stdout)


def inside_lab(world: int) -> list[str]:
    nodes = ",".join(f"node-{index}" for index in range(world))
    words = [sys.executable, "-m", "wirespeed.lab", "run", "--name", _LAB, "--nodes", nodes]
    return [*words, "--timeout", str(BOUND_S), "--"]


def measure_round(study: Study, keep: Path, turn: int, seconds: float) -> None:
    """Every world once; in the lab, one of the shown worlds with links twice as fast, too."""
    worlds = (*study.shown, *study.unseen)
    rates = (study.rate_mbit, 2 * study.rate_mbit) if study.rate_mbit else (0,)
    for rate in rates:
        if rate:
            _lab("up", "--nodes", str(max(worlds)), "--rate", f"{rate}mbit")
        try:
            asked = worlds if rate == rates[0] else (max(study.shown),)
            for world in asked if turn % 2 == 0 else reversed(asked):
                measure(study, world, named(study, keep, rate, world, turn), seconds)
        finally:
            if rate:
                _lab("down")


def named(study: Study, keep: Path, rate: int, world: int, turn: int) -> Path:
    return keep / f"{study.name}-{rate}-{world}-{turn}.json"


def measure_all(
    names: Sequence[str], studies: Sequence[Study], keep: Path, asked: argparse.Namespace
) -> None:
    """Round after round while another one fits into the time; the first is always whole, and training
    comes once, in the last third."""
    rounds, seconds = 1 if asked.quick else asked.rounds, asked.seconds
    began, share = time.monotonic(), 0.65 if "steps" in names else 1.0
    for turn in range(rounds if studies else 0):
        for study in studies:
            measure_round(study, keep, turn, seconds)
            told(f"round {turn + 1} of {study.name} measured", began)
        spent = time.monotonic() - began
        if spent * (turn + 2) / (turn + 1) > 60 * asked.minutes * share:
            told("no time for another round", began)
            break
    if "steps" in names:
        _lab("up", "--nodes", "6", "--rate", f"{asked.rate}mbit")
        try:
            measure_steps(keep, inside_lab, quick=asked.quick)
        finally:
            _lab("down")
        told("steps measured", began)


def told(what: str, began: float) -> None:
    print(f"{what}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


_LAB = f"predict-{os.getpid()}"


def _lab(verb: str, *more: str) -> None:
    words = [sys.executable, "-m", "wirespeed.lab", verb, "--name", _LAB, *more]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")


def stored(study: Study, keep: Path, rate: int) -> list[Run]:
    return [load(file) for file in sorted(keep.glob(f"{study.name}-{rate}-*.json"))]


def shown(series: Series, study: Study) -> Series:
    """What the fit may see: smaller worlds, every other size up to a quarter of the largest."""
    classes = series.classes
    seen = {size for one in classes[::2] for size in one if size * 3.9 <= classes[-1][-1]}
    points = [p for p in series.points if p.world.ranks in study.shown and p.size_bytes in seen]
    return replace(series, points=tuple(points))


def truths(series: Series, seen: Series, study: Study) -> Iterator[tuple[Point, str]]:
    """The median point of each place that the fit did not see, and which kind it is."""
    places: dict[tuple[object, int], list[Point]] = {}
    for point in series.points:
        places.setdefault((point.world, point.size_bytes), []).append(point)
    known = {(p.world, p.size_bytes) for p in seen.points}
    sizes = [size for one in seen.classes for size in one]
    for place, points in places.items():
        if place in known:
            continue
        middle = replace(points[0], seconds=median(p.seconds for p in points))
        beyond = middle.size_bytes > 1.1 * max(sizes)
        same = any(abs(np.log(middle.size_bytes / size)) < 0.1 for size in sizes)
        new_world = middle.world.ranks not in study.shown
        kind = ("world" if same else "world and size") if new_world else ""
        yield middle, kind or ("larger size" if beyond else "size")


def again(points: Sequence[Point]) -> list[float]:
    """|log| of each round over the median of the others, at every place of several rounds."""
    places: dict[tuple[object, int], list[float]] = {}
    for point in points:
        places.setdefault((point.world, point.size_bytes), []).append(point.seconds)
    return [
        abs(float(np.log(times[k] / median([*times[:k], *times[k + 1 :]]))))
        for times in places.values()
        if len(times) > 1
        for k in range(len(times))
    ]


def guesses(forecast: Forecast, asked: Sequence[tuple[Point, str]]) -> tuple[list[Guess], int]:
    """(guesses, how many were refused)."""
    found, refused = [], 0
    draws = forecast.draws([(point.world, point.size_bytes) for point, _ in asked])
    for column, (point, kind) in enumerate(asked):
        told = estimate(draws[:, column])
        far = refuse_world(forecast.series, point.world) is not None
        if far or told.high > MOST_SPREAD * told.low:
            refused += 1
            continue
        error = abs(float(np.log(told.value / point.seconds)))
        within = told.low <= point.seconds <= told.high
        found.append(Guess(forecast.series.op, kind, error, within, told.high / told.low))
    return found, refused


def law(ranks: int, size: int) -> float:
    """A ring: 20 µs a call, 10 µs a step, 1 GB/s."""
    return 20e-6 + 20e-6 * (ranks - 1) + 2 * (ranks - 1) / ranks * size / 1e9


def made_up(ranks: int, sizes: Iterable[int], noise: float, seed: int) -> list[Point]:
    """One run: its own mood (half the noise), and noise on every size."""
    dice = np.random.default_rng([seed, ranks])
    mood = dice.normal(0, noise / 2)
    world = WorldSize(ranks, 1)
    return [
        Point(
            world, n, law(ranks, n) * float(np.exp(mood + dice.normal(0, noise))), 0, 20, str(seed)
        )
        for n in sizes
    ]


def synthetic() -> list[Guess]:
    """Fitted on 2, 3 and 4 ranks and four sizes; asked for new runs of other sizes and worlds."""
    every: list[Guess] = []
    for noise in (0.02, 0.06, 0.15):
        found: dict[int, list[Guess]] = {ranks: [] for ranks in (4, 8, 16, 64)}
        refused = dict.fromkeys(found, 0)
        for seed in range(30):
            seen = [
                p for n in (2, 3, 4) for p in made_up(n, (4**5, 4**7, 4**9, 4**11), noise, seed)
            ]
            seen = [replace(p, run=f"{p.world.ranks}") for p in seen]
            forecast = fit(Series("all_reduce", "", tuple(seen)))
            if forecast is None:
                continue
            for ranks in found:
                new = made_up(ranks, (4**6, 4**8, 4**10, 4**12), noise, seed + 1000)
                told, away = guesses(forecast, [(point, "new") for point in new])
                found[ranks] += told
                refused[ranks] += away
        for ranks, told in found.items():
            print(
                row(f"synthetic, noise {noise:.0%}", "ring", f"{ranks} ranks", told, refused[ranks])
            )
            every += told
    return every


def row(
    name: str,
    what: str,
    kind: str,
    found: Sequence[Guess],
    refused: int | str,
    repeated: Sequence[float] = (),
) -> str:
    if not found:
        return f"| {name} | {what} | {kind} | 0 | – | – | – | – | – | {refused} |"
    noise = f"{np.expm1(median(repeated)):.1%}" if repeated else "–"
    errors = [guess.error for guess in found]
    covered = sum(guess.within for guess in found) / len(found)
    width = median(guess.width for guess in found)
    p90 = float(np.expm1(np.quantile(errors, 0.9)))
    return (
        f"| {name} | {what} | {kind} | {len(found)} | {np.expm1(median(errors)):.1%} | {noise} "
        f"| {p90:.0%} | {covered:.0%} | × {width:.2f} | {refused} |"
    )


def study_rows(study: Study, keep: Path) -> tuple[list[Guess], int]:
    """(guesses, how many were refused)."""
    series, _, _ = collect(stored(study, keep, study.rate_mbit))
    every: list[Guess] = []
    away = 0
    for op in (one for one in OPS if one in series):
        seen = shown(series[op], study)
        asked = list(truths(series[op], seen, study))
        forecast = None if refuse_series(seen) else fit(seen)
        refusal = refuse_series(seen) or refuse_fit(forecast, seen)
        if refusal is not None or forecast is None:
            why = refusal.because if refusal else "no fit"
            lost = (
                f"| {study.label} | {op} | refused: {why} | 0 | – | – | – | – | – | {len(asked)} |"
            )
            print(lost)
            away += len(asked)
            continue
        found, refused = guesses(forecast, asked)
        every, away = [*every, *found], away + refused
        for kind in dict.fromkeys(guess.kind for guess in found):
            same = {(p.world, p.size_bytes) for p, k in asked if k == kind}
            noise = again([p for p in series[op].points if (p.world, p.size_bytes) in same])
            print(row(study.label, op, kind, [g for g in found if g.kind == kind], "", noise))
        unseen = {(p.world, p.size_bytes) for p, _ in asked}
        noise = again([p for p in series[op].points if (p.world, p.size_bytes) in unseen])
        print(row(study.label, op, "all", found, refused, noise), flush=True)
    every += twice_as_fast(study, keep) if study.rate_mbit else []
    return every, away


def twice_as_fast(study: Study, keep: Path) -> list[Guess]:
    """`--improve nic=2x` against links of twice the rate, at sizes where the links matter."""
    before, _, _ = collect(stored(study, keep, study.rate_mbit))
    after, _, _ = collect(stored(study, keep, 2 * study.rate_mbit))
    found = []
    for op in (one for one in OPS if one in before and one in after):
        forecast = fit(shown(before[op], study))
        if forecast is None or refuse_fit(forecast, forecast.series) is not None:
            continue
        factors = factors_of(parse_improvement("nic=2x"), forecast, None)
        if not isinstance(factors, tuple):
            continue
        for place, seconds in _medians(after[op].points):
            told = estimate(forecast.draws([place], factors[0])[:, 0])
            if told.high <= MOST_SPREAD * told.low:
                error = abs(float(np.log(told.value / seconds)))
                within = told.low <= seconds <= told.high
                found.append(Guess(op, "nic=2x", error, within, told.high / told.low))
    print(row(study.label, "all", "nic=2x", found, ""))
    return found


def _medians(points: Iterable[Point]) -> list[tuple[tuple[WorldSize, int], float]]:
    times: dict[tuple[WorldSize, int], list[float]] = {}
    for point in points:
        times.setdefault((point.world, point.size_bytes), []).append(point.seconds)
    return [(place, median(values)) for place, values in times.items()]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", default="synthetic,lab,loopback,steps")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=10.0, help="no round beyond, but one")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each size")
    parser.add_argument("--rate", type=int, default=100, help="of the lab's links, Mbit/s")
    parser.add_argument("--keep", type=Path, help="folder for what was measured")
    parser.add_argument("--again", action="store_true", help="use what --keep has")
    parser.add_argument("--quick", action="store_true", help="fewer worlds and sizes, one round")
    asked = parser.parse_args()
    keep = asked.keep or Path(tempfile.mkdtemp(prefix="prediction-"))
    keep.mkdir(parents=True, exist_ok=True)
    os.environ["WIRESPEED_HOME"] = str(keep / "home")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does: ranks share the cores
    names = asked.studies.split(",")
    known = QUICK if asked.quick else STUDIES
    known = {**known, "lab": replace(known["lab"], rate_mbit=asked.rate)}
    studies = [known[name] for name in names if name in known]
    if not asked.again and (studies or "steps" in names):
        measure_all(names, studies, keep, asked)
    columns = ("study", "collective", "not seen", "n", "median error", "again", "p90")
    print(f"| {' | '.join((*columns, 'within 95 %', 'width', 'refused'))} |\n|{'---|' * 10}")
    if "synthetic" in names:
        print(row("synthetic", "ring", "all", synthetic(), ""), flush=True)
    every: list[Guess] = []
    refused = 0
    for study in studies:
        found, away = study_rows(study, keep)
        every, refused = [*every, *found], refused + away
    if "steps" in names:
        found, away = steps_rows(known["lab"], keep)
        every, refused = [*every, *found], refused + away
    if not studies and "steps" not in names:
        return 0
    return summary(every, refused)


def steps_rows(lab: Study, keep: Path) -> tuple[list[Guess], int]:
    """(guesses, how many were refused)."""
    every: list[Guess] = []
    away = 0
    for kind, found, refused, noise in step_rows(keep, stored(lab, keep, lab.rate_mbit)):
        made = [Guess("step", kind, *one) for one in found]
        print(row(f"steps, {lab.rate_mbit} Mbit/s", "step", kind, made, refused, noise))
        every, away = [*every, *made], away + refused
    print(row(f"steps, {lab.rate_mbit} Mbit/s", "step", "all", every, away))
    return every, away


def summary(every: Sequence[Guess], refused: int) -> int:
    """Rows over all that was measured; 1 where a goal is missed."""
    for what in (*OPS, "step"):
        print(row("measured", what, "all", [one for one in every if one.op == what], ""))
    unseen = [one for one in every if one.kind.startswith("world")]
    print(row("**measured**", "**all**", "**worlds not seen**", unseen, ""))
    print(row("**measured**", "**all**", "**all**", every, refused))
    if not every:
        return 1
    error = float(np.expm1(median(guess.error for guess in every)))
    coverage = sum(guess.within for guess in every) / len(every)
    return 0 if error <= MOST_ERROR and coverage >= LEAST_COVERAGE else 1


if __name__ == "__main__":
    sys.exit(main())
