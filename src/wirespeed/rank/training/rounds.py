"""Interleaved rounds: in each, every case has a turn of some steps, and the order changes.

What disturbs the machine for a while disturbs all cases alike, so that a round's figures can be
compared pair by pair. Each step begins after a barrier of the whole world, outside of its clock.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean

import torch

from wirespeed.plan import TrainCase, TrainPlan
from wirespeed.rank.training.failures import CaseFull
from wirespeed.rank.training.stage import Stage
from wirespeed.statistics import mean_interval

PARTS = ("step", "data", "forward", "backward", "synchronise", "optimizer")
"""Columns of what a step gives, in seconds."""
FEWEST_ROUNDS = 9
"""Below this, no interval of a median has 99 %, which several comparisons at once need."""
MOST_ROUNDS = 200


@dataclass(slots=True)
class Samples:
    """One case's steps, the same on every rank."""

    case: TrainCase
    turns: list[torch.Tensor] = field(default_factory=list)
    """By round: seconds, shape (ranks of the case, steps, parts)."""
    full: bool = False
    """Memory ran out in a later round: these are the first, to be paired with others' first."""

    def slowest(self) -> list[list[float]]:
        """By round: each step's time on its slowest rank."""
        return [turn[:, :, 0].max(0).values.tolist() for turn in self.turns]

    def round_means(self) -> list[float]:
        return [fmean(steps) for steps in self.slowest()]


Enter = Callable[[str], None]
Tell = Callable[[int, int, str], None]
Ended = Callable[[int], None]
Full = Callable[[TrainCase, CaseFull], None]


def run_rounds(
    stage: Stage, taken: list[Samples], enter: Enter, tell: Tell, ended: Ended, full: Full
) -> None:
    """Time every case until all intervals are narrow enough, or the time is up; collective.

    taken: gets the samples, so that they are there when a loss is not finite (LossNotFinite).
    enter: tells every rank's watchdog what begins; tell: (turn, of, label) for the progress; ended: a
    round is over, with the number of rounds so far; full: memory ran out in a case, which ends there.
    """
    plan = stage.plan
    begin, number = time.monotonic(), 0
    while fitting := [one for one in taken if not one.full]:
        order = fitting if number % 2 == 0 else fitting[::-1]
        for index, samples in enumerate(order):
            tell(number * len(order) + index, _of(plan, number, len(order)), samples.case.label)
            enter(f"train {samples.case.label}")
            try:
                samples.turns.append(timed_turn(stage, samples.case, plan.steps))
            except CaseFull as error:
                samples.full = True
                full(samples.case, error)
        number += 1
        ended(number)
        spent = float(stage.place.control.matrix([time.monotonic() - begin]).max())
        if _enough(plan, taken, number, spent):
            return


def _of(plan: TrainPlan, rounds: int, cases: int) -> int:
    return max(plan.rounds or FEWEST_ROUNDS, rounds + 1) * cases


def _enough(plan: TrainPlan, taken: list[Samples], rounds: int, spent: float) -> bool:
    """From figures that all ranks have, so that all stop alike."""
    if plan.rounds is not None:
        return rounds >= plan.rounds
    if rounds >= MOST_ROUNDS or (rounds > 1 and spent * (rounds + 1) / rounds > plan.max_time_s):
        return True
    return rounds >= FEWEST_ROUNDS and all(_narrow(one, plan.goal) for one in taken if not one.full)


def _narrow(samples: Samples, goal: float) -> bool:
    means = samples.round_means()
    interval = mean_interval(means)
    return (interval.high - interval.low) / 2 <= goal * fmean(means)


def timed_turn(stage: Stage, case: TrainCase, steps: int) -> torch.Tensor:
    """One step to warm up, then `steps` that count: seconds of all ranks of the case; collective.

    Shape (ranks of the case, steps, parts). CaseFull: memory ran out.
    """
    mine = stage.attempt(case, lambda: _steps(stage, case, steps))
    rows = stage.place.control.matrix(mine)[: case.ranks]
    return rows.reshape(case.ranks, steps, len(PARTS))


def _steps(stage: Stage, case: TrainCase, steps: int) -> list[float]:
    """Seconds of this rank's steps and their parts, one after the other; 0 where it takes no part."""
    control, mine = stage.place.control, [0.0] * (steps * len(PARTS))
    with stage.act(case) as act:
        for number in range(steps + 1):
            control.barrier()
            stage.place.tick()
            if act is None:
                stage.share(0.0)
                continue
            times = act.run().times
            if number:
                place = (number - 1) * len(PARTS)
                mine[place : place + len(PARTS)] = [getattr(times, part) for part in PARTS]
    return mine
