"""The wire form between ranks and console: one JSON object a line over TCP.

The console says `Greeting`, the rank answers `Hello`; until then a line may be 4 KiB long, afterwards
16 MiB. The console answers `Welcome` or `Refused`. All but the greeting is sealed (seals.py): what
stands here is known to come from this run before any of it is read. Then, in any order:

    rank to console   Beat      every 0.5 s and at each change of phase
                      Record    a result; order is kept
                      Failed    an exception, with its traceback
                      StackText the answer to StackRequest
                      Bye       the results are complete and the process is about to end
    console to rank   StackRequest, Abort, and Bye as the receipt of a rank's Bye
"""

import json
import os
from dataclasses import MISSING, dataclass, fields
from typing import Any

__all__ = [
    "HEARTBEAT_S",
    "HELLO_LIMIT",
    "LINE_LIMIT",
    "Abort",
    "Beat",
    "Bye",
    "Failed",
    "Greeting",
    "Hello",
    "LineBuffer",
    "Message",
    "ProtocolError",
    "Record",
    "Refused",
    "StackRequest",
    "StackText",
    "Welcome",
    "decode",
    "encode",
    "new_token",
]

HEARTBEAT_S = 0.5
"""Seconds between two heartbeats of a rank."""
HELLO_LIMIT = 4 * 1024
"""Bytes of a line from somebody who has not shown that he knows the run's key."""
LINE_LIMIT = 16 * 1024 * 1024
"""Bytes of a line from a rank; node facts of a large machine stay far below."""


class ProtocolError(ValueError):
    """A line that is no message, or is too long."""


@dataclass(frozen=True, slots=True)
class Greeting:
    nonce: str


@dataclass(frozen=True, slots=True)
class Hello:
    nonce: str
    """The rank's own, so that no answer of an earlier time fits."""
    rank: int
    world_size: int
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class Welcome:
    pass


@dataclass(frozen=True, slots=True)
class Refused:
    reason: str


@dataclass(frozen=True, slots=True)
class Beat:
    phase: str
    detail: str
    op: str
    sequence: int
    ticks: int
    age: float
    """Seconds since the phase or operation began, by the rank's own clock."""
    bound: float
    """Seconds that the phase may go without progress; 0: the console's default."""


@dataclass(frozen=True, slots=True)
class Record:
    kind: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Failed:
    error: str
    """The exception's last line, such as `ValueError: no`."""
    trace: str


@dataclass(frozen=True, slots=True)
class StackRequest:
    pass


@dataclass(frozen=True, slots=True)
class StackText:
    text: str
    recent: list[Any]
    """The last operations as [sequence, label]."""


@dataclass(frozen=True, slots=True)
class Abort:
    reason: str


@dataclass(frozen=True, slots=True)
class Bye:
    exit_code: int = 0


Message = (Greeting | Hello | Welcome | Refused | Beat | Record | Failed) | (
    StackRequest | StackText | Abort | Bye
)

_TYPES: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (
        *(Greeting, Hello, Welcome, Refused, Beat, Record),
        *(Failed, StackRequest, StackText, Abort, Bye),
    )
}
_JSON_TYPES: dict[Any, tuple[type, ...]] = {str: (str,), int: (int,), float: (int, float)}


def _checks(kind: type[Message]) -> dict[str, tuple[type, ...]]:
    containers = {"data": (dict,), "recent": (list,)}
    return {f.name: containers.get(f.name) or _JSON_TYPES[f.type] for f in fields(kind)}


_CHECKS = {name: _checks(kind) for name, kind in _TYPES.items()}
_OPTIONAL = {
    name: {f.name for f in fields(kind) if f.default is not MISSING}
    for name, kind in _TYPES.items()
}


def new_token() -> str:
    """A fresh key for one run, or a nonce."""
    return os.urandom(16).hex()


def encode(message: Message) -> bytes:
    """The line, with its newline. Raises TypeError for data that JSON cannot carry."""
    kind = type(message)
    body = {name: getattr(message, name) for name in _CHECKS[kind.__name__]}
    return json.dumps({"type": kind.__name__, **body}, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Raises ProtocolError for anything that is not exactly one known message."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {line[:80]!r}") from error
    name = data.pop("type", None) if isinstance(data, dict) else None
    kind = _TYPES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ProtocolError(f"not a message: {line[:80]!r}")
    checks = _CHECKS[kind.__name__]
    if data.keys() - checks.keys() or checks.keys() - data.keys() - _OPTIONAL[kind.__name__]:
        raise ProtocolError(f"{name} has the fields {sorted(data)}, expected {sorted(checks)}")
    for field, value in data.items():
        if not isinstance(value, checks[field]):
            raise ProtocolError(f"{name}.{field} is {value!r:.80}")
    return kind(**data)


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
