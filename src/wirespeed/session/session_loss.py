"""What a rank other than 0 does when rank 0, which holds the session, dies or falls silent.

The session names every culprit but itself; so the ranks watch it. The lowest of them speaks, since
nobody else can, and all of them end within the bound.
"""

import os
import sys
import threading
import time
from collections.abc import Callable

from wirespeed.errors import WorldError
from wirespeed.node.identity import Identity
from wirespeed.plan import Plan
from wirespeed.watchdog import ABORTED, SESSION_LOST, Heartbeat

SPEAKER = 1
"""The rank that tells of the session's end."""
SLACK_S = 15.0
"""The session decides a hang up to 6 s after the bound; then it must be silent itself."""
LOOK_S = 0.5
REPORT_S = 2.0
"""Time for rank 0 to print its report and end."""


def abort_quietly(identity: Identity, host: str) -> Callable[[str], None]:
    """End this process when the session says so; only its own end is told, by one rank."""

    def on_abort(reason: str) -> None:
        if reason.startswith(SESSION_LOST):
            _tell(identity, host, "its process died, or its machine went down", reason)
        else:
            # mpirun takes the first code that is not 0, and cuts the others off: rank 0's report
            # and its code come first.
            time.sleep(REPORT_S)
        os._exit(ABORTED)

    return on_abort


def watch_session(identity: Identity, plan: Plan, heartbeat: Heartbeat, host: str) -> None:
    """Start a thread that ends this rank when it is stuck for longer than the session allows."""
    thread = threading.Thread(
        target=_watch, args=(identity, plan, heartbeat, host), name="session-watch", daemon=True
    )
    thread.start()


def _watch(identity: Identity, plan: Plan, heartbeat: Heartbeat, host: str) -> None:
    last, since = heartbeat.position(), time.monotonic()
    while True:
        time.sleep(LOOK_S)
        now = heartbeat.position()
        if now != last:
            last, since = now, time.monotonic()
        bound = (plan.op_timeout_s if now[1] else plan.startup_timeout_s) + SLACK_S
        if time.monotonic() - since > bound:
            saw = (
                f"rank {identity.rank} made no progress for {bound:.0f} s in {now[0] or 'start-up'}"
            )
            _tell(identity, host, "its process is stopped, or its machine hangs", saw)
            os._exit(ABORTED)


def _tell(identity: Identity, host: str, cause: str, saw: str) -> None:
    if identity.rank != SPEAKER:
        return
    error = WorldError(
        f"rank 0 on {host}, which holds the session, does not answer: {cause}",
        expected=f"the session to end a run that hangs; {saw}",
        next=f"on {host}: wirespeed runs show last  (what was measured before is kept)",
    )
    sys.stderr.write(f"wirespeed: {error}\n")
    sys.stderr.flush()
