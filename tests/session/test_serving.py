"""The endpoint: real sockets, what it answers, and what it refuses."""

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from wirespeed.errors import CannotMeasure, InputError, UsageError
from wirespeed.session import serving
from wirespeed.session.serving import MOST_CONNECTIONS, Answer, Server, parse_listen

BOUND_S = 10.0


def damaged() -> Answer:
    raise InputError("run.json is damaged")


@pytest.fixture
def port() -> Iterator[int]:
    large = Answer("text/html", bytes(20 << 20))
    pages = {
        "/": lambda: Answer("text/html", b"<p>hi"),
        "/damaged": damaged,
        "/large": lambda: large,
    }
    with Server(pages, "127.0.0.1", 0) as server:
        yield int(server.address.rstrip("/").rpartition(":")[2])


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
    assert get(port, "/") == (200, b"<p>hi", "text/html")
    assert get(port, "/?a=b")[:2] == (200, b"<p>hi")
    for path in ("/etc/passwd", "/../etc/passwd", "/%2e%2e/"):
        assert get(port, path)[0] == 404
    assert get(port, "/", "HEAD")[:2] == (200, b"")
    for method in ("POST", "PUT", "DELETE"):
        assert get(port, "/", method)[0] == 501
    count_attacks("foreign requests", 6)


def test_an_error_of_ours_is_told_and_the_next_request_is_answered(port: int) -> None:
    status, body, _ = get(port, "/damaged")
    assert status == 503 and b"run.json is damaged" in body
    assert get(port, "/")[0] == 200


@pytest.mark.hostile("foreign requests")
@pytest.mark.parametrize("name", ["evil.example", "evil.example:80", "10.0.0.1", "127.0.0.1.evil"])
def test_a_page_elsewhere_cannot_read_it_by_a_name_of_its_own(port: int, name: str) -> None:
    """DNS rebinding."""
    assert get(port, "/", Host=name)[0] == 421


@pytest.mark.parametrize("name", ["localhost:9477", "127.0.0.1", "[::1]:80", "LOCALHOST"])
def test_names_of_loopback_may(port: int, name: str) -> None:
    assert get(port, "/", Host=name)[0] == 200


@pytest.mark.hostile("slow callers")
@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.0\r\nX: ", b"GET /large HTTP/1.0\r\n\r\n"])
def test_slow_callers_take_nobodys_place(port: int, said: bytes) -> None:
    """They say nothing, never end what they say, or never take the answer."""
    with ExitStack() as stack:
        held = []
        for _ in range(200):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", port), BOUND_S))
            link.sendall(said)
            held.append(link)
        assert [get(port, "/")[0] for _ in range(3)] == [200] * 3
        with suppress(ConnectionResetError):
            while held[0].recv(1 << 20):
                pass  # the first had to go, before its time was over
        threads = [one for one in threading.enumerate() if "process_request" in one.name]
        assert len(threads) <= 2 * MOST_CONNECTIONS


def test_a_request_has_one_bound_for_all_its_bytes(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "TIMEOUT_S", 0.3)
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
        assert link.recv(100) == b""


def test_a_taken_port_is_said_so(port: int) -> None:
    with pytest.raises(CannotMeasure, match="cannot listen"):
        Server({}, "127.0.0.1", port)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("localhost:0", ("127.0.0.1", 0)),
        ("[::1]:9477", ("::1", 9477)),
        ("127.8.8.8:1", ("127.8.8.8", 1)),
    ],
)
def test_loopback_is_fine(text: str, parsed: tuple[str, int]) -> None:
    assert parse_listen(text, anywhere=False) == parsed


@pytest.mark.parametrize("text", ["0.0.0.0:80", "10.0.0.1:80", "[::]:80"])
def test_beyond_loopback_only_when_told(text: str) -> None:
    with pytest.raises(UsageError, match="reachable from other machines"):
        parse_listen(text, anywhere=False)
    assert parse_listen(text, anywhere=True)[1] == 80


@pytest.mark.parametrize(
    "text", ["", "80", ":80", "127.0.0.1", "127.0.0.1:", "a.b:80", "::1:99999"]
)
def test_no_address(text: str) -> None:
    with pytest.raises(UsageError):
        parse_listen(text, anywhere=True)
