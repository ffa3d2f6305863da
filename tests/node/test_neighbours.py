"""Runs that measure at the same time see each other; what is no run of ours is not believed."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wirespeed.node import neighbours as module
from wirespeed.node.neighbours import VARIABLE, Presence

A, B, C = "a" * 16, "b" * 16, "c" * 16


@pytest.fixture
def come(tmp_path: Path) -> Iterator[Callable[..., Presence]]:
    """come(mark): a run of that mark begins to measure."""
    here: list[Presence] = []

    def make(mark: str, scope: str = str(tmp_path)) -> Presence:
        here.append(Presence("check", mark, {VARIABLE: scope}))
        return here[-1]

    yield make
    for one in here:
        one.leave()


def marks(one: Presence) -> list[str]:
    return sorted(other.mark for other in one.others())


def test_each_sees_who_was_there_and_who_comes(come: Callable[..., Presence]) -> None:
    first, second = come(A), come(B)
    assert (marks(first), marks(second)) == ([B], [A])
    third = come(C)
    second.leave()
    assert (marks(first), marks(third)) == ([B, C], [A, B]), "who has gone was there all the same"
    assert first.others()[0].command == "check"


def test_one_run_alone_sees_nobody(come: Callable[..., Presence]) -> None:
    """Several of its processes may show it, where nodes share a network namespace."""
    first, again, elsewhere = come(A), come(A), come(B, "another scope")
    assert (first.others(), again.others(), elsewhere.others()) == ((), (), ())


def test_a_run_that_ended_before_is_not_told(come: Callable[..., Presence]) -> None:
    come(A).leave()
    assert come(B).others() == ()


def test_what_only_looks_like_a_run_is_not_told(come: Callable[..., Presence]) -> None:
    first = come(A)
    strangers = []
    for number, tail in enumerate(("x", f"{B}/1/1/\x1b[2J", f"{B}/1/{'9' * 12}/check")):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        one.bind(f"\0wirespeed/{first._scope}/{tail}")
        one.sendto(b"%d" % number, first._socket.getsockname())
        strangers.append(one)
    nameless = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    nameless.sendto(b"", first._socket.getsockname())
    assert first.others() == () == come(C).others()[1:]
    for one in (*strangers, nameless):
        one.close()


def test_a_flood_of_names_is_bounded(
    come: Callable[..., Presence], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    for number in range(5):
        come(f"{number:016x}")
    assert len(come(A).others()) == 3


def test_where_nobody_can_be_listed_nobody_is_seen(
    come: Callable[..., Presence], monkeypatch: pytest.MonkeyPatch
) -> None:
    come(A)
    monkeypatch.setattr(module, "_LISTED", Path("/nonexistent"))
    assert come(B).others() == ()
