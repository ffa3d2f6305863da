"""One small HTTP request with a bound on all of it.

Standard clients bound each single read, so a server that sends a byte now and then holds them for
ever; here every read gets only what is left until the deadline. It follows no redirect and knows
no proxy: what a metadata service says must come from the address that was asked. Name resolution
alone is not bounded here; `gather` does not wait for it.
"""

import io
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from wirespeed.node.placement import NoAnswer

if TYPE_CHECKING:
    import socket
    from http.client import HTTPResponse


_LIMIT = 256 << 10
"""Bytes of an answer; a Kubernetes node with its images has some tens of KiB."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    text: str


def is_address(url: str) -> bool:
    """Whether it is `http://HOST[:PORT]` or https, without user, query or blanks."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, brackets without an address
        return False
    plain = url.isascii() and url.isprintable() and not set(url) & set(" @?#")
    return known and plain


@dataclass(frozen=True, slots=True)
class Service:
    """A service at `url` that is asked until `deadline` (time.monotonic) and no longer."""

    url: str
    deadline: float
    cafile: Path | None = None
    """Authority that an https service's certificate must be signed by; None: the system's."""

    def ask(self, path: str, headers: Mapping[str, str], *, method: str = "GET") -> Answer:
        """The answer, whatever its status is; NoAnswer where there is none or it is a redirect."""
        from http.client import HTTPException

        where = urlsplit(self.url).netloc
        try:
            answer = self._exchange(path, headers, method)
        except TimeoutError:
            raise NoAnswer(f"{where} gave no answer in time") from None
        except OSError as error:
            raise NoAnswer(f"{where} cannot be reached: {error.strerror or error}") from None
        except UnicodeError:
            raise NoAnswer(f"{where} is no host name") from None
        except HTTPException:
            raise NoAnswer(f"{where} does not speak HTTP, or its answer was cut short") from None
        if 300 <= answer.status < 400:
            raise NoAnswer(f"{where} answers with a redirect ({answer.status}); none is followed")
        return answer

    def _exchange(self, path: str, headers: Mapping[str, str], method: str) -> Answer:
        from http.client import HTTPConnection

        parts = urlsplit(self.url)
        host, port, left = parts.hostname or "", parts.port, _left(self.deadline)
        connection = HTTPConnection(host, port, timeout=left)
        if parts.scheme == "https":
            import ssl
            from http.client import HTTPSConnection

            context = ssl.create_default_context(cafile=self.cafile)
            connection = HTTPSConnection(host, port, timeout=left, context=context)
        sent = {**headers, "Accept": "*/*", "Connection": "close"}
        with closing(connection):
            connection.connect()
            connection.sock.settimeout(_left(self.deadline))
            connection.request(method, f"{parts.path.rstrip('/')}{path}", headers=sent)
            return _received(connection.sock, self.deadline, method)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _Bounded(io.RawIOBase):
    """What comes from a socket, each read with what is left of the time."""

    def __init__(self, connection: "socket.socket", deadline: float) -> None:
        self._connection, self._deadline = connection, deadline

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What HTTPResponse asks of a socket."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._connection.settimeout(_left(self._deadline))
        return self._connection.recv_into(buffer)


def _received(connection: "socket.socket", deadline: float, method: str) -> Answer:
    from http.client import HTTPException, HTTPResponse

    stream = cast("socket.socket", _Bounded(connection, deadline))
    with HTTPResponse(stream, method=method) as response:
        response.begin()
        body = response.read(_LIMIT + 1)
        if len(body) > _LIMIT or len(body) < _announced(response):
            raise HTTPException
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, body.decode("utf-8", "replace"))


def _announced(response: "HTTPResponse") -> int:
    """Bytes that the answer was to have; read() tells nothing of a connection that broke off."""
    said = response.headers.get("Content-Length", "")
    return int(said) if said.isdecimal() else 0
