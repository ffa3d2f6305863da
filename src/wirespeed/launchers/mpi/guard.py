"""`python -m wirespeed.launchers.mpi.guard -- mpirun …`: mpirun, ended in order whatever happens.

mpirun itself goes on when the process that started it is killed, gives up its remote daemons when a
second signal reaches it, and may hang while it waits for a node that is gone. Between the two this
passes one SIGTERM on, and SIGKILL after a bound. It is two processes, each of which ends the rest
when the other is killed: Intel's mpirun is a script, whose program the kernel alone would not end.
Standard library only, so that it starts at once.
"""

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from wirespeed.errors import UsageError
from wirespeed.launchers.mpi.relay import Relay

__all__ = ["guarded", "main"]

ORDERLY_S = 6.0
"""From SIGTERM to SIGKILL: with REST_S less than the 8 s that `supervise` waits before it kills us."""
REST_S = 1.0
"""For what is left of mpirun's process group once mpirun itself has ended."""
LOOK_S = 0.05
_SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def guarded(python: str, words: Sequence[str]) -> list[str]:
    """The words that run `words` under the guard."""
    return [python, "-P", "-m", "wirespeed.launchers.mpi.guard", "--", *words]


def main(arguments: Sequence[str]) -> int:
    """Run it; its exit code (128 + n for signal n)."""
    if len(arguments) < 2 or arguments[0] != "--":
        error = UsageError(f"no command: {shlex.join(arguments)}", expected="-- mpirun …")
        sys.stderr.write(f"wirespeed: {error}\n")
        return error.exit_code
    return _outer(arguments[1:])


class _Guard:
    """A process that sees another to its end, and passes on being asked to end, once."""

    def __init__(self, patience_s: float) -> None:
        self._parent = os.getppid()
        self._patience_s = patience_s
        self._asked = False
        self._told = False
        self._kill_at = float("inf")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._ask)

    def see(self, group: int, poll: Callable[[], int | None]) -> int:
        """Until `poll` gives a return code: that of the process which `group` is for."""
        while (code := poll()) is None:
            if not self.patient and not self._told:
                self._told = True
                self._kill_at = time.monotonic() + self._patience_s
                _signal(group, signal.SIGTERM)
            if time.monotonic() > self._kill_at:
                _signal(group, signal.SIGKILL)
            time.sleep(LOOK_S)
        return code

    @property
    def patient(self) -> bool:
        """Whether somebody is still there who may want more, and has not asked us to end."""
        return not self._asked and os.getppid() == self._parent

    def _ask(self, number: int, frame: object) -> None:
        self._asked = True


def _outer(words: Sequence[str]) -> int:
    """The process that we were started as: its child leads the session that mpirun is in."""
    guard = _Guard(ORDERLY_S + REST_S)
    relays = [Relay(1), Relay(2)]
    pid = os.fork()
    if pid == 0:
        for relay in relays:
            relay.send_here()
        os._exit(_inner(words))
    for relay in relays:
        relay.start()
    code = guard.see(pid, lambda: _ended(pid))
    _end_group(pid)
    if all(relay.taken(REST_S) for relay in relays):
        while not all(relay.given(LOOK_S) for relay in relays) and guard.patient:
            pass
    return code


def _end_group(group: int) -> None:
    """What is left once the leader has ended."""
    until = time.monotonic() + REST_S
    while _signal(group, signal.SIGTERM) and time.monotonic() < until:
        time.sleep(LOOK_S)
    _signal(group, signal.SIGKILL)


def _inner(words: Sequence[str]) -> int:
    os.setsid()
    _die_with_parent()
    guard = _Guard(ORDERLY_S)
    try:
        process = subprocess.Popen(
            list(words),
            env=_environment(words[0]),
            stdin=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,
        )
    except OSError as error:
        sys.stderr.write(f"wirespeed: {words[0]} cannot be started: {error.strerror}\n")
        return UsageError.exit_code
    code = guard.see(os.getpid(), process.poll)
    return code if code >= 0 else 128 - code


def _ended(pid: int) -> int | None:
    done, status = os.waitpid(pid, os.WNOHANG)
    code = os.waitstatus_to_exitcode(status)
    return None if not done else code if code >= 0 else 128 - code


def _environment(program: str) -> dict[str, str]:
    """Ours, with the variable at its end that shells set too.

    MPICH (seen with 4.0.2 and 5.0.2) does not see the last of its variables for `-genvlist`.
    """
    return {**{name: value for name, value in os.environ.items() if name != "_"}, "_": program}


def _signal(group: int, number: int) -> bool:
    """Whether there was somebody to get it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        return True
    return False


def _die_with_parent() -> None:
    """SIGTERM from the kernel when the parent has gone, however that went."""
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
