"""Callers at a port: the silent, the many and the greedy hold up nobody."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from wirespeed.node import callers
from wirespeed.node.callers import crowded_out, serve_callers, take

pytestmark = pytest.mark.hostile("floods")

WORD = b"a word of many letters, which is long to say one by one"


def _answer(caller: socket.socket) -> None:
    if take(caller, len(WORD)) == WORD:
        caller.sendall(WORD[::-1])


@contextmanager
def _served(
    seconds: float = 5.0,
    at_once: int = 8,
    of_one_peer: int = 4,
    answer: Callable[[socket.socket], object] = _answer,
) -> Iterator[int]:
    closing = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        thread = threading.Thread(
            target=serve_callers,
            args=(listener, answer),
            kwargs={
                "seconds": seconds,
                "at_once": at_once,
                "of_one_peer": of_one_peer,
                "closing": closing.is_set,
            },
        )
        thread.start()
        yield listener.getsockname()[1]
        closing.set()
        thread.join()


def _call(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 5.0, (source, 0))


def _asked(port: int) -> bytes:
    """The answer; asked again while it is turned away, as our callers do."""
    for _ in range(50):
        with suppress(OSError), _call(port) as caller:
            caller.sendall(WORD)
            return take(caller, len(WORD))
        time.sleep(0.02)
    return b""


def test_200_silent_callers_hold_up_nobody() -> None:
    with _served() as port:
        silent = [_call(port) for _ in range(200)]
        began = time.monotonic()
        assert _asked(port) == WORD[::-1]
        assert time.monotonic() - began < 4.0, "the silent were waited for"
        for one in silent:
            one.close()


def test_who_waits_for_a_place_is_not_turned_away_when_one_that_lost_its_own_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its thread's end frees nothing, since its place was given to another at once."""
    monkeypatch.setattr(callers, "GRACE_S", 0.4)

    def slow_to_go(caller: socket.socket) -> None:
        if word := caller.recv(1):
            caller.sendall(word)
        else:
            time.sleep(0.2)

    with _served(at_once=1, answer=slow_to_go) as port, _call(port):
        time.sleep(0.5)
        with _call(port):  # takes the place of the first, which needs a moment to go
            time.sleep(0.1)
            with _call(port) as last:
                last.sendall(b"x")
                assert take(last, 1) == b"x"


def test_who_drips_its_word_is_cut_off_after_its_seconds_in_all() -> None:
    with _served(seconds=0.3) as port, _call(port) as slow:
        slow.settimeout(0.1)
        for said in range(len(WORD)):
            try:
                slow.sendall(WORD[said : said + 1])
                if not slow.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert said < len(WORD) - 1, "it was heard to the end"


def test_the_oldest_of_the_greediest_leaves() -> None:
    assert crowded_out(["one", "two", "two", "three"]) == 1
    assert crowded_out(["one"]) == 0
