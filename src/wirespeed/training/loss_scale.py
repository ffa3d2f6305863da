"""Loss scaling for float16 over any trainer, by torch's GradScaler.

GradScaler wants an optimizer, a trainer hides its own: what it needs of it (the parameters with
their gradients, and a step) a trainer has, so a stand-in hands these over. An infinite gradient on one
rank is known on all: synchronised gradients are the same everywhere, and of sharded ones (DTensor)
torch reduces the finding itself.
"""

from typing import Any

import torch

from wirespeed.errors import CannotMeasure
from wirespeed.training.contract import Trainer

__all__ = ["LossScale"]


class _StandIn(torch.optim.Optimizer):
    """A trainer as an optimizer; never initialised as one, because it has no state of its own."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    @property
    def param_groups(self) -> list[dict[str, object]]:  # type: ignore[override]
        return [{"params": [p for p in self._trainer.model.parameters() if p.requires_grad]}]

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        self._trainer.step()


class LossScale:
    """A growing and shrinking scale that keeps float16 gradients from vanishing."""

    def __init__(self, trainer: Trainer, device: torch.device) -> None:
        """CannotMeasure: the device has no loss scaling."""
        self._trainer = trainer
        self._scaler = torch.amp.GradScaler(device.type)
        if not self._scaler.is_enabled():
            raise CannotMeasure(
                f"torch has no loss scaling on {device.type}, and fp16 needs it",
                expected="a device with GradScaler",
                next="wirespeed train --precision bf16",
            )
        self._stand_in = _StandIn(trainer)
        self._skipped = False

    @property
    def scale(self) -> float:
        return float(self._scaler.get_scale())

    def state(self) -> dict[str, Any]:
        """Numbers, for a checkpoint."""
        return dict(self._scaler.state_dict())

    def load(self, state: dict[str, Any]) -> None:
        self._scaler.load_state_dict(state)

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = self._scaler.scale(loss)
        return scaled

    def step(self, clip: float | None) -> bool:
        """Unscale, clip and step; False: a gradient was not finite, so nothing but the scale moved."""
        if all(one.grad is None for one in self._stand_in.param_groups[0]["params"]):  # type: ignore[attr-defined]
            raise CannotMeasure(
                "this strategy keeps no gradients on the parameters, so fp16 cannot unscale them",
                next="wirespeed train --precision bf16",
            )
        before = self.scale
        self._scaler.unscale_(self._stand_in)
        if clip is not None:
            self._trainer.clip(clip)
        self._scaler.step(self._stand_in)
        self._scaler.update()
        stepped = self.scale >= before
        if not stepped:
            self._trainer.model.zero_grad(set_to_none=True)
        return stepped
