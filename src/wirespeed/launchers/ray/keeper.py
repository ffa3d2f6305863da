"""`python -m wirespeed.launchers.ray.keeper -- COMMAND`: the parent of a rank's wrapper under Ray.

When Ray ends an actor it kills that process's direct children with SIGKILL, after which nothing
would be left to end what the rank has started. So the direct child is this process; the wrapper
sees that its parent is gone, and ends the rank in order. Actors are also born with SIGINT blocked
and, unless the cluster is told otherwise, at nice 15 (RAY_worker_niceness): a rank shall have neither.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

from wirespeed.launchers.rank_wrapper import wrapped

__all__ = ["kept", "main"]

LOOK_S = 0.05


def kept(python: str, command: Sequence[str]) -> list[str]:
    """The words that run `command` as a rank whose parent is a keeper."""
    return [python, "-P", "-m", "wirespeed.launchers.ray.keeper", "--", *wrapped(python, command)]


def main(arguments: Sequence[str]) -> int:
    """Run the wrapper until it ends, or the actor is gone; the wrapper's exit code."""
    parent = os.getppid()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with suppress(OSError):  # only root may go back to nice 0; the driver tells of others
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    wrapper = subprocess.Popen(list(arguments[1:]))

    def forward(number: int, _: FrameType | None) -> None:
        wrapper.send_signal(number)

    signal.signal(signal.SIGTERM, forward)
    while wrapper.poll() is None and os.getppid() == parent:
        time.sleep(LOOK_S)
    code = wrapper.returncode
    if code is None:
        os._exit(1)  # without waiting: that we are gone is what ends the wrapper
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
