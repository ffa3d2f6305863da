"""Connections that are not, or not rightly, a rank: dropped, and the run goes on."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from processes import until
from wirespeed.watchdog import Monitor
from wirespeed.watchdog.heartbeat import Heartbeat
from wirespeed.watchdog.protocol import (
    HELLO_LIMIT,
    Beat,
    Bye,
    Hello,
    Record,
    Refused,
    Welcome,
    encode,
    hello_seal,
)

pytestmark = pytest.mark.hostile("strangers")

TOKEN = "right"
BEAT = Beat("running", "", "op", 7, 0, 0.0, 0.0)

Dial = Callable[..., Any]


@pytest.fixture
def monitor() -> Iterator[Any]:
    with Monitor(2, TOKEN, on_record=lambda *_: None) as started:
        started.port = started.start()
        yield started


@pytest.fixture
def dial(monitor: Any, speaker: Any) -> Dial:
    return lambda token=TOKEN: speaker(monitor.port, token)


def finish_well(monitor: Any, dial: Dial) -> Any:
    """Two proper ranks can still join and finish; the outcome."""
    for rank in (0, 1):
        with dial() as connection:
            connection.send(connection.hello(rank) + connection.sealed(Bye(0)))
            assert connection.hear() == Welcome()
            assert connection.hear() == Bye(0)
    outcome = monitor.wait(5)
    assert outcome is not None and outcome.ok
    return outcome


@pytest.mark.parametrize(
    "said",
    [
        b"\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\xff\xfe\n",
        b"[" * 3000 + b"\n",
        b"x" * (HELLO_LIMIT + 1),
        encode(Hello("nonce", 0, 2, "node-a", 1)),
        encode(Bye(0)),
    ],
)
def test_strangers_are_dropped_without_an_answer_and_told_of_once(
    monitor: Any, dial: Dial, said: bytes
) -> None:
    for _ in range(2):
        with dial() as connection:
            connection.send(said)
            assert connection.line() == b""
    outcome = finish_well(monitor, dial)
    assert [(one.id, one.status) for one in outcome.findings] == [("JOIN-003", "warn")]
    assert "2 times" in outcome.findings[0].title
    assert "127.0.0.1:" in outcome.findings[0].saw


def test_a_hello_without_the_key_is_a_strangers(monitor: Any, dial: Dial) -> None:
    with dial("wrong") as connection:
        connection.send(connection.hello())
        assert connection.line() == b""
    assert finish_well(monitor, dial).findings[0].id == "JOIN-003"


def test_a_hello_that_was_overheard_opens_no_other_connection(monitor: Any, dial: Dial) -> None:
    """Each connection has a nonce of its own, so what a rank said once is worth nothing again."""
    with dial() as overheard, dial() as replayed:
        replayed.send(overheard.hello())
        assert replayed.line() == b""
    finish_well(monitor, dial)


def test_the_key_never_crosses_the_wire(monitor: Any, dial: Dial) -> None:
    with dial() as connection:
        said = connection.hello() + connection.sealed(BEAT, Record("line", {}))
    assert TOKEN.encode() not in said


def test_nothing_but_hello_opens_even_with_the_key(monitor: Any, dial: Dial) -> None:
    with dial() as connection:
        connection.send(hello_seal(TOKEN, connection.greeted).sealed(encode(BEAT)))
        assert connection.line() == b""
    finish_well(monitor, dial)


def test_silent_strangers_do_not_hold_up_the_run_and_are_not_told_of(
    monitor: Any, dial: Dial
) -> None:
    with dial(), dial() as half:
        half.send(half.hello()[:10])
        assert finish_well(monitor, dial).findings == ()


def test_more_strangers_than_allowed_push_out_the_oldest(monitor: Any, dial: Dial) -> None:
    connections = [dial() for _ in range(200)]
    try:
        assert connections[0].line() == b""
        finish_well(monitor, dial)
    finally:
        for connection in connections:
            connection.socket.close()


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        ({"rank": 2}, "rank 2 in a world of 2"),
        ({"rank": -1}, "rank -1"),
        ({"size": 3}, "world of 3 ranks, this one has 2"),
    ],
)
def test_ranks_of_another_world_are_refused_with_the_reason(
    monitor: Any, dial: Dial, claim: dict[str, int], reason: str
) -> None:
    with dial() as connection:
        connection.send(connection.hello(**claim))
        refusal = connection.hear()
        assert isinstance(refusal, Refused) and reason in refusal.reason
        assert connection.line() == b""
    finish_well(monitor, dial)


def test_a_rank_that_is_claimed_twice_ends_the_run_with_both_named(
    monitor: Any, dial: Dial
) -> None:
    with dial() as first, dial() as second:
        first.send(first.hello(1))
        assert first.hear() == Welcome()
        second.send(second.hello(1, host="node-b", pid=9))
        assert "already pid 1 on node-a" in second.hear().reason
        outcome = monitor.wait(5)
        addresses = ["{}:{}".format(*one.socket.getsockname()) for one in (first, second)]
    assert outcome is not None and outcome.kind == "claimed_twice"
    found = outcome.findings[0]
    assert (found.id, found.status, found.subject.name) == ("JOIN-002", "fail", "rank 1")
    assert f"pid 1 on node-a ({addresses[0]})" in found.title
    assert f"pid 9 on node-b ({addresses[1]})" in found.title


@pytest.mark.parametrize("wrong", ["forged", "repeated", "left out", "garbage"])
def test_a_line_that_the_rank_did_not_say_ends_its_connection(
    monitor: Any, dial: Dial, wrong: str
) -> None:
    with dial() as connection:
        beats = [connection.sealed(BEAT) for _ in range(3)]
        said = {
            "forged": beats[0] + beats[1].replace(b'"sequence":7', b'"sequence":8'),
            "repeated": beats[0] * 2,
            "left out": beats[0] + beats[2],
            "garbage": b"garbage\n",
        }[wrong]
        connection.send(connection.hello() + said)
        assert connection.hear() == Welcome()
        outcome = monitor.wait(5)
    assert outcome is not None
    assert outcome.findings[0].id == "DIED-001"
    assert "without the seal of this run" in outcome.findings[0].saw
    assert monitor.statuses()[0].sequence in (0, 7)


def test_a_latecomer_after_the_end_is_refused(monitor: Any, dial: Dial) -> None:
    monitor.interrupt()
    assert monitor.wait(5).kind == "interrupted"
    with dial() as connection:
        connection.send(connection.hello())
        assert connection.hear() == Refused("the run is over")


def test_messages_in_many_small_pieces_arrive(monitor: Any, dial: Dial) -> None:
    with dial() as connection:
        for byte in connection.hello() + connection.sealed(BEAT):
            connection.send(bytes([byte]))
        until(lambda: monitor.statuses()[0].sequence == 7)


def test_a_rank_that_was_crowded_out_comes_again(monitor: Any, monkeypatch: Any) -> None:
    """It was greeted and dropped before it could answer, as in a crowd."""
    server, crowded = monitor._server, []
    take = server._take

    def crowd_out_the_first(connection: Any, line: bytes, now: float) -> None:
        if crowded:
            take(connection, line, now)
        else:
            crowded.append(connection)
            connection.socket.shutdown(socket.SHUT_RDWR)

    monkeypatch.setattr(server, "_take", crowd_out_the_first)
    heartbeat = Heartbeat("127.0.0.1", monitor.port, TOKEN, 0, 2, on_abort=lambda _: None)
    heartbeat.connect(5)
    assert crowded
    heartbeat.close()


def test_ranks_join_tell_and_finish_beside_a_flood(monitor: Any) -> None:
    over = threading.Event()

    def flood() -> None:
        silent: list[socket.socket] = []
        while not over.wait(0.001):
            silent.append(socket.create_connection(("127.0.0.1", monitor.port), 5))
            if len(silent) > 300:
                silent.pop(0).close()
        for one in silent:
            one.close()

    stranger = threading.Thread(target=flood)
    stranger.start()
    try:
        beacons = [
            Heartbeat("127.0.0.1", monitor.port, TOKEN, rank, 2, on_abort=lambda _: None)
            for rank in (0, 1)
        ]
        for heartbeat in beacons:
            time.sleep(0.3)
            heartbeat.connect(10)
            for number in range(50):
                heartbeat.record("line", {"number": number})
        assert [heartbeat.finish(0) for heartbeat in beacons] == [True, True]
    finally:
        over.set()
        stranger.join()
    outcome = monitor.wait(5)
    assert outcome is not None and outcome.ok
    assert outcome.findings == ()
