"""A small HTTP endpoint for a report: GET only, on this machine only unless it is told otherwise.

Nothing that comes in has a say in what is read: each path is a key of a table. The number of
connections, the time of each and the size of a request are bounded. Who is slow takes nobody's place:
where all are taken, the oldest of who has most of them goes (`node/callers.py`).
"""

import io
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar, cast

from wirespeed import __version__
from wirespeed.errors import CannotMeasure, UsageError, WirespeedError
from wirespeed.node.callers import serve_callers

MOST_CONNECTIONS = 64
TIMEOUT_S = 10.0
"""For one request to come in whole, and again for its answer to be taken."""
_MOST_BYTES = 16 << 10
"""Of a request with its headers."""
_BACKLOG = 256
_ENDS_WITHIN_S = 5.0
_EXPECTED = "HOST:PORT, such as 127.0.0.1:9477 or [::1]:9477; port 0 takes a free one"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a path gives."""

    kind: str
    """The content type."""
    body: bytes


Pages = Mapping[str, Callable[[], Answer]]
"""By path; called for each request, from several threads."""


def parse_listen(text: str, *, anywhere: bool) -> tuple[str, int]:
    """(address, port) of `127.0.0.1:9477`, `localhost:0`, `[::1]:9477`.

    UsageError for anything else, and for an address beyond loopback unless `anywhere`.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise UsageError(f"--listen {text!r} is no address", expected=_EXPECTED)
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise UsageError(f"--listen {text!r}: {host!r} is no IP address", expected=_EXPECTED)
    if not address.is_loopback and not anywhere:
        raise UsageError(
            f"--listen {text} is reachable from other machines, and a report names hosts and settings",
            expected="an address of this machine only, such as 127.0.0.1:9477",
            next="add --anywhere if everybody who reaches that address may read it",
        )
    return str(address), int(port)


class Server:
    """Serves `pages` until the `with` ends; `address` is where."""

    def __init__(self, pages: Pages, host: str, port: int) -> None:
        """CannotMeasure where nobody may listen there, or somebody does already."""
        self.pages, self.check_host = pages, ipaddress.ip_address(host).is_loopback
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise CannotMeasure(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                next="--listen 127.0.0.1:0 takes a free port",
            ) from error
        bound = self._listener.getsockname()
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        self.address = f"http://{shown}:{bound[1]}/"
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="serving", daemon=True)

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join(_ENDS_WITHIN_S)
        self._listener.close()

    def _serve(self) -> None:
        serve_callers(
            self._listener,
            lambda caller: _Handler(caller, ("", 0), cast("Any", self)),
            seconds=2 * TIMEOUT_S,
            at_once=MOST_CONNECTIONS,
            of_one_peer=MOST_CONNECTIONS,
            closing=self._closing.is_set,
        )


class _Handler(BaseHTTPRequestHandler):
    server: Any
    server_version = f"wirespeed/{__version__}"
    sys_version = ""
    timeout = TIMEOUT_S
    _HEADERS: ClassVar = {
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }

    def setup(self) -> None:
        """The request is read whole first: after that nothing waits for its caller byte by byte."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BytesIO(_head(self.connection))

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: a scrape a minute is no news."""

    def _answer(self, *, with_body: bool) -> None:
        status, answer = self._found()
        self.send_response(status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in self._HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)

    def _found(self) -> tuple[HTTPStatus, Answer]:
        if self.server.check_host and not _local_name(self.headers.get("Host", "")):
            # A page of another site whose name was made to point here (DNS rebinding).
            return HTTPStatus.MISDIRECTED_REQUEST, _text("not a name of this machine's loopback\n")
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            known = " ".join(sorted(self.server.pages))
            return HTTPStatus.NOT_FOUND, _text(f"not here; there is {known}\n")
        try:
            return HTTPStatus.OK, page()
        except WirespeedError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, _text(f"{error}\n")


def _head(connection: socket.socket) -> bytes:
    """All until the empty line; TimeoutError where that does not come in time, or in some bytes."""
    data, end = b"", time.monotonic() + TIMEOUT_S
    while b"\r\n\r\n" not in data and b"\n\n" not in data:
        connection.settimeout(max(0.01, end - time.monotonic()))
        piece = connection.recv(4096)
        data += piece
        if not piece or len(data) > _MOST_BYTES or time.monotonic() > end:
            raise TimeoutError
    connection.settimeout(TIMEOUT_S)
    return data


def _text(message: str) -> Answer:
    return Answer("text/plain; charset=utf-8", message.encode("utf-8", "replace"))


def _local_name(host: str) -> bool:
    """Whether a Host header names loopback; the port does not matter."""
    name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.split(":")[0]
    if name.lower() in ("localhost", ""):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
