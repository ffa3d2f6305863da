"""From the steps of all ranks to records: means, intervals, exposed communication, verdicts. Pure.

Exposed communication is, round by round, the mean step of the slowest rank minus that of the same
round's steps without synchronisation; then the median over the rounds with its interval. Strategies
are compared with the fastest by the ratios of their rounds (order statistics), with the confidence
divided by the number of comparisons (Bonferroni); `same` needs the whole interval within ±5 %.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median, stdev

import torch

from wirespeed.model.training_records import Ratio, Spread, Training
from wirespeed.plan import TrainCase, TrainPlan
from wirespeed.rank.training.rounds import PARTS, Samples
from wirespeed.statistics import mean_interval, median_interval, paired_verdict
from wirespeed.training.contract import ModelSpec
from wirespeed.training.efficiency import Loss, ScalePoint, scaled


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
    if yardstick is None:
        return ()
    both = [PARTS.index("forward"), PARTS.index("backward")]
    every = torch.cat([turn[:, :, both].sum(2) for turn in yardstick.turns], 1)
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
        unsynchronised_s=_by_rank(yardstick) if yardstick else (),
    )


def _by_rank(samples: Samples) -> tuple[float, ...]:
    step = PARTS.index("step")
    means: list[float] = torch.cat([turn[:, :, step] for turn in samples.turns], 1).mean(1).tolist()
    return tuple(means)


def _shares(loss: Loss) -> dict[str, float]:
    """Those that are known; `slower compute` only where it was not split further."""
    shares = {}
    for name, words in _WORDS.items():
        value = getattr(loss, name)
        split = name == "slower_compute" and loss.contention is not None
        if value is not None and not split and (value or name != "unexplained"):
            shares[words] = value
    return shares
