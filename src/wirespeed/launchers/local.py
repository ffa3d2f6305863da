"""Ranks as child processes of this one, on this machine."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence

from wirespeed.errors import WorldError
from wirespeed.launchers.base import RankSpec

__all__ = ["LocalLauncher"]

_REAP_S = 5.0
"""After SIGKILL a process ends at once, unless the kernel holds it; then it is left to init."""


class LocalLauncher:
    """Each rank is the leader of a session of its own, so that Ctrl-C reaches only the parent."""

    name = "local"

    def __init__(self) -> None:
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._pids: dict[int, int] = {}

    def start(self, specs: Sequence[RankSpec]) -> None:
        for spec in specs:
            try:
                self._running[spec.rank] = _spawn(spec)
            except OSError as error:
                self.stop(0.0)
                raise WorldError(
                    f"rank {spec.rank} could not be started: {error.strerror}",
                    expected=f"{spec.command[0]} to run with its output in {spec.log}",
                ) from error
            self._pids[spec.rank] = self._running[spec.rank].pid

    def pids(self) -> dict[int, int]:
        return dict(self._pids)

    def ended(self) -> dict[int, int]:
        codes = {rank: process.poll() for rank, process in self._running.items()}
        over = {rank: code for rank, code in codes.items() if code is not None}
        for rank in over:
            del self._running[rank]
        return over

    def stop(self, grace_s: float) -> None:
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        self._wait(grace_s)
        self._signal(signal.SIGKILL)
        self._wait(_REAP_S)

    def _signal(self, number: signal.Signals) -> None:
        """To the whole session of each rank: a rank's own children end with it."""
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


def _spawn(spec: RankSpec) -> subprocess.Popen[bytes]:
    with spec.log.open("ab", buffering=0) as log:
        return subprocess.Popen(
            list(spec.command),
            env=dict(spec.environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
