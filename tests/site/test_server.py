"""The server: real sockets, what it answers, and whom it refuses or hangs up on."""

import base64
import http.client
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from wirespeed.errors import CannotMeasure, InputError, UsageError
from wirespeed.site.access import Access
from wirespeed.site.app import Answer, application
from wirespeed.site.listening import Place, address_of, bound, parse_listen, tls_context
from wirespeed.site.server import MOST_CONNECTIONS, Server

BOUND_S = 10.0
TOKEN = "t" * 32
LARGE = bytes(20 << 20)
LOOPBACK = Place("127.0.0.1")


def damaged(request: Request) -> Response:
    raise InputError("run.json is damaged")


def broken(request: Request) -> Response:
    raise ZeroDivisionError("secret of ours")


def slow(request: Request) -> Response:
    time.sleep(0.1)
    return Answer(b"at last")


PAGES: dict[str, Callable[[Request], Response]] = {
    "/": lambda request: Answer(b"<p>hi", media_type="text/html"),
    "/damaged": damaged,
    "/broken": broken,
    "/slow": slow,
    "/large": lambda request: Answer(LARGE),
    "/runs/{run}": lambda request: Answer(request.path_params["run"]),
}


@contextmanager
def serving(
    place: Place = LOOPBACK, tls: ssl.SSLContext | None = None, **access: Any
) -> Iterator[socket.socket]:
    """A server in a thread; what it listens at."""
    listener = bound(place)
    app = Access(application(PAGES), **{"loopback": not place.others, **access})
    server = Server(app, listener, tls)
    began = threading.Event()
    server.on_started = began.set
    thread = threading.Thread(target=server.serve_until_stopped)
    thread.start()
    try:
        assert began.wait(BOUND_S)
        yield listener
    finally:
        server.should_exit = True
        thread.join(BOUND_S)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving() as listener:
        yield listener.getsockname()[1]


def get(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, str]:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND_S)
    try:
        link.request(method, path, headers=headers)
        answer = link.getresponse()
        return answer.status, answer.read(), answer.headers["Content-Type"]
    finally:
        link.close()


@pytest.mark.hostile("foreign requests")
def test_a_page_is_served_and_nothing_else(port: int, count_attacks: Any) -> None:
    assert get(port, "/")[:2] == (200, b"<p>hi")
    assert get(port, "/?a=b")[:2] == (200, b"<p>hi")
    for path in ("/etc/passwd", "/../etc/passwd", "/%2e%2e/", "/runs/../etc", "/runs/%2e%2e%2fx"):
        assert get(port, path)[0] == 404
    assert get(port, "/", "HEAD")[:2] == (200, b"")
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert get(port, "/", method)[0] == 405
    count_attacks("foreign requests", 9)


