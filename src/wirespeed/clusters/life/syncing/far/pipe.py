"""Frames on stdin and stdout: one byte for the kind, four for the length, then the payload."""

from __future__ import annotations  # Python below 3.10 does not know X | None

import json
import signal
import struct
import time
from typing import Any, BinaryIO

__all__ = ["CHUNK", "HEAD", "MOST", "Gone", "Pipe", "Trouble"]

HEAD = struct.Struct(">cI")
CHUNK = 1 << 18
"""Bytes of a file that go into one frame."""
MOST = 1 << 26
"""Bytes of the longest frame that is taken."""
_SILENCE_S = 45
"""Who says nothing for so long is gone: not every runtime closes stdin when kubectl is killed."""
_TICK_S = 1.0


class Trouble(Exception):
    """Told to the other side, and the end of this one. Its kind is a word that both sides know."""

    def __init__(self, kind: str, text: str, **more: Any) -> None:
        super().__init__(text)
        self.told = {"kind": kind, "text": text, **more}


class Gone(Exception):
    """The other side is not there any more."""


class Pipe:
    """Frames, and a sign of life while nothing else is said."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source, self._sink = source, sink
        self._said = 0.0

    def read(self) -> tuple[bytes, bytes]:
        """The next frame: its kind and its payload."""
        kind, size = HEAD.unpack(self._exactly(HEAD.size))
        if size > MOST:
            raise Trouble("protocol", f"a frame of {size} bytes")
        return kind, self._exactly(size)

    def write(self, kind: bytes, told: Any) -> None:
        data = json.dumps(told).encode()
        signal.alarm(_SILENCE_S)
        try:
            self._sink.write(HEAD.pack(kind, len(data)) + data)
            self._sink.flush()
        except BrokenPipeError:
            raise Gone from None
        signal.alarm(0)
        self._said = time.monotonic()

    def tick(self, text: str = "") -> None:
        """Still alive; said once a second at most."""
        if time.monotonic() - self._said > _TICK_S:
            self.write(b"T", text)

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            signal.alarm(_SILENCE_S)
            part = self._source.read1(size)  # type: ignore[attr-defined]
            if not part:
                raise Gone
            parts.append(part)
            size -= len(part)
        signal.alarm(0)
        return b"".join(parts)
