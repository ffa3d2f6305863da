"""Clocks: perf_counter around a call on CPUs, CUDA events on GPUs, replay of CUDA graphs.

`each`: all ranks meet in a barrier, then make one call; the sample is that call's time on this
rank. `batch`: calls back to back with one synchronisation at the end, as nccl-tests times; the
sample is the batch's time over its calls.
"""

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, cast

from wirespeed.collectives.engines.base import Handle, Issue

if TYPE_CHECKING:
    import torch


Shot = Callable[[], object]


Hook = Callable[[], object]


class Timer(Protocol):
    """Times shots; `barrier` and `tick` (progress for the watchdog) run outside the clock.

    `turn` gives the shots without end and goes on where the call before left it, so that every
    rotated buffer gets its turn however few shots a call takes.
    """

    def each(self, turn: Iterator[Shot], count: int) -> list[float]:
        """Seconds of `count` shots, each after a barrier."""
        ...

    def batch(self, turn: Iterator[Shot], count: int) -> float:
        """Seconds for `count` shots back to back, after one barrier."""
        ...

    def synchronize(self) -> None: ...


class CpuTimer:
    """Blocking calls on the host's clock."""

    def __init__(self, barrier: Hook, tick: Hook) -> None:
        self._barrier = barrier
        self._tick = tick

    def synchronize(self) -> None:
        return None

    def each(self, turn: Iterator[Shot], count: int) -> list[float]:
        barrier, tick = self._barrier, self._tick
        times = []
        for _ in range(count):
            fire = next(turn)
            tick()
            barrier()
            begin = perf_counter()
            fire()
            end = perf_counter()
            times.append(end - begin)
        return times

    def batch(self, turn: Iterator[Shot], count: int) -> float:
        tick = self._tick
        self._barrier()
        begin = perf_counter()
        for _ in range(count):
            next(turn)()
            tick()
        return perf_counter() - begin


class CudaTimer:
    """CUDA events on the current stream; the host's barrier before each keeps ranks together."""

    def __init__(self, device: "torch.device", barrier: Hook, tick: Hook) -> None:
        import torch

        self._torch = torch
        self._device = device
        self._barrier = barrier
        self._tick = tick
        self._begin = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def synchronize(self) -> None:
        self._torch.cuda.synchronize(self._device)

    def each(self, turn: Iterator[Shot], count: int) -> list[float]:
        return [self._timed(turn, 1) for _ in range(count)]

    def batch(self, turn: Iterator[Shot], count: int) -> float:
        return self._timed(turn, count)

    def _timed(self, turn: Iterator[Shot], count: int) -> float:
        self.synchronize()
        self._tick()
        self._barrier()
        self._begin.record()
        for _ in range(count):
            next(turn)()
        self._end.record()
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end)) / 1e3


def timer_for(device: "torch.device", barrier: Hook, tick: Hook) -> Timer:
    """The clock that fits the device."""
    if device.type == "cuda":
        return CudaTimer(device, barrier, tick)
    return CpuTimer(barrier, tick)


def as_graph(fire: Shot, device: "torch.device") -> Shot:
    """Capture a shot once; what comes back replays it. CUDA only."""
    import torch

    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        for _ in range(3):
            fire()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        fire()
    return graph.replay


def shot(issues: Sequence[Issue], *, blocking: bool) -> Shot:
    """One timed unit: the single call itself where it blocks (nothing of ours is in between)."""
    if blocking and len(issues) == 1:
        return issues[0]
    if blocking:
        return _in_turn(issues)
    return _in_flight(cast("Sequence[Callable[[], Handle]]", issues))


def _in_turn(issues: Sequence[Issue]) -> Shot:
    def fire() -> None:
        for issue in issues:
            issue()

    return fire


def _in_flight(issues: Sequence[Callable[[], Handle]]) -> Shot:
    def fire() -> None:
        handles = [issue() for issue in issues]
        for handle in handles:
            handle.wait()

    return fire