@pytest.mark.hostile("foreign requests")
@pytest.mark.parametrize(
    ("path", "there"), [("/slow/?a=b", "/slow?a=b"), ("//large", "/large"), ("//evil.example/", "")]
)
def test_a_slash_too_many_leads_to_the_page_by_its_path_alone(
    port: int, path: str, there: str
) -> None:
    """Behind a proxy the server knows neither the name nor that it is https."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND_S)
    link.request("GET", path)
    answer = link.getresponse()
    link.close()
    assert answer.headers.get("Location", "") == there
    assert answer.status == (307 if there else 404)


def test_answers_say_what_a_browser_may_do_with_them(port: int) -> None:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND_S)
    link.request("GET", "/")
    headers = link.getresponse().headers
    link.close()
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Frame-Options"] == "DENY" and headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers and "Server" not in headers


def test_an_error_of_ours_is_told_a_bug_is_not_and_the_next_request_is_answered(port: int) -> None:
    status, body, _ = get(port, "/damaged")
    assert status == 503 and b"run.json is damaged" in body
    status, body, _ = get(port, "/broken")
    assert status == 500 and b"secret" not in body
    assert get(port, "/")[0] == 200


@pytest.mark.hostile("foreign requests")
@pytest.mark.parametrize("name", ["evil.example", "evil.example:80", "10.0.0.1", "127.0.0.1.evil"])
def test_a_page_elsewhere_cannot_read_it_by_a_name_of_its_own(port: int, name: str) -> None:
    """DNS rebinding."""
    assert get(port, "/", Host=name)[0] == 421


@pytest.mark.parametrize("name", ["localhost:9477", "127.0.0.1", "[::1]:80", "LOCALHOST"])
def test_names_of_loopback_may(port: int, name: str) -> None:
    assert get(port, "/", Host=name)[0] == 200


def test_a_proxy_may_call_it_by_the_name_that_it_was_told() -> None:
    with serving(names=frozenset({"fleet.example.org"})) as listener:
        port = listener.getsockname()[1]
        assert get(port, "/", Host="Fleet.Example.org")[0] == 200
        assert get(port, "/", Host="evil.example")[0] == 421


@pytest.mark.hostile("strangers")
def test_without_the_token_nothing_is_told(count_attacks: Any) -> None:
    with serving(token=TOKEN.encode()) as listener:
        port = listener.getsockname()[1]
        basic = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
        assert get(port, "/", Authorization=f"Bearer {TOKEN}")[0] == 200
        assert get(port, "/", Authorization=f"Basic {basic}")[0] == 200
        wrong = [
            "",
            "Bearer",
            f"Bearer {TOKEN}x",
            f"Bearer {TOKEN[1:]}",
            "Basic ????",
            "Basic Og==",
        ]
        for said in (
            *wrong,
            f"Digest {TOKEN}",
            f"Basic {base64.b64encode(TOKEN.encode()).decode()}",
        ):
            status, body, _ = get(port, "/", Authorization=said)
            assert status == 401 and b"hi" not in body
        assert get(port, "/no/such", Authorization="Bearer x")[0] == 401
    count_attacks("strangers", 9)


@pytest.mark.hostile("slow callers")
@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.0\r\nX: ", b"GET /large HTTP/1.0\r\n\r\n"])
def test_slow_callers_take_nobodys_place(port: int, said: bytes) -> None:
    """They say nothing, never end what they say, or never take the answer."""
    with ExitStack() as stack:
        held = []
        for _ in range(MOST_CONNECTIONS + 80):
            link = stack.enter_context(socket.socket())
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.settimeout(BOUND_S)
            link.connect(("127.0.0.1", port))
            with suppress(ConnectionError):
                link.sendall(said)
            held.append(link)
        assert [get(port, "/")[0] for _ in range(3)] == [200] * 3
        with suppress(ConnectionResetError):
            while held[0].recv(1 << 20):
                pass  # the first had to go, before its time was over


@pytest.mark.hostile("floods")
def test_a_flood_of_requests_ends_and_a_reader_beside_it_is_answered(
    port: int, count_attacks: Any
) -> None:
    """Callers who ask, and leave without the answer: nothing is made for them for long."""
    for number in range(400):
        with socket.create_connection(("127.0.0.1", port), BOUND_S) as link:
            link.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        if number % 100 == 99:
            assert get(port, "/")[:2] == (200, b"<p>hi")
    count_attacks("floods", 400)


def test_a_request_has_one_bound_for_all_its_bytes(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wirespeed.site.server.TIMEOUT_S", 0.3)
    with socket.create_connection(("127.0.0.1", port), BOUND_S) as link:
        link.settimeout(0.05)
        link.sendall(b"GET / HTTP/1.0\r\nX: ")
        closed = False
        for _ in range(200):
            with suppress(TimeoutError):
                try:
                    link.sendall(b"x")
                    closed = link.recv(1) == b""
                except ConnectionError:
                    closed = True
            if closed:
                break
        assert closed


def test_a_request_without_an_end_is_cut_off(port: int) -> None:
    with (
        socket.create_connection(("127.0.0.1", port), BOUND_S) as link,
        suppress(ConnectionError),
    ):
        link.sendall(b"GET / HTTP/1.0\r\nX: " + b"x" * (1 << 20))
        said = b""
        while piece := link.recv(4096):
            said += piece
        assert b"400" in said.split(b"\r\n")[0]


@pytest.mark.slow
def test_the_end_does_not_wait_for_a_page_that_is_being_made() -> None:
    """As a process: neither the loop nor the interpreter may wait for its threads."""
    program = """
import sys, threading
from wirespeed.site.access import Access
from wirespeed.site.app import application
from wirespeed.site.listening import Place, bound
from wirespeed.site.server import Server

def page(request):
    print("asked", flush=True)
    threading.Event().wait(600)

