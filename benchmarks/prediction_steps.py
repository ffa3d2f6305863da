"""Hold-out of training steps, for benchmarks/prediction.py.

`wirespeed train --model tiny` runs in the lab on 3, 4 and 6 nodes, a rank each, with two bucket
sizes, by `flat`, `bucketed` and torch's `ddp`. All nodes share one machine's cores, so a step computes
as little as it can (one short sample a rank, one thread) and its 3.7 MB of gradients travel over slow
links (`--rate`): the network sets the time, as on nodes with cores of their own, and not the scheduler.

Shown to the forecast are the collectives of the `lab` study on its smaller worlds, and of the training
the run on 3 nodes with `flat` and one bucket size of `bucketed`. It is asked for the other bucket and
for `ddp` there, and for all of them on the other worlds; `links` are worlds whose collectives were not
shown either.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from wirespeed.model.records import Run
from wirespeed.predict.answer import Question, predict
from wirespeed.predict.steps import KNOWN
from wirespeed.runs.store import load

__all__ = ["measure_steps", "step_rows"]

WORLDS, QUICK = (3, 4, 6), (3, 4)
SHOWN, SHOWN_BUCKET, LINKS = 3, 1.0, (2, 3, 4, 5)
"""Ranks and bucket (MB) of the training that is shown, and worlds whose collectives are."""
BUCKETS = (0.3, 1.0)
STRATEGIES = ("flat", "bucketed", "ddp")
Found = tuple[float, bool, float]
"""|log(predicted / measured)|, whether it lies within the interval, upper over lower end."""
Choice = tuple[int, str, float | None]


def measure_steps(keep: Path, inside: Callable[[int], list[str]], *, quick: bool) -> None:
    """One `wirespeed train` a world; the batch of a rank is the same on all.

    inside: the words that run a command on that many nodes of the lab.
    """
    worlds = QUICK if quick else WORLDS
    for world in worlds:
        words = ["train", "--model", "tiny", "--strategy", ",".join(STRATEGIES), "--no-prove"]
        words += ["--bucket-mb", ",".join(map(str, BUCKETS)), "-q"]
        words += ["--batch", str(world), "--context", "8"]
        words += ["--rounds", "2" if quick else "3", "--steps", "1", "-o", "json"]
        ours = [*inside(world), sys.executable, "-m", "wirespeed", *words]
        done = subprocess.run(ours, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode not in (0, 1) or not done.stdout:
            raise SystemExit(
                f"{' '.join(ours)} ended with {done.returncode}\n{done.stderr[-2000:]}"
            )
        json.loads(done.stdout)
        (keep / f"steps-{world}-0.json").write_text(done.stdout)
        print(f"training on {world} nodes measured", file=sys.stderr, flush=True)


def step_rows(
    keep: Path, collectives: Sequence[Run]
) -> Iterator[tuple[str, list[Found], int, list[float]]]:
    """(kind, guesses, how many were refused, |log| of one round over the others) by kind."""
    runs = [load(file) for file in sorted(keep.glob("steps-*.json"))]
    steps = _steps(runs)
    told = _told(runs, collectives, sorted({world for world, _, _ in steps}))
    kinds: dict[str, list[Choice]] = {}
    for choice in steps:
        if kind := _kind(choice):
            kinds.setdefault(kind, []).append(choice)
    _tell(steps, told)
    for kind, choices in sorted(kinds.items()):
        found = [_guess(told[one], median(steps[one])) for one in choices if one in told]
        noise = [
            abs(float(np.log(steps[one][k] / median([*steps[one][:k], *steps[one][k + 1 :]]))))
            for one in choices
            for k in range(len(steps[one]))
            if len(steps[one]) > 1
        ]
        yield kind, found, len(choices) - len(found), noise


def _tell(steps: dict[Choice, list[float]], told: dict[Choice, tuple[float, float, float]]) -> None:
    for choice, times in sorted(steps.items(), key=str):
        ms = [f"{1e3 * one:.0f}" for one in told.get(choice, ())]
        says = f"{ms[0]} [{ms[1]}, {ms[2]}]" if ms else "refused"
        shown = "" if _kind(choice) else " (shown)"
        print(f"{choice}{shown}: {1e3 * median(times):.0f} ms, told {says}", file=sys.stderr)


def _steps(runs: Sequence[Run]) -> dict[Choice, list[float]]:
    """Mean steps of what the model knows, a value a round."""
    found: dict[Choice, list[float]] = {}
    for run in runs:
        for one in run.training:
            if one.strategy in KNOWN and one.study == "compare":
                found.setdefault((one.ranks, one.strategy, one.bucket_mb), []).append(one.step.mean)
    return found


def _kind(choice: Choice) -> str:
    """Empty for what was shown."""
    world, strategy, bucket = choice
    if world == SHOWN:
        other = "bucket" if strategy == "bucketed" else "strategy"
        return "" if _is_shown(strategy, bucket) else other
    return "world" if world in LINKS else "world and links"


def _is_shown(strategy: str, bucket: float | None) -> bool:
    return strategy in ("none", "flat") or (strategy == "bucketed" and bucket == SHOWN_BUCKET)


def _told(
    runs: Sequence[Run], collectives: Sequence[Run], worlds: Sequence[int]
) -> dict[Choice, tuple[float, float, float]]:
    """(value, low, high) of every step that is predicted."""
    links = [run for run in collectives if run.world.size in LINKS]
    trained = [_cut(run) for run in runs if run.world.size == SHOWN]
    question = Question(
        nodes=tuple(worlds), ops=("all_reduce",), strategies=STRATEGIES, buckets=BUCKETS
    )
    answer = predict([*links, *trained[:1]], question)
    for one in answer.refusals:
        print(f"refused: {one.what}: {one.because}", file=sys.stderr)
    for note in answer.notes:
        print(note, file=sys.stderr)
    return {
        (one.world.ranks, one.strategy, one.bucket_mb): (
            one.step.value,
            one.step.low,
            one.step.high,
        )
        for one in answer.steps
    }


def _cut(run: Run) -> Run:
    """What the forecast may see of a training run."""
    kept = tuple(t for t in run.training if _is_shown(t.strategy, t.bucket_mb))
    return replace(run, training=kept)


def _guess(told: tuple[float, float, float], truth: float) -> Found:
    value, low, high = told
    return abs(float(np.log(value / truth))), low <= truth <= high, high / low
