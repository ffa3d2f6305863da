"""The session's end of one connection: sealed lines in and out, never blocking."""

import socket

from wirespeed.watchdog.protocol import (
    HELLO_LIMIT,
    LINE_LIMIT,
    Greeting,
    Hello,
    LineBuffer,
    Message,
    ProtocolError,
    decode,
    encode,
    new_token,
)
from wirespeed.watchdog.seals import SEAL_BYTES, LineSeal, hello_seal, session_seals

__all__ = ["Connection"]

_READ_BYTES = 256 * 1024
_UNSENT_LIMIT = 1024 * 1024


class Connection:
    """One accepted socket; `rank` is None until it is one's, `hello` until it knew the run's key."""

    def __init__(self, accepted: socket.socket, address: tuple[str, int], now: float) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = accepted
        self.peer = address[0]
        self.address = f"{address[0]}:{address[1]}"
        self.opened_at = now
        self.rank: int | None = None
        self.hello: Hello | None = None
        self._lines = LineBuffer(HELLO_LIMIT)
        self._nonce = new_token()
        self._in: LineSeal | None = None
        self._out: LineSeal | None = None
        self._unsent = bytearray(encode(Greeting(self._nonce)))
        self.flush()

    @property
    def wants_to_write(self) -> bool:
        return bool(self._unsent)

    def meet(self, token: str, line: bytes) -> Hello:
        """The first line of a rank that knows the run's key; ProtocolError for any other."""
        hello = decode(hello_seal(token, self._nonce).opened(line))
        if not isinstance(hello, Hello):
            raise ProtocolError(f"{type(hello).__name__} without hello")
        self._in, self._out = session_seals(token, self._nonce, hello.nonce)
        self.hello = hello
        return hello

    def trust(self, rank: int) -> None:
        """It is that rank's: longer lines are allowed from now on."""
        self.rank = rank
        self._lines.limit = LINE_LIMIT + SEAL_BYTES

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

    def message(self, line: bytes) -> Message:
        """What the rank says. Raises ProtocolError for what it did not say."""
        if self._in is None:
            raise ProtocolError("a line before hello")
        return decode(self._in.opened(line))

    def send(self, message: Message) -> None:
        """Queue and send what goes; a peer that takes nothing costs at most 1 MiB."""
        if self._out is not None and len(self._unsent) < _UNSENT_LIMIT:
            self._unsent += self._out.sealed(encode(message))
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
