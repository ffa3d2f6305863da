"""A pair over the backend's own send and receive: NCCL between GPUs."""

import time
from statistics import median

from wirespeed.rank.place import Place

PINGS = 20
FIRST_BYTES = 1 << 20
"""Sent first, to see how much fills the time."""
MOST_BYTES = 256 << 20


class PeerToPeer:
    """This rank's end; both ranks of a pair call the same method at the same time."""

    def __init__(self, place: Place) -> None:
        import torch

        self._place = place
        self._out = torch.zeros(MOST_BYTES, dtype=torch.uint8, device=place.device)
        self._in = torch.zeros(MOST_BYTES, dtype=torch.uint8, device=place.device)

    def ping(self, peer: int, *, calls: bool) -> float:
        """Half of the median round trip in seconds; both sides give it."""
        times = []
        for _ in range(PINGS):
            begin = time.perf_counter()
            self._exchange(peer, 32, sends=calls, receives=not calls)
            self._exchange(peer, 32, sends=not calls, receives=calls)
            times.append(time.perf_counter() - begin)
            self._place.tick()
        return median(times) / 2

    def transfer(self, peer: int, size: int, *, sends: bool, receives: bool) -> float:
        """Seconds until `size` bytes went one way, or both ways."""
        begin = time.perf_counter()
        self._exchange(peer, size, sends=sends, receives=receives)
        self._place.tick()
        return time.perf_counter() - begin

    def _exchange(self, peer: int, size: int, *, sends: bool, receives: bool) -> None:
        import torch
        import torch.distributed as dist

        operations = []
        if sends:
            operations.append(dist.P2POp(dist.isend, self._out[:size], peer))
        if receives:
            operations.append(dist.P2POp(dist.irecv, self._in[:size], peer))
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        if self._place.device.type == "cuda":
            torch.cuda.synchronize(self._place.device)
