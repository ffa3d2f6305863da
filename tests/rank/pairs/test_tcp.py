"""A pair over real sockets: figures where the other side answers, none where it does not."""

import math
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from wirespeed.rank.pairs.tcp import CONNECT_S, LATE_S, Door, Seat, own_address

BOUND_S = 2 * (CONNECT_S + LATE_S) + 2


@pytest.fixture
def doors() -> Any:
    pair = [Door("127.0.0.1", lambda: None) for _ in range(2)]
    yield pair
    for door in pair:
        door.close()


def together(doors: list[Door], call: str, *arguments: dict[str, Any]) -> list[float]:
    """The same method on both, the first calling the second."""
    peers = (doors[1].seat, None)
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(getattr(door, call), peer, **given)
            for door, peer, given in zip(doors, peers, arguments, strict=True)
        ]
        return [job.result(BOUND_S) for job in jobs]


def test_a_ping_is_timed_by_the_side_that_calls(doors: list[Door]) -> None:
    called, answered = together(doors, "ping", {}, {})
    assert 0 < called < CONNECT_S
    assert answered == math.inf


def test_only_the_receiving_side_measures(doors: list[Door]) -> None:
    out, inn = together(doors, "transfer", way(True, False), way(False, True))
    assert out == 0.0
    assert inn > 0


def test_the_called_side_can_send(doors: list[Door]) -> None:
    first, second = together(doors, "transfer", way(False, True), way(True, False))
    assert first > 0
    assert second == 0.0


def test_both_ways_at_once(doors: list[Door]) -> None:
    assert min(together(doors, "transfer", way(True, True), way(True, True))) > 0


@pytest.mark.slow
def test_nobody_calls(doors: list[Door]) -> None:
    begin = time.monotonic()
    assert doors[0].ping(None) == math.inf
    assert doors[0].transfer(None, **way(False, True)) == 0.0
    assert time.monotonic() - begin < BOUND_S


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    door = Door("127.0.0.1", lambda: None)
    assert door.ping(Seat("127.0.0.1", port, b"x" * 16)) == math.inf
    door.close()


@pytest.mark.hostile("strangers")
def test_a_stranger_is_turned_away(doors: list[Door]) -> None:
    stranger = Seat(doors[1].seat.address, doors[1].seat.port, b"y" * 16)
    with ThreadPoolExecutor(2) as pool:
        wrong = pool.submit(doors[0].ping, stranger)
        time.sleep(0.1)
        answered = pool.submit(doors[1].ping, None)
        assert wrong.result(BOUND_S) == math.inf
        assert doors[0].ping(doors[1].seat) < math.inf
        answered.result(BOUND_S)


@pytest.mark.hostile("slow callers")
def test_silent_and_quick_strangers_cost_no_figure(doors: list[Door]) -> None:
    """Some keep their connection and say nothing, some leave at once: the peer is heard all the same."""
    target = (doors[1].seat.address, doors[1].seat.port)
    silent = [socket.create_connection(target, CONNECT_S) for _ in range(40)]
    for _ in range(40):
        socket.create_connection(target, CONNECT_S).close()
    assert together(doors, "ping", {}, {})[0] < CONNECT_S
    assert together(doors, "transfer", way(True, False), way(False, True))[1] > 0
    for one in silent:
        one.close()


def test_the_token_never_crosses_the_wire(doors: list[Door]) -> None:
    """Whoever takes the address of a peer learns nothing from those who call."""
    with socket.create_server(("127.0.0.1", 0)) as thief, ThreadPoolExecutor(1) as pool:
        seat = Seat("127.0.0.1", thief.getsockname()[1], doors[1].seat.token)
        calling = pool.submit(doors[0].ping, seat)
        line, _ = thief.accept()
        with line:
            line.settimeout(CONNECT_S)
            assert seat.token not in line.recv(64)
            line.sendall(bytes(32))
            line.settimeout(0.5)
            assert line.recv(64) == b"", "it says nothing more to who does not know the token"
        thief.close()
        assert calling.result(BOUND_S) == math.inf


@pytest.mark.hostile("slow callers")
def test_a_peer_that_stalls_costs_its_figure_only(doors: list[Door]) -> None:
    """As behind a black hole: the connection stands and no data come."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        seat = Seat("127.0.0.1", silent.getsockname()[1], b"z" * 16)
        begin = time.monotonic()
        assert doors[0].ping(seat) == math.inf
        assert doors[0].transfer(seat, **way(False, True)) == 0.0
        assert time.monotonic() - begin < BOUND_S


def test_a_slow_receiver_is_measured_as_slow(doors: list[Door]) -> None:
    """What waits in buffers does not count as received."""
    fast = together(doors, "transfer", way(True, False), way(False, True))[1]
    ticks = slowed(doors[1])
    slow = together(doors, "transfer", way(True, False), way(False, True))[1]
    assert ticks
    assert slow < fast / 2


def slowed(door: Door) -> list[int]:
    """Make that door take a rest after each piece."""
    ticks: list[int] = []

    def rest() -> None:
        ticks.append(1)
        time.sleep(0.02)

    door._tick = rest
    return ticks


def way(sends: bool, receives: bool) -> dict[str, Any]:
    return {"sends": sends, "receives": receives, "seconds": 0.1}


def test_one_host_talks_over_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    assert own_address(one_host=True) == "127.0.0.1"


def test_the_named_interface_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert own_address(one_host=False) == "127.0.0.1"


def test_the_way_to_the_master_tells_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert own_address(one_host=False) == "127.0.0.1"
