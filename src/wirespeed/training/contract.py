"""The contracts of training: what a model brings, and what a strategy makes of it.

A `ModelSpec` builds a model, its batches and its loss. A strategy is a function
`build(model, setup) -> Trainer`; the step loop (`training/step.py`) knows nothing else of it:

    for each micro batch but the last:  with trainer.no_sync(): forward, backward
    the last one:                       forward, trainer.backward(loss)
    trainer.finish()                    gradients are the mean over all ranks from here on
    trainer.clip(max_norm)              where asked
    trainer.step()                      optimizer step; gradients are cleared
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist
    from torch import nn


Batch = tuple["torch.Tensor", "torch.Tensor"]
"""Inputs and targets; the first dimension counts samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model with its data; the same on every rank."""

    name: str
    build: "Callable[[], nn.Module]"
    """A new model on the CPU in float32; its random numbers come from torch's default generator."""
    batch: "Callable[[int, int], Batch]"
    """(seed, samples) -> a batch on the CPU; the same arguments give the same batch."""
    loss: "Callable[[nn.Module, Batch], torch.Tensor]"
    """Scalar: the mean over the batch's samples, so that the mean over equal shards is the whole's."""
    parameters: int
    """Elements that are trained, tied ones counted once."""
    gradient_bytes: int
    """Bytes of their gradients in float32."""
    tokens_per_sample: int = 1
    """1 where a sample is no sequence."""
    flops_per_sample: float | None = None
    """Floating-point operations of forward and backward for one sample; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a strategy needs beside the model."""

    group: "dist.ProcessGroup"
    """The ranks that train together; gradients are averaged over it."""
    device: "torch.device"
    optimizer_class: "type[torch.optim.Optimizer]"
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    bucket_mb: float | None = None
    """Megabytes (10**6 bytes) of gradients in a bucket; None: the strategy's own default."""
    variant: str = ""
    """Which of a module's variants (`StrategyInfo.variant`)."""
    micro_batches: int = 1
    """Backward passes before each step."""
    samples: int = 1
    """Samples of one micro batch on this rank."""
    nodes: tuple[str, ...] = ()
    """Host by rank of the group, for strategies that shard within a node."""


class Trainer(Protocol):
    """A model under one strategy."""

    model: "nn.Module"
    """What the loss calls; it takes the inputs that the plain model takes."""

    def no_sync(self) -> AbstractContextManager[None]:
        """Within it gradients are only summed up on this rank."""
        ...

    def backward(self, loss: "torch.Tensor") -> None:
        """Gradients of that loss; overlapping strategies begin to send meanwhile."""
        ...

    def finish(self) -> None:
        """Returns when the gradients are synchronised (the device's work may still run)."""
        ...

    def clip(self, max_norm: float) -> None:
        """Scale all gradients so that their joint 2-norm, over the whole model, is at most that."""
        ...

    def step(self) -> None:
        """The optimizer's step, what it sends included; then the gradients are cleared."""
        ...

    def full_parameters(self) -> "dict[str, torch.Tensor]":
        """Name (as in the plain model) -> the whole parameter, float32, on the CPU; collective."""
        ...

    def close(self) -> None:
        """Take hooks away and wait for what is under way; the trainer is not used again."""
        ...


Build = Callable[["nn.Module", Setup], Trainer]