listener = bound(Place("127.0.0.1"))
print(listener.getsockname()[1], flush=True)
Server(Access(application({"/": page}), loopback=True), listener).serve_until_stopped()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as one:
        try:
            assert one.stdout is not None
            with socket.create_connection(
                ("127.0.0.1", int(one.stdout.readline())), BOUND_S
            ) as link:
                link.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert one.stdout.readline() == "asked\n"
                one.send_signal(signal.SIGINT)
                assert one.wait(3 * BOUND_S) == 0
        finally:
            one.kill()


def test_many_readers_of_one_large_page_get_it_whole(port: int) -> None:
    assert get(port, "/large")[1] == LARGE


def test_a_taken_port_is_said_so(port: int) -> None:
    with pytest.raises(CannotMeasure, match="cannot listen"):
        bound(Place("127.0.0.1", port))


def test_a_unix_socket_is_for_its_group_and_a_dead_one_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with serving(Place(path=str(path)), loopback=False):
        assert path.stat().st_mode & 0o777 == 0o660
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(BOUND_S)
            link.connect(str(path))
            link.sendall(b"GET / HTTP/1.1\r\nHost: site.example\r\n\r\n")
            said = b""
            while piece := link.recv(4096):
                said += piece
            assert said.startswith(b"HTTP/1.1 200") and said.endswith(b"<p>hi")
        with pytest.raises(CannotMeasure, match="somebody answers"):
            bound(Place(path=str(path)))
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(CannotMeasure, match="something else"):
        bound(Place(path=str(file)))
    assert file.read_text() == "mine"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of this machine's loopback, and its key."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("Requires: openssl")
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "cert.pem", folder / "key.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=w"
    more = (
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-out",
        str(files[0]),
        "-keyout",
        str(files[1]),
    )
    subprocess.run([program, *words.split(), *more], check=True, capture_output=True, timeout=30)
    return files


@pytest.mark.hostile("slow callers")
def test_under_tls_who_never_shakes_hands_takes_nobodys_place(pair: tuple[Path, Path]) -> None:
    trusts = ssl.create_default_context(cafile=str(pair[0]))
    with serving(tls=tls_context(*pair)) as listener, ExitStack() as stack:
        place = listener.getsockname()
        for _ in range(MOST_CONNECTIONS + 20):
            stack.enter_context(socket.create_connection(place, BOUND_S))
        link = http.client.HTTPSConnection(*place, timeout=BOUND_S, context=trusts)
        link.request("GET", "/large")
        answer = link.getresponse()
        assert answer.status == 200 and answer.read() == LARGE
        link.close()
        with suppress(ConnectionError):
            assert get(place[1], "/")[0] == 0  # plain HTTP is hung up on
    assert tls_context(*pair).minimum_version == ssl.TLSVersion.TLSv1_2


def test_files_that_are_no_certificate_are_said_so(pair: tuple[Path, Path], tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text("no key")
    for certificate, key in ((pair[0], other), (tmp_path / "gone", pair[1]), (pair[1], pair[1])):
        with pytest.raises(UsageError, match="cannot be used"):
            tls_context(certificate, key)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:80", Place("127.0.0.1", 80)),
        ("localhost:0", Place("127.0.0.1", 0)),
        ("[::1]:9477", Place("::1", 9477)),
        ("127.8.8.8:1", Place("127.8.8.8", 1)),
        ("unix:/run/w.sock", Place(path="/run/w.sock")),
    ],
)
def test_places_of_this_machine(text: str, parsed: Place) -> None:
    assert parse_listen(text) == parsed and not parsed.others


@pytest.mark.parametrize("text", ["0.0.0.0:80", "10.0.0.1:80", "[::]:80"])
def test_places_that_others_reach(text: str) -> None:
    assert parse_listen(text).others


@pytest.mark.parametrize(
    "text",
    [
        "",
        "80",
        ":80",
        "127.0.0.1",
        "127.0.0.1:",
        "a.b:80",
        "::1:99999",
        f"127.0.0.1:{'9' * 5000}",
        "unix:x",
        f"unix:/{'x' * 120}",
    ],
)
def test_no_address(text: str) -> None:
    with pytest.raises(UsageError):
        parse_listen(text)


def test_the_address_is_as_a_browser_takes_it() -> None:
    with bound(Place("127.0.0.1")) as listener:
        port = listener.getsockname()[1]
        assert address_of(listener, tls=False) == f"http://127.0.0.1:{port}/"
        assert address_of(listener, tls=True) == f"https://127.0.0.1:{port}/"
