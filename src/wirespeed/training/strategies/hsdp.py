"""torch's fully_shard on a 2-D mesh (HSDP): sharded within a node, replicated over the nodes.

Parameters are gathered over the quick links within a node only; gradients are reduce-scattered
there and all-reduced between the nodes.
"""

from collections.abc import Hashable, Sequence
from math import gcd
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from wirespeed.training.contract import Setup, Trainer
from wirespeed.training.strategies.fsdp2 import FsdpTrainer, sharded_over
from wirespeed.training.strategies.torch_wrapped import optimizer_of

Groups = tuple[dist.ProcessGroup, dist.ProcessGroup]

_made: dict[Hashable, tuple[Any, Groups]] = {}
"""The groups of each mesh, with the world that they belong to. They are kept: torch would give
groups that are made again the names of those that were destroyed, and meet their old addresses."""


def build(model: nn.Module, setup: Setup) -> Trainer:
    """UsageError: nothing to train. CannotMeasure: fully_shard does not take this model."""
    members = dist.get_process_group_ranks(setup.group)
    rows = mesh_rows(setup.nodes, len(members))
    table = [[members[rank] for rank in row] for row in rows]
    groups = _groups(table, setup.group, setup.device)
    names = ("replicate", "shard")
    mesh = DeviceMesh.from_group(
        list(groups), setup.device.type, torch.tensor(table), mesh_dim_names=names
    )
    sharded_over(mesh, model, setup)
    return FsdpTrainer(model, model, optimizer_of(model, setup))


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
    group: dist.ProcessGroup = dist.new_group(
        sorted(ranks), backend=dist.get_backend(whole), use_local_synchronization=True
    )
    return group


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
