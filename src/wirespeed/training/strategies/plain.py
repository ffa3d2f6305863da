"""A trainer for a plain module and a plain optimizer; strategies differ in the synchroniser only."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import nn

from wirespeed.training.contract import Setup
from wirespeed.training.synchroniser import Synchroniser


class PlainTrainer:
    """See `contract.Trainer`."""

    def __init__(
        self, model: nn.Module, synchroniser: Synchroniser, optimizer: torch.optim.Optimizer
    ) -> None:
        self.model = self.plain = model
        self.optimizer = optimizer
        self.synchroniser = synchroniser

    def no_sync(self) -> AbstractContextManager[None]:
        return self.synchroniser.no_sync()

    def backward(self, loss: torch.Tensor) -> None:
        self.synchroniser.begin()
        loss.backward()

    def finish(self) -> None:
        self.synchroniser.finish()

    def clip(self, max_norm: float) -> None:
        nn.utils.clip_grad_norm_(self.synchroniser.parameters, max_norm)

    def step(self) -> None:
        self.optimizer.step()
        # To None: a gradient that is made anew is taken as it is, one that exists is added to.
        self.optimizer.zero_grad(set_to_none=True)

    def full_parameters(self) -> dict[str, torch.Tensor]:
        return {
            name: parameter.detach().to("cpu", torch.float32, copy=True)
            for name, parameter in self.model.named_parameters()
        }

    def close(self) -> None:
        self.synchroniser.close()


def plain_trainer(
    model: nn.Module,
    setup: Setup,
    synchroniser: Callable[[nn.Module, dist.ProcessGroup], Synchroniser],
) -> PlainTrainer:
    """The model on its device, rank 0's everywhere, with the optimizer over what is trained."""
    model = model.to(setup.device)
    shared = synchroniser(model, setup.group)
    optimizer = setup.optimizer_class(shared.parameters, **setup.optimizer_options)
    return PlainTrainer(model, shared, optimizer)
