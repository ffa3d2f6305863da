"""`wirespeed.DistributedDataParallel`: a module whose gradients are averaged over ranks."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from wirespeed.errors import UsageError
from wirespeed.training.buckets import bucket_bytes
from wirespeed.training.parcels import SYNCHRONISERS
from wirespeed.training.synchroniser import DEFAULT_BUCKET_MB


class DistributedDataParallel(nn.Module):
    """Wraps a module; each step:

        loss = criterion(model(inputs), targets)
        loss.backward()
        model.finish_gradient_synchronization()
        optimizer.step()
        optimizer.zero_grad()

    At construction every rank takes rank 0's parameters and buffers. From then on buffers are each
    rank's own (as torch's DDP with `broadcast_buffers=False`). A parameter without a gradient in a
    step counts as zero where another rank had one; where none had, its `.grad` stays as it is
    (as with `find_unused_parameters=True`, without the search of the graph). Attributes of the module
    are reachable through the wrapper, and `state_dict` is the plain module's.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        strategy: str = "bucketed",
        bucket_mb: float = DEFAULT_BUCKET_MB,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Collective over the group (default: all ranks).

        strategy: none, naive, flat, overlap or bucketed. bucket_mb: most megabytes (10**6 bytes) of
        gradients in a bucket; a parameter that is larger has one for itself.
        UsageError: unknown strategy, a size that is no positive number, no process group, no
        trainable parameter. WorldError: the ranks' modules differ.
        """
        super().__init__()
        bucket_bytes(bucket_mb)
        if strategy not in SYNCHRONISERS:
            raise UsageError(
                f"no strategy is called {strategy!r}",
                expected="one of " + ", ".join(SYNCHRONISERS),
            )
        self.module = module
        self._synchroniser = SYNCHRONISERS[strategy](module, _group(group), bucket_mb)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            self._synchroniser.begin()
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self) -> None:
        """Returns when every `.grad` is the mean over the ranks (a GPU's work may still run).

        Each rank calls it once after the last backward pass of a step; once more does nothing.
        """
        self._synchroniser.finish()

    def no_sync(self) -> AbstractContextManager[None]:
        """Backward passes within it add up on this rank; the next one outside sends the sum."""
        return self._synchroniser.no_sync()

    def close(self) -> None:
        """Take the hooks off the module's parameters; the wrapper is not used again."""
        self._synchroniser.close()

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        return self.module.load_state_dict(state_dict, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":  # not there yet: __init__ has not come that far
                raise
            return getattr(self.module, name)


def _group(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    if not dist.is_available() or not dist.is_initialized():
        raise UsageError(
            "there is no process group",
            expected="a group that all ranks have joined",
            next='torch.distributed.init_process_group("gloo"), under torchrun',
        )
    found = group if group is not None else dist.group.WORLD
    if found is None or dist.get_rank(found) < 0:
        raise UsageError("this rank is not in the group", expected="one of the group's ranks")
    return found
