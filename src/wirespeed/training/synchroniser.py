"""What every way of synchronising gradients has in common, and how overlapping ones launch in order.

A `Synchroniser` averages the gradients of a module's parameters over a group:

    begin()             before a forward pass that may lead to a backward pass
    with no_sync():     backward passes in it only add to the gradients of this rank
    finish()            returns when `.grad` of every parameter is the mean over the ranks

A parameter that got no gradient counts as one of zero where another rank had one; where none had,
its gradient stays None and optimizers leave it alone, as with torch's DDP and
`find_unused_parameters=True`. Every rank must reach the same calls of `finish`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock

import torch
import torch.distributed as dist
from torch import nn

from wirespeed.errors import UsageError
from wirespeed.training.buckets import bucket_bytes
from wirespeed.training.equivalence import begin_alike, trainable

DEFAULT_BUCKET_MB = 25.0
"""As torch's DDP."""


class Synchroniser:
    """Sends nothing at all; the others derive from it."""

    def __init__(
        self,
        module: nn.Module,
        group: dist.ProcessGroup,
        bucket_mb: float = DEFAULT_BUCKET_MB,
    ) -> None:
        """Collective: broadcasts rank 0's parameters and buffers.

        bucket_mb: for those that send in buckets. UsageError where it is no positive number.
        """
        self.bucket_bytes = bucket_bytes(bucket_mb)
        self.parameters = trainable(module)
        self.group = group
        self.ranks = dist.get_world_size(group)
        self.paused = False
        self._armed = False
        begin_alike(module, group)
        self._prepare()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    def begin(self) -> None:
        """A forward pass with gradients: `finish` has something to do from here on.

        What a backward pass has begun to send is finished first, so that gradients that are not
        cleared add up as with torch's DDP.
        """
        if self.under_way():
            self._synchronise()
        self._armed = True

    def finish(self) -> None:
        """Nothing happens within `no_sync`, or where no pass was made since the last call."""
        if self._armed and not self.paused:
            self._armed = False
            self._synchronise()

    def under_way(self) -> bool:
        """Whether some gradient of this step is already with the sender."""
        return False

    def close(self) -> None:
        """Finish what is under way; take all hooks away."""
        if self.under_way():
            self._synchronise()

    def _prepare(self) -> None:
        """Buffers and hooks, when all ranks have begun alike."""

    def _synchronise(self) -> None:
        return None


class Naive(Synchroniser):
    """One all_reduce a parameter, one after the other, when the backward pass is over.

    One more small all_reduce tells which parameters got a gradient on some rank.
    """

    def _synchronise(self) -> None:
        had = [parameter.grad is not None for parameter in self.parameters]
        flags = torch.tensor(had, dtype=torch.int32, device=self.parameters[0].device)
        dist.all_reduce(flags, group=self.group)
        for parameter, ranks_with_one in zip(self.parameters, flags.tolist(), strict=True):
            if ranks_with_one:
                parameter.grad = self._mean(parameter)

    def _mean(self, parameter: nn.Parameter) -> torch.Tensor:
        gradient = parameter.grad
        if gradient is None:
            gradient = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        gradient = dense(gradient).contiguous()
        dist.all_reduce(gradient, group=self.group)
        return gradient.div_(self.ranks)


class Parcel(ABC):
    """Gradients that one all_reduce sends, divided by the number of ranks on their way in."""

    sent: torch.Tensor

    def __init__(self, members: Sequence[nn.Parameter], group: dist.ProcessGroup) -> None:
        self.members = members
        self.missing = len(members)
        """How many have not handed theirs in."""
        self.filled = [False] * len(members)
        """Which had one on this rank."""
        self.scale = 1 / dist.get_world_size(group)
        self._group = group
        self._work: dist.Work | None = None

    @abstractmethod
    def put(self, slot: int) -> None:
        """Take the gradient of that parameter out of `.grad`; zeros where there is none."""

    @abstractmethod
    def lay(self) -> None:
        """Lay the means into `.grad`, and begin anew."""

    def fill_up(self) -> None:
        """Put what is missing."""
        for slot, filled in enumerate(self.filled):
            if not filled:
                self.put(slot)

    def send(self) -> None:
        if self.sent.numel():
            self._work = dist.all_reduce(self.sent, group=self._group, async_op=True)

    def deliver(self) -> None:
        """Wait, then lay."""
        if self._work is not None:
            self._work.wait()
        self._work = None
        self.lay()


class Overlapping(Synchroniser, ABC):
    """Hooks hand gradients in as the backward pass makes them; full parcels leave in planned order.

    The order is the same on all ranks, in whatever order hooks fire: collectives of one group are
    matched by order, so a rank that sent what it happens to have first would mix gradients up.
    """

    def _prepare(self) -> None:
        self._lock = Lock()  # parameters on several devices: several threads run hooks
        self._next = 0
        self._handed_in = False
        self._parcels = self._plan()
        self._hooks = [
            member.register_post_accumulate_grad_hook(partial(self._ready, parcel, slot))
            for parcel in self._parcels
            for slot, member in enumerate(parcel.members)
        ]

    def under_way(self) -> bool:
        return self._handed_in

    def close(self) -> None:
        super().close()
        for hook in self._hooks:
            hook.remove()

    def _ready(self, parcel: Parcel, slot: int, _: torch.Tensor) -> None:
        """The hook: that parameter's gradient of this backward pass is complete."""
        self._armed = True
        if parcel.filled[slot]:
            raise UsageError(
                "a second backward pass reached a gradient that is being synchronised",
                expected="one backward pass before finish_gradient_synchronization()",
                next="run the earlier passes, forward and backward, within no_sync()",
            )
        if self.paused:
            return
        with self._lock:
            self._handed_in = True
            parcel.put(slot)
            if not parcel.missing:
                self._send_full()

    @abstractmethod
    def _plan(self) -> Sequence[Parcel]:
        """The parcels in the order in which they leave, from what is trained and nothing else."""

    def _send_full(self) -> None:
        while self._next < len(self._parcels) and not self._parcels[self._next].missing:
            self._parcels[self._next].send()
            self._next += 1

    def _synchronise(self) -> None:
        for parcel in self._parcels[self._next :]:
            parcel.fill_up()
            parcel.send()
        for parcel in self._parcels:
            parcel.deliver()
        self._next = 0
        self._handed_in = False


def dense(gradient: torch.Tensor) -> torch.Tensor:
    """The same, detached; UsageError for a sparse one."""
    if gradient.layout is not torch.strided:
        raise UsageError(
            "a sparse gradient (an embedding with sparse=True?)",
            expected="dense gradients",
            next="sparse=False, or torch's DistributedDataParallel on gloo",
        )
    return gradient.detach() if gradient.requires_grad else gradient
