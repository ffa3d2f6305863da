"""Doors and knocks over real sockets of the loopback."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from wirespeed.node.reachability import (
    ANSWER,
    QUESTION,
    Caller,
    Door,
    knock,
    path_to_json,
    probe_path,
    sealed,
)

LOOPBACK = "127.0.0.1"


@pytest.fixture
def door() -> Iterator[Door]:
    with Caller() as bell:
        yield bell.door(3, "node-3", LOOPBACK)


def test_an_open_door_answers(door: Door) -> None:
    assert knock(door, 2.0) == ""


def test_a_door_travels_as_json(door: Door) -> None:
    assert Door.from_json(door.to_json()) == door


def test_a_door_listens_at_its_address_only() -> None:
    with Caller(address=LOOPBACK) as bell:
        elsewhere = bell.door(0, "node-0", "127.0.0.2")
        assert knock(bell.door(0, "node-0", LOOPBACK), 2.0) == ""
        assert knock(elsewhere, 2.0) == "connection refused"


def test_an_address_of_another_node_is_listened_for_everywhere() -> None:
    """As where the host name leads elsewhere: that is found by those who knock there."""
    with Caller(address="192.0.2.1") as bell:
        assert knock(bell.door(0, "node-0", LOOPBACK), 2.0) == ""


def test_forty_silent_callers_and_many_quick_ones_do_not_shut_a_door(door: Door) -> None:
    silent = [socket.create_connection((LOOPBACK, door.port), 2.0) for _ in range(40)]
    for _ in range(100):
        socket.create_connection((LOOPBACK, door.port), 2.0).close()
    assert knock(door, 2.0) == ""
    for one in silent:
        one.close()


def test_what_was_overheard_opens_nothing_and_the_secret_is_not_in_it(door: Door) -> None:
    with Overheard(door.port) as wire:
        assert knock(replace(door, port=wire.port), 2.0) == ""
    assert bytes.fromhex(door.secret) not in wire.said + wire.answered
    with socket.create_connection((LOOPBACK, door.port), 2.0) as again:
        again.sendall(wire.said)
        assert again.recv(64) not in (b"", wire.answered)
        assert again.recv(64) == b""


class Overheard:
    """A wire to a port that keeps what passed; one connection."""

    def __init__(self, port: int) -> None:
        self.said = self.answered = b""
        self._target = port
        self._server = socket.create_server((LOOPBACK, 0))
        self.port = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._carry)
        self._thread.start()

    def _carry(self) -> None:
        caller, _ = self._server.accept()
        with caller, socket.create_connection((LOOPBACK, self._target), 2.0) as called:
            self.said += caller.recv(64)
            called.sendall(self.said)
            self.answered += called.recv(64)
            caller.sendall(self.answered)
            self.said += caller.recv(64)

    def __enter__(self) -> "Overheard":
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._server.close()


GOOD = {"rank": 0, "host": "node-0", "address": "10.0.0.1", "port": 5, "secret": "ab" * 16}


@pytest.mark.parametrize(
    "wrong",
    [
        b"\xff",
        b"null",
        b"[" * 100_000,
        b"{}",
        *(
            json.dumps({**GOOD, **one}).encode()
            for one in (
                {"more": 1},
                {"rank": -1},
                {"rank": True},
                {"rank": "0"},
                {"host": 7},
                {"host": "\x1b[2J"},
                {"host": "x" * 300},
                {"address": "localhost"},
                {"address": "::1"},
                {"address": 2130706433},
                {"port": 0},
                {"port": 65536},
                {"port": 1.5},
                {"secret": "AB" * 16},
                {"secret": "ab"},
                {"secret": ["a"] * 32},
            )
        ),
    ],
)
def test_what_is_no_door_is_an_error_of_values(wrong: bytes) -> None:
    assert Door.from_json(json.dumps(GOOD)).port == 5
    with pytest.raises(ValueError):
        Door.from_json(wrong)


def test_nobody_at_the_port_is_a_refusal() -> None:
    with Caller() as bell:
        door = bell.door(0, "node-0", LOOPBACK)
    assert knock(door, 2.0) == "connection refused"


def test_a_door_with_another_secret_is_another_program(door: Door) -> None:
    """As where an address leads to another machine that happens to listen there."""
    assert knock(replace(door, secret="00" * 16), 2.0) == "another program answered"


def test_a_port_that_accepts_and_is_silent_times_out() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        door = Door(rank=0, host="h", address=LOOPBACK, port=port, secret="11" * 16)
        assert "no answer within 0.1 s" in knock(door, 0.1)


def test_the_path_of_a_good_door(door: Door) -> None:
    path = probe_path(door, 3.0)
    assert path.mtu is not None and path.passes == path.mtu
    assert path.clock_offset_s is not None and path.clock_error_s is not None
    assert abs(path.clock_offset_s) <= path.clock_error_s + 1e-3
    assert path.why == ""


@pytest.mark.parametrize("shift", [2.0, -0.75])
def test_a_clock_that_is_off_is_seen(shift: float) -> None:
    with Caller(shift) as bell:
        path = probe_path(bell.door(0, "node-0", LOOPBACK), 3.0)
    assert path.clock_offset_s is not None and path.clock_error_s is not None
    assert abs(path.clock_offset_s - shift) <= path.clock_error_s + 1e-3


def test_a_packet_with_another_secret_gets_no_answer(door: Door) -> None:
    path = probe_path(replace(door, secret="00" * 16), 0.5)
    assert path.why == "no answer by UDP"
    assert path_to_json(path) == {"mtu": path.mtu, "why": "no answer by UDP"}


@contextmanager
def _black_hole(limit: int) -> Iterator[Door]:
    """A door that hears nothing of packets above `limit` bytes, headers included."""
    key = b"k" * 16
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind((LOOPBACK, 0))
        udp.settimeout(0.05)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                try:
                    packet, sender = udp.recvfrom(65535)
                except TimeoutError:
                    continue
                number = QUESTION.unpack_from(packet)[1]
                if len(packet) + 28 <= limit:
                    udp.sendto(sealed(ANSWER, key, b"answer", number, len(packet), 0.0), sender)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            port = udp.getsockname()[1]
            yield Door(rank=0, host="h", address=LOOPBACK, port=port, secret=key.hex())
        finally:
            over.set()
            thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1400, 8999, 600])
def test_the_largest_packet_that_passes_is_found(limit: int) -> None:
    with _black_hole(limit) as door:
        path = probe_path(door, 20.0)
    assert path.mtu is not None and path.mtu > limit
    assert path.passes == limit


def test_a_bound_that_is_too_short_leaves_the_size_unknown() -> None:
    with _black_hole(1400) as door:
        path = probe_path(door, 0.4)
    assert path.passes is None
    assert path.clock_offset_s is not None
