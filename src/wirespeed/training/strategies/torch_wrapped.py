"""What trainers around torch's own wrappers have in common."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.optim import Optimizer

from wirespeed.training.contract import Setup
from wirespeed.training.equivalence import trainable


class TorchTrainer:
    """Gradients are synchronised within backward; parameters may be sharded (DTensor)."""

    def __init__(self, model: nn.Module, plain: nn.Module, optimizer: Optimizer) -> None:
        """model: what the loss calls. plain: the module whose parameter names count."""
        self.model = model
        self.plain = plain
        self.optimizer = optimizer
        # Kept by name from the start: between forward and backward fully_shard puts gathered
        # parameters in the place of these.
        self._named = dict(plain.named_parameters())
        self._trained = [p for p in self._named.values() if p.requires_grad]

    def no_sync(self) -> AbstractContextManager[None]:
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def finish(self) -> None:
        return None

    def clip(self, max_norm: float) -> None:
        # Of DTensors torch takes the norm over all shards (collective).
        nn.utils.clip_grad_norm_(self._trained, max_norm)

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def full_parameters(self) -> dict[str, torch.Tensor]:
        return {name: _whole(parameter) for name, parameter in self._named.items()}

    def close(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)


def optimizer_of(model: nn.Module, setup: Setup) -> Optimizer:
    """The setup's optimizer over what is trained; UsageError where that is nothing."""
    return setup.optimizer_class(trainable(model), **setup.optimizer_options)


def _whole(parameter: torch.Tensor) -> torch.Tensor:
    """A copy of all of it on the CPU, float32 (collective for a DTensor)."""
    shown = parameter.detach()
    if hasattr(shown, "full_tensor"):
        shown = shown.full_tensor()
    return shown.to("cpu", torch.float32, copy=True)
