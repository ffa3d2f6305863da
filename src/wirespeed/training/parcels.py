"""Gradients on their way: what one all_reduce sends, and the synchronisers that are made of it.

A bucket holds gradients in one flat buffer and gives them back as its views. After the last gradient
come flags, one a parameter: 1 where this rank had a gradient. They are summed with the rest, so every
rank learns without another message whether any rank had one.

What makes buckets quick: a gradient is divided and moved into its bucket by one pass over the memory
while it is in the cache, its own memory is free at once, and afterwards `.grad` is a view of the
bucket: nothing is copied back.
"""

import sys
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from wirespeed.training.buckets import Bucket, Piece, plan_buckets
from wirespeed.training.sharded_optimizer import aligned
from wirespeed.training.synchroniser import Naive, Overlapping, Parcel, Synchroniser, dense

FIRST_BYTES = 10**6
"""The first of several buckets is small, so that sending begins early. What fits into one is not cut:
on 2 gloo ranks with 3.6 MB of gradients a small first one made a step 4 % longer."""


def bucket_buffers(
    parameters: Sequence[nn.Parameter],
    group: dist.ProcessGroup,
    limit: int,
    first: int | None = None,
) -> list["BucketBuffer"]:
    """Buffers for buckets of at most `limit` bytes, in the order in which they are to be sent."""
    pieces = [
        Piece(
            size_bytes=parameter.numel() * parameter.element_size(),
            kind=f"{parameter.dtype} {parameter.device}",
        )
        for parameter in parameters
    ]
    return [BucketBuffer(parameters, one, group) for one in plan_buckets(pieces, limit, first)]


class BucketBuffer(Parcel):
    """A bucket."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], bucket: Bucket, group: dist.ProcessGroup
    ) -> None:
        super().__init__([parameters[index] for index in bucket.members], group)
        first = self.members[0]
        starts, end = aligned(self.members)
        self.sent = torch.zeros(end + len(self.members), dtype=first.dtype, device=first.device)
        # Strides are the parameter's own where they leave no gap, as autograd makes gradients.
        strides = [torch.empty_like(one, device="meta").stride() for one in self.members]
        self._views = [
            self.sent.as_strided(member.shape, stride, start)
            for member, stride, start in zip(self.members, strides, starts, strict=True)
        ]
        self._flags = self.sent[end:].fill_(1)

    def put(self, slot: int) -> None:
        member, view = self.members[slot], self._views[slot]
        gradient = member.grad
        if gradient is None:
            view.zero_()
            self._flags[slot] = 0
        else:
            # One pass over the memory: division and copy together; in place where it is the view.
            torch.mul(dense(gradient), self.scale, out=view)
            # Meanwhile nothing may add to the buffer; memory of its own is free at once.
            member.grad = None
            self.filled[slot] = True
        self.missing -= 1

    def lay(self) -> None:
        # Flags are looked at (which waits for a GPU) only on a rank that lacked a gradient.
        if not all(self.filled):
            self.filled = [flag > 0 for flag in self._flags.tolist()]
        for member, view, filled in zip(self.members, self._views, self.filled, strict=True):
            if filled:
                member.grad = view
        self._flags.fill_(1)
        self.filled = [False] * len(self.members)
        self.missing = len(self.members)


class Flat(Synchroniser):
    """All gradients of one dtype in one buffer, one all_reduce each, when the backward pass is over."""

    def _prepare(self) -> None:
        self._buffers = bucket_buffers(self.parameters, self.group, sys.maxsize)

    def _synchronise(self) -> None:
        for buffer in self._buffers:
            buffer.fill_up()
            buffer.send()
            buffer.deliver()


class Bucketed(Overlapping):
    """Buckets of gradients, each sent by an asynchronous all_reduce as soon as it is complete."""

    def _plan(self) -> Sequence[Parcel]:
        every = sum(one.numel() * one.element_size() for one in self.parameters)
        first = min(FIRST_BYTES, self.bucket_bytes) if every > self.bucket_bytes else None
        return bucket_buffers(self.parameters, self.group, self.bucket_bytes, first)


class Overlap(Overlapping):
    """An asynchronous all_reduce a parameter, started by the hook that its finished gradient calls.

    Gradients are sent from where they are, in the reverse order of registration. One more small
    all_reduce at the end tells which parameters got a gradient on some rank.
    """

    def _plan(self) -> Sequence[Parcel]:
        singles = [_Single([one], self.group) for one in reversed(self.parameters)]
        return [*singles, _Flags(singles, self.group)]


class _Single(Parcel):
    """One gradient, sent from where it is."""

    def put(self, slot: int) -> None:
        parameter = self.members[0]
        gradient = parameter.grad
        self.filled[0] = gradient is not None
        if gradient is None:
            self.sent = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        else:
            self.sent = dense(gradient).contiguous().mul_(self.scale)
            parameter.grad = None  # nothing may add to it while it is being sent
        self.missing = 0

    def lay(self) -> None:
        self.members[0].grad = self.sent
        del self.sent
        self.missing = 1


class _Flags(Parcel):
    """1 for each gradient that this rank had; sent and delivered last."""

    def __init__(self, singles: Sequence[_Single], group: dist.ProcessGroup) -> None:
        super().__init__((), group)
        self.missing = 1  # never complete before `finish`
        self._singles = singles
        self._device = singles[0].members[0].device

    def put(self, slot: int) -> None:
        had = [single.filled[0] for single in self._singles]
        self.sent = torch.tensor(had, dtype=torch.int32, device=self._device)

    def fill_up(self) -> None:
        self.put(0)

    def lay(self) -> None:
        # Flags are looked at (which waits for a GPU) only on a rank that lacked a gradient.
        if not all(single.filled[0] for single in self._singles):
            for single, ranks_with_one in zip(self._singles, self.sent.tolist(), strict=True):
                if not ranks_with_one:
                    single.members[0].grad = None
        for single in self._singles:
            single.filled[0] = False


SYNCHRONISERS: dict[str, type[Synchroniser]] = {
    "none": Synchroniser,
    "naive": Naive,
    "flat": Flat,
    "overlap": Overlap,
    "bucketed": Bucketed,
}
"""By the name of the strategy."""
