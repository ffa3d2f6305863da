"""The same work on every rank, with no traffic: who is slow at it is slow by itself."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import torch

from wirespeed.locate.localise import work_order
from wirespeed.node.limits import throttled_s
from wirespeed.rank.place import Place, synchronize

_TARGET_S = 0.2
"""Of the quickest rank, each time: two periods of a CPU quota, so that at least one of them stops it
also where other work leaves it little to stop. It is done several times over."""
_PAUSE_S, _LONG_PAUSE_S = 0.1, 0.7
"""Seconds at most before the work."""
_SHORT_PAUSES = 5
"""So many at first; more timings are asked for only where somebody looks slow."""
_WINDOW_S, _NAP_S, _GAP_S = 0.5, 0.002, 0.05
"""How long to watch for gaps; a gap is longer than any scheduler leaves an idle machine's process."""
_FIRST_WINDOWS = 4
"""Later pauses that are long enough are watched, too."""
_ROOT = Path("/")
_PROBE = 8
_MOST = 100_000
_QUEUED = 16
"""Products that wait on a GPU at most, so that the watchdog sees progress."""


class Work:
    """Matrix products on the rank's device, one thread on CPUs; how many is agreed once."""

    def __init__(self, place: Place) -> None:
        side = 256 if place.device.type == "cpu" else 4096
        self._place = place
        self._in = torch.ones(side, side, device=place.device)
        self._out = torch.empty_like(self._in)
        self._count = self._calls = 0
        self._absent: list[float] = []
        """Share of each window in which this rank was not there."""

    def seconds(self, turns: Sequence[Sequence[int]]) -> tuple[list[float], list[float]]:
        """(by the clock, on a core or stopped by a quota), by global rank; collective.

        turns: ranks that work at once, one turn after the other.

        A rank that is absent for a share of the time takes as much longer in the long run, whether
        a turn was hit or not: after a common start everybody has just come back. It is the middle
        window that counts: on a busy machine anybody is absent from one or two.
        """
        control = self._place.control
        if not self._absent:
            control.barrier()
            self._absent = [_absent_share(self._place.tick) for _ in range(_FIRST_WINDOWS)]
        if not self._count:
            self._multiply(_PROBE)
            control.barrier()
            quickest = float(control.matrix([self._multiply(_PROBE)[0]]).min())
            wanted = int(_PROBE * _TARGET_S / max(quickest, 1e-6))
            self._count = min(_MOST, max(_PROBE, wanted))
        # Pauses of different lengths: what comes and goes with a period must not be missed each time.
        self._calls += 1
        longest = _PAUSE_S if self._calls <= _SHORT_PAUSES else _LONG_PAUSE_S
        self._pause(longest * (self._calls * 0.618 % 1))
        mine = (0.0, 0.0)
        for turn in work_order(len(turns), self._calls):
            control.barrier()
            if self._place.rank in turns[turn]:
                mine = self._multiply(self._count)
        rows = control.matrix([*mine, 1 - median(self._absent)])
        return (rows[:, 0] / rows[:, 2]).tolist(), rows[:, 1].tolist()

    def _pause(self, seconds: float) -> None:
        if seconds >= _WINDOW_S:
            self._absent.append(_absent_share(self._place.tick))
            seconds -= _WINDOW_S
        time.sleep(seconds)

    def _multiply(self, count: int) -> tuple[float, float]:
        """(seconds, those of them on a core or stopped by a quota; on a GPU all of them)."""
        cuda = self._place.device.type == "cuda"
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        stopped = throttled_s(_ROOT)
        begin, busy = time.perf_counter(), time.thread_time()
        for number in range(count):
            torch.mm(self._in, self._in, out=self._out)
            if cuda and number % _QUEUED == _QUEUED - 1:
                synchronize(self._place.device)
            self._place.tick()
        synchronize(self._place.device)
        spent, busy = time.perf_counter() - begin, time.thread_time() - busy
        torch.set_num_threads(threads)
        return spent, spent if cuda else min(spent, busy + throttled_s(_ROOT) - stopped)


def _absent_share(tick: Callable[[], None]) -> float:
    """Share of a window in which this process did not run although it wanted to, by long gaps."""
    begin = last = time.perf_counter()
    absent = 0.0
    while last - begin < _WINDOW_S:
        time.sleep(_NAP_S)
        now = time.perf_counter()
        if now - last > _GAP_S:
            absent += now - last - _NAP_S
        last = now
        tick()
    return min(0.99, absent / (last - begin))
