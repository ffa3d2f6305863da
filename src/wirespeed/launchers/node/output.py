"""What the ranks of a node say, passed on to the stdout and stderr of the process that started them."""

import json
import math
import os
import selectors
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from subprocess import Popen

from wirespeed.errors import WorldError
from wirespeed.launchers.frames import EXIT, MARK, VARIABLE, Writer

__all__ = ["NodeOutput"]

LOOK_S = 0.05
PUSHER_BYTES = 4096
"""PIPE_BUF: the longest line that two nodes can write into one pipe without mixing them up; and
what Python up to 3.13 reads from a pipe at once."""
_READ = 1 << 16
_PUSHER = "t"
"""A kind of frame that tells nothing: `supervise` passes over it."""


class NodeOutput:
    """Whole lines, as soon as they come, from any number of processes."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._token = environ.get(VARIABLE, "").partition(",")[0]
        self._pusher = _pusher(self._token) if self._token else []
        self._pipes = selectors.DefaultSelector()
        self._rests: dict[int, bytes] = {}
        self._to_push = False
        self._pushed_at = 0.0
        self._muted = False

    def add(self, process: "Popen[bytes]") -> None:
        if process.stdout is None or process.stderr is None:
            raise WorldError("a rank has no pipes", expected="stdout and stderr")
        self._pipes.register(process.stdout, selectors.EVENT_READ, 1)
        self._pipes.register(process.stderr, selectors.EVENT_READ, 2)

    def open(self) -> bool:
        """Whether anything may still come."""
        return bool(self._pipes.get_map())

    def mute(self) -> None:
        """Pass nothing on any more."""
        self._muted = True

    def say(self, text: str) -> None:
        """A line of our own on stderr."""
        _write(2, text.encode() + b"\n")

    def tell_end(self, rank: int, code: int) -> None:
        """In the place of a wrapper that was killed and cannot."""
        if self._token and not self._muted:
            _write(1, Writer(self._token, rank, os.uname().nodename).frame(EXIT, str(code)))
            self._to_push = True

    def relay(self) -> None:
        """Pass on what there is; wait a moment for it."""
        if not self.open():
            time.sleep(LOOK_S)
        ready = self._pipes.select(LOOK_S) if self.open() else []
        for key, _ in ready:
            self._read(key)
        if not ready or time.monotonic() > self._pushed_at + 4 * LOOK_S:
            self.push()

    def _read(self, key: selectors.SelectorKey) -> None:
        data = os.read(key.fd, _READ)
        *lines, rest = (self._rests.pop(key.fd, b"") + data).split(b"\n")
        if not data:
            self._pipes.unregister(key.fileobj)
            lines, rest = [*lines, *filter(None, [rest])], b""
        if rest:
            self._rests[key.fd] = rest
        if not self._muted:
            for line in lines:
                _write(key.data, line + b"\n")
            self._to_push = self._to_push or bool(lines)

    def push(self) -> None:
        """Make whoever reads our lines one by one look up until the last.

        Metaflow's runtime (2.19.39, `Worker.read_logline`) reads one line each time that the pipe
        has something, through a buffer: of lines that came together it shows the first, and the
        others wait in the buffer until something else comes. A line as long as that buffer does.
        """
        if self._to_push:
            for line in self._pusher:
                _write(1, line)
        self._to_push, self._pushed_at = False, time.monotonic()

    def close(self) -> None:
        """A process that outlived its wrapper may hold the pipes: they are read no longer."""
        for key in list(self._pipes.get_map().values()):
            self._pipes.unregister(key.fileobj)
        self._pipes.close()


def _pusher(token: str) -> Sequence[bytes]:
    """Lines of `PUSHER_BYTES` that are together as long as a reader's buffer.

    Python 3.14 reads from a pipe all that it can hold, 64 KiB.
    """
    line = f"{MARK}{token} -1 - {_PUSHER} 0 {json.dumps('')}".ljust(PUSHER_BYTES - 1) + "\n"
    buffer = PUSHER_BYTES if sys.version_info < (3, 14) else 1 << 16
    return [line.encode()] * math.ceil(buffer / PUSHER_BYTES)


def _write(handle: int, line: bytes) -> None:
    """Whole, whatever else happens; nobody may be left to read it."""
    with suppress(OSError):
        while line:
            line = line[os.write(handle, line) :]
