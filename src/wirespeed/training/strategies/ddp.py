"""torch's DistributedDataParallel: variants "" | "view" | "bf16".

S. Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, 2020. "view":
gradients are views of its buckets, which spares a copy and the memory of it. "bf16": its hook that
sends gradients as bfloat16. And with its ZeroRedundancyOptimizer (ZeRO-1).
"""

from contextlib import AbstractContextManager
from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from wirespeed.errors import CannotMeasure
from wirespeed.training.buckets import bucket_bytes
from wirespeed.training.contract import Setup, Trainer
from wirespeed.training.equivalence import trainable
from wirespeed.training.strategies.plain import ModuleTrainer, optimizer_of

MEBI = 2**20
"""torch calls 2**20 bytes a megabyte here; ours are 10**6."""


class DdpTrainer(ModuleTrainer):
    """A model in torch's DDP with any optimizer of whole parameters."""

    def __init__(self, ddp: DistributedDataParallel, optimizer: Optimizer) -> None:
        super().__init__(ddp, ddp.module, optimizer)
        self._ddp: DistributedDataParallel | None = ddp

    def no_sync(self) -> AbstractContextManager[None]:
        wrapper = cast(DistributedDataParallel, self.model)
        return cast(AbstractContextManager[None], wrapper.no_sync())

    def finish(self) -> None:
        """CannotMeasure: a parameter got no gradient, so DDP has not reduced its bucket."""
        without = [name for name, p in self._named.items() if p.requires_grad and p.grad is None]
        if without:
            raise CannotMeasure(
                f"{without[0]} got no gradient ({len(without)} such parameters)",
                expected="a gradient for every parameter: torch's DDP waits for all of them",
                next="freeze what is not used, or take the strategies bucketed, sharded, fsdp2",
            )

    def close(self) -> None:
        """The module stays, without hooks: its backward passes are the plain module's again."""
        super().close()
        ddp, self._ddp = self._ddp, None
        if ddp is None:
            return
        if hasattr(ddp, "_remove_autograd_hooks"):
            ddp._remove_autograd_hooks()
        # The reducer's end takes its hooks away too, and its buckets; the logger holds it.
        for name in ("logger", "reducer"):
            if hasattr(ddp, name):
                delattr(ddp, name)


def ddp(model: nn.Module, setup: Setup) -> Trainer:
    """UsageError: nothing to train, or no such bucket size."""
    wrapper = _wrapped(model, setup, as_views=setup.variant == "view")
    if setup.variant == "bf16":
        wrapper.register_comm_hook(setup.group, _as_bf16)
    return DdpTrainer(wrapper, optimizer_of(model, setup))


def zero1(model: nn.Module, setup: Setup) -> Trainer:
    """Its optimizer's `step` sends the parameters around.

    UsageError: nothing to train, or no such bucket size. CannotMeasure: mixed dtypes.
    """
    from torch.distributed.optim import ZeroRedundancyOptimizer  # it takes a while

    dtypes = {str(parameter.dtype) for parameter in trainable(model)}
    if len(dtypes) > 1:
        raise CannotMeasure(
            f"the model has parameters of {' and '.join(sorted(dtypes))}",
            expected="one dtype: torch's ZeroRedundancyOptimizer takes no more",
            next="the strategy sharded",
        )
    wrapper = _wrapped(model, setup)
    kind, options = setup.optimizer_class, setup.optimizer_options
    optimizer = ZeroRedundancyOptimizer(
        trainable(model), optimizer_class=kind, process_group=setup.group, **options
    )
    return DdpTrainer(wrapper, optimizer)


def _as_bf16(
    group: dist.ProcessGroup, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """torch's hook; by its own name DDP takes it with NCCL only, though gloo sends bfloat16 too."""
    return bf16_compress_hook(group, bucket)


def _wrapped(model: nn.Module, setup: Setup, *, as_views: bool = False) -> DistributedDataParallel:
    """In DDP, over the setup's group and with its bucket size (torch's own: 25 MiB)."""
    trainable(model)
    limit = None if setup.bucket_mb is None else bucket_bytes(setup.bucket_mb) / MEBI
    return DistributedDataParallel(
        model.to(setup.device),
        process_group=setup.group,
        bucket_cap_mb=cast(int, 25 if limit is None else limit),
        gradient_as_bucket_view=as_views,
    )
