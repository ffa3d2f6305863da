"""The rendezvous without torch, over real sockets and files."""

import base64
import json
import os
import socket
import tempfile
import threading
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from wirespeed.errors import StorageError, WorldError
from wirespeed.node.identity import Identity, detect
from wirespeed.node.secret import Seal
from wirespeed.plan import Plan
from wirespeed.session.plain_rendezvous import (
    GREETING,
    GREETING_S,
    find_rendezvous,
    meets_plainly,
    tell_rendezvous,
)
from wirespeed.session.rendezvous import (
    forget_rendezvous_file,
    from_text,
    rendezvous_file,
    session_key,
    to_text,
)

FACTS = Plan(command="topo", steps=(), facts_only=True)
BOUND_S = 20.0
SHORT_S = 0.5
NONCE = "5ca1ab1e" * 4
OPEN = Seal(None, "rendezvous")
SECRET = b"nobody else knows this"
SEALED = Seal(SECRET, "rendezvous")


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


def tell(port: int, seal: Seal = OPEN) -> None:
    tell_rendezvous(rank(0, port), to_text(rank(0, port), 4711, NONCE, FACTS), seal)


def test_what_rank_0_tells_is_found(port: int) -> None:
    tell(port)
    rendezvous = find_rendezvous(rank(1, port), BOUND_S, OPEN)
    assert (rendezvous.port, rendezvous.nonce) == (4711, NONCE)
    assert rendezvous.plan == FACTS.digests()


def test_a_rank_that_comes_first_waits(port: int) -> None:
    timer = threading.Timer(SHORT_S, tell, (port,))
    timer.start()
    assert find_rendezvous(rank(1, port), BOUND_S, OPEN).port == 4711
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
        assert find_rendezvous(rank(1, port), BOUND_S, OPEN).port == 4711
    assert len(GREETING) < 64
    assert GREETING_S < 5


@pytest.mark.hostile("strangers")
def test_another_program_at_the_port_is_told(port: int) -> None:
    def answer() -> None:
        with listener:
            for _ in range(2):
                caller, _ = listener.accept()
                with caller:
                    caller.recv(1000)
                    caller.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n")

    listener = socket.create_server(("127.0.0.1", port))
    listener.settimeout(BOUND_S)
    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(WorldError) as caught:
        find_rendezvous(rank(1, port), 0.1, OPEN)
    thread.join(BOUND_S)
    assert "not rank 0 of this command" in str(caught.value)
    assert f"127.0.0.1:{port}" in str(caught.value)


def test_nobody_there_ends_within_the_bound(port: int) -> None:
    with pytest.raises(WorldError, match=r"rank 1 .* does not find rank 0"):
        find_rendezvous(rank(1, port), SHORT_S, OPEN)


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
    rendezvous_file(first).write_text("half a line")  # as of somebody who was killed
    with pytest.raises(WorldError, match="does not find rank 0"):
        find_rendezvous(second, 0.1, OPEN)
    tell_rendezvous(first, to_text(first, 4712, NONCE, FACTS), OPEN)
    assert find_rendezvous(second, BOUND_S, OPEN).port == 4712
    with pytest.raises(WorldError, match="does not bear the mark"):
        find_rendezvous(second, 0.1, SEALED)
    forget_rendezvous_file(first)
    assert list(tmp_path.iterdir()) == []


def test_several_nodes_without_an_address_cannot_meet() -> None:
    lost = rank(1, None)
    for meet in (
        lambda: tell_rendezvous(lost, b"", OPEN),
        lambda: find_rendezvous(lost, BOUND_S, OPEN),
    ):
        with pytest.raises(WorldError, match="MASTER_ADDR is not set"):
            meet()


def test_alone_there_is_nobody_to_meet(port: int) -> None:
    alone = detect({"RANK": "0", "WORLD_SIZE": "1"})
    assert alone is not None
    tell_rendezvous(alone, b"", OPEN)


def test_torchruns_agents_keep_their_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    assert meets_plainly(FACTS)
    assert not meets_plainly(Plan(command="check", steps=()))
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert not meets_plainly(FACTS)


# Strangers.


def ask(port: int, question: bytes) -> bytes:
    """All that whoever says this is told."""
    with socket.create_connection(("127.0.0.1", port), timeout=BOUND_S) as stranger:
        stranger.sendall(GREETING + question + b"\n")
        told = b""
        while part := stranger.recv(4096):
            told += part
    return told


