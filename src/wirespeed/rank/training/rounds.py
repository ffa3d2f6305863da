"""Interleaved rounds of all cases, and what the steps of all ranks come to.

In each round every case has a turn of some steps, and the order changes. What disturbs the machine for
a while disturbs all cases alike, so that a round's figures can be compared pair by pair. Each step
begins after a barrier of the whole world, outside of its clock.

Exposed communication is, round by round, the mean step of the slowest rank minus that of the same
round's steps without synchronisation; then the median over the rounds with its interval. Strategies
are compared with the fastest by the ratios of their rounds (order statistics), with the confidence
divided by the number of comparisons (Bonferroni); `same` needs the whole interval within ±5 %.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median, stdev

import torch

from wirespeed.model.training_records import Ratio, Spread, Training
from wirespeed.plan import TrainCase, TrainPlan
from wirespeed.rank.training.failures import CaseFull
from wirespeed.rank.training.stage import Stage
from wirespeed.statistics import mean_interval, median_interval, paired_verdict
from wirespeed.training.contract import ModelSpec
from wirespeed.training.efficiency import Loss, ScalePoint, scaled

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
        if plan.rounds is not None and number > 1 and stage.limit.is_over():
            stage.limit.left_out.append(f"rounds {number + 1} to {plan.rounds}")
            return


def _of(plan: TrainPlan, rounds: int, cases: int) -> int:
    return max(plan.rounds or FEWEST_ROUNDS, rounds + 1) * cases


def _enough(plan: TrainPlan, taken: list[Samples], rounds: int, spent: float) -> bool:
    """From figures that all ranks have, so that all stop alike."""
    if plan.rounds is not None:
        return rounds >= plan.rounds
    if rounds >= MOST_ROUNDS or (rounds > 1 and spent * (rounds + 1) / rounds > plan.max_time_s):
        return True
    return rounds >= FEWEST_ROUNDS and all(
        is_narrow(one.round_means(), plan.goal) for one in taken if not one.full
    )


def is_narrow(means: Sequence[float], goal: float) -> bool:
    """Whether the 95 % interval of the mean is within so much of it."""
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


def yardstick_of(case: TrainCase, taken: Sequence[Samples]) -> Samples | None:
    """The steps without synchronisation on the same ranks and samples."""
    for samples in taken:
        other = samples.case
        alike = (other.ranks, other.samples, other.kind) == (case.ranks, case.samples, case.kind)
        if other.strategy == "none" and alike:
            return samples
    return None


def figures(
    samples: Samples,
    yardstick: Samples | None,
    plan: TrainPlan,
    model: ModelSpec,
    *,
    nodes: int,
    peak: float | None,
) -> Training:
    """One case's record. peak: FLOP/s of one rank's device at this precision; None: not known."""
    case = samples.case
    step = spread_of(samples.slowest())
    exposed = _exposed(samples, yardstick)
    rate = case.samples / step.mean
    flops = model.flops_per_sample
    return Training(
        strategy=case.strategy,
        bucket_mb=case.bucket_mb,
        model=model.name,
        ranks=case.ranks,
        nodes=nodes,
        batch=case.samples,
        micro_batches=plan.micro_batches,
        precision=plan.precision,
        study=case.kind,
        data_workers=plan.data_workers,
        rounds=len(samples.turns),
        step=step,
        round_steps=tuple(samples.round_means()),
        parts=_parts(samples),
        exposed=exposed,
        exposed_fraction=exposed.value / step.mean if exposed else None,
        samples_per_s=rate,
        tokens_per_s=rate * model.tokens_per_sample if model.tokens_per_sample > 1 else None,
        mfu=rate * flops / (peak * case.ranks) if flops and peak else None,
        rank_compute=_compute(yardstick),
        verdict="yardstick" if case.strategy == "none" else "",
    )


def verdicts(records: Sequence[Training], taken: Sequence[Samples]) -> list[Training]:
    """The same records, those of one kind and size compared with the fastest of them."""
    done = list(records)
    for key in dict.fromkeys((one.study, one.ranks, one.batch) for one in records):
        rivals = [
            i
            for i, one in enumerate(records)
            if (one.study, one.ranks, one.batch) == key and one.verdict != "yardstick"
        ]
        if len(rivals) < 2:
            continue
        best = min(rivals, key=lambda i: median(taken[i].round_means()))
        confidence = 1 - 0.05 / (len(rivals) - 1)
        for i in rivals:
            if i != best:
                ratio, verdict = _compared(taken[i], taken[best], confidence)
                done[i] = replace(records[i], ratio=ratio, verdict=verdict)
        settled = all(done[i].verdict != "not enough rounds" for i in rivals if i != best)
        done[best] = replace(
            records[best],
            verdict="fastest" if settled else "fastest so far",
            ratio=Ratio(value=1, low=1, high=1),
        )
    return done


def _compared(one: Samples, best: Samples, confidence: float) -> tuple[Ratio, str]:
    value, interval, verdict = paired_verdict(*_paired(one, best), confidence)
    ratio = Ratio(value=value, low=interval.low, high=interval.high)
    # The best was chosen by these very rounds: that another is quicker is never proven by them.
    return ratio, "not enough rounds" if verdict == "faster" else verdict


def _paired(one: Samples, other: Samples) -> tuple[list[float], list[float]]:
    """Means of the rounds that both were in: where memory ran out for one, the first ones."""
    rounds = min(len(one.turns), len(other.turns))
    return one.round_means()[:rounds], other.round_means()[:rounds]


def spread_of(turns: Sequence[Sequence[float]]) -> Spread:
    """Seconds of single steps, given by turn (at least one); the interval is of the turns' means."""
    steps = [step for turn in turns for step in turn]
    means = [fmean(turn) for turn in turns]
    interval = mean_interval(means if len(means) > 1 else steps)
    middle = fmean(steps)
    known = interval.coverage > 0
    return Spread(
        mean=middle,
        std=stdev(steps) if len(steps) > 1 else 0.0,
        low=interval.low if known else middle,
        high=interval.high if known else middle,
        samples=len(steps),
    )


