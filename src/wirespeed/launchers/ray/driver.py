"""`python -m wirespeed.launchers.ray.driver`: runs a job on Ray; orders come on stdin (`Orders`).

This process is a guard only. Ray's driver is its child (`session`): killed with SIGKILL it takes
gcs_server and raylet with it, but Ray's agents live on for minutes (seen with Ray 2.60). The guard is
the subreaper of all of them, so that they become its children, and it ends them. The folder of a
local cluster is the guard's too.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

__all__ = ["main"]

_DEATH_SIGNAL, _SUBREAPER = 1, 36
"""PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER of prctl(2)."""
_ORDERLY_S = 1.5
_REAP_S = 5.0
_LOOK_S = 0.02
_LONGEST = 32
"""Of the folder's path: Ray puts Unix sockets below it, whose paths have 107 characters at most."""


def main() -> int:
    """Run the session, and leave nothing behind; its exit code (128 + n for signal n)."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    with _folder() as folder:
        words = [sys.executable, "-P", "-m", "wirespeed.launchers.ray.session", str(folder)]
        session = subprocess.Popen(words, preexec_fn=_ends_with_us())

        def forward(number: int, _: FrameType | None) -> None:
            session.send_signal(number)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, forward)
        code = session.wait()
        _end_all()
    return code if code >= 0 else 128 - code


@contextmanager
def _folder() -> Iterator[Path]:
    base = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="ws-ray-", dir=base if len(base) < _LONGEST else "/tmp")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ends_with_us() -> Callable[[], None]:
    """Run in the child before its program: it is asked to stop when the guard is gone."""
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_DEATH_SIGNAL, signal.SIGTERM) and None


def _end_all() -> None:
    """SIGTERM, then SIGKILL, to all that the session has left; each is ours once its parent is gone."""
    _signal_all(signal.SIGTERM)
    ask_until = time.monotonic() + _ORDERLY_S
    while _reap() and time.monotonic() < ask_until:
        time.sleep(_LOOK_S)
    give_up = time.monotonic() + _REAP_S
    while _reap() and time.monotonic() < give_up:
        _signal_all(signal.SIGKILL)
        time.sleep(_LOOK_S)


def _signal_all(number: signal.Signals) -> None:
    import psutil

    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _reap() -> bool:
    """Take the exit codes of children that have ended; whether there are others."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
