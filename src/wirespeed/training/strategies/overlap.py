"""An asynchronous all_reduce a parameter, started by the hook that its finished gradient calls."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from wirespeed.training.contract import Setup, Trainer
from wirespeed.training.strategies.plain import plain_trainer
from wirespeed.training.synchroniser import Overlapping, Parcel, dense


class Overlap(Overlapping):
    """Gradients are sent from where they are, in the reverse order of registration.

    One more small all_reduce at the end tells which parameters got a gradient on some rank.
    """

    def _plan(self) -> Sequence[Parcel]:
        singles = [_Single(one, self.group) for one in reversed(self.parameters)]
        return [*singles, _Flags(singles, self.group)]


class _Single:
    """One gradient; a `Parcel`."""

    def __init__(self, parameter: nn.Parameter, group: dist.ProcessGroup) -> None:
        self.members = (parameter,)
        self.missing = 1
        self.had = False
        """Whether this rank had a gradient for it."""
        self._group = group
        self._scale = 1 / dist.get_world_size(group)
        self._gradient: torch.Tensor | None = None
        self._work: dist.Work | None = None

    def has(self, slot: int) -> bool:
        return self.had

    def put(self, slot: int) -> None:
        parameter = self.members[0]
        gradient = parameter.grad
        self.had = gradient is not None
        if gradient is None:
            self._gradient = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        else:
            self._gradient = dense(gradient).contiguous().mul_(self._scale)
            parameter.grad = None  # nothing may add to it while it is being sent
        self.missing = 0

    def fill_up(self) -> None:
        if self.missing:
            self.put(0)

    def send(self) -> None:
        if self._gradient is not None and self._gradient.numel():
            self._work = dist.all_reduce(self._gradient, group=self._group, async_op=True)

    def deliver(self) -> None:
        if self._work is not None:
            self._work.wait()
        self.members[0].grad = self._gradient
        self._gradient = self._work = None
        self.missing = 1


class _Flags:
    """1 for each gradient that this rank had; sent and delivered last."""

    def __init__(self, singles: Sequence[_Single], group: dist.ProcessGroup) -> None:
        self.members: tuple[nn.Parameter, ...] = ()
        self.missing = 1  # never complete before `finish`
        self._singles = singles
        self._group = group
        self._device = singles[0].members[0].device
        self._flags = torch.empty(0)
        self._work: dist.Work | None = None

    def has(self, slot: int) -> bool:
        return False

    def put(self, slot: int) -> None:
        had = [single.had for single in self._singles]
        self._flags = torch.tensor(had, dtype=torch.int32, device=self._device)

    def fill_up(self) -> None:
        self.put(0)

    def send(self) -> None:
        self._work = dist.all_reduce(self._flags, group=self._group, async_op=True)

    def deliver(self) -> None:
        if self._work is not None:
            self._work.wait()
        self._work = None
        # Flags are looked at (which waits for a GPU) only on a rank that lacked a gradient.
        if not all(single.had for single in self._singles):
            for single, ranks_with_one in zip(self._singles, self._flags.tolist(), strict=True):
                if not ranks_with_one:
                    single.members[0].grad = None
        for single in self._singles:
            single.had = False


def build(model: nn.Module, setup: Setup) -> Trainer:
    return plain_trainer(model, setup, Overlap)
