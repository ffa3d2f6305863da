"""Connections that are not, or not rightly, a rank: dropped, and the run goes on."""

import json
import socket
import time
from collections.abc import Iterator

import pytest

from wirespeed.world.watch import Monitor
from wirespeed.world.watch.protocol import HELLO_LIMIT, Beat, Bye, Hello, encode

TOKEN = "right"


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    with Monitor(2, TOKEN, on_record=lambda *_: None) as started:
        started.port = started.start()
        yield started


def dial(monitor: Monitor) -> socket.socket:
    return socket.create_connection(("127.0.0.1", monitor.port), timeout=5)


def hello(rank: int = 0, size: int = 2, token: str = TOKEN) -> bytes:
    return encode(Hello(token, rank, size, "node-a", 1))


def answer(connection: socket.socket) -> dict | None:
    """The next message; None when the console closed the connection."""
    line = b""
    while not line.endswith(b"\n"):
        try:
            byte = connection.recv(1)
        except ConnectionResetError:
            return None
        if not byte:
            return None
        line += byte
    return json.loads(line)


def finish_well(monitor: Monitor) -> None:
    """Two proper ranks can still join and finish."""
    for rank in (0, 1):
        with dial(monitor) as connection:
            connection.sendall(hello(rank) + encode(Bye(0)))
            assert answer(connection) == {"type": "Welcome"}
            assert answer(connection) == {"type": "Bye", "exit_code": 0}
    outcome = monitor.wait(5)
    assert outcome is not None and outcome.ok


@pytest.mark.hostile("forged messages")
@pytest.mark.parametrize(
    "bytes_sent",
    [
        b"\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\xff\xfe\n",
        b"[" * 3000 + b"\n",
        b"null\n",
        b'{"type":["Hello"]}\n',
        b'{"type":"Hello"}\n',
        b'{"type":"Hello","token":1,"rank":0,"world_size":2,"host":"a","pid":1}\n',
        b"x" * (HELLO_LIMIT + 1),
        hello(token="wrong"),
        hello(token="\ud800"),
        encode(Bye(0)),
        encode(Beat("running", "", "op", 1, 0, 0.0, 0.0)),
    ],
)
def test_strangers_are_dropped_without_an_answer(monitor, bytes_sent):
    with dial(monitor) as connection:
        connection.sendall(bytes_sent)
        assert answer(connection) is None
    finish_well(monitor)


@pytest.mark.hostile("slow callers")
def test_a_silent_stranger_does_not_hold_up_the_run(monitor):
    with dial(monitor), dial(monitor) as half:
        half.sendall(hello()[:10])
        finish_well(monitor)


@pytest.mark.hostile("floods")
def test_more_strangers_than_allowed_push_out_the_oldest(monitor, count_attacks):
    connections = [dial(monitor) for _ in range(150)]
    try:
        assert answer(connections[0]) is None
        finish_well(monitor)
    finally:
        for connection in connections:
            connection.close()
    count_attacks("floods", len(connections))


@pytest.mark.hostile("forged messages")
@pytest.mark.parametrize(
    ("first_line", "reason"),
    [
        (hello(rank=2), "rank 2 in a world of 2"),
        (hello(rank=-1), "rank -1"),
        (hello(size=3), "world of 3 ranks, this one has 2"),
    ],
)
def test_ranks_of_another_world_are_refused_with_the_reason(monitor, first_line, reason):
    with dial(monitor) as connection:
        connection.sendall(first_line)
        refusal = answer(connection)
        assert refusal is not None and refusal["type"] == "Refused"
        assert reason in refusal["reason"]
        assert answer(connection) is None
    finish_well(monitor)


@pytest.mark.hostile("forged messages")
def test_the_second_process_of_a_rank_is_refused_and_the_first_stays():
    with Monitor(2, TOKEN, on_record=lambda *_: None, startup_timeout_s=1.5) as monitor:
        monitor.port = monitor.start()
        with dial(monitor) as first, dial(monitor) as second:
            first.sendall(hello())
            assert answer(first) == {"type": "Welcome"}
            second.sendall(hello())
            assert "already pid 1 on node-a" in answer(second)["reason"]
            outcome = monitor.wait(10)
            # The missing rank's finding tells of the double, which is the likely cause.
            assert outcome.findings[0].subject.name == "rank 1"
            assert any("already pid 1" in line for line in outcome.findings[0].evidence)


@pytest.mark.hostile("forged messages")
def test_a_rank_that_sends_garbage_counts_as_dead(monitor):
    with dial(monitor) as connection:
        connection.sendall(hello() + b"garbage\n")
        outcome = monitor.wait(5)
    assert outcome.findings[0].id == "DIED-001"
    assert "not JSON" in outcome.findings[0].saw


def test_a_latecomer_after_the_end_is_refused(monitor):
    monitor.interrupt()
    assert monitor.wait(5).kind == "interrupted"
    with dial(monitor) as connection:
        connection.sendall(hello())
        assert answer(connection)["reason"] == "the run is over"


@pytest.mark.hostile("slow callers")
def test_messages_in_many_small_pieces_arrive(monitor):
    with dial(monitor) as connection:
        for byte in hello() + encode(Beat("running", "", "op", 7, 0, 0.0, 0.0)):
            connection.sendall(bytes([byte]))
        deadline = time.monotonic() + 5
        while monitor.statuses()[0].sequence != 7:
            assert time.monotonic() < deadline
            time.sleep(0.01)
