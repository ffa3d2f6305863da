"""A bucket at work: gradients in one flat buffer, sent by one all_reduce, given back as its views.

After the last gradient come flags, one a parameter: 1 where this rank had a gradient. They are summed
with the rest, so every rank learns without another message whether any rank had one.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from wirespeed.training.buckets import Bucket, Piece, plan_buckets
from wirespeed.training.synchroniser import dense

ALIGN_BYTES = 64
"""Where each gradient begins: a multiple of it, as with torch's own CPU allocator."""


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


class BucketBuffer:
    """A `Parcel`. Gradients are divided by the number of ranks on their way in."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], bucket: Bucket, group: dist.ProcessGroup
    ) -> None:
        self.members = [parameters[index] for index in bucket.members]
        self._group = group
        self._scale = 1 / dist.get_world_size(group)
        self._buffer, self._views, self._flags = _laid_out(self.members)
        self._filled = [False] * len(self.members)
        self.missing = len(self.members)
        self._work: dist.Work | None = None

    def has(self, slot: int) -> bool:
        return self._filled[slot]

    def put(self, slot: int) -> None:
        member, view = self.members[slot], self._views[slot]
        gradient = member.grad
        if gradient is None:
            view.zero_()
            self._flags[slot] = 0
        else:
            # One pass over the memory: division and copy together; in place where it is the view.
            torch.mul(dense(gradient), self._scale, out=view)
            # Meanwhile nothing may add to the buffer; memory of its own is free at once.
            member.grad = None
            self._filled[slot] = True
        self.missing -= 1

    def fill_up(self) -> None:
        for slot, filled in enumerate(self._filled):
            if not filled:
                self.put(slot)

    def send(self) -> None:
        self._work = dist.all_reduce(self._buffer, group=self._group, async_op=True)

    def deliver(self) -> None:
        if self._work is not None:
            self._work.wait()
        self._work = None
        # Flags are looked at (which waits for a GPU) only on a rank that lacked a gradient.
        if not all(self._filled):
            self._filled = [flag > 0 for flag in self._flags.tolist()]
        for member, view, filled in zip(self.members, self._views, self._filled, strict=True):
            if filled:
                member.grad = view
        self._flags.fill_(1)
        self._filled = [False] * len(self.members)
        self.missing = len(self.members)


def _laid_out(
    members: Sequence[nn.Parameter],
) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
    """The buffer, one view of it in the shape of each member, and the flags at its end."""
    first = members[0]
    step = max(1, ALIGN_BYTES // first.element_size())
    starts, end = [], 0
    for member in members:
        starts.append(end)
        end += -(-member.numel() // step) * step
    buffer = torch.zeros(end + len(members), dtype=first.dtype, device=first.device)
    views = [
        buffer.as_strided(member.shape, _strides(member), start)
        for member, start in zip(members, starts, strict=True)
    ]
    flags = buffer[end:].fill_(1)
    return buffer, views, flags


def _strides(parameter: nn.Parameter) -> tuple[int, ...]:
    """The parameter's own where they leave no gap (channels_last), as autograd makes gradients."""
    return torch.empty_like(parameter, device="meta").stride()
