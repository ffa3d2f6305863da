"""Who owns which parameter, and each owner's parameters as views of a few flat buffers.

A flat buffer goes over the wire as one broadcast without a copy; a broadcast a parameter costs a
call's overhead each.
"""

from collections.abc import Sequence
from itertools import groupby

import torch
import torch.distributed as dist

__all__ = ["FlatBuffer", "Shards", "least_loaded"]

ALIGN_BYTES = 64
"""Each parameter begins at a multiple of it, as from torch's own CPU allocator (vector loads)."""


def least_loaded(sizes: Sequence[int], loads: Sequence[int]) -> list[int]:
    """The owner of each of `sizes`: the largest first, each to the rank that has least so far.

    loads: what each rank has already. R. L. Graham's LPT rule (Bounds on Multiprocessing Timing
    Anomalies, 1969): the largest load is at most 4/3 of the best partition's. Ties go to the
    lowest rank, so every rank comes to the same answer without a word.
    """
    loads = list(loads)
    owners = [0] * len(sizes)
    for item in sorted(range(len(sizes)), key=lambda item: -sizes[item]):
        owners[item] = loads.index(min(loads))
        loads[owners[item]] += sizes[item]
    return owners


class FlatBuffer:
    """Parameters of one dtype and device, moved into one contiguous tensor that they are views of."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self.parameters = parameters
        first = parameters[0]
        step = max(1, ALIGN_BYTES // first.element_size())
        starts, end = [], 0
        for parameter in parameters:
            starts.append(end)
            end += -(-parameter.numel() // step) * step
        self.tensor = torch.zeros(end, dtype=first.dtype, device=first.device)
        for parameter, start in zip(parameters, starts, strict=True):
            # The parameter keeps its strides (channels_last): kernels and gradients rely on them.
            view = self.tensor.as_strided(parameter.size(), parameter.stride(), start)
            view.copy_(parameter.detach())
            parameter.data = view
        self._addresses = [parameter.data_ptr() for parameter in parameters]

    def intact(self) -> bool:
        """Whether the parameters are still its views: `module.to()` gives them other storage."""
        return all(
            parameter.data_ptr() == address
            for parameter, address in zip(self.parameters, self._addresses, strict=True)
        )

    def holds(self, parameter: torch.Tensor) -> bool:
        """Whether that parameter is a view of this buffer now."""
        mine, its = self.tensor.untyped_storage(), parameter.detach().untyped_storage()
        return mine.data_ptr() == its.data_ptr()


class Shards:
    """All parameters of an optimizer by owner, and how each owner's reach the other ranks."""

    def __init__(self, group: dist.ProcessGroup | None, size: int) -> None:
        self._group = group
        self._size = size
        self.owner: dict[torch.Tensor, int] = {}
        """Rank of the group by parameter."""
        self._loads = [0] * size
        self._buffers: list[tuple[int, FlatBuffer]] = []
        self._loose: list[tuple[int, torch.Tensor]] = []

    def add(self, parameters: Sequence[torch.Tensor]) -> None:
        """Give each an owner; those that are trained move into flat buffers."""
        trained = [p for p in parameters if p.requires_grad]
        # Frozen ones have no state: they weigh nothing, unless somebody thaws them later.
        frozen = [p for p in parameters if not p.requires_grad]
        for parameter, rank in self._dealt(trained):
            self.owner[parameter] = rank
            self._loads[rank] += parameter.numel()
        self.owner.update(self._dealt(frozen))
        if self._size > 1:
            self._lay_out(parameters)

    def exchange(self) -> None:
        """Every rank gets each owner's parameters (collective; returns when they are there)."""
        if self._size == 1:
            return
        self._restore()
        pending = [(rank, buffer.tensor, buffer.tensor) for rank, buffer in self._buffers]
        pending += [
            (rank, p, p.detach().contiguous()) for rank, p in self._loose if p.requires_grad
        ]
        works = [broadcast(sent, rank, self._group) for rank, _, sent in pending]
        for work in works:
            work.wait()
        for _, target, sent in pending:
            if target.data_ptr() != sent.data_ptr():
                target.detach().copy_(sent)

    def _dealt(self, parameters: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, int]]:
        ranks = least_loaded([p.numel() for p in parameters], self._loads)
        return list(zip(parameters, ranks, strict=True))

    def _lay_out(self, parameters: Sequence[torch.Tensor], was: FlatBuffer | None = None) -> None:
        movable: list[torch.Tensor] = []
        loose: list[torch.Tensor] = []
        for parameter in parameters:
            moves = _can_move(parameter) or (was is not None and was.holds(parameter))
            (movable if moves else loose).append(parameter)
        movable.sort(key=self._kind)
        for (rank, *_), alike in groupby(movable, key=self._kind):
            self._buffers.append((rank, FlatBuffer(list(alike))))
        self._loose += [(self.owner[p], p) for p in loose if p.numel()]

    def _restore(self) -> None:
        """Lay a buffer out anew where somebody gave one of its parameters other storage since."""
        if all(buffer.intact() for _, buffer in self._buffers):
            return
        before, self._buffers = self._buffers, []
        for rank, buffer in before:
            if buffer.intact():
                self._buffers.append((rank, buffer))
            else:
                self._lay_out(buffer.parameters, was=buffer)

    def _kind(self, parameter: torch.Tensor) -> tuple[int, str, str]:
        return self.owner[parameter], str(parameter.dtype), str(parameter.device)


def broadcast(tensor: torch.Tensor, rank: int, group: dist.ProcessGroup | None) -> dist.Work:
    """Begin to send it from that rank of the group (None: the world) to all others."""
    source = rank if group is None else dist.get_global_rank(group, rank)
    work: dist.Work = dist.broadcast(tensor, source, group=group, async_op=True)
    return work


def _can_move(parameter: torch.Tensor) -> bool:
    """Trained, dense, and alone in its storage: no other tensor may count on seeing its changes."""
    data = parameter.detach()
    alone = data.untyped_storage().nbytes() == data.numel() * data.element_size()
    dense = torch.empty_like(data).stride() == data.stride()
    return parameter.requires_grad and data.numel() > 0 and alone and dense
