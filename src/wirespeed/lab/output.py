"""Where the output of a lab's commands goes: kept for a caller, or shown as it comes."""

import os
import selectors
import sys
import tempfile
import time
from typing import IO, BinaryIO, Protocol

__all__ = ["Captured", "Output", "Shown"]

_CHUNK = 65_536
_DRAIN_S = 2.0
"""A process that outlives its command may hold its output open: no longer than this."""


class Output(Protocol):
    def open(self, node: str) -> tuple[int | None, int | None]:
        """File descriptors for stdout and stderr of that node's command; None: ours."""
        ...

    def started(self, node: str) -> None:
        """The command runs, and has its own copies."""
        ...

    def wait(self, seconds: float) -> None:
        """Spend so much time, at most, with passing output on."""
        ...

    def close(self) -> None: ...

    def text(self, node: str) -> tuple[str, str]:
        """What was kept of stdout and stderr, after `close`."""
        ...


class Captured:
    """Files without a name, so that a command never waits for a reader."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[IO[bytes], IO[bytes]]] = {}
        self._texts: dict[str, tuple[str, str]] = {}

    def open(self, node: str) -> tuple[int | None, int | None]:
        files = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - see close
        self._files[node] = files
        return files[0].fileno(), files[1].fileno()

    def started(self, node: str) -> None:
        return

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        for node, (out, err) in self._files.items():
            self._texts[node] = _all_of(out), _all_of(err)
        self._files = {}

    def text(self, node: str) -> tuple[str, str]:
        return self._texts.get(node, ("", ""))


class Shown:
    """The first node's output is ours; each line of the others begins with the node's name."""

    def __init__(self, first: str) -> None:
        self._first = first
        self._ends: dict[str, list[int]] = {}
        self._lines = selectors.DefaultSelector()

    def open(self, node: str) -> tuple[int | None, int | None]:
        if node == self._first:
            return None, None
        ends = []
        for target in (sys.stdout, sys.stderr):
            read, write = os.pipe()
            lines = _Prefixed(f"[{node}] ".encode(), target.buffer)
            self._lines.register(read, selectors.EVENT_READ, lines)
            ends.append(write)
        self._ends[node] = ends
        return ends[0], ends[1]

    def started(self, node: str) -> None:
        for end in self._ends.pop(node, ()):
            os.close(end)

    def wait(self, seconds: float) -> None:
        if not self._lines.get_map():
            time.sleep(seconds)
            return
        for key, _ in self._lines.select(seconds):
            chunk = os.read(key.fd, _CHUNK)
            key.data.take(chunk)
            if not chunk:
                self._forget(key.fd)

    def close(self) -> None:
        deadline = time.monotonic() + _DRAIN_S
        try:
            while self._lines.get_map() and time.monotonic() < deadline:
                self.wait(0.05)
        finally:
            for node in list(self._ends):
                self.started(node)
            for key in list(self._lines.get_map().values()):
                self._forget(key.fd)
            self._lines.close()

    def text(self, node: str) -> tuple[str, str]:
        return "", ""

    def _forget(self, end: int) -> None:
        self._lines.unregister(end)
        os.close(end)


class _Prefixed:
    """Whole lines only, so that two nodes never share one."""

    def __init__(self, prefix: bytes, target: BinaryIO) -> None:
        self._prefix, self._target, self._rest = prefix, target, b""

    def take(self, chunk: bytes) -> None:
        """An empty chunk is the end."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if not chunk and self._rest:
            lines, self._rest = [self._rest], b""
        if lines:
            self._target.write(b"".join(self._prefix + line + b"\n" for line in lines))
            self._target.flush()


def _all_of(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode("utf-8", "replace")
