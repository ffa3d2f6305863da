"""What a step takes on a rank's GPU, and how much of it that GPU waits for other ranks.

With NCCL the host hands work in and goes on, so that only the GPU knows. Marks, events of CUDA on the
stream that computes, are set where a step ends, and around whatever has that stream wait for
communication; the thread that tells reads the times between them once they have come to pass.

A GPU that waits for others hides what its host takes to hand the next step in. Where this host is a
little quicker than the others' it gets ahead, and its GPU waits for nearly all of a step: as if the
others were late by so much. So a rank's own work is what its GPU does, but at least what its host needs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from statistics import median
from typing import Any, Callable, Iterator

from _wirespeed_inside import like

BEGIN, END, EDGE = "gpu", "-gpu", "gpu|"
"""Of a wait; EDGE: a step ends."""
_MOST_FREE = 4096
_SOON_S, _CLOCK_S = 1.0, 20.0
"""The two clocks are compared so often, where that fails and where it does not: they drift."""
_AT_ONCE_S = 2e-3
_LONGEST_CAPTURE_S = 60.0
"""After which its end is taken to be lost, as where it failed."""
_MOST_WAITS = 1024
"""Of a step; of more than that its waits are not known."""
_COLLECTIVES = (
    *("allreduce", "allgather", "_allgather_base", "reduce_scatter", "_reduce_scatter_base"),
    *("alltoall", "alltoall_base", "broadcast", "reduce", "gather", "scatter", "barrier"),
)
_WAITING = ("torch.distributed", "deepspeed")
"""Modules which have the stream that computes wait for one that communicates."""

now = time.perf_counter
_ident = threading.get_ident


class Marks:
    """Of one process. `begin`, `end` and `edge` are called where it trains; `settle` by who tells."""

    def __init__(self, torch: Any, rank: Any) -> None:
        self._cuda, self._rank = torch.cuda, rank
        self._has_context = getattr(torch._C, "_cuda_hasPrimaryContext", lambda _: True)
        self._stream: Any = None
        """That computes: where steps end. What waits on others, as FSDP's do, holds nothing up."""
        self._free: deque[Any] = deque(maxlen=_MOST_FREE)
        self._depth = self._captures = 0
        self._captured_at = 0.0
        self._lock = threading.Lock()
        self._placed = self._syncing = False
        self._host = HostNeed()
        self._clock: tuple[float, Any] | None = None
        """The host's time of a mark."""
        self._clock_again, self._aside = 0.0, None

    def begin(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._set(BEGIN)

    def end(self) -> None:
        self._depth = max(0, self._depth - 1)
        if self._depth == 0:
            self._set(END)

    def sync(self) -> None:
        """Autograd's own work of a backward is handed in; DDP and FSDP wait for their last buckets."""
        self._depth, self._syncing = 0, True
        self.begin()

    def synced(self) -> None:
        """The backward is over, whether or not it came to that."""
        if self._syncing:
            self._syncing = False
            self.end()

    def edge(self) -> None:
        self._depth = 0  # whatever an exception has left
        self._set(EDGE)

    def _set(self, kind: str) -> None:
        try:
            cuda = self._cuda
            # A device that the program does not use would get a context for our mark.
            if not self._has_context(cuda.current_device()) or cuda.is_current_stream_capturing():
                return
            stream = cuda.current_stream()
            if kind == EDGE:
                self._stream = stream
            elif self._stream is not None and stream != self._stream:
                return
            event = self._event()
            event.record(stream)
            self._rank.events.append((kind, now(), event))
        except Exception:  # of CUDA: the program will hear of it; waits are not known from here on
            self._rank.marks = None

    def _event(self) -> Any:
        try:
            return self._free.popleft()
        except IndexError:
            return self._cuda.Event(enable_timing=True)

    def settle(self, steps: Iterator[GpuStep | None]) -> int:
        """How many of these, in their order, are over on the GPU; their times are known then.

        None of them while a graph is captured, which asking for an event would break.
        """
        count = 0
        with self._lock:
            if self._captures and now() - self._captured_at < _LONGEST_CAPTURE_S:
                return 0
            for step in steps:
                if step is not None:
                    self._place(step)
                if step is not None and not self._settle(step):
                    break
                count += 1
        return count

    def _place(self, step: GpuStep) -> None:
        """This thread belongs to the device, too: the first one would get a context for it."""
        if not self._placed:
            self._cuda.set_device(step.after.device)
            self._placed = True
        self._set_clock()

    def _settle(self, step: GpuStep) -> bool:
        if not step.after.query():
            return False
        step.over = True
        try:
            step.settle(self._host, self._clock)
            self._free.extend(step.spent())
        except (RuntimeError, ValueError):  # or a mark is of another device
            self._host = HostNeed()
        return True

    def _set_clock(self) -> None:
        """By a mark on a stream of its own, which the GPU comes to at once."""
        if now() < self._clock_again:
            return
        self._clock_again = now() + _SOON_S
        self._aside = self._aside or self._cuda.Stream()
        mark, begin = self._cuda.Event(enable_timing=True), now()
        mark.record(self._aside)
        while not mark.query() and now() - begin < _AT_ONCE_S:
            time.sleep(0)  # others want the interpreter
        end = now()
        if end - begin < _AT_ONCE_S:
            self._clock, self._clock_again = ((begin + end) / 2, mark), end + _CLOCK_S

    def capture_begins(self) -> None:
        with self._lock:
            self._captures, self._captured_at = self._captures + 1, now()

    def capture_ends(self) -> None:
        with self._lock:
            self._captures = max(0, self._captures - 1)


class GpuStep:
    """The marks of one step."""

    def __init__(
        self, before: Any, after: Any, at: float, waits: list[tuple[float, float, Any, Any]]
    ) -> None:
        self.before, self.after, self.at = before, after, at
        self._marked = waits
        self.over = False
        self.seconds = -1.0
        """On the GPU; negative: not known."""
        self.waited = 0.0
        """Seconds of it that the rank waited for others, and had nothing else to do."""
        self.waits: list[tuple[float, float, float]] = []
        """When the host handed a wait in, from and to, and seconds that it took on the GPU."""

    def settle(self, host: HostNeed, clock: tuple[float, Any] | None) -> None:
        """Called once `after` has come to pass. clock: the host's time of a mark.

        Raises ValueError where its times are not known, and what torch does.
        """
        if self.before is None or len(self._marked) >= _MOST_WAITS:
            raise ValueError("no mark where the step began, or too many within")
        self.waits = [
            (begin, end, one.elapsed_time(other) / 1e3) for begin, end, one, other in self._marked
        ]
        seconds, need = self.before.elapsed_time(self.after) / 1e3, 0.0
        if clock is not None:
            need = host.of(self.at, clock[0] + clock[1].elapsed_time(self.after) / 1e3)
        waited = sum(took for *_, took in self.waits)
        self.waited, self.seconds = max(0.0, min(waited, seconds - need)), seconds

    def spent(self) -> list[Any]:
        """Events that nobody needs any more: the last one is the next step's first."""
        return [self.before, *(event for *_, one, other in self._marked for event in (one, other))]


class HostNeed:
    """What the host takes to hand a step in, without what it waits for its GPU."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._pending: deque[float] = deque()
        """When the GPU ends what was handed in."""
        self._known: deque[float] = deque(maxlen=_REMEMBERED)

    def of(self, at: float, ended: float) -> float:
        """Of the step that was handed in at that time, and that the GPU ended then; 0: not known."""
        last, self._last = self._last, (at, ended)
        if last is None:
            return 0.0
        most = at - last[0]
        self._pending.append(last[1])
        went_on = False
        while self._pending and self._pending[0] <= at:
            went_on |= self._pending.popleft() > last[0]
        if at < last[1] and went_on:  # it may have waited for room in the queue
            return min(self._usual(), most)
        if at >= last[1]:  # it may have waited for all that was handed in
            least = at - max(last)
            if least < _ALIKE * most:
                return min(max(self._usual(), least), most)
        self._known.append(most)
        return most

    def _usual(self) -> float:
        return median(self._known) if self._known else 0.0


_REMEMBERED, _ALIKE = 33, 0.9


class StepMarks:
    """The marks of a rank, as they are set, become those of steps."""

    def __init__(self) -> None:
        self._before: Any = None
        self._after: Any = None
        self._begun: tuple[float, Any] | None = None
        self._at = 0.0
        self._waits: list[tuple[float, float, Any, Any]] = []

    def take(self, kind: str, when: float, event: Any) -> None:
        if kind == BEGIN:
            self._begun = when, event
        elif kind == EDGE:
            self._after, self._at = event, when
        elif self._begun is not None:
            if len(self._waits) < _MOST_WAITS:
                self._waits.append((self._begun[0], when, self._begun[1], event))
            self._begun = None

    def ended(self) -> GpuStep | None:
        """The host's step is over; None: the GPU's end of it was not marked."""
        step = None
        if self._after is not None:
            step = GpuStep(self._before, self._after, self._at, self._waits)
        self._before, self._after, self._begun, self._waits = self._after, None, None, []
        return step


# What is put around functions of torch, once the job communicates by NCCL.


def hook_gpu(torch: Any, rank: Any) -> None:
    """From here on the rank's marks are set."""
    groups = torch._C._distributed_c10d.ProcessGroup
    for name in _COLLECTIVES:
        if hasattr(groups, name):
            setattr(groups, name, _called(getattr(groups, name), rank))
    stream = torch.cuda.Stream
    for name in ("wait_event", "wait_stream"):
        setattr(stream, name, _stream_waits(getattr(stream, name), torch.cuda, rank))
    for graph in (
        torch.cuda.CUDAGraph,
        getattr(getattr(torch, "accelerator", None), "Graph", None),
    ):
        if graph is not None:
            graph.capture_begin = _capture_begins(graph.capture_begin, rank)
            graph.capture_end = _capture_ends(graph.capture_end, rank)
    rank.marks = Marks(torch, rank)


def _called(original: Any, rank: Any) -> Any:
    """Of a collective: one that is waited for at once may run on the stream that computes."""

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        marks = rank.marks
        waited_for = not getattr(args[-1] if args else None, "asyncOp", True)
        if marks is None or not waited_for or not _trains(rank):
            return original(self, *args, **kwargs)
        return _between(marks, original, self, *args, **kwargs)

    return like(called, original)


def _stream_waits(original: Any, cuda: Any, rank: Any) -> Any:
    """FSDP and ZeRO have the current stream wait for what another one gathers or reduces."""

    def waits(self: Any, *args: Any, **kwargs: Any) -> Any:
        marks = rank.marks
        if marks is None or not _trains(rank):
            return original(self, *args, **kwargs)
        module = str(sys._getframe(1).f_globals.get("__name__"))
        if not module.startswith(_WAITING) or self != cuda.current_stream():
            return original(self, *args, **kwargs)
        return _between(marks, original, self, *args, **kwargs)

    return like(waits, original)


def _trains(rank: Any) -> bool:
    """Whether this thread does: within a backward autograd's own does, others write checkpoints."""
    own = _ident()
    return bool(rank.thread == own or (rank.in_backward and rank.autograd == own))


def _between(marks: Marks, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    marks.begin()
    try:
        return work(*args, **kwargs)
    finally:
        marks.end()


def _capture_begins(original: Any, rank: Any) -> Any:
    def capture_begin(*args: Any, **kwargs: Any) -> Any:
        marks = rank.marks
        if marks is None:
            return original(*args, **kwargs)
        marks.capture_begins()
        try:
            return original(*args, **kwargs)
        except BaseException:
            marks.capture_ends()
            raise

    return like(capture_begin, original)


def _capture_ends(original: Any, rank: Any) -> Any:
    def capture_end(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            marks = rank.marks
            if marks is not None:
                marks.capture_ends()

    return like(capture_end, original)
