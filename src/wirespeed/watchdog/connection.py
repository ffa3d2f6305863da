"""A connection between a rank and the session, from either end: dialled, sealed, lines, never blocking.

Who lacks the run's key can say no line, nor change, repeat or reorder those of others.
"""

import hmac
import socket
import time

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

SEAL_BYTES = 32
"""What a seal adds to a line: 16 bytes in hexadecimal."""
_COUNTER_BYTES = 8


class LineSeal:
    """One direction of one connection; both ends make the same one and count the lines."""

    def __init__(self, token: str, *purpose: str) -> None:
        key = hmac.digest(token.encode(), "\n".join(purpose).encode(), "sha256")
        self._keyed = hmac.new(key, digestmod="sha256")
        self._number = 0

    def sealed(self, line: bytes) -> bytes:
        """The next line to send; `line` with its newline."""
        return self._next(line[:-1]) + line

    def opened(self, line: bytes) -> bytes:
        """The next line that came, without its newline. Raises ProtocolError for a wrong seal."""
        seal, text = line[:SEAL_BYTES], line[SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._next(text)):
            raise ProtocolError("a line without the seal of this run")
        return text

    def _next(self, line: bytes) -> bytes:
        mac = self._keyed.copy()
        mac.update(self._number.to_bytes(_COUNTER_BYTES, "big"))
        mac.update(line)
        self._number += 1
        return mac.hexdigest()[:SEAL_BYTES].encode()


def hello_seal(token: str, greeted: str) -> LineSeal:
    """For the rank's first line; `greeted`: the session's nonce."""
    return LineSeal(token, "hello", greeted)


def session_seals(token: str, greeted: str, nonce: str) -> tuple[LineSeal, LineSeal]:
    """(to the session, to the rank) for all that follows a hello, which brought `nonce`."""
    to_session = LineSeal(token, "to the session", greeted, nonce)
    return to_session, LineSeal(token, "to the rank", greeted, nonce)


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


_SEGMENT_BYTES = 500
"""With headers below 576 bytes, which every IPv4 path takes (RFC 791)."""


def read_line(connection: socket.socket, deadline: float) -> bytes:
    """The next line of the session, read byte by byte so that none of what follows is taken."""
    line = bytearray()
    while not line.endswith(b"\n"):
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        byte = connection.recv(1)
        if not byte:
            raise ConnectionError(
                "it closed the connection, so it belongs to another run or is another program"
            )
        line += byte
        if len(line) > HELLO_LIMIT:
            raise ProtocolError("an answer without end")
    return bytes(line[:-1])


def small_segments(host: str, port: int, timeout: float) -> socket.socket:
    """A connection that sends and asks for small packets only, to say what becomes of large ones.

    Where a switch drops large packets, all other connections stall, and this one shall tell it.
    """
    error: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT_BYTES)
            connection.settimeout(timeout)
            connection.connect(address)
        except OSError as problem:
            connection.close()
            error = problem
            continue
        return connection
    raise error


def bound_unacknowledged(connection: socket.socket, seconds: float) -> None:
    """A session whose machine vanished never closes; give up on it like on one that did."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        milliseconds = int(seconds * 1000)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
