"""The wire form between ranks and session: one JSON object a line over TCP.

The session says `Greeting`, the rank answers `Hello`; until then a line may be 4 KiB long, afterwards
16 MiB. The session answers `Welcome` or `Refused`. All but the greeting is sealed: what
stands there is known to come from this run before any of it is read, and who lacks the run's key can say
no line, nor change, repeat or reorder those of others. Then, in any order:

    rank to session   Beat      every 0.5 s and at each change of phase
                      Record    a result; order is kept
                      Failed    an exception, with its traceback
                      StackText the answer to StackRequest
                      Bye       the results are complete and the process is about to end
    session to rank   StackRequest, Abort, and Bye as the receipt of a rank's Bye
"""

import hmac
import json
import os
import socket
import time
from typing import Any

import msgspec

HEARTBEAT_S = 0.5
"""Seconds between two heartbeats of a rank."""
HELLO_LIMIT = 4 * 1024
"""Bytes of a line from somebody who has not shown that he knows the run's key."""
LINE_LIMIT = 16 * 1024 * 1024
"""Bytes of a line from a rank; node facts of a large machine stay far below."""


class ProtocolError(ValueError):
    """A line that is no message, or is too long."""


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """On the line its class stands under `type`."""


class Greeting(_Message, frozen=True):
    nonce: str


class Hello(_Message, frozen=True):
    nonce: str
    """The rank's own, so that no answer of an earlier time fits."""
    rank: int
    world_size: int
    host: str
    pid: int


class Welcome(_Message, frozen=True):
    pass


class Refused(_Message, frozen=True):
    reason: str


class Beat(_Message, frozen=True):
    phase: str
    detail: str
    op: str
    sequence: int
    ticks: int
    age: float
    """Seconds since the phase or operation began, by the rank's own clock."""
    bound: float
    """Seconds that the phase may go without progress; 0: the session's default."""


class Record(_Message, frozen=True):
    kind: str
    data: dict[str, Any]


class Failed(_Message, frozen=True):
    error: str
    """The exception's last line, such as `ValueError: no`."""
    trace: str


class StackRequest(_Message, frozen=True):
    pass


class StackText(_Message, frozen=True):
    text: str
    recent: list[Any]
    """The last operations as [sequence, label]."""


class Abort(_Message, frozen=True):
    reason: str


class Bye(_Message, frozen=True):
    exit_code: int = 0


Message = (Greeting | Hello | Welcome | Refused | Beat | Record | Failed) | (
    StackRequest | StackText | Abort | Bye
)


_DECODER: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def new_token() -> str:
    """A fresh key for one run, or a nonce."""
    return os.urandom(16).hex()


def encode(message: Message) -> bytes:
    """The line, with its newline. Raises TypeError for data that JSON cannot carry."""
    # By the standard library: a figure that is not finite, or half of a surrogate pair, crosses too.
    data = msgspec.to_builtins(message, builtin_types=(), str_keys=True)
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Raises ProtocolError for anything that is not exactly one known message."""
    try:
        try:
            return _DECODER.decode(line)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:  # such as of a figure that is not finite
            found: Message = msgspec.convert(json.loads(line), Message)
            return found
    except msgspec.ValidationError as error:
        raise ProtocolError(f"not a message: {error}: {line[:80]!r}") from error
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {line[:80]!r}") from error


class LineBuffer:
    """Cuts a byte stream into lines of at most `limit` bytes; linear in the bytes fed."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without newlines. Raises ProtocolError past `limit`."""
        head, *more = data.split(b"\n")
        self._parts.append(head)
        self._held += len(head)
        if not more:
            self._check(self._held)
            return []
        lines = [b"".join(self._parts), *more[:-1]]
        self._parts = [more[-1]]
        self._held = len(more[-1])
        self._check(max(self._held, *map(len, lines)))
        return lines

    def _check(self, length: int) -> None:
        if length > self.limit:
            raise ProtocolError(f"a line longer than {self.limit} bytes")


# Seals.

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


# The rank's end of a connection, as long as it connects.

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
