"""Child processes of this one, each with what it starts itself: started, watched and ended."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from wirespeed.errors import WorldError
from wirespeed.launchers.joblogs import private

__all__ = ["Child", "Children"]

_REAP_S = 5.0
"""After SIGKILL a process ends at once, unless the kernel holds it; then it is left to init."""


@dataclass(frozen=True, slots=True)
class Child:
    """One process to start."""

    number: int
    """Its rank, or its place among the others."""
    name: str
    """What messages call it: `rank 3`, `mpirun`."""
    command: Sequence[str]
    environment: Mapping[str, str]
    """The whole environment of the process."""
    log: Path | None = None
    """Where its stdout and stderr go, from the first byte on; None: pipes for all three streams."""


class Children:
    """Each child is the leader of a session of its own, so that Ctrl-C reaches only the parent."""

    def __init__(self) -> None:
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._pids: dict[int, int] = {}
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, children: Sequence[Child]) -> None:
        """Start each; WorldError names the one that could not be started, and none is left."""
        for child in children:
            try:
                self._running[child.number] = _spawn(child)
            except OSError as error:
                self.stop(0.0)
                raise WorldError(
                    f"{child.name} could not be started: {child.command[0]}: {error.strerror}",
                    expected=f"{child.command[0]} to run"
                    + (f" with its output in {child.log}" if child.log else ""),
                ) from error
            self._started.append(self._running[child.number])
            self._pids[child.number] = self._running[child.number].pid

    def pids(self) -> dict[int, int]:
        """Process ids by number."""
        return dict(self._pids)

    def process(self, number: int) -> subprocess.Popen[bytes]:
        """The process itself, as long as it has not been told by `ended`."""
        return self._running[number]

    def ended(self) -> dict[int, int]:
        """Return codes of those that ended since the last call (negative: a signal)."""
        codes = {number: process.poll() for number, process in self._running.items()}
        over = {number: code for number, code in codes.items() if code is not None}
        for number in over:
            del self._running[number]
        return over

    def running(self) -> list[int]:
        """Numbers of those whose end `ended` has not told."""
        return list(self._running)

    def close(self) -> None:
        """Close what is left of their pipes; when all have ended."""
        for process in self._started:
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()

    def stop(self, grace_s: float) -> None:
        """End all that still run: SIGTERM, then SIGKILL after `grace_s`. Bounded."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        self._wait(grace_s)
        self._signal(signal.SIGKILL)
        self._wait(_REAP_S)

    def _signal(self, number: signal.Signals) -> None:
        """To the whole session of each: a child's own children end with it."""
        self.ended()
        for process in self._running.values():
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                continue

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._running and time.monotonic() < deadline:
            self.ended()
            time.sleep(0.01)


def _spawn(child: Child) -> subprocess.Popen[bytes]:
    words, environment = list(child.command), dict(child.environment)
    if child.log is None:
        return subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    with FileIO(child.log, "a", opener=private) as log:
        return subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
