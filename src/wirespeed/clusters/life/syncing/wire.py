"""Frames through one kubectl process: everything is bounded, and can be given up at any time."""

import json
import os
import selectors
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from wirespeed.clusters.life.syncing.far.pipe import CHUNK, HEAD, MOST

__all__ = ["Lost", "Refusal", "Stopped", "Wire"]

STALL_S = 60.0
"""No byte in either direction for so long: the pod, its node or the way there is gone."""
_LOOK_S = 0.2
_END_S = 10.0
_PIECE = 1 << 16
_WORDS = 4000
"""Characters of stderr that are kept."""


class Lost(Exception):
    """The process ended, or fell silent, before all was said."""

    def __init__(self, code: int | None, said: str) -> None:
        super().__init__(said)
        self.code = code
        """None: it was silent, and was ended."""
        self.said = said


class Refusal(Exception):
    """The pod's side told of trouble: an X frame."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(str(told.get("text", "")))
        self.kind = str(told.get("kind", "other"))
        self.told = told


class Stopped(Exception):
    """Somebody else wants this to end."""


class Wire:
    """One process; a context that ends it."""

    def __init__(self, words: Sequence[str], stop: threading.Event) -> None:
        self._stop = stop
        self._err = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the wire
        self._process = subprocess.Popen(
            list(words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._err,
            start_new_session=True,
        )
        self._in, self._out = _pipes(self._process)
        self._moved = time.monotonic()
        self._raw = bytearray()
        self._frames: deque[tuple[bytes, bytes]] = deque()
        self._unsent = bytearray()
        self._both, self._reading = selectors.DefaultSelector(), selectors.DefaultSelector()
        self._both.register(self._in, selectors.EVENT_WRITE)
        for selector in (self._both, self._reading):
            selector.register(self._out, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        process = self._process
        if kind is not None:
            process.kill()
        self._both.close()
        self._reading.close()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._err.close()

    def send(self, kind: bytes, told: Any) -> None:
        """One frame; told: bytes as they are, anything else as JSON. Trouble that came is raised."""
        data = told if isinstance(told, bytes) else json.dumps(told).encode()
        self._unsent += HEAD.pack(kind, len(data)) + data
        if len(self._unsent) >= CHUNK:
            self._flush()

    def begin(self, text: bytes) -> None:
        """Bytes before the first frame."""
        self._unsent += text

    def receive(self) -> tuple[bytes, Any]:
        """The next frame that is no sign of life: its kind and what it tells."""
        self._flush()
        while True:
            while self._frames:
                kind, data = self._frames.popleft()
                if kind != b"T":
                    return kind, _json(data)
            for _ in self._ready(self._reading):
                self._take()

    def _flush(self) -> None:
        """Write all; what comes in meanwhile is kept."""
        view = memoryview(bytes(self._unsent))
        self._unsent.clear()
        while view:
            for key, _ in self._ready(self._both):
                if key.fd == self._out:
                    self._take()
                else:
                    view = view[self._put(view[:_PIECE]) :]

    def _ready(self, selector: selectors.BaseSelector) -> list[tuple[selectors.SelectorKey, int]]:
        if self._stop.is_set():
            raise Stopped
        ready = selector.select(_LOOK_S)
        if ready:
            self._moved = time.monotonic()
        elif time.monotonic() - self._moved > STALL_S:
            self._process.kill()
            raise Lost(None, f"no answer for {STALL_S:.0f} s")
        return ready

    def _put(self, piece: memoryview) -> int:
        try:
            return os.write(self._in, piece)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise self._ended() from None

    def _take(self) -> None:
        try:
            data = os.read(self._out, _PIECE)
        except BlockingIOError:
            time.sleep(0.01)
            return
        if not data:
            raise self._ended()
        self._raw += data
        while len(self._raw) >= HEAD.size:
            kind, size = HEAD.unpack_from(self._raw)
            if size > MOST or kind not in b"TPQZX":
                raise Lost(0, "an answer that is none of ours")
            if len(self._raw) < HEAD.size + size:
                return
            data = bytes(self._raw[HEAD.size : HEAD.size + size])
            del self._raw[: HEAD.size + size]
            if kind == b"X":
                raise Refusal(_json(data))
            self._frames.append((kind, data))

    def _ended(self) -> Lost:
        """The other end closed: with its code and its last words."""
        try:
            code: int | None = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = None
        self._err.seek(0, os.SEEK_END)
        self._err.seek(max(0, self._err.tell() - _WORDS))
        return Lost(code, self._err.read().decode("utf-8", "replace").strip())


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise Lost(0, "an answer that is none of ours") from error


def _pipes(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """(its stdin, its stdout), neither of which ever blocks."""
    fds = [pipe.fileno() for pipe in (process.stdin, process.stdout) if pipe is not None]
    for fd in fds:
        os.set_blocking(fd, False)
    return fds[0], fds[1]
