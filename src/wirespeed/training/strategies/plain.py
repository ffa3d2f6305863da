"""Trainers of a torch module with a torch optimizer, and our own strategies; these differ in the
synchroniser only."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import nn
from torch.optim import Optimizer

from wirespeed.training.contract import Build, Setup, Trainer
from wirespeed.training.equivalence import trainable, whole
from wirespeed.training.parcels import Bucketed, Flat, Overlap
from wirespeed.training.sharded_optimizer import ShardedOptimizer
from wirespeed.training.synchroniser import DEFAULT_BUCKET_MB, Naive, Synchroniser


class ModuleTrainer:
    """See `contract.Trainer`. Gradients are synchronised within backward; parameters may be sharded
    (DTensor)."""

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
        # To None: a gradient that is made anew is taken as it is, one that exists is added to.
        self.optimizer.zero_grad(set_to_none=True)

    def full_parameters(self) -> dict[str, torch.Tensor]:
        return {name: whole(parameter) for name, parameter in self._named.items()}

    def close(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)


class PlainTrainer(ModuleTrainer):
    """One of our synchronisers beside a plain module."""

    def __init__(self, model: nn.Module, synchroniser: Synchroniser, optimizer: Optimizer) -> None:
        super().__init__(model, model, optimizer)
        self.synchroniser = synchroniser

    def no_sync(self) -> AbstractContextManager[None]:
        return self.synchroniser.no_sync()

    def backward(self, loss: torch.Tensor) -> None:
        self.synchroniser.begin()
        super().backward(loss)

    def finish(self) -> None:
        self.synchroniser.finish()

    def close(self) -> None:
        self.synchroniser.close()


def optimizer_of(model: nn.Module, setup: Setup) -> Optimizer:
    """The setup's optimizer over what is trained; UsageError where that is nothing."""
    return setup.optimizer_class(trainable(model), **setup.optimizer_options)


def _trainer(
    kind: type[Synchroniser],
    model: nn.Module,
    setup: Setup,
    optimizer: Callable[[nn.Module, Setup], Optimizer] = optimizer_of,
) -> Trainer:
    """The model on its device, rank 0's everywhere, with the optimizer over what is trained.

    UsageError: nothing to train, or no such bucket size.
    """
    model = model.to(setup.device)
    size = DEFAULT_BUCKET_MB if setup.bucket_mb is None else setup.bucket_mb
    synchroniser = kind(model, setup.group, size)
    return PlainTrainer(model, synchroniser, optimizer(model, setup))


none: Build = partial(_trainer, Synchroniser)
naive: Build = partial(_trainer, Naive)
flat: Build = partial(_trainer, Flat)
overlap: Build = partial(_trainer, Overlap)
bucketed: Build = partial(_trainer, Bucketed)


def sharded(model: nn.Module, setup: Setup) -> Trainer:
    """Our bucketed gradients with our ShardedOptimizer: each rank keeps a part of its state."""

    def optimizer(model: nn.Module, setup: Setup) -> Optimizer:
        kind, options = setup.optimizer_class, setup.optimizer_options
        return ShardedOptimizer(trainable(model), kind, process_group=setup.group, **options)

    return _trainer(Bucketed, model, setup, optimizer)
