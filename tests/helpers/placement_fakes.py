"""The metadata services of three clouds as loopback servers, as strict as the real ones.

AWS gives nothing without the token that its PUT gave, Azure nothing without `Metadata: true` and a
version it knows, Google nothing without `Metadata-Flavor: Google`, which its answers carry too.
"""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Reply = tuple[int, dict[str, str], str]
"""Status, headers, body."""
TOKEN = "AQAEAFake-Token_of-this/test=="
HTML = "<!DOCTYPE html><html><body>Sign in to the guest network</body></html>"
BOUND_S = 5.0
"""No fake holds a client longer, whatever happens."""


@dataclass
class Fake:
    """A running service: its address, and every request that came (method, path, headers)."""

    url: str
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def paths(self) -> list[str]:
        return [path for _, path, _ in self.asked]


Answering = Callable[[str, str, dict[str, str]], Reply]
"""(method, path with query, headers by name in lower case) to a reply."""


@contextmanager
def serving(reply: Answering, how: str = "", ca: Path | None = None) -> Iterator[Fake]:
    """Serve until the end of the block.

    `how`: `silent` takes connections and never answers, `drip` and `drip head` send a byte
    of the body or head now and then, `cut` breaks off within the body, `big` sends far too much;
    "" answers with `reply`. `ca`: speak TLS with the certificate and key in that file.
    """
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            fake.asked.append((self.command, self.path, headers))
            if how == "silent":
                over.wait(BOUND_S)
                return
            with suppress(BrokenPipeError, ConnectionResetError):  # the client had enough
                self._send(*reply(self.command, self.path, headers))

        do_GET = do_PUT = _answer

        def _send(self, status: int, headers: dict[str, str], body: str) -> None:
            content = body.encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if how in ("drip", "drip head", "big"):
                if how != "drip head":
                    self.end_headers()
                size, pause, times = (10_000, 0.0, 100) if how == "big" else (1, 0.2, 25)
                while times and not over.wait(pause):
                    self.wfile.write(b"a" * size)
                    times -= 1
                return
            self.send_header("Content-Length", str(len(content) + (how == "cut")))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False  # so that closing waits for them
    if ca is not None:
        server.socket = _secured(server.socket, ca)
    scheme = "http" if ca is None else "https"
    fake = Fake(f"{scheme}://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield fake
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _secured(listening: socket.socket, ca: Path) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca)
    return context.wrap_socket(listening, server_side=True)


def aws(values: dict[str, str], *, token: Reply | None = None, takes: str = TOKEN) -> Answering:
    """IMDSv2 with these paths below /latest/meta-data; it takes only the token `takes`."""

    def reply(method: str, path: str, headers: dict[str, str]) -> Reply:
        if path == "/latest/api/token":
            lifetime = headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
            if method != "PUT":
                return 405, {}, ""
            if not lifetime.isdecimal() or not 1 <= int(lifetime) <= 21600:
                return 400, {}, ""
            if "x-forwarded-for" in headers:
                return 403, {}, ""
            return token or (200, {"Content-Type": "text/plain"}, TOKEN)
        if headers.get("x-aws-ec2-metadata-token") != takes:
            return 401, {"Content-Type": "text/html"}, HTML
        name = path.removeprefix("/latest/meta-data/")
        if method != "GET" or name not in values:
            return 404, {"Content-Type": "text/html"}, HTML
        return 200, {"Content-Type": "text/plain"}, values[name]

    return reply


def aws_node(zone: str = "us-east-1a", zone_id: str = "use1-az4", **more: str) -> dict[str, str]:
    """What an instance says; keywords are paths with _ for both - and /."""
    values = {
        "placement/availability-zone": zone,
        "placement/availability-zone-id": zone_id,
        "placement/region": "us-east-1",
        "instance-type": "p5.48xlarge",
    }
    return values | {f"placement/{name.replace('_', '-')}": value for name, value in more.items()}


def azure(compute: dict[str, Any] | str) -> Answering:
    """The compute document, for a request with the header and a version that is known."""

    def reply(method: str, path: str, headers: dict[str, str]) -> Reply:
        parts = urlsplit(path)
        query = parse_qs(parts.query)
        if headers.get("metadata") != "true" or "x-forwarded-for" in headers:
            return 400, {"Content-Type": "application/json"}, '{"error":"Bad request"}'
        if query.get("api-version") != ["2023-07-01"] or query.get("format") != ["json"]:
            return 400, {"Content-Type": "application/json"}, '{"error":"Bad request"}'
        if method != "GET" or parts.path != "/metadata/instance/compute":
            return 404, {"Content-Type": "application/json"}, '{"error":"Not found"}'
        body = compute if isinstance(compute, str) else json.dumps(compute)
        return 200, {"Content-Type": "application/json"}, body

    return reply


def azure_node(zone: str = "2", **more: str) -> dict[str, Any]:
    compute = {"location": "eastus", "zone": zone, "vmSize": "Standard_ND96isr_H100_v5"}
    return compute | {"placementGroupId": "f67c14ab-e92c-408c-ae2d-da15866ec79a"} | more


def gcp(values: dict[str, str], *, flavor: bool = True) -> Answering:
    """The values below /computeMetadata/v1/instance; `flavor`: answers carry Google's header."""

    def reply(method: str, path: str, headers: dict[str, str]) -> Reply:
        ours = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM"} if flavor else {}
        if headers.get("metadata-flavor") != "Google" or "x-forwarded-for" in headers:
            return 403, ours, HTML
        name = path.removeprefix("/computeMetadata/v1/instance/")
        if method != "GET" or name not in values:
            return 404, ours, HTML
        return 200, ours, values[name]

    return reply


def gcp_node(zone: str = "us-central1-a", host: str = "/b1/s2/h3") -> dict[str, str]:
    return {
        "zone": f"projects/123456/zones/{zone}" if zone else "",
        "machine-type": "projects/123456/machineTypes/a3-megagpu-8g",
        "attributes/physical_host": host,
    }


def always(status: int, body: str, **headers: str) -> Answering:
    """The same to everybody, as a proxy or a login page answers."""
    return lambda method, path, received: (status, headers, body)
