"""`python -P -m wirespeed.launchers.node.agent`: starts one node's ranks, and ends them.

Reads an order, one line of JSON (`node.torchrun.order`), from stdin and starts what it says; their
output goes straight to this process's own. It ends with their exit code. When stdin is closed (the
launching process or its connection is gone), when nothing came from there for `silence_s` (the
network is cut, and nobody tells), or on SIGTERM, SIGHUP and SIGINT, it ends everything that it has
started, also what has made a session of its own or ignores SIGTERM. Standard library only.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from wirespeed import __version__
from wirespeed.process import shell_code
from wirespeed.process.guard import StopRequest, adopt_orphans, death_signal, end_descendants, reap

_ORDER_S = 60.0
_LOOK_S = 0.1
_LONGEST = 1 << 26
_LOST = 255
"""What ssh itself ends with when it fails: never ours."""


class _Refused(Exception):
    """Nothing was started; the text says why."""


def main() -> int:
    """Obey one order; the exit code of what it started (128 + n for signal n)."""
    try:
        agent = _Agent(_read_order())
        agent.start()
    except _Refused as error:
        sys.stderr.write(f"wirespeed: {error}\n")
        return 3
    return agent.watch()


def _read_order() -> dict[str, Any]:
    """The order; _Refused where none comes."""
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
    try:
        order: dict[str, Any] = json.loads(text.partition(b"\n")[0])
    except ValueError:
        raise _Refused("the order is no JSON") from None
    if not isinstance(order, dict) or order.get("version") != __version__:
        raise _Refused(f"the order is of another wirespeed than {__version__}, which is here")
    return order


class _Agent:
    """What was ordered, as processes."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._order = order
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._stop = StopRequest(stdin="always", silence_s=order["silence_s"])
        self._code = 0

    def start(self) -> None:
        """Start all; _Refused names what could not be started, and none of it is left."""
        adopt_orphans()
        # As in an activated environment: this Python's folder comes first.
        path = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        environment = {**os.environ, "PATH": os.pathsep.join(path), **self._order["environment"]}
        for one in self._order["start"]:
            words = one["words"]
            try:
                process = subprocess.Popen(
                    words,
                    env={**environment, **one["environment"]},
                    stdin=subprocess.DEVNULL,
                    preexec_fn=death_signal(signal.SIGTERM),
                )
            except (OSError, ValueError) as error:
                end_descendants(0.0)
                raise _Refused(f"cannot start {words[0]}: {error}") from None
            self._running[process.pid] = process

    def watch(self) -> int:
        """Until all have ended, or must; the exit code."""
        while self._running and not self._stop.reason:
            self._stop.wait(_LOOK_S)
            self._reap()
        if self._stop.reason == "silence":
            silence_s = self._order["silence_s"]
            self._say(f"no sign of life from the launching machine for {silence_s:g} s")
        code = self._stop.code if self._running else self._code
        end_descendants(self._order["grace_s"] + 1.0)
        return code if code != _LOST else _LOST - 1

    def _reap(self) -> None:
        """Take note of what has ended; orphans that became ours are reaped, too."""
        for pid, code in reap().items():
            process = self._running.pop(pid, None)
            if process is not None:
                process.returncode = code
                self._code = self._code or shell_code(code)

    def _say(self, text: str) -> None:
        """On stderr, unless that would block since nobody reads."""
        with suppress(OSError):
            if select.select([], [2], [], 0)[1]:
                os.write(2, f"wirespeed: {text}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
