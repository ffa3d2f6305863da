"""What the cost model says of each strategy here: measures the link, predicts steps and bucket size."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.errors import CannotMeasure
from wirespeed.model.records import Measurement
from wirespeed.model.training_records import Training
from wirespeed.model.units import format_bandwidth, format_duration
from wirespeed.plan import Case, Measure, TrainCase
from wirespeed.rank.measure import measure
from wirespeed.rank.place import Place, site_of
from wirespeed.rank.training.stage import Stage
from wirespeed.training.bucket_model import (
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
_NOT_PREDICTED = {
    "id": "TRAIN-006",
    "status": "not_checked",
    "title": "the best bucket size was not predicted",
    "because": "all_reduce took no longer for more bytes, as measured here: too much else runs on this "
    "machine, or the sizes are too small",
}


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
    import torch

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
        return Advice(_NOT_PREDICTED)
    best = best_bucket_bytes(link, gradient_bytes=step.gradient_bytes, backward_s=step.backward_s)
    quickest = min(swept, key=lambda one: one.step.mean)
    tried = ", ".join(f"{one.bucket_mb:g}" for one in swept)
    told = {
        "id": "TRAIN-006",
        "status": "pass",
        "title": f"best bucket size: {best / 1e6:.3g} MB by the model, {quickest.bucket_mb:g} MB of "
        f"those measured ({tried})",
        "saw": f"all_reduce takes {format_duration(link.latency_s)} a call and "
        f"{format_bandwidth(link.bytes_per_s)}; {step.gradient_bytes / 1e6:.4g} MB of gradients, "
        f"backward {format_duration(step.backward_s)}",
        "next": ""
        if len(swept) > 1
        else f"wirespeed train --bucket-mb {best / 1e6:.2g},{quickest.bucket_mb:g}",
    }
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
