"""Takes what mpirun says at once, and hands it on as fast as it is wanted.

Open MPI 5 forgets at its end what its reader has not yet taken from a full pipe: 20,000 lines of
four ranks came incomplete to a reader that also printed them. So all is taken into memory, where
mpirun itself would keep it as long as it runs.
"""

import fcntl
import os
import queue
import threading
from contextlib import suppress

__all__ = ["Relay"]

_READ = 1 << 20
_CAPACITY = 1 << 20
"""Of the pipe, in bytes: what Linux lets anybody have (/proc/sys/fs/pipe-max-size)."""


class Relay:
    """One stream. Make it before a fork; then the child takes one end, the parent the other."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._source, self._sink = os.pipe()
        with suppress(OSError):
            fcntl.fcntl(self._source, fcntl.F_SETPIPE_SZ, _CAPACITY)
        self._chunks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._take, self._give)
        ]

    def send_here(self) -> None:
        """In the child: `target` leads into this relay."""
        os.dup2(self._sink, self._target)
        os.close(self._sink)
        os.close(self._source)

    def start(self) -> None:
        """In the parent."""
        os.close(self._sink)
        for thread in self._threads:
            thread.start()

    def taken(self, seconds: float) -> bool:
        """Whether the stream has come to its end, after waiting so long at most."""
        self._threads[0].join(seconds)
        return not self._threads[0].is_alive()

    def given(self, seconds: float) -> bool:
        """Whether all of it has been handed on."""
        self._threads[1].join(seconds)
        return not self._threads[1].is_alive()

    def _take(self) -> None:
        while data := os.read(self._source, _READ):
            self._chunks.put(data)
        self._chunks.put(b"")

    def _give(self) -> None:
        while data := self._chunks.get():
            with suppress(OSError):  # nobody reads any more: the rest is not wanted
                while data:
                    data = data[os.write(self._target, data) :]
