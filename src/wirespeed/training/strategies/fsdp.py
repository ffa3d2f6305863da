"""torch's fully_shard (FSDP2) on each repeated block and on the whole model: over all ranks, or on a
2-D mesh (HSDP), sharded within a node and replicated over the nodes.

HSDP gathers parameters over the quick links within a node only; gradients are reduce-scattered there
and all-reduced between the nodes.

Y. Zhao et al., PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel, 2023; torch's
documentation of torch.distributed.fsdp.fully_shard.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from math import gcd
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from wirespeed.errors import CannotMeasure
from wirespeed.training.contract import Setup, Trainer
from wirespeed.training.equivalence import begin_alike, trainable
from wirespeed.training.strategies.plain import ModuleTrainer, optimizer_of

_LISTS = (nn.ModuleList, nn.ModuleDict)
_WITHOUT_FORWARD = (*_LISTS, nn.ParameterList, nn.ParameterDict)

Groups = tuple[dist.ProcessGroup, dist.ProcessGroup]
_made: dict[Hashable, tuple[Any, Groups]] = {}
"""The groups of each mesh, with the world that they belong to. They are kept: torch would give
groups that are made again the names of those that were destroyed, and meet their old addresses."""


class FsdpTrainer(ModuleTrainer):
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


def fsdp2(model: nn.Module, setup: Setup) -> Trainer:
    """UsageError: nothing to train. CannotMeasure: fully_shard does not take this model."""
    mesh = DeviceMesh.from_group(setup.group, setup.device.type)
    return _sharded_over(mesh, model, setup)


def hsdp(model: nn.Module, setup: Setup) -> Trainer:
    """UsageError: nothing to train. CannotMeasure: fully_shard does not take this model."""
    members = dist.get_process_group_ranks(setup.group)
    rows = mesh_rows(setup.nodes, len(members))
    table = [[members[rank] for rank in row] for row in rows]
    groups = list(_groups(table, setup.group, setup.device))
    names = ("replicate", "shard")
    mesh = DeviceMesh.from_group(
        groups, setup.device.type, torch.tensor(table), mesh_dim_names=names
    )
    return _sharded_over(mesh, model, setup)


def _sharded_over(mesh: DeviceMesh, model: nn.Module, setup: Setup) -> Trainer:
    """The model sharded in place, from the values of the group's first rank."""
    trainable(model)
    model.to(setup.device)
    begin_alike(model, setup.group)
    blocks = blocks_of(model)
    _check_dtypes(model, blocks)
    try:
        for block in (*blocks, model):
            fully_shard(block, mesh=mesh)
    except (ValueError, NotImplementedError) as error:
        raise _not_taken(str(error)) from error
    return FsdpTrainer(model, model, optimizer_of(model, setup))


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


def mesh_rows(nodes: Sequence[str], size: int) -> list[list[int]]:
    """Ranks of the group that shard together, one list each, all of one length.

    nodes: host by rank; empty: one host. Hosts with different numbers of ranks are cut into parts
    of the largest length that divides all.
    """
    by_node: dict[str, list[int]] = {}
    for rank in range(size):
        by_node.setdefault(nodes[rank] if nodes else "", []).append(rank)
    length = gcd(*(len(ranks) for ranks in by_node.values()))
    return [
        ranks[start : start + length]
        for ranks in by_node.values()
        for start in range(0, len(ranks), length)
    ]


def _groups(table: list[list[int]], whole: dist.ProcessGroup, device: torch.device) -> Groups:
    """This rank's column (replicate) and row (shard) of the table of global ranks, as groups.

    Made by the ranks of the table alone: others of the world may be elsewhere at that time.
    """
    backend = dist.get_backend(whole)
    key = (backend, tuple(map(tuple, table)))
    world, groups = _made.get(key, (None, None))
    if groups is None or world is not dist.group.WORLD:
        me = dist.get_rank()
        row = next(row for row in table if me in row)
        column = [each[row.index(me)] for each in table]
        _level(whole, device)
        groups = _group(column, whole), _group(row, whole)
        _made[key] = dist.group.WORLD, groups
    return groups


def _group(ranks: list[int], whole: dist.ProcessGroup) -> dist.ProcessGroup:
    if len(ranks) == dist.get_world_size(whole):
        return whole
    with _unsplit():
        group: dist.ProcessGroup = dist.new_group(
            sorted(ranks), backend=dist.get_backend(whole), use_local_synchronization=True
        )
    return group


@contextmanager
def _unsplit() -> Iterator[None]:
    """Within, torch makes groups anew.

    Else, where the world is bound to GPUs, it splits them from the world's communicator, for which NCCL
    waits until all ranks of the world take part.
    """
    world: Any = dist.group.WORLD
    bound, world.bound_device_id = world.bound_device_id, None
    try:
        yield
    finally:
        world.bound_device_id = bound


def _level(whole: dist.ProcessGroup, device: torch.device) -> None:
    """Let every rank be in equally many groups.

    torch names a group that only its members make after its ranks and the number of groups that a
    member is in; where the members' numbers differ they would wait for each other under two names.
    """
    mine = len(dist.distributed_c10d._world.pg_names)
    most = torch.tensor(mine, device=device)
    dist.all_reduce(most, dist.ReduceOp.MAX, group=whole)
    for _ in range(int(most) - mine):
        dist.new_group([dist.get_rank()], backend="gloo", use_local_synchronization=True)
