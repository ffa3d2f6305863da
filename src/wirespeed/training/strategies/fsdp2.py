"""torch's fully_shard (FSDP2) on each repeated block and on the whole model, over all ranks.

Y. Zhao et al., PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel, 2023; torch's
documentation of torch.distributed.fsdp.fully_shard.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from wirespeed.errors import CannotMeasure
from wirespeed.training.contract import Setup, Trainer
from wirespeed.training.equivalence import begin_alike, trainable
from wirespeed.training.strategies.torch_wrapped import TorchTrainer, optimizer_of

_LISTS = (nn.ModuleList, nn.ModuleDict)
_WITHOUT_FORWARD = (*_LISTS, nn.ParameterList, nn.ParameterDict)


class FsdpTrainer(TorchTrainer):
    """A model whose parameters, gradients and optimizer state are DTensors."""

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Whole gradients pile up on each rank within it, as many bytes as the parameters."""
        model = cast(FSDPModule, self.model)
        model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)


def build(model: nn.Module, setup: Setup) -> Trainer:
    """UsageError: nothing to train. CannotMeasure: fully_shard does not take this model."""
    sharded_over(DeviceMesh.from_group(setup.group, setup.device.type), model, setup)
    return FsdpTrainer(model, model, optimizer_of(model, setup))


def sharded_over(mesh: DeviceMesh, model: nn.Module, setup: Setup) -> None:
    """Shard the model in place, from the values of the group's first rank."""
    trainable(model)
    model.to(setup.device)
    begin_alike(model, setup.group)
    blocks = blocks_of(model)
    _check_dtypes(model, blocks)
    try:
        for block in blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    except (ValueError, NotImplementedError) as error:
        raise _not_taken(str(error)) from error


def _check_dtypes(model: nn.Module, blocks: list[nn.Module]) -> None:
    """What is gathered by one call must be of one dtype; torch says so at the first step only."""
    within = [list(block.parameters()) for block in blocks]
    inside = {parameter for parameters in within for parameter in parameters}
    rest = [parameter for parameter in model.parameters() if parameter not in inside]
    for parameters in (*within, rest):
        dtypes = sorted({str(parameter.dtype) for parameter in parameters})
        if len(dtypes) > 1:
            raise _not_taken(f"a block has parameters of {' and '.join(dtypes)}")


def _not_taken(why: str) -> CannotMeasure:
    return CannotMeasure(
        f"torch's fully_shard does not take this model: {why}",
        next="leave the strategies fsdp2 and hsdp out",
    )


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The repeated blocks: what the outermost ModuleLists hold, else what a Sequential holds.

    Only those that have parameters, share none with the rest of the model (tied weights must lie in
    one group of fully_shard), and are called as modules.
    """
    found = list(_members(model, _LISTS)) or list(_members(model, (nn.Sequential,)))
    holders: dict[nn.Parameter, set[nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            holders.setdefault(parameter, set()).add(module)
    return [
        block
        for block in dict.fromkeys(found)
        if any(True for _ in block.parameters())
        and all(holders[parameter] <= set(block.modules()) for parameter in block.parameters())
    ]


def _members(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> Iterator[nn.Module]:
    """What containers of those kinds hold, down to the first of them on each way."""
    for child in module.children():
        if isinstance(module, kinds) and not isinstance(child, _WITHOUT_FORWARD):
            yield child
        else:
            yield from _members(child, kinds)
