"""The same work on every rank, with no traffic: who is slow at it is slow by itself."""

import time
from collections.abc import Sequence

from wirespeed.ranks.place import Place

__all__ = ["Work"]

_TARGET_S = 0.1
"""Of the quickest rank, each time: a period of a CPU quota. It is done several times over."""
_PAUSE_S = 0.25
_PROBE = 8
_MOST = 100_000
_QUEUED = 16
"""Products that wait on a GPU at most, so that the watchdog sees progress."""


class Work:
    """Matrix products on the rank's device, one thread on CPUs; how many is agreed once."""

    def __init__(self, place: Place) -> None:
        import torch

        side = 256 if place.device.type == "cpu" else 4096
        self._place = place
        self._in = torch.ones(side, side, device=place.device)
        self._out = torch.empty_like(self._in)
        self._count = self._calls = 0

    def seconds(self, turns: Sequence[Sequence[int]]) -> list[float]:
        """By global rank; collective. turns: ranks that work at once, one turn after the other."""
        control = self._place.control
        if not self._count:
            self._multiply(_PROBE)
            control.barrier()
            quickest = float(control.matrix([self._multiply(_PROBE)]).min())
            wanted = int(_PROBE * _TARGET_S / max(quickest, 1e-6))
            self._count = min(_MOST, max(_PROBE, wanted))
        # Pauses of different lengths: what comes and goes with a period must not be missed each time.
        self._calls += 1
        time.sleep(_PAUSE_S * (self._calls * 0.618 % 1))
        mine = 0.0
        for ranks in turns:
            control.barrier()
            if self._place.rank in ranks:
                mine = self._multiply(self._count)
        spent: list[float] = control.matrix([mine])[:, 0].tolist()
        return spent

    def _multiply(self, count: int) -> float:
        import torch

        cuda = self._place.device.type == "cuda"
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        begin = time.perf_counter()
        for number in range(count):
            torch.mm(self._in, self._in, out=self._out)
            if cuda and number % _QUEUED == _QUEUED - 1:
                torch.cuda.synchronize(self._place.device)
            self._place.tick()
        if cuda:
            torch.cuda.synchronize(self._place.device)
        spent = time.perf_counter() - begin
        torch.set_num_threads(threads)
        return spent
