"""All gradients of one dtype in one buffer, one all_reduce each, when the backward pass is over."""

import sys

import torch.distributed as dist
from torch import nn

from wirespeed.training.bucket_buffers import bucket_buffers
from wirespeed.training.contract import Setup, Trainer
from wirespeed.training.strategies.plain import plain_trainer
from wirespeed.training.synchroniser import Synchroniser


class Flat(Synchroniser):
    def __init__(self, module: nn.Module, group: dist.ProcessGroup) -> None:
        super().__init__(module, group)
        self._buffers = bucket_buffers(self.parameters, group, sys.maxsize)

    def _synchronise(self) -> None:
        for buffer in self._buffers:
            buffer.fill_up()
            buffer.send()
            buffer.deliver()


def build(model: nn.Module, setup: Setup) -> Trainer:
    return plain_trainer(model, setup, Flat)
