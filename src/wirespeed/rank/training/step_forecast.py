"""What the cost model says of each strategy here: measures the link, predicts steps and bucket size.

The bucket size that it advises is timed beside the quickest that was measured.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.errors import CannotMeasure
from wirespeed.model.records import Measurement
from wirespeed.model.training_records import Training
from wirespeed.model.units import format_bandwidth, format_duration
from wirespeed.plan import Case, Measure, TrainCase
from wirespeed.rank.measure import measure
from wirespeed.rank.place import Place, site_of
from wirespeed.rank.training.failures import CaseFull
from wirespeed.rank.training.findings import trouble
from wirespeed.rank.training.rounds import Samples, timed_turn
from wirespeed.rank.training.stage import Stage
from wirespeed.statistics import has_interval, paired_verdict
from wirespeed.training.buckets import (
    Link,
    StepWithoutSync,
    best_bucket_bytes,
    fit_link,
    predicted_step_s,
)

_LEAST, _SIZES = 4096, 5
_LONGEST_S = 0.7
"""Of one size's samples; warming up takes at most half of that beside it."""
_SHARE = 0.25
"""Of the time that rounds may take, for all sizes together."""

_ALIKE = 1.25
"""Bucket sizes closer than that are the same advice; so are those that hold all gradients."""


def measure_link(place: Place, gradient_bytes: int, max_time_s: float) -> list[Measurement]:
    """all_reduce from 4 KB to all gradients at once, in sizes that grow alike; collective.

    max_time_s: what the rounds may take.
    """
    how = Measure(max_time_s=min(_LONGEST_S, _SHARE * max_time_s / (1.5 * _SIZES)), precision=0.1)
    largest = max(gradient_bytes, 16 * _LEAST)
    growth = (largest / _LEAST) ** (1 / (_SIZES - 1))
    collective = CATALOGUE["all_reduce"]
    found = []
    for number in range(_SIZES):
        case = Case(op="all_reduce", redop="sum", size_bytes=int(_LEAST * growth**number))
        site = site_of(place, case, collective, case.size_bytes)
        found.append(measure(place, site, how, None))
    return found


def predicted(
    stage: Stage, records: Sequence[Training], measured: Sequence[Measurement]
) -> tuple[list[Training], Link | None]:
    """The records with their predicted steps, where there is a yardstick and a line to predict by."""
    step = _yardstick(stage, records)
    try:
        link = fit_link([(one.size_bytes, one.time.median) for one in measured])
    except CannotMeasure:
        return list(records), None
    if step is None:
        return list(records), link
    return [
        replace(one, predicted_step=predicted_step_s(one.strategy, step, link, one.bucket_mb))
        if one.study == "compare"
        else one
        for one in records
    ], link


def _yardstick(stage: Stage, records: Sequence[Training]) -> StepWithoutSync | None:
    for one in records:
        if one.study == "compare" and one.strategy == "none":
            backward = one.parts["backward"] / stage.plan.micro_batches  # the last one can hide it
            return StepWithoutSync(
                backward_s=backward,
                rest_s=one.step.mean - backward,
                gradient_bytes=stage.model.gradient_bytes,
                tensors=_tensors(stage),
            )
    return None


def _tensors(stage: Stage) -> int:
    with torch.random.fork_rng(devices=[]):
        return sum(one.requires_grad for one in stage.model.build().parameters())


@dataclass(frozen=True, slots=True)
class Advice:
    """The model's best bucket size."""

    told: dict[str, Any]
    """TRAIN-006, as a `trouble` record."""
    pair: tuple[TrainCase, TrainCase] | None = None
    """A case with the size that it advises, and the quickest that was measured; None: much the same."""


def best_bucket(stage: Stage, records: Sequence[Training], link: Link | None) -> Advice | None:
    """The model's best bucket size beside the best that was measured."""
    swept = [one for one in records if one.study == "compare" and one.strategy == "bucketed"]
    step = _yardstick(stage, records)
    if step is None or not swept:
        return None
    if link is None:
        return Advice(trouble("not_predicted"))
    best = best_bucket_bytes(link, gradient_bytes=step.gradient_bytes, backward_s=step.backward_s)
    quickest = min(swept, key=lambda one: one.step.mean)
    more = f"wirespeed train --bucket-mb {best / 1e6:.2g},{quickest.bucket_mb:g}"
    told = trouble(
        "best_bucket",
        best=f"{best / 1e6:.3g}",
        quickest=quickest,
        tried=", ".join(f"{one.bucket_mb:g}" for one in swept),
        latency=format_duration(link.latency_s),
        bandwidth=format_bandwidth(link.bytes_per_s),
        gradients=step.gradient_bytes / 1e6,
        backward=format_duration(step.backward_s),
        next="" if len(swept) > 1 else more,
    )
    whole, used = step.gradient_bytes, (quickest.bucket_mb or 0) * 1e6
    if _ALIKE > min(best, whole) / min(used, whole) > 1 / _ALIKE:
        return Advice(told)
    case = TrainCase(
        strategy="bucketed",
        bucket_mb=quickest.bucket_mb,
        ranks=quickest.ranks,
        samples=quickest.batch,
    )
    return Advice(told, (replace(case, bucket_mb=float(f"{best / 1e6:.3g}")), case))


_FEWEST, _MOST = 6, 12
"""Rounds: with fewer no interval of a median has 95 %."""
_ADVICE_SHARE = 0.25
"""Of the time that rounds may take."""


def checked_advice(stage: Stage, advised: TrainCase, quickest: TrainCase) -> dict[str, Any]:
    """TRAIN-011, as a `trouble` record, from rounds in which the two take turns; collective."""
    both = Samples(advised), Samples(quickest)
    begin, budget = time.monotonic(), _ADVICE_SHARE * stage.plan.max_time_s
    for number in range(_MOST):
        for one in both[:: -1 if number % 2 else 1]:
            try:
                one.turns.append(timed_turn(stage, one.case, stage.plan.steps))
            except CaseFull:
                sizes: dict[str, Any] = {
                    "advised": advised.bucket_mb,
                    "quickest": quickest.bucket_mb,
                }
                return trouble("advice_unknown", **sizes, because="it does not fit in memory")
        spent = float(stage.place.control.matrix([time.monotonic() - begin]).max())
        if (number + 1 >= _FEWEST and spent > budget) or spent > 4 * budget:
            break
        if stage.limit.is_over():
            break
    return advice_told(*both)


def advice_told(advised: Samples, quickest: Samples) -> dict[str, Any]:
    """TRAIN-011 of what was timed, round by round. Pure."""
    value, interval, verdict = paired_verdict(advised.round_means(), quickest.round_means())
    rounds = min(len(advised.turns), len(quickest.turns))
    ends = f"{interval.low:.2f} … {interval.high:.2f}" if has_interval(rounds) else "no interval"
    saw = f"{value:.2f} × its step time ({ends}), {rounds} rounds in turns"
    sizes: dict[str, Any] = {"advised": advised.case.bucket_mb, "quickest": quickest.case.bucket_mb}
    if verdict == "not enough rounds":
        because = "too few rounds for this noise"
        return trouble("advice_unknown", **sizes, saw=saw, because=because)
    return trouble("advice_wrong" if verdict == "slower" else "advice_right", **sizes, saw=saw)
