"""A Chrome trace of training steps, taken apart: strategies, their ranks, and what ran in each lane.

The file may have been cut, edited or made by something else: events without proper times, and what
belongs to no step, are left out; nothing here raises. Times are milliseconds from here on.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Block", "Part", "Rank", "Stretch", "alone", "blocks_of", "joined", "length"]

Stretch = tuple[float, float]
"""(begin, end) in ms from the beginning of the block."""

_LATEST_US = 1e12
"""Eleven days; beyond that a figure is no time of a step."""
_NOT_XML = re.compile("[\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Part:
    """A phase of a step."""

    name: str
    begin: float
    end: float


@dataclass(slots=True)
class Rank:
    """What one rank did in one step."""

    pid: int
    name: str
    """`rank 0 on host`, as the trace names the process."""
    step: Stretch
    phases: list[Part] = field(default_factory=list)
    compute: list[Stretch] = field(default_factory=list)
    lanes: dict[int, list[Stretch]] = field(default_factory=dict)
    """Communication by thread: what overlaps has lanes of its own."""

    @property
    def communication(self) -> list[Stretch]:
        """All of it, joined."""
        return joined(part for lane in self.lanes.values() for part in lane)


@dataclass(slots=True)
class Block:
    """One step of one strategy on all of its ranks."""

    name: str
    begin: float
    """ms on the trace's clock."""
    end: float
    ranks: dict[int, Rank] = field(default_factory=dict)

    @property
    def length(self) -> float:
        return self.end - self.begin

    @property
    def slowest(self) -> Rank:
        """The rank whose step took longest."""
        return max(self.ranks.values(), key=lambda rank: rank.step[1] - rank.step[0])


@dataclass(frozen=True, slots=True)
class _Event:
    lane: str
    name: str
    pid: int
    tid: int
    begin: float
    end: float


def blocks_of(trace: Mapping[str, Any]) -> list[Block]:
    """The steps in the order of time; empty where the trace has none."""
    raw = trace.get("traceEvents")
    events = [one for one in raw if isinstance(one, Mapping)] if isinstance(raw, list) else []
    found = sorted(_complete(events), key=lambda one: (one.begin, -one.end))
    blocks = _outer(found, _names(events))
    begins = [block.begin for block in blocks]
    outer = {(id(block), rank.pid, rank.step) for block in blocks for rank in block.ranks.values()}
    for event in found:
        # The middle, because what is sent may begin a moment before its step does.
        index = bisect_right(begins, (event.begin + event.end) / 2) - 1
        if index >= 0:
            _sort_in(blocks[index], event, outer)
    return blocks


def _complete(events: Iterable[Mapping[str, Any]]) -> Iterator[_Event]:
    """Those of phase X with a lane, a place and a time."""
    for one in events:
        if one.get("ph") != "X":
            continue
        begin, took = _time(one.get("ts")), _time(one.get("dur"))
        pid, tid = one.get("pid"), one.get("tid")
        if begin is None or took is None or not isinstance(pid, int) or not isinstance(tid, int):
            continue
        lane, name = str(one.get("cat", "")), _text(one.get("name", ""))
        yield _Event(lane, name, pid, tid, begin / 1e3, (begin + took) / 1e3)


def _time(value: object) -> float | None:
    """Microseconds, where they are a time."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= _LATEST_US else None


def _text(value: object) -> str:
    return _NOT_XML.sub(" ", str(value))


def _names(events: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """The processes' names by pid."""
    names = {}
    for one in events:
        args, pid = one.get("args"), one.get("pid")
        if one.get("name") == "process_name" and isinstance(args, Mapping) and isinstance(pid, int):
            names[pid] = _text(args.get("name", ""))
    return names


def _outer(events: Iterable[_Event], names: Mapping[int, str]) -> list[Block]:
    """The blocks, with nothing but the ranks' outer events: phases lie within one of these."""
    blocks: list[Block] = []
    open_until: dict[int, float] = {}
    for one in events:
        if one.lane != "step" or one.end <= one.begin:
            continue
        # The middle again: times are rounded, and the last phase may end a nanosecond too late.
        if (one.begin + one.end) / 2 < open_until.get(one.pid, 0.0):
            continue
        open_until[one.pid] = one.end
        if not blocks or one.name != blocks[-1].name or one.begin >= blocks[-1].end:
            blocks.append(Block(one.name, one.begin, one.end))
        block = blocks[-1]
        block.end = max(block.end, one.end)
        step = (one.begin - block.begin, one.end - block.begin)
        name = names.get(one.pid) or f"process {one.pid}"
        block.ranks[one.pid] = Rank(one.pid, name, step)
    for block in blocks:
        block.ranks = dict(sorted(block.ranks.items()))
    return blocks


def _sort_in(block: Block, event: _Event, outer: set[tuple[int, int, Stretch]]) -> None:
    """Into its rank's lane, within the block's time."""
    rank = block.ranks.get(event.pid)
    if rank is None:
        return
    begin, end = event.begin - block.begin, event.end - block.begin
    if event.lane == "step":
        if (id(block), event.pid, (begin, end)) not in outer:
            rank.phases.append(Part(event.name, max(begin, 0.0), min(end, block.length)))
        return
    kept = (max(begin, 0.0), min(end, block.length))
    if event.lane == "compute":
        rank.compute.append(kept)
    elif event.lane == "communication":
        rank.lanes.setdefault(event.tid, []).append(kept)


def joined(parts: Iterable[Stretch], gap: float = 0.0) -> list[Stretch]:
    """The same time in order, with what touches or lies at most `gap` apart as one; empty ones go."""
    whole: list[Stretch] = []
    for begin, end in sorted(parts):
        if end <= begin:
            continue
        if whole and begin - whole[-1][1] <= gap:
            whole[-1] = (whole[-1][0], max(whole[-1][1], end))
        else:
            whole.append((begin, end))
    return whole


def alone(parts: Iterable[Stretch], beside: Iterable[Stretch]) -> list[Stretch]:
    """What is left of `parts` where nothing of `beside` runs."""
    others = joined(beside)
    left: list[Stretch] = []
    at = 0
    for begin, end in joined(parts):
        while at < len(others) and others[at][1] <= begin:
            at += 1
        for low, high in _from(others, at):
            if low >= end:
                break
            left.append((begin, low))
            begin = max(begin, high)
        left.append((begin, end))
    return [(begin, end) for begin, end in left if end > begin]


def _from(parts: list[Stretch], index: int) -> Iterator[Stretch]:
    while index < len(parts):
        yield parts[index]
        index += 1


def length(parts: Iterable[Stretch]) -> float:
    return sum(end - begin for begin, end in parts)
