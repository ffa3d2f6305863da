"""One all_reduce a parameter, one after the other, when the backward pass is over."""

import torch
import torch.distributed as dist
from torch import nn

from wirespeed.training.contract import Setup, Trainer
from wirespeed.training.strategies.plain import plain_trainer
from wirespeed.training.synchroniser import Synchroniser, dense


class Naive(Synchroniser):
    """One more small all_reduce tells which parameters got a gradient on some rank."""

    def _synchronise(self) -> None:
        had = [parameter.grad is not None for parameter in self.parameters]
        flags = torch.tensor(had, dtype=torch.int32, device=self.parameters[0].device)
        dist.all_reduce(flags, group=self.group)
        for parameter, ranks_with_one in zip(self.parameters, flags.tolist(), strict=True):
            if ranks_with_one:
                parameter.grad = self._mean(parameter)

    def _mean(self, parameter: nn.Parameter) -> torch.Tensor:
        gradient = parameter.grad
        if gradient is None:
            gradient = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        gradient = dense(gradient).contiguous()
        dist.all_reduce(gradient, group=self.group)
        return gradient.div_(self.ranks)


def build(model: nn.Module, setup: Setup) -> Trainer:
    return plain_trainer(model, setup, Naive)
