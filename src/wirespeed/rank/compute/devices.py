"""Devices at work: the cores of a NUMA node, a thread pinned to each, or one GPU; and their clocks."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from wirespeed.rank.compute.units import Unit
from wirespeed.rank.place import Place, synchronize

T = TypeVar("T")
Fire = Callable[[], object]

_BEAT_S = 0.2


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of so many calls of one core, or of the GPU."""

    calls: int
    wall_s: float
    own_s: float
    """Of them those on the core, which other programs do not lengthen; of a GPU all."""


class Device(Protocol):
    torch_device: torch.device
    lanes: int
    """Cores, or one for a GPU."""

    def each(self, do: Callable[[int], T]) -> list[T]:
        """What `do(lane)` gives on each core, all at once."""
        ...

    def timed(self, fires: Sequence[Fire], counts: Sequence[int]) -> list[Spent]:
        """`counts[lane]` calls of `fires[lane]` on each, all at once."""
        ...


def device_of(unit: Unit, place: Place) -> Device:
    return Gpu(place) if unit.kind == "gpu" else Cores(unit.cpus, place.tick)


class Cores:
    def __init__(self, cpus: Sequence[int], tick: Callable[[], None]) -> None:
        self.torch_device, self.lanes = torch.device("cpu"), len(cpus)
        self._cpus, self._tick = cpus, tick

    def each(self, do: Callable[[int], T]) -> list[T]:
        """The first exception of any core is raised, once all have ended."""
        found: dict[int, T] = {}
        raised: list[Exception] = []

        def work(lane: int) -> None:
            try:
                with suppress(OSError):  # taken away from us meanwhile: any core will do
                    os.sched_setaffinity(0, {self._cpus[lane]})
                torch.set_num_threads(1)
                found[lane] = do(lane)
            except Exception as error:
                raised.append(error)

        threads = [
            threading.Thread(target=work, args=(lane,), daemon=True) for lane in range(self.lanes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_BEAT_S)
                self._tick()
        if raised:
            raise raised[0]
        return [found[lane] for lane in range(self.lanes)]

    def timed(self, fires: Sequence[Fire], counts: Sequence[int]) -> list[Spent]:
        def run(lane: int) -> Spent:
            fire, calls = fires[lane], counts[lane]
            begin, own = time.perf_counter(), time.thread_time()
            for _ in range(calls):
                fire()
            return Spent(calls, time.perf_counter() - begin, time.thread_time() - own)

        return self.each(run)


class Gpu:
    """Its clock are events on the current stream, as in `rank.measure`."""

    def __init__(self, place: Place) -> None:
        self.torch_device, self.lanes = place.device, 1
        self._tick = place.tick
        self._begin = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def each(self, do: Callable[[int], T]) -> list[T]:
        found = do(0)
        synchronize(self.torch_device)
        self._tick()
        return [found]

    def timed(self, fires: Sequence[Fire], counts: Sequence[int]) -> list[Spent]:
        synchronize(self.torch_device)
        self._begin.record()
        for _ in range(counts[0]):
            fires[0]()
        self._end.record()
        self._end.synchronize()
        self._tick()
        spent = float(self._begin.elapsed_time(self._end)) / 1e3
        return [Spent(counts[0], spent, spent)]
