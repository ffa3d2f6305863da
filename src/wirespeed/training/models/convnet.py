"""A small convolutional net that classifies random images."""

from torch import Tensor, nn
from torch.nn import functional as F

from wirespeed.training.models.mlp import random_classes
from wirespeed.training.models.sizes import ConvnetSize, Convolution


class Convnet(nn.Module):
    """(samples, channels, side, side) -> logits (samples, classes)."""

    def __init__(self, size: ConvnetSize) -> None:
        super().__init__()
        pairs = zip(size.inputs, size.convolutions, strict=False)
        self.stages = nn.ModuleList(Stage(inputs, one, size.groups) for inputs, one in pairs)
        self.head = nn.Linear(size.inputs[-1], size.classes)

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        logits: Tensor = self.head(x.mean(dim=(2, 3)))
        return logits


class Stage(nn.Module):
    def __init__(self, inputs: int, one: Convolution, groups: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(
            inputs, one.outputs, one.kernel, one.stride, padding=one.kernel // 2, bias=False
        )
        self.norm = nn.GroupNorm(groups, one.outputs)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.convolution(x)))


def image_batch(size: ConvnetSize, seed: int, samples: int) -> tuple[Tensor, Tensor]:
    """Normal pixels with random classes; the same arguments give the same."""
    shape = (samples, size.channels, size.side, size.side)
    return random_classes(shape, size.classes, seed)
