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
from collections.abc import Sequence
from contextlib import suppress

from wirespeed.launchers.rank_wrapper import wrapped
from wirespeed.process.guard import StopRequest, see_to_end


def kept(python: str, command: Sequence[str]) -> list[str]:
    """The words that run `command` as a rank whose parent is a keeper."""
    return [python, "-P", "-m", "wirespeed.launchers.ray.keeper", "--", *wrapped(python, command)]


def main(arguments: Sequence[str]) -> int:
    """Run the wrapper until it ends, or the actor is gone; the wrapper's exit code."""
    stop = StopRequest(parent=True)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with suppress(OSError):  # only root may go back to nice 0; the driver tells of others
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    wrapper = subprocess.Popen(list(arguments[1:]))
    return see_to_end(wrapper.poll, wrapper.send_signal, stop)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
