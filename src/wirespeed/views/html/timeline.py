"""The timeline of recorded training steps, as one SVG picture that needs nothing else.

It draws what `wirespeed train --trace` writes, one step of each strategy, and what was recorded of a
watched job. They stand one below the other on one time scale; each rank has its phases, below them
what it computed, and below that what it sent. Sending is solid where the rank computed nothing
meanwhile: that is the time communication costs.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any

from wirespeed.model.units import format_duration
from wirespeed.views.html.parts import filled, source
from wirespeed.views.text import counted, shortened

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
        over = at
        while over < len(others) and others[over][0] < end:
            left.append((begin, others[over][0]))
            begin, over = max(begin, others[over][1]), over + 1
        left.append((begin, end))
    return [(begin, end) for begin, end in left if end > begin]


def length(parts: Iterable[Stretch]) -> float:
    return sum(end - begin for begin, end in parts)


WIDTH, _LEFT, _RIGHT, _TOP = 1120, 150, 24, 92
_PLOT = WIDTH - _LEFT - _RIGHT
_HEAD, _PHASE, _LANE, _GAP, _BETWEEN_RANKS, _BETWEEN_BLOCKS = 24, 20, 9, 3, 10, 22
_MOST_RANKS, _MOST_BLOCKS, _MOST_LANES = 8, 24, 4
_MOST_PIECES = 6000
"""Rectangles of lanes; with more, stretches further apart than a pixel are drawn as one."""
_CHAR_PX = 6.3
_LONGEST_NAME, _LONGEST_HOST = 60, 20
_TICKS = 10

PHASES = ("data", "forward", "backward", "synchronise", "optimizer")
"""Those that have a colour of their own."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """Milliseconds to pixels."""

    longest: float
    pixel: float
    """ms: stretches no further apart are drawn as one."""

    def x(self, at: float) -> float:
        return _LEFT + self.wide(at)

    def wide(self, lasts: float) -> float:
        return lasts / self.longest * _PLOT

    def path(self, parts: Iterable[Stretch]) -> str:
        """Rectangles from y = 0 on, at least so wide that they are seen."""
        shapes = []
        for begin, end in parts:
            x, wide = self.x(begin), max(self.wide(end - begin), 0.6)
            shapes.append(f"M{x:.1f} 0h{wide:.1f}v{_LANE}h{-wide:.1f}z")
        return "".join(shapes)


def timeline_svg(trace: Mapping[str, Any], at: str = "") -> str:
    """The picture as SVG text; empty where the trace holds no step. The same trace, the same text.

    at: what its ids begin with, where several stand in one page.

    At most 24 strategies and the first 8 ranks of each are drawn, and a note says how many are not.
    """
    found = [block for block in blocks_of(trace) if block.length > 0]
    if not found:
        return ""
    shown = found[:_MOST_BLOCKS]
    scale = _scale(shown)
    y = _TOP
    drawn = []
    for block in shown:
        drawn.append(_block(block, scale, y))
        y += drawn[-1]["height"] + _BETWEEN_BLOCKS
    picture = filled(
        "timeline.svg",
        at=at,
        style=source("timeline.css"),
        blocks=drawn,
        ticks=_ticks(scale),
        legend=_legend(shown),
        notes=_notes(trace, found),
        size={"width": WIDTH, "left": _LEFT, "plot": _PLOT, "top": _TOP, "bottom": y}
        | {"phase": _PHASE, "lane": _LANE, "char": _CHAR_PX},
    )
    return str(picture)


def _scale(blocks: Sequence[Block]) -> _Scale:
    """One for all; as coarse as it takes to keep the picture small."""
    longest = max(block.length for block in blocks)
    scale = _Scale(longest, longest / _PLOT)
    while _pieces(blocks, scale) > _MOST_PIECES:
        scale = _Scale(longest, scale.pixel * 2)
    return scale


def _pieces(blocks: Sequence[Block], scale: _Scale) -> int:
    ranks = [rank for block in blocks for rank in _shown_ranks(block)]
    computing = sum(len(joined(rank.compute, scale.pixel)) for rank in ranks)
    lanes = [parts for rank in ranks for lane in _lanes(rank, scale) for parts in lane]
    return computing + sum(map(len, lanes))


def _shown_ranks(block: Block) -> list[Rank]:
    return list(islice(block.ranks.values(), _MOST_RANKS))


def _lanes(rank: Rank, scale: _Scale) -> list[tuple[list[Stretch], list[Stretch]]]:
    """(all, alone) of each lane of communication; lanes beyond the fourth share the last row."""
    lanes = [rank.lanes[tid] for tid in sorted(rank.lanes)]
    if len(lanes) > _MOST_LANES:
        rest = [part for lane in lanes[_MOST_LANES - 1 :] for part in lane]
        lanes = [*lanes[: _MOST_LANES - 1], rest]
    computed = joined(rank.compute, scale.pixel)
    rows = []
    for lane in lanes:
        whole = joined(lane, scale.pixel / 2)
        rows.append((whole, joined(alone(whole, computed), scale.pixel / 2)))
    return rows


def _block(block: Block, scale: _Scale, top: int) -> dict[str, Any]:
    """What the template draws of one strategy, from `top` on."""
    ranks, y = [], _HEAD
    for rank in _shown_ranks(block):
        ranks.append(_rank(rank, scale, y))
        y += ranks[-1]["height"] + _BETWEEN_RANKS
    missing = len(block.ranks) - len(ranks)
    return {
        "name": shortened(block.name, _LONGEST_NAME),
        "whole": block.name,
        "says": _says(block),
        "y": top,
        "ranks": ranks,
        "missing": f"and {counted(missing, 'more rank', ',')}" if missing else "",
        "height": y - _BETWEEN_RANKS + (16 if missing else 0),
    }


def _says(block: Block) -> str:
    """`step 72.2 ms · communication 32.2 ms, 14.1 ms of it while nothing computed`."""
    rank = block.slowest
    words = f"step {_ms(rank.step[1] - rank.step[0])}"
    sent = length(rank.communication)
    if not sent:
        return f"{words} · no communication"
    bare = length(alone(rank.communication, rank.compute))
    part = f"{_ms(bare)} of it while nothing computed" if bare else "all of it beside computing"
    if _ms(bare) == _ms(sent):
        part = "all of it while nothing computed"
    return f"{words} · communication {_ms(sent)}, {part}"


def _ms(value: float) -> str:
    return format_duration(value / 1e3)


def _rank(rank: Rank, scale: _Scale, y: int) -> dict[str, Any]:
    name, _, host = rank.name.partition(" on ")
    lanes = [[("c", joined(rank.compute, scale.pixel))]]
    lanes += [[("s", whole), ("a", bare)] for whole, bare in _lanes(rank, scale)]
    rows = [
        [{"kind": kind, "d": scale.path(parts)} for kind, parts in lane if parts] for lane in lanes
    ]
    return {
        "name": shortened(name, 12),
        "host": shortened(host, _LONGEST_HOST),
        "whole": rank.name,
        "y": y,
        "phases": [_phase(part, scale) for part in sorted(rank.phases, key=lambda one: one.begin)],
        "rows": [(y + _PHASE + _GAP + i * (_LANE + _GAP), row) for i, row in enumerate(rows)],
        "height": _PHASE + len(rows) * (_LANE + _GAP),
    }


def _phase(part: Part, scale: _Scale) -> dict[str, Any]:
    return {
        "kind": part.name if part.name in PHASES else "other",
        "name": part.name,
        "lasts": _ms(part.end - part.begin),
        "x": scale.x(part.begin),
        "width": scale.wide(part.end - part.begin),
    }


def _ticks(scale: _Scale) -> list[tuple[float, str]]:
    """Round milliseconds, about ten of them, with their places."""
    least = scale.longest / _TICKS
    power = 10.0 ** int(f"{least:e}".partition("e")[2])
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= least)
    values = takewhile(lambda at: at <= scale.longest * 1.0001, (step * i for i in range(99)))
    return [(scale.x(at), f"{at:.6g}") for at in values]


def _legend(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    seen = {part.name for block in blocks for rank in _shown_ranks(block) for part in rank.phases}
    kinds = {f"p-{name}": name for name in PHASES if name in seen}
    kinds |= {"p-other": "other phases"} if seen.difference(PHASES) else {}
    kinds |= {"c": "computing", "s": "sending beside computing"}
    kinds |= {"a": "sending while nothing computes"}
    entries, x = [], float(_LEFT)
    for kind, text in kinds.items():
        entries.append({"kind": kind, "text": text, "x": x})
        x += 17 + len(text) * 6.2 + 16
    return entries


def _notes(trace: Mapping[str, Any], found: Sequence[Block]) -> list[str]:
    notes = [
        "Steps that were recorded under the profiler: they may be slower than those that were timed."
    ]
    about = trace.get("otherData")
    error = about.get("clock error, s") if isinstance(about, Mapping) else None
    if isinstance(error, int | float) and 0 < error < 3600:
        notes[0] += f" The ranks' clocks agree within ±{format_duration(error)}."
    if len(found) > _MOST_BLOCKS:
        notes.append(f"The first {_MOST_BLOCKS} of {len(found)} steps; the trace has them all.")
    if any(len(block.ranks) > _MOST_RANKS for block in found):
        notes.append(f"The first {_MOST_RANKS} ranks of each; the trace has them all.")
    return notes
