"""Processes that must not outlive who started them, where what lies between is not ours."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

__all__ = ["PARENT", "end_with_parent", "end_with_stdin"]

PARENT = "WIRESPEED_PARENT"
"""Pid of the process that starts others; they compare it with their own parent."""
_SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def end_with_parent() -> None:
    """SIGTERM for this process when its parent has gone, however that went.

    The parent must have called this too (or told its pid in `PARENT`): then one that went
    before we could ask is noticed as well. Ends this process at once then, with 143.
    """
    told = os.environ.get(PARENT, "")
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
    if told and os.getppid() != int(told):
        sys.exit(128 + signal.SIGTERM)
    os.environ[PARENT] = str(os.getpid())
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, _: FrameType | None) -> NoReturn:
    """In order: what is registered to be done at the end, is done."""
    sys.exit(128 + number)


def end_with_stdin(over: Callable[[], None]) -> None:
    """Call `over` in a thread when stdin ends, if it has said anything before.

    So a process that was started with no stdin at all (`< /dev/null`) runs on.
    """
    threading.Thread(target=_read, args=(over,), name="stdin", daemon=True).start()


def _read(over: Callable[[], None]) -> None:
    heard = False
    while True:
        try:
            data = os.read(0, 4096)
        except OSError:
            return
        if not data:
            break
        heard = True
    if heard:
        over()
