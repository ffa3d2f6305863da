"""What rank 0 tells of a soak: a record a window, and each stall and wrong result at once.

Figures of all ranks come in, turn by turn; nothing here grows with time.
"""

import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from wirespeed.plan import Case, SoakPlan

_KEPT = 1024
"""Last times of an operation that its limit is taken from."""
_ENOUGH = 32
"""Of an operation's own times, before one of them can be called odd."""
_TIMES_MEDIAN, _TIMES_P99 = 10.0, 3.0
"""A stall takes longer than both: ten times what is usual, and three times what is rare."""
_LEAST_S = 0.01
"""What is shorter is the scheduler's doing: ranks that share a core take turns of some milliseconds."""
_SAMPLES = 2048
"""Times that a window keeps of each operation; a random choice where there are more."""
_TOLD = 20
"""Stalls and wrong results that are told one by one, of each kind in each window."""
_MOST, _SOME = 0.5, 0.1
_CROWDED = 0.25
"""Share of a turn without a core from which on the machine is to blame for what nobody explains."""
_BEAT_S = 2.0

Event = tuple[str, dict[str, Any]]


@dataclass(slots=True)
class Turn:
    """One operation's calls on one seed's data; lists are by rank, then by call."""

    case: Case
    seed: int
    times: list[list[float]]
    missed: list[list[float]]
    waited: list[list[float]]
    waiting: list[float]
    """Share of the turn that each rank waited for a core; negative: not known."""
    rss: list[float]
    free: list[float]
    checked_bytes: int
    wrong: list[tuple[int, dict[str, Any]]]
    """(number of the call, 0 the first; what was wrong on one rank)."""


@dataclass(slots=True)
class _Cell:
    op: str
    dtype: str
    size_bytes: int
    draw: random.Random
    calls: int = 0
    seen: int = 0
    wrong: int = 0
    max: float = 0.0
    last_rank: int = -1
    samples: list[float] = field(default_factory=list)

    def add(self, seconds: float, last: int) -> None:
        self.seen += 1
        if seconds > self.max:
            self.max, self.last_rank = seconds, last
        if len(self.samples) < _SAMPLES:
            self.samples.append(seconds)
        elif (place := self.draw.randrange(self.seen)) < _SAMPLES:
            self.samples[place] = seconds

    def to_json(self) -> dict[str, Any]:
        ordered = sorted(self.samples)
        return {
            "op": self.op,
            "dtype": self.dtype,
            "size_bytes": self.size_bytes,
            "calls": self.calls,
            "wrong": self.wrong,
            "low_us": _at(ordered, 0.1) * 1e6,
            "median_us": _at(ordered, 0.5) * 1e6,
            "p99_us": _at(ordered, 0.99) * 1e6,
            "max_us": self.max * 1e6,
            "last_rank": self.last_rank,
        }


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def wrong_to_json(case: Case, seed: int, call: int, one: dict[str, Any]) -> dict[str, Any]:
    """What is told of a wrong result; one: a `records.WrongData` as a mapping."""
    names = ("rank", "host", "wrong", "elements", "example", "guess", "suspect")
    told = {name: one[name] for name in names}
    told |= {"op": case.op, "dtype": case.dtype, "redop": case.redop}
    return {**told, "size_bytes": case.size_bytes, "seed": seed, "call": call}


