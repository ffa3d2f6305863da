"""The meeting without torch, over real sockets and files."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from wirespeed.console.meeting import forget_meeting_file, meeting_file, to_text
from wirespeed.console.plain_meeting import (
    GREETING,
    GREETING_S,
    find_meeting,
    meets_plainly,
    tell_meeting,
)
from wirespeed.errors import WorldError
from wirespeed.plan import Plan
from wirespeed.world.identity import Identity, detect

FACTS = Plan(command="topo", steps=(), facts_only=True)
BOUND_S = 20.0
SHORT_S = 0.5


@pytest.fixture
def port() -> Iterator[int]:
    """Free, and below the ports of outgoing connections, as `port_of` gives them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = int(listener.getsockname()[1])
    yield number


def rank(number: int, port: int | None, **more: str) -> Identity:
    environ = {"RANK": str(number), "WORLD_SIZE": "2", **more}
    if port is not None:
        environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    found = detect(environ)
    assert found is not None
    return found


def tell(port: int) -> None:
    text = to_text(rank(0, port), 4711, "secret", FACTS.to_json())
    tell_meeting(rank(0, port), text)


def test_what_rank_0_tells_is_found(port: int) -> None:
    tell(port)
    meeting = find_meeting(rank(1, port), BOUND_S)
    assert (meeting.port, meeting.token) == (4711, "secret")
    assert Plan.from_json(meeting.plan) == FACTS


def test_a_rank_that_comes_first_waits(port: int) -> None:
    timer = threading.Timer(SHORT_S, tell, (port,))
    timer.start()
    assert find_meeting(rank(1, port), BOUND_S).port == 4711
    timer.join(BOUND_S)


@pytest.mark.hostile("strangers")
def test_strangers_get_nothing_and_hold_nobody_up(port: int) -> None:
    tell(port)
    silent = socket.create_connection(("127.0.0.1", port), timeout=BOUND_S)
    with silent, socket.create_connection(("127.0.0.1", port), timeout=BOUND_S) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: wirespeed\r\n\r\n")
        try:
            answer = stranger.recv(100)
        except ConnectionResetError:
            answer = b""
        assert answer == b""
        assert find_meeting(rank(1, port), BOUND_S).port == 4711
    assert len(GREETING) < 64
    assert GREETING_S < 5


@pytest.mark.hostile("strangers")
def test_another_program_at_the_port_is_told(port: int) -> None:
    def answer() -> None:
        with listener:
            for _ in range(2):
                caller, _ = listener.accept()
                with caller:
                    caller.recv(len(GREETING))
                    caller.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n")

    listener = socket.create_server(("127.0.0.1", port))
    listener.settimeout(BOUND_S)
    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(WorldError) as caught:
        find_meeting(rank(1, port), 0.1)
    thread.join(BOUND_S)
    assert "not rank 0 of this command" in str(caught.value)
    assert f"127.0.0.1:{port}" in str(caught.value)


def test_nobody_there_ends_within_the_bound(port: int) -> None:
    with pytest.raises(WorldError, match=r"rank 1 .* does not find rank 0"):
        find_meeting(rank(1, port), SHORT_S)


def test_a_port_that_is_taken_is_told(port: int) -> None:
    with socket.create_server(("", port)), pytest.raises(WorldError) as caught:
        tell(port)
    assert f"MASTER_PORT {port}" in str(caught.value)
    assert "ss -ltnp" in caught.value.next


def test_one_machine_without_a_port_meets_by_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    here = {"LOCAL_WORLD_SIZE": "2"}
    first, second = (rank(n, None, LOCAL_RANK=str(n), **here) for n in (0, 1))
    meeting_file(first).write_text("half a line")  # as of somebody who was killed
    with pytest.raises(WorldError, match="does not find rank 0"):
        find_meeting(second, 0.1)
    tell_meeting(first, to_text(first, 4712, "secret", FACTS.to_json()))
    assert find_meeting(second, BOUND_S).port == 4712
    forget_meeting_file(first)
    assert list(tmp_path.iterdir()) == []


def test_several_nodes_without_an_address_cannot_meet() -> None:
    lost = rank(1, None)
    for meet in (lambda: tell_meeting(lost, ""), lambda: find_meeting(lost, BOUND_S)):
        with pytest.raises(WorldError, match="MASTER_ADDR is not set"):
            meet()


def test_alone_there_is_nobody_to_meet(port: int) -> None:
    alone = detect({"RANK": "0", "WORLD_SIZE": "1"})
    assert alone is not None
    tell_meeting(alone, "")


def test_torchruns_agents_keep_their_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    assert meets_plainly(FACTS)
    assert not meets_plainly(Plan(command="check", steps=()))
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert not meets_plainly(FACTS)
