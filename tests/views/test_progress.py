"""Progress: one line a step, and a time left that one can rely on."""

import io
import re
from itertools import pairwise

import pytest

from wirespeed.views import text as progress
from wirespeed.views.text import Progress


class Clock:
    """Time as the test sets it."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(progress, "time", found)
    return found


def told(clock: Clock, seconds: list[float]) -> list[int | None]:
    """The seconds left that were shown at the beginning of each step; None: nothing was."""
    stream = io.StringIO()
    shown = Progress(stream, terminal=False)
    for index, each in enumerate(seconds):
        shown.step(index, len(seconds), "x")
        clock.now += each
    found = [re.search(r"about (\d+) s left$", line) for line in stream.getvalue().splitlines()]
    assert len(found) == len(seconds), "one line a step"
    return [int(match[1]) if match else None for match in found]


def test_steps_of_one_length_are_foretold_exactly(clock: Clock) -> None:
    left = told(clock, [2.0] * 20)
    assert left[:3] == [None] * 3
    assert left[3:] == [2 * (20 - index) for index in range(3, 20)]


def test_steps_of_unlike_lengths_make_no_wild_jumps(clock: Clock) -> None:
    """As in check: eleven quick data checks, then two timings, for each operation."""
    seconds = ([0.05] * 11 + [0.5] * 2) * 12
    left = told(clock, seconds)
    shown = [value for value in left[14:] if value is not None]
    assert max(abs(one - other) for one, other in pairwise(shown)) <= 2
    assert left[40] == pytest.approx(sum(seconds[40:]), rel=0.25)


def test_nothing_is_told_below_two_seconds(clock: Clock) -> None:
    assert told(clock, [0.1] * 10) == [None] * 10
    assert told(clock, [1.0] * 15)[-1] is None


def test_long_runs_are_told_in_minutes(clock: Clock) -> None:
    stream = io.StringIO()
    shown = Progress(stream, terminal=False)
    for index in range(5):
        shown.step(index, 20, "x")
        clock.now += 60
    assert stream.getvalue().splitlines()[-1] == "[ 5/20] x  about 16 min left"


def test_a_terminal_has_one_line_that_is_cleared_at_the_end() -> None:
    stream = io.StringIO()
    shown = Progress(stream, terminal=True, width=10)
    shown.phase("starting 4 ranks")
    shown.step(0, 2, "all_reduce float32 1 MiB")
    shown.close()
    assert stream.getvalue() == "\r\x1b[Kstarting 4\r\x1b[K[1/2] all_\r\x1b[K"


def test_quiet_says_nothing() -> None:
    shown = Progress(None, terminal=True)
    shown.phase("x")
    shown.step(0, 1, "x")
    shown.close()