def _parts(samples: Samples) -> dict[str, float]:
    """Means over the steps, each of the rank that was slowest in that step."""
    sums = dict.fromkeys(PARTS[1:], 0.0)
    count = 0
    for turn in samples.turns:
        slowest = turn[:, :, 0].argmax(0).tolist()
        for step, rank in enumerate(slowest):
            count += 1
            for index, part in enumerate(PARTS[1:], 1):
                sums[part] += float(turn[rank, step, index])
    return {part: value / count for part, value in sums.items()}


def _exposed(samples: Samples, yardstick: Samples | None) -> Ratio | None:
    if yardstick is None or yardstick is samples:
        return None
    differences = [mine - alone for mine, alone in zip(*_paired(samples, yardstick), strict=True)]
    interval = median_interval(differences)
    return Ratio(value=median(differences), low=interval.low, high=interval.high)


def _compute(yardstick: Samples | None) -> tuple[float, ...]:
    """Forward and backward of each rank by itself: who is slow at computing."""
    return _by_rank(yardstick, "forward", "backward") if yardstick else ()


def _by_rank(samples: Samples, *parts: str) -> tuple[float, ...]:
    """Of each rank, the mean over all steps of these parts together."""
    columns = [PARTS.index(part) for part in parts]
    every = torch.cat([turn[:, :, columns].sum(2) for turn in samples.turns], 1)
    means: list[float] = every.mean(1).tolist()
    return tuple(means)


# Scaling: the efficiency of every number of ranks against the fewest, and where the rest went.

_WORDS = {
    "exposed_communication": "exposed communication",
    "slowest_rank": "slowest rank",
    "contention": "memory, cores",
    "smaller_batch": "smaller batch",
    "slower_compute": "slower compute",
    "unexplained": "not explained",
}


def efficiencies(records: Sequence[Training], taken: Sequence[Samples]) -> list[Training]:
    """The same records with their efficiency, grade and losses, where they belong to a scaling."""
    done = list(records)
    families: dict[tuple[str, str, float | None], list[int]] = {}
    for i, one in enumerate(records):
        if one.study != "compare":
            families.setdefault((one.study, one.strategy, one.bucket_mb), []).append(i)
    for members in families.values():
        points = {records[i].ranks: (i, _point(taken[i], taken)) for i in members}
        for found in scaled([point for _, point in points.values()]):
            i, _ = points[found.point.ranks]
            told = found.efficiency
            done[i] = replace(
                records[i],
                efficiency=Ratio(value=told.value, low=told.low, high=told.high),
                grade=told.grade,
                loss=_shares(found.loss),
            )
    return done


def _point(samples: Samples, taken: Sequence[Samples]) -> ScalePoint:
    case = samples.case
    yardstick = yardstick_of(case, taken)
    return ScalePoint(
        ranks=case.ranks,
        samples=case.samples,
        step_s=tuple(samples.round_means()),
        unsynchronised_s=_by_rank(yardstick, "step") if yardstick else (),
    )


def _shares(loss: Loss) -> dict[str, float]:
    """Those that are known; `slower compute` only where it was not split further."""
    shares = {}
    for name, words in _WORDS.items():
        value = getattr(loss, name)
        split = name == "slower_compute" and loss.contention is not None
        if value is not None and not split and (value or name != "unexplained"):
            shares[words] = value
    return shares
