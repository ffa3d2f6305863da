"""Faults acted out in training, so that anybody can see each of its findings caught.

`kill`, `stop` and `raise` strike when rank R begins its N-th turn; `twice` doubles the gradient of one
parameter on rank R, which is what a strategy does that reduces it twice; `nan` makes the loss of rank
R no number from its N-th step on.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from wirespeed.rank.faulty_engine import PROCESS_FAULTS, Fault, strike
from wirespeed.training.contract import Batch, Build, ModelSpec, Setup, Trainer

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["FaultInjection"]


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
