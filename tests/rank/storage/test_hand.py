"""A rank and its worker, a real process: what hangs, what dies, what is left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from wirespeed.rank.storage.files import BLOCK
from wirespeed.rank.storage.hand import Hand

QUIET_S = 30.0
TOKEN = "0123456789abcdef"


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[Hand]:
    made = Hand(lambda: None)
    made.ask("work", QUIET_S, rank=0, directory=str(tmp_path), token=TOKEN)
    yield made
    made.close()


def begun(hand: Hand) -> None:
    assert not hand.ask("begin", QUIET_S, first=True).kind
    assert not hand.ask("write", QUIET_S, size=BLOCK, seconds=9.0, engine="own").kind


def test_a_worker_that_hangs_is_given_up_and_said_to_be_where_it_is(
    hand: Hand, tmp_path: Path
) -> None:
    begun(hand)
    os.kill(hand._process.pid, signal.SIGSTOP)
    answer = hand.ask("write", 0.3, size=BLOCK, seconds=9.0, engine="own")
    assert answer.kind == "hung"
    assert answer.waited >= 0.3
    assert "state T" in answer.where
    assert hand.ask("clean", QUIET_S, last=True).kind == "hung", "it is not asked again"
    assert hand._process.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) != []


def test_one_that_goes_on_and_comes_to_no_end_is_given_up_too(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(hand)
    monkeypatch.setattr("wirespeed.rank.storage.hand._MOST_S", 0.3 - QUIET_S)
    texts = {"0": "what nobody writes"}
    answer = hand.ask("see", QUIET_S, name="token", texts=texts, within_s=QUIET_S)
    assert answer.kind == "hung"
    assert 0.3 <= answer.waited < QUIET_S / 2


def test_a_worker_that_dies(hand: Hand) -> None:
    hand._process.kill()
    assert "signal 9" in hand.ask("look", QUIET_S).text


def test_what_the_system_refuses_has_its_name(hand: Hand, tmp_path: Path) -> None:
    tmp_path.rmdir()
    assert hand.ask("look", QUIET_S).error == "ENOENT"
    tmp_path.mkdir()


@pytest.mark.parametrize("number", [signal.SIGTERM, 0])
def test_at_its_end_it_removes_what_it_has_written(hand: Hand, tmp_path: Path, number: int) -> None:
    """By a signal, or as its orders end."""
    begun(hand)
    assert list(tmp_path.iterdir()) != []
    if number:
        os.kill(hand._process.pid, number)
        hand._process.wait(QUIET_S)
    else:
        hand.close()
    assert list(tmp_path.iterdir()) == []


_RANK = """
import sys, time
from wirespeed.rank.storage.hand import Hand
hand = Hand(lambda: None)
hand.ask("work", 30.0, rank=0, directory=sys.argv[1], token="0123456789abcdef")
hand.ask("begin", 30.0, first=True)
print("begun", flush=True)
hand.ask("write", 30.0, size=1 << 40, seconds=20.0, engine="own")
"""


def test_a_rank_that_is_killed_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _RANK, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as rank:
        assert rank.stdout is not None
        rank.stdout.readline()
        rank.kill()
    until = time.monotonic() + QUIET_S
    while list(tmp_path.iterdir()) and time.monotonic() < until:
        time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []
