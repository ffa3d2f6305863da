"""What a rank tells of training that ended early or had no time; faults acted out on request."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from wirespeed.model.units import format_duration
from wirespeed.plan import TrainCase
from wirespeed.rank.faulty_engine import PROCESS_FAULTS, Fault, strike
from wirespeed.training.contract import Batch, Build, ModelSpec, Setup, Trainer

if TYPE_CHECKING:
    import torch
    from torch import nn

    from wirespeed.training.step import LossNotFinite


def not_finite(error: "LossNotFinite") -> dict[str, Any]:
    """TRAIN-002, as a `trouble` record."""
    return {
        "id": "TRAIN-002",
        "status": "fail",
        "rank": error.ranks[0],
        "title": f"training stopped at step {error.step}: the loss is not a finite number",
        "saw": error.saw,
        "expected": error.expected,
        "because": "too high a learning rate, numbers that overflow, or wrong data from a device",
        "fix": "a smaller --lr, --clip 1, --dtype float32; then wirespeed check --only correctness",
        "next": error.next,
    }


def not_watched(cases: Sequence[TrainCase], budget_s: float) -> dict[str, Any]:
    """TRAIN-008, as a `trouble` record: communication time and timeline of these are not known."""
    return {
        "id": "TRAIN-008",
        "status": "not_checked",
        "title": "no step was watched of " + ", ".join(one.label for one in cases),
        "saw": "their communication time and timeline are not known",
        "because": f"the {format_duration(budget_s)} for steps under the profiler were over before",
        "next": "a longer --max-time, fewer strategies, or a quieter machine",
    }


def hardly_watched(cases: Sequence[TrainCase], budget_s: float) -> dict[str, Any]:
    """TRAIN-008, as a `trouble` record: communication time of these is a rough figure."""
    return {
        "id": "TRAIN-008",
        "status": "not_checked",
        "title": "fewer than ten steps were watched of " + ", ".join(one.label for one in cases),
        "saw": "the 95 % interval of their communication time is wider than ±25 %",
        "because": f"the {format_duration(budget_s)} for steps under the profiler were over before",
        "next": "a longer --max-time, fewer strategies, or a quieter machine",
    }


def fit_ended(case: TrainCase, samples: int, too_many: int) -> dict[str, Any]:
    """TRAIN-005, as a `trouble` record: the search for the largest batch was cut short.

    too_many: the fewest samples that did not fit; 0: all that were tried did.
    """
    below = f", {too_many} do not" if too_many else ""
    return {
        "id": "TRAIN-005",
        "status": "not_checked",
        "title": f"{case.label}: the largest batch was not found",
        "saw": f"{samples} samples of a rank fit{below}",
        "because": "the time for the search was over before",
        "next": "a longer --max-time, or one strategy at a time",
    }


class FaultInjection:
    """What this rank acts out; nothing, mostly."""

    def __init__(self, faults: Sequence[str], rank: int) -> None:
        parsed = (Fault.parse(text) for text in faults)
        self._mine = [fault for fault in parsed if fault.rank == rank]
        self._turns = 0

    def turn(self) -> None:
        """A turn begins."""
        for fault in self._mine:
            if fault.kind in PROCESS_FAULTS and fault.after == self._turns:
                strike(fault)
        self._turns += 1

    def build(self, build: Build) -> Build:
        if not any(fault.kind == "twice" for fault in self._mine):
            return build

        def spoiled(model: "nn.Module", setup: Setup) -> Trainer:
            trained = [one for one in model.parameters() if one.requires_grad]
            trained[-1].register_hook(lambda gradient: 2 * gradient)
            return build(model, setup)

        return spoiled

    def model(self, model: ModelSpec) -> ModelSpec:
        after = [fault.after for fault in self._mine if fault.kind == "nan"]
        if not after:
            return model
        steps = count()

        def spoiled(module: "nn.Module", batch: Batch) -> "torch.Tensor":
            loss = model.loss(module, batch)
            return loss * float("nan") if next(steps) >= after[0] else loss

        return replace(model, loss=spoiled)