class SoakStatistics:
    """Rank 0's statistics of the window that is open, and of what is usual."""

    def __init__(self, soak: SoakPlan, hosts: Sequence[str]) -> None:
        self._window_s = soak.window_s
        self._hosts = hosts
        self._draw = random.Random(1)
        self._usual: dict[tuple[str, str, int], deque[float]] = {}
        self._beat = 0.0
        self._open(0.0)

    def _open(self, now: float) -> None:
        self._begin = now
        self._cells: dict[tuple[str, str, int], _Cell] = {}
        self._last: Counter[int] = Counter()
        self._waiting = [0.0] * len(self._hosts)
        self._turns = self._wrong = self._stalls = self._bytes = 0
        self._stalled = 0.0
        self._latest: Turn | None = None

    def take(self, turn: Turn, number: int, elapsed: float) -> Iterator[Event]:
        """What is to be told after a turn; number: of turns so far; elapsed: seconds of this world."""
        yield from self._add(turn)
        if elapsed - self._beat >= _BEAT_S:
            self._beat = elapsed
            calls = sum(cell.calls for cell in self._cells.values())
            yield "soak_beat", {"calls": calls, "checked_bytes": self._bytes}
        if elapsed - self._begin >= self._window_s:
            yield from self.rest(number, elapsed)

    def rest(self, number: int, elapsed: float) -> Iterator[Event]:
        """The open window, whatever is in it, and then a new one."""
        if self._latest is not None:
            yield "soak_window", self._record(number, elapsed)
        self._open(elapsed)

    def _add(self, turn: Turn) -> Iterator[Event]:
        case = turn.case
        key = case.op, case.dtype, case.size_bytes
        cell = self._cells.setdefault(key, _Cell(*key, draw=self._draw))
        self._turns, self._latest = self._turns + 1, turn
        self._bytes += turn.checked_bytes
        self._waiting = [a + b for a, b in zip(self._waiting, turn.waiting, strict=True)]
        cell.calls += len(turn.times[0]) + 1
        yield from self._add_wrong(turn, cell)
        yield from self._add_times(turn, cell, self._usual.setdefault(key, deque(maxlen=_KEPT)))

    def _add_wrong(self, turn: Turn, cell: _Cell) -> Iterator[Event]:
        calls = len({number for number, _ in turn.wrong})
        cell.wrong += calls
        case = turn.case
        for call, one in turn.wrong:
            self._wrong += 1
            if self._wrong <= _TOLD:
                yield "soak_wrong", wrong_to_json(case, turn.seed, call, one)

    def _add_times(self, turn: Turn, cell: _Cell, usual: deque[float]) -> Iterator[Event]:
        ordered = sorted(usual)
        median = _at(ordered, 0.5)
        enough = len(ordered) >= _ENOUGH
        limit = max(_TIMES_MEDIAN * median, _TIMES_P99 * _at(ordered, 0.99), _LEAST_S)
        for call, times in enumerate(zip(*turn.times, strict=True)):
            seconds = max(times)
            last = times.index(seconds)
            cell.add(seconds, last)
            self._last[last] += 1
            if not enough or seconds <= limit:
                usual.append(seconds)
                continue
            self._stalls += 1
            self._stalled += seconds
            told = self._stall(turn, call, seconds, last, median)
            if told["busy"]:  # on this machine that is usual; what is no stall shall stay odd
                usual.append(seconds)
            if self._stalls <= _TOLD:
                yield "soak_stall", told

    def _stall(
        self, turn: Turn, call: int, seconds: float, last: int, median: float
    ) -> dict[str, Any]:
        case, ranks = turn.case, range(len(self._hosts))
        waited = [turn.waited[rank][call] for rank in ranks]
        # Ranks that share cores wait in turns: together it may be all of the time.
        short = sum(waited) > _MOST * seconds
        busy = [rank for rank in ranks if short and waited[rank] > _SOME * seconds]
        paused = [rank for rank in ranks if turn.missed[rank][call] > _MOST * seconds]
        if not busy and not paused:  # nobody stood still; where cores were short, that is why
            busy = [rank for rank in ranks if turn.waiting[rank] > _CROWDED]
        return {
            "op": case.op,
            "dtype": case.dtype,
            "size_bytes": case.size_bytes,
            "seconds": seconds,
            "median": median,
            "last_rank": last,
            "last_host": self._hosts[last],
            "paused": [rank for rank in paused if rank not in busy],
            "busy": busy,
        }

    def _record(self, number: int, elapsed: float) -> dict[str, Any]:
        latest, seen = self._latest, max(1, self._last.total())
        ranks = range(len(self._hosts))
        free = latest.free if latest else []
        return {
            "turn": number,
            "seconds": elapsed - self._begin,
            "calls": sum(cell.calls for cell in self._cells.values()),
            "checked_bytes": self._bytes,
            "wrong": sum(cell.wrong for cell in self._cells.values()),
            "stalls": self._stalls,
            "stalled_s": self._stalled,
            "cells": [cell.to_json() for cell in self._cells.values()],
            "last_share": [self._last[rank] / seen for rank in ranks],
            "rss_bytes": [int(value) for value in latest.rss] if latest else [],
            "waited": [value / max(1, self._turns) for value in self._waiting],
            "free_bytes": {host: int(value) for host, value in zip(self._hosts, free, strict=True)},
        }
