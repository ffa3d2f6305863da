"""No synchronisation: every rank trains apart, from rank 0's parameters."""

from torch import nn

from wirespeed.training.contract import Setup, Trainer
from wirespeed.training.strategies.plain import plain_trainer
from wirespeed.training.synchroniser import Synchroniser


def build(model: nn.Module, setup: Setup) -> Trainer:
    return plain_trainer(model, setup, Synchroniser)
