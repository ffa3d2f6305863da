"""Fully connected layers that classify random vectors."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wirespeed.training.models.sizes import MlpSize


class Mlp(nn.Module):
    """(samples, widths[0]) -> logits (samples, widths[-1])."""

    def __init__(self, size: MlpSize) -> None:
        super().__init__()
        pairs = zip(size.widths, size.widths[1:], strict=False)
        self.layers = nn.ModuleList(nn.Linear(inputs, outputs) for inputs, outputs in pairs)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        logits: Tensor = self.layers[-1](x)
        return logits


def vector_batch(size: MlpSize, seed: int, samples: int) -> tuple[Tensor, Tensor]:
    """Normal vectors with random classes; the same arguments give the same."""
    return random_classes((samples, size.widths[0]), size.widths[-1], seed)


def random_classes(shape: tuple[int, ...], classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Normal numbers of that shape, and a class for each sample."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(shape, generator=generator)
    return inputs, torch.randint(classes, shape[:1], generator=generator)


def class_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean cross entropy over the samples, in float32."""
    inputs, targets = batch
    return F.cross_entropy(model(inputs).float(), targets)
