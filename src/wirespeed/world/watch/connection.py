"""The console's end of one connection: lines in, messages out, never blocking."""

import socket

from wirespeed.world.watch.protocol import (
    HELLO_LIMIT,
    LINE_LIMIT,
    LineBuffer,
    Message,
    encode,
)

__all__ = ["Connection"]

_READ_BYTES = 256 * 1024
_UNSENT_LIMIT = 1024 * 1024


class Connection:
    """One accepted socket; `rank` is None until it has shown the token."""

    def __init__(self, accepted: socket.socket, now: float) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = accepted
        self.opened_at = now
        self.rank: int | None = None
        self._lines = LineBuffer(HELLO_LIMIT)
        self._unsent = bytearray()

    @property
    def wants_to_write(self) -> bool:
        return bool(self._unsent)

    def trust(self, rank: int) -> None:
        """The token was right: longer lines are allowed from now on."""
        self.rank = rank
        self._lines.limit = LINE_LIMIT

    def read(self) -> list[bytes] | None:
        """The lines that arrived; None at the end of the stream.

        Raises ProtocolError for a line that is too long.
        """
        try:
            data = self.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        return self._lines.feed(data) if data else None

    def send(self, message: Message) -> None:
        """Queue and send what goes; a peer that takes nothing costs at most 1 MiB."""
        if len(self._unsent) < _UNSENT_LIMIT:
            self._unsent += encode(message)
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes now; a broken one is noticed by the next read."""
        try:
            while self._unsent:
                del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()

    def close(self) -> None:
        self.socket.close()
