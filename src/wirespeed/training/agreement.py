"""All ranks begin with one model: the same tensors by name and shape, with rank 0's values."""

import hashlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

from wirespeed.errors import UsageError, WorldError

__all__ = ["begin_alike", "trainable"]


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """Parameters that get gradients, in the order of registration, tied ones once.

    UsageError where there is none, or where one has no shape yet (lazy modules).
    """
    for parameter in module.parameters():
        if nn.parameter.is_lazy(parameter):
            raise UsageError(
                "the module has lazy parameters: their shapes are not known yet",
                next="call it once with an input before wrapping it",
            )
    found = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not found:
        raise UsageError(
            f"{type(module).__name__} has no trainable parameter: there is no gradient to share",
            expected="at least one parameter with requires_grad=True",
        )
    return found


def begin_alike(module: nn.Module, group: dist.ProcessGroup) -> None:
    """Give every rank the parameters (frozen ones too) and buffers of the group's first. Collective.

    WorldError, on every rank alike, where names, shapes or dtypes differ: what would follow is a
    collective of unequal sizes, which hangs or mixes tensors up.
    """
    _check_same(module, group)
    source = dist.get_global_rank(group, 0)
    for _, tensor in _tensors(module):
        _broadcast(tensor, source, group)


def _tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers by name, shared ones once."""
    yield from module.named_parameters()
    yield from module.named_buffers()


def _check_same(module: nn.Module, group: dist.ProcessGroup) -> None:
    lines = [
        f"{name} {tuple(tensor.shape)} {tensor.dtype} {tensor.requires_grad}"
        for name, tensor in _tensors(module)
    ]
    digest = hashlib.sha256("\n".join(lines).encode()).digest()
    device = next(module.parameters()).device
    mine = torch.tensor(list(digest), dtype=torch.uint8, device=device)
    all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(all_of_them, mine, group=group)
    first, *others = (bytes(one.tolist()) for one in all_of_them)
    odd = [rank for rank, other in enumerate(others, 1) if other != first]
    if odd:
        raise WorldError(
            f"the model of rank {', '.join(map(str, odd))} is another than rank 0's",
            expected="the same parameters and buffers on every rank: names, shapes, dtypes",
        )


def _broadcast(tensor: torch.Tensor, source: int, group: dist.ProcessGroup) -> None:
    """As bytes, since backends lack some dtypes (gloo: int16, float8)."""
    if not tensor.numel():
        return
    values = tensor.detach()
    for dimension, stride in enumerate(values.stride()):
        if stride == 0:  # expanded: its elements share memory, which is written once
            values = values.narrow(dimension, 0, 1)
    plain = values.is_contiguous() and 0 not in values.stride()
    sent = values if plain else values.new_empty(values.shape).copy_(values)
    dist.broadcast(sent.reshape(-1).view(torch.uint8), source, group=group)
    if not plain:
        values.copy_(sent)