def answering(line: bytes) -> tuple[int, threading.Thread]:
    """The port of somebody who says that line to the next two callers."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(BOUND_S)

    def answer() -> None:
        with listener:
            for _ in range(2):
                caller, _ = listener.accept()
                with caller:
                    caller.recv(1000)
                    caller.sendall(line)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    return int(listener.getsockname()[1]), thread


def test_with_a_secret_ranks_meet_and_its_key_is_not_told(port: int) -> None:
    tell(port, SEALED)
    rendezvous = find_rendezvous(rank(1, port), BOUND_S, SEALED)
    assert rendezvous.nonce == NONCE
    assert session_key(SECRET, NONCE) not in to_text(rank(0, port), 1, NONCE, FACTS).decode()
    assert session_key(SECRET, NONCE) != session_key(SECRET, "another") != session_key(None, NONCE)


@pytest.mark.hostile("strangers")
def test_with_a_secret_a_greeting_alone_gets_nothing(port: int) -> None:
    tell(port, SEALED)
    heard = Seal(SECRET, "another purpose").close(b"11" * 16, "question")
    for question in (b"", b"o1 1111", b"s1 " + b"0" * 64 + b"1111", heard):
        told = ask(port, question)
        assert (
            SEALED.open(told.removeprefix(GREETING)[:-1], f"answer to {question.decode()}") == b""
        )


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        (SEALED, OPEN, "does not bear the mark"),
        (OPEN, SEALED, "this rank was given none"),
        (SEALED, Seal(b"a secret of another job", "rendezvous"), "does not bear the mark"),
    ],
)
def test_ranks_with_other_secrets_do_not_meet_and_say_why(
    port: int, monkeypatch: pytest.MonkeyPatch, ours: Seal, theirs: Seal, told: str
) -> None:
    monkeypatch.setattr("wirespeed.session.plain_rendezvous.PATIENCE_S", 0.1)
    tell(port, theirs)
    with pytest.raises(WorldError, match=told):
        find_rendezvous(rank(1, port), BOUND_S, ours)


@pytest.mark.hostile("forged messages")
def test_a_recorded_answer_is_of_no_use(port: int) -> None:
    tell(port, SEALED)
    question = SEALED.close(b"11" * 16, "question")
    recorded = ask(port, question)
    assert from_text(
        SEALED.open(recorded.removeprefix(GREETING)[:-1], f"answer to {question.decode()}")
    )
    replaying, thread = answering(recorded)
    with pytest.raises(WorldError, match="does not bear the mark"):
        find_rendezvous(rank(1, replaying), 0.1, SEALED)
    thread.join(BOUND_S)


@pytest.mark.hostile("bombs")
def test_a_bomb_is_not_unpacked() -> None:
    packed = zlib.compressobj(9)
    bomb = b"".join(packed.compress(bytes(1 << 20)) for _ in range(64)) + packed.flush()
    text = base64.b64encode(bomb)
    tracemalloc.start()
    with pytest.raises(ValueError, match="no rendezvous"):
        from_text(text)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


GOOD = {
    "addresses": ["10.0.0.1"],
    "port": 1,
    "nonce": NONCE,
    "here": "host/1",
    "plan": {"seed": "0"},
}


@pytest.mark.hostile("forged messages")
@pytest.mark.parametrize(
    "wrong",
    [
        *({"addresses": one} for one in ([], ["evil"], "10.0.0.1", None, ["10.0.0.1"] * 300)),
        *({"port": one} for one in (0, 65536, True, "1", None)),
        *({"nonce": one} for one in ("", "x" * 500, 7, "\x1b[2J")),
        *({"here": one} for one in (None, "host\n")),
        *({"plan": one} for one in ({"seed": 1}, [], {"\x1b": "0"}, None)),
        {"more": 1},
    ],
)
def test_each_field_of_a_meeting_is_checked(wrong: dict[str, object]) -> None:
    def text(data: object) -> bytes:
        return base64.b64encode(zlib.compress(json.dumps(data).encode()))

    assert from_text(text(GOOD)).port == 1
    with pytest.raises(ValueError, match="no rendezvous"):
        from_text(text({**GOOD, **wrong}))


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"e30=", base64.b64encode(zlib.compress(b"[" * 9999))]
)
def test_what_is_no_meeting_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no rendezvous"):
        from_text(data)


def test_a_folder_that_others_enter_is_no_place_to_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    here = rank(0, None, LOCAL_RANK="0", LOCAL_WORLD_SIZE="2")
    folder = rendezvous_file(here).parent
    folder.chmod(0o777)
    with pytest.raises(StorageError, match="open to others"):
        rendezvous_file(here)
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError):
        rendezvous_file(here)


pytestmark = pytest.mark.hostile("strangers")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"wirespeed-{os.getuid()}"


def test_it_is_refused_where_somebody_else_may_have_made_it(folder: Path, tmp_path: Path) -> None:
    identity = detect({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"})
    assert identity is not None
    assert rendezvous_file(identity).parent == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(StorageError, match="is somebody else's"):
        rendezvous_file(identity)
    folder.rename(tmp_path / "mine")
    (tmp_path / "mine").chmod(0o700)
    folder.symlink_to(tmp_path / "mine")  # a folder of ours, where we do not expect to write
    with pytest.raises(StorageError, match="is somebody else's"):
        rendezvous_file(identity)
