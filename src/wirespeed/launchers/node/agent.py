"""`python -P -m wirespeed.launchers.node.agent`: starts one node's ranks, and ends them.

Reads an order, one line of JSON (`node.words.order`), from stdin and starts what it says; their
output goes straight to this process's own. It ends with their exit code. When stdin is closed (the
launching process or its connection is gone), when nothing came from there for `silence_s` (the
network is cut, and nobody tells), or on SIGTERM, SIGHUP and SIGINT, it ends everything that it has
started, also what has made a session of its own or ignores SIGTERM. Standard library only.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from wirespeed import __version__

__all__ = ["main"]

_ORDER_S = 60.0
_LOOK_S = 0.1
_REAP_S = 5.0
"""After SIGKILL a process ends at once, unless the kernel holds it."""
_LONGEST = 1 << 26
_SET_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
"""Options of prctl(2)."""
_LOST = 255
"""What ssh itself ends with when it fails: never ours."""
_HUNG_UP = 128 + signal.SIGHUP


class _Refused(Exception):
    """Nothing was started; the text says why."""


def main() -> int:
    """Obey one order; the exit code of what it started (128 + n for signal n)."""
    try:
        order, rest = _read_order()
        agent = _Agent(order)
        agent.start()
    except _Refused as error:
        sys.stderr.write(f"wirespeed: {error}\n")
        return 3
    return agent.watch(rest)


def _read_order() -> tuple[dict[str, Any], bytes]:
    """The order, and what came after its line; _Refused where none comes."""
    text, until = b"", time.monotonic() + _ORDER_S
    while b"\n" not in text:
        left = until - time.monotonic()
        if left <= 0 or len(text) > _LONGEST:
            raise _Refused("no order came over stdin")
        if select.select([0], [], [], left)[0]:
            data = os.read(0, 1 << 16)
            if not data:
                raise _Refused("the connection was closed before the order came")
            text += data
    line, _, rest = text.partition(b"\n")
    try:
        order: dict[str, Any] = json.loads(line)
    except ValueError:
        raise _Refused("the order is no JSON") from None
    if not isinstance(order, dict) or order.get("version") != __version__:
        raise _Refused(f"the order is of another wirespeed than {__version__}, which is here")
    return order, rest


class _Agent:
    """What was ordered, as processes."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._starts: list[dict[str, Any]] = order["start"]
        self._environment: dict[str, str] = order["environment"]
        self._grace_s: float = order["grace_s"]
        self._silence_s: float = order["silence_s"]
        self._prctl = ctypes.CDLL(None).prctl
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._code = 0
        self._signalled = 0

    def start(self) -> None:
        """Start all; _Refused names what could not be started, and none of it is left."""
        self._prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self._hear_signal)
        for one in self._starts:
            words = one["words"]
            try:
                process = self._spawn(words, one["environment"])
            except (OSError, ValueError) as error:
                self._end(0.0)
                raise _Refused(f"cannot start {words[0]}: {error}") from None
            self._running[process.pid] = process

    def watch(self, heard: bytes) -> int:
        """Until all have ended, or must; the exit code."""
        last = time.monotonic()
        while self._running:
            try:
                if self._hears():
                    last = time.monotonic()
            except EOFError:
                return self._over(_HUNG_UP)
            if self._signalled:
                return self._over(128 + self._signalled)
            if self._silence_s and time.monotonic() - last > self._silence_s:
                self._say(f"no sign of life from the launching machine for {self._silence_s:g} s")
                return self._over(_HUNG_UP)
            self._reap()
        return self._over(self._code)

    # Starting.

    def _spawn(self, words: list[str], own: Mapping[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words,
            env={**os.environ, **self._with_path(), **self._environment, **own},
            stdin=subprocess.DEVNULL,
            preexec_fn=_dies_with(os.getpid(), self._prctl),
        )

    def _with_path(self) -> dict[str, str]:
        """As in an activated environment: this Python's folder comes first."""
        path = os.environ.get("PATH", os.defpath)
        return {"PATH": os.pathsep.join([str(Path(sys.executable).parent), path])}

    # Watching.

    def _hear_signal(self, number: int, _: object) -> None:
        self._signalled = number

    def _hears(self) -> bool:
        """Whether anything came within a moment; EOFError when nothing can come any more."""
        if not select.select([0], [], [], _LOOK_S)[0]:
            return False
        if not os.read(0, 1 << 16):
            raise EOFError
        return True

    def _reap(self) -> None:
        """Take note of what has ended; orphans that became ours are reaped, too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            process = self._running.pop(pid, None)
            if process is not None:
                process.returncode = code = os.waitstatus_to_exitcode(status)
                self._code = self._code or (code if code >= 0 else 128 - code)

    # Ending.

    def _over(self, code: int) -> int:
        self._end(self._grace_s + 1.0)
        return code if code != _LOST else _LOST - 1

    def _end(self, grace_s: float) -> None:
        """SIGTERM to each once, as it becomes our child; after the grace SIGKILL to all that is left."""
        told: set[int] = set()
        until = time.monotonic() + grace_s
        while (left := _descendants()) and time.monotonic() < until:
            for pid in {pid for pid, parent in left.items() if parent == os.getpid()} - told:
                _kill(pid, signal.SIGTERM, signal.SIGCONT)
                told.add(pid)
            time.sleep(_LOOK_S / 2)
            self._reap()
        until = time.monotonic() + _REAP_S
        while (left := _descendants()) and time.monotonic() < until:
            for pid in left:
                _kill(pid, signal.SIGKILL)
            time.sleep(_LOOK_S / 5)
            self._reap()

    def _say(self, text: str) -> None:
        """On stderr, unless that would block since nobody reads."""
        with suppress(OSError):
            if select.select([], [2], [], 0)[1]:
                os.write(2, f"wirespeed: {text}\n".encode())


def _dies_with(parent: int, prctl: Callable[..., int]) -> Callable[[], None]:
    """Run in the child: the kernel asks it to end when the agent is gone, however that went."""

    def before_exec() -> None:
        prctl(_SET_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(_HUNG_UP)

    return before_exec


def _descendants() -> dict[int, int]:
    """Parent by pid of every living process below this one."""
    parents: dict[int, int] = {}
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdecimal():
                with suppress(OSError):
                    text = Path(entry.path, "stat").read_text("utf-8", "replace")
                    state, parent = text.rpartition(")")[2].split()[:2]
                    if state != "Z":
                        parents[int(entry.name)] = int(parent)
    below: dict[int, int] = {}
    todo = [os.getpid()]
    while todo:
        found = [pid for pid, parent in parents.items() if parent in todo and pid not in below]
        below |= {pid: parents[pid] for pid in found}
        todo = found
    return below


def _kill(pid: int, *numbers: signal.Signals) -> None:
    for number in numbers:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


if __name__ == "__main__":
    sys.exit(main())
