"""Signs of life for the far side: an empty line to the stdin of pieces that ask for it.

A thread of its own sends them, so that they go on while this process waits for whoever reads its
output (a pager, a terminal that was stopped with Ctrl-S).
"""

import os
import threading
import time
from contextlib import suppress
from typing import IO

__all__ = ["Pulse"]

_LOOK_S = 0.1


class Pulse:
    """Starts its thread with the first `add`; `stop` ends it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: dict[int, tuple[float, float]] = {}
        """When, and every how many seconds, by file descriptor."""
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, stdin: IO[bytes], every_s: float) -> None:
        """From now on; the pipe is made non-blocking, since a piece may have stopped to read."""
        os.set_blocking(stdin.fileno(), False)
        with self._lock:
            self._due[stdin.fileno()] = (time.monotonic() + every_s, every_s)
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)
            self._thread.start()

    def forget(self, stdin: IO[bytes]) -> None:
        """Before it is closed: its descriptor may be another file's a moment later."""
        with self._lock:
            self._due.pop(stdin.fileno(), None)

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _beat(self) -> None:
        while not self._over.wait(_LOOK_S):
            with self._lock:
                now = time.monotonic()
                for handle, (due, every_s) in self._due.items():
                    if now >= due:
                        self._due[handle] = (now + every_s, every_s)
                        # Full or closed: the piece itself will tell.
                        with suppress(OSError):
                            os.write(handle, b"\n")
