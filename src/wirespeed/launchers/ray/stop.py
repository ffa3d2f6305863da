"""How the Ray driver hears that it shall stop: a signal, or the end of its stdin."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["StopRequest", "StopRequested"]

LAST_RESORT_S = 7.0
"""After this the process ends whatever Ray is doing: its guard cleans up after it."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequested(BaseException):
    """Raised in the main thread while it is inside a call that cannot be polled."""


class StopRequest:
    """Whether somebody wants the job to end."""

    def __init__(self) -> None:
        self._raises = False
        self.asked = False

    def listen(self) -> None:
        """Take the signals (again, after Ray has installed handlers of its own)."""
        for number in _SIGNALS:
            signal.signal(number, self._heard)

    def watch(self, handle: int) -> None:
        """From now on the end of that file asks to stop."""
        threading.Thread(target=_signal_at_end, args=(handle,), daemon=True).start()

    @contextmanager
    def raising(self) -> Iterator[None]:
        """StopRequested comes out of the block, where a request comes in it or before it."""
        self._raises = True
        try:
            if self.asked:
                raise StopRequested
            yield
        finally:
            self._raises = False

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if not self.asked:
            self.asked = True
            end = threading.Timer(LAST_RESORT_S, os._exit, (3,))
            end.daemon = True
            end.start()
        if self._raises:
            raise StopRequested


def _signal_at_end(handle: int) -> None:
    while os.read(handle, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
