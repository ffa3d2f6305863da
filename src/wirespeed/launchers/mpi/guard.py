"""`python -m wirespeed.launchers.mpi.guard -- mpirun …`: mpirun, ended in order whatever happens.

mpirun itself goes on when the process that started it is killed, gives up its remote daemons when a
second signal reaches it, and may hang while it waits for a node that is gone. Between the two this
passes one SIGTERM on, and SIGKILL after a bound. It is two processes, each of which ends the rest
when the other is killed: Intel's mpirun is a script, whose program the kernel alone would not end.
Standard library only, so that it starts at once.
"""

import fcntl
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from wirespeed.errors import UsageError
from wirespeed.process import guard
from wirespeed.process.frames import write_all

ORDERLY_S = 6.0
"""From SIGTERM to SIGKILL: with REST_S less than the 8 s that `supervise` waits before it kills us."""
REST_S = 1.0
"""For what is left of mpirun's process group once mpirun itself has ended."""
LOOK_S = 0.05


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


def _outer(words: Sequence[str]) -> int:
    """The process that we were started as: its child leads the session that mpirun is in."""
    stop = guard.StopRequest(parent=True)
    relays = [Relay(1), Relay(2)]
    pid = os.fork()
    if pid == 0:
        for relay in relays:
            relay.send_here()
        os._exit(_inner(words))
    for relay in relays:
        relay.start()
    code = guard.see_to_end(
        lambda: guard.reap().get(pid), partial(guard.signal_group, pid), stop, ORDERLY_S + REST_S
    )
    guard.end_groups([pid], REST_S)
    if all(relay.taken(REST_S) for relay in relays):
        while not all(relay.given(LOOK_S) for relay in relays) and not stop.reason:
            stop.wait(0.0)
    return code


def _inner(words: Sequence[str]) -> int:
    os.setsid()
    guard.die_with_parent(signal.SIGTERM)
    stop = guard.StopRequest(parent=True)
    try:
        process = subprocess.Popen(
            list(words),
            # With the variable at its end that shells set too: MPICH (seen with 4.0.2 and 5.0.2) does
            # not see the last of its variables for `-genvlist`.
            env={**{k: v for k, v in os.environ.items() if k != "_"}, "_": words[0]},
            stdin=subprocess.DEVNULL,
            preexec_fn=guard.death_signal(signal.SIGTERM),
        )
    except OSError as error:
        sys.stderr.write(f"wirespeed: {words[0]} cannot be started: {error.strerror}\n")
        return UsageError.exit_code
    return guard.see_to_end(
        process.poll, partial(guard.signal_group, os.getpgrp()), stop, ORDERLY_S
    )


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
            write_all(self._target, data)  # nobody may read any more: the rest is not wanted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
