"""Communication time: how long collectives were busy, each from its own start to its own end.

Measured from outside, so that one clock serves every strategy, our own and torch's DDP, FSDP2,
ZeroRedundancyOptimizer and DeepSpeed alike: torch.profiler watches a few extra steps, and a step's
communication time is the length of the union of its communication events on this rank. What runs
side by side counts once.

Which events (seen with torch 2.13; tests/training/test_comm_time.py repeats the experiment):

- **gloo**: `gloo:all_reduce`, `gloo:all_gather` and so on. Such an event begins when a thread of gloo
  takes the operation up and ends when its work is done, whether the caller waits (blocking), comes
  back later (`async_op`), or is DDP's reducer or FSDP2. Time in the queue behind other operations is
  not part of it; time that an operation waits for a late peer is. `c10d::allreduce_` beside it is
  only the call that enqueues. gloo serves reduce_scatter by an all_reduce: it is named so. Sends and
  receives begin where they are posted and end where they are waited for.
- **On GPUs**: NCCL's kernels (`ncclDevKernel_…`, on symmetric memory `ncclSymkDevKernel_…`), torch's own
  on symmetric memory (`two_shot_all_reduce_kernel` and so on), NVSHMEM's; and copies from GPU to GPU, by
  which copy engines serve torch, and NCCL from 2.28 on. Such a kernel begins when the stream gets to it
  and waits within itself for late peers. What the host calls `nccl:all_reduce` is the enqueueing.
  (Written from the sources of NCCL and torch; not yet run on GPUs.)

A rank that comes first waits for the last one, and this counts on the rank that waits: the figure
of the rank with the least is nearest to what the transfer alone takes.
"""

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from wirespeed.errors import CannotMeasure
from wirespeed.training.trace import Span, stretches, uncovered_length, union_length

_STEP = "wirespeed:step"
_TOLD = (_STEP, "aten::", "gloo:")
"""Events of the host that are looked at."""
_ON_DEVICE = re.compile(
    r"(?:nccl|rccl)(?!:)|nvshmem|Memcpy PtoP|.*\b(?:multimem|one_shot|two_shot)_\w*(?:reduce|gather)"
)
"""Kernels and copies that communicate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStep:
    """What one step did on this rank, on the clock of `time.perf_counter`."""

    begin_s: float
    end_s: float
    communication: tuple[Span, ...]
    compute: tuple[Span, ...]
    """CPU: torch's operators (`aten::`), outermost ones only; CUDA: kernels and copies."""

    @property
    def communication_s(self) -> float:
        """Seconds in which at least one collective was busy."""
        return union_length(stretches(self.communication))

    @property
    def uncovered_s(self) -> float:
        """Of these, seconds in which nothing was computed.

        This is a look at the timeline of a step under the profiler. Exposed communication is
        defined otherwise: step time minus that of the same step without synchronisation.
        """
        return uncovered_length(stretches(self.communication), stretches(self.compute))


class Event(NamedTuple):
    """What we need of one event of the profiler."""

    name: str
    start: float
    end: float
    """Seconds since the profiler's own zero."""
    thread: int
    on_device: bool = False
    is_mark: bool = False
    """A mark of the host's, drawn on the device's timeline as well; it is no work."""


def communicates(name: str, *, on_device: bool) -> bool:
    """Whether an event of that name is a collective at work (not merely its call)."""
    if on_device:
        return _ON_DEVICE.match(name) is not None
    return name.startswith("gloo:")


def observe(
    step: Callable[[], object],
    *,
    steps: int,
    rank: int,
    device: torch.device,
    barrier: Callable[[], None],
) -> list[ObservedStep]:
    """Run `steps + 1` steps under the profiler; what the last `steps` did. Collective.

    `barrier` is called before each, so that ranks start together however long their profilers took;
    what it sends is left out. The first step warms the profiler up.
    CannotMeasure: the profiler recorded nothing of the steps.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it writes lines to stderr
    begins = []
    on_device = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_device else [])]
    with profile(activities=activities) as profiler:
        for _ in range(steps + 1):
            barrier()
            # The clock is read inside: what the first marker costs lies before its own begin.
            with record_function(_STEP):
                begins.append(perf_counter())
                step()
                if on_device:
                    torch.cuda.synchronize(device)
    return _observed_steps(_events(profiler), begins, rank, on_device)[1:]


def _events(profiler: profile) -> list[Event]:
    """Those that count, by their begin, read where the profiler has put them.

    `profiler.events()` makes a tree of objects of 40 fields, which costs 50 µs an event: a step of
    `tiny` has 4,000, so that looking at a step took six times as long as the step.
    """
    results = profiler.profiler.kineto_results if profiler.profiler is not None else None
    found = []
    for event in results.events() if results is not None else ():
        name = event.name()
        on_device = event.device_type() == DeviceType.CUDA
        if on_device or name.startswith(_TOLD):
            begin, end = event.start_ns() / 1e9, event.end_ns() / 1e9
            is_mark = on_device and event.is_user_annotation()
            found.append(Event(name, begin, end, event.start_thread_id(), on_device, is_mark))
    return sorted(found, key=lambda event: (event.start, -event.end))


def _observed_steps(
    events: Sequence[Event], begins: list[float], rank: int, on_device: bool
) -> list[ObservedStep]:
    """The events of each step, on the host's clock: `begins[i]` is when the i-th marker began."""
    marks = [event for event in events if event.name == _STEP and not event.on_device]
    if len(marks) != len(begins):
        raise CannotMeasure(
            f"torch.profiler recorded {len(marks)} of {len(begins)} steps",
            expected="every step; another profiler may be at work in this process",
        )
    return [
        _observed(events, mark, begin, rank, on_device)
        for mark, begin in zip(marks, begins, strict=True)
    ]


def _observed(
    events: Sequence[Event], mark: Event, begin: float, rank: int, on_device: bool
) -> ObservedStep:
    """An event belongs to the step in which it began, however long it takes."""
    first, last = (
        bisect_left(events, at, key=lambda one: one.start) for at in (mark.start, mark.end)
    )
    within = events[first:last]

    def spans(found: Iterable[Event], lane: str) -> tuple[Span, ...]:
        shift = begin - mark.start
        return tuple(
            Span(rank, lane, one.name, one.start + shift, one.end + shift) for one in found
        )

    sent = [
        one
        for one in within
        if one.on_device == on_device
        and not one.is_mark
        and communicates(one.name, on_device=on_device)
    ]
    kernels = (
        one
        for one in within
        if one.on_device and not one.is_mark and not communicates(one.name, on_device=True)
    )
    return ObservedStep(
        begin_s=begin,
        end_s=begin + mark.end - mark.start,
        communication=spans(sent, "communication"),
        compute=spans(kernels if on_device else _outermost(within), "compute"),
    )


def _outermost(events: Iterable[Event]) -> Iterator[Event]:
    """torch's operators that no other one of the same thread calls."""
    until: dict[int, float] = {}
    for event in events:
        if event.name.startswith("aten::") and event.start >= until.get(event.thread, 0.0):
            until[event.thread] = event.end
            yield event
