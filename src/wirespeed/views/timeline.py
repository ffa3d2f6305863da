"""The timeline of one training step of each strategy, as one SVG picture that needs nothing else.

It draws what `wirespeed train --trace` writes. Strategies stand one below the other on one time
scale; each rank has its phases, below them what it computed, and below that what it sent. Sending is
solid where the rank computed nothing meanwhile: that is the time communication costs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any

from wirespeed.units import format_duration
from wirespeed.views.templating import filled, source
from wirespeed.views.timeline_events import Block, Part, Rank, Stretch, alone, blocks_of, joined
from wirespeed.views.timeline_events import length as total

__all__ = ["timeline_svg"]

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
        return _LEFT + at / self.longest * _PLOT

    def path(self, parts: Iterable[Stretch], height: float) -> str:
        """Rectangles from y = 0 on, at least so wide that they are seen."""
        shapes = []
        for begin, end in parts:
            x, wide = self.x(begin), max((end - begin) / self.longest * _PLOT, 0.6)
            shapes.append(f"M{x:.1f} 0h{wide:.1f}v{height:g}h{-wide:.1f}z")
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
    y = float(_TOP)
    drawn = []
    for block in shown:
        drawn.append(_block(block, scale, y))
        y += drawn[-1]["height"] + _BETWEEN_BLOCKS
    notes = _notes(trace, found)
    picture = filled(
        "timeline.svg",
        at=at,
        style=source("timeline.css"),
        blocks=drawn,
        ticks=_ticks(scale),
        legend=_legend(shown),
        summary="; ".join(f"{one['whole']}: {one['says']}" for one in drawn),
        notes=notes,
        size={"width": WIDTH, "left": _LEFT, "plot": _PLOT, "top": _TOP, "bottom": y},
        height=y + 34 + 17 * len(notes),
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
    shapes = 0
    for rank in (rank for block in blocks for rank in _shown_ranks(block)):
        shapes += len(joined(rank.compute, scale.pixel))
        shapes += sum(len(parts) for lane in _lanes(rank, scale) for parts in lane)
    return shapes


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


def _block(block: Block, scale: _Scale, top: float) -> dict[str, Any]:
    """What the template draws of one strategy, from `top` on."""
    ranks, y = [], float(_HEAD)
    for rank in _shown_ranks(block):
        ranks.append(_rank(rank, scale, y))
        y += ranks[-1]["height"] + _BETWEEN_RANKS
    missing = len(block.ranks) - len(ranks)
    if missing:
        y += 16
    return {
        "name": _short(block.name, _LONGEST_NAME),
        "whole": block.name,
        "says": _says(block),
        "y": f"{top:g}",
        "ranks": ranks,
        "missing": f"and {missing:,} more rank{'s' if missing > 1 else ''}" if missing else "",
        "missing_y": f"{y - _BETWEEN_RANKS:g}",
        "height": y - _BETWEEN_RANKS,
    }


def _says(block: Block) -> str:
    """`step 72.2 ms · communication 32.2 ms, 14.1 ms of it while nothing computed`."""
    rank = block.slowest
    words = f"step {_ms(rank.step[1] - rank.step[0])}"
    sent = total(rank.communication)
    if not sent:
        return f"{words} · no communication"
    bare = total(alone(rank.communication, rank.compute))
    part = f"{_ms(bare)} of it while nothing computed" if bare else "all of it beside computing"
    if _ms(bare) == _ms(sent):
        part = "all of it while nothing computed"
    return f"{words} · communication {_ms(sent)}, {part}"


def _ms(value: float) -> str:
    return format_duration(value / 1e3)


def _rank(rank: Rank, scale: _Scale, y: float) -> dict[str, Any]:
    name, _, host = rank.name.partition(" on ")
    rows = [_row("computing", y + _PHASE + _GAP, [("c", joined(rank.compute, scale.pixel))], scale)]
    for whole, bare in _lanes(rank, scale):
        at = y + _PHASE + _GAP + len(rows) * (_LANE + _GAP)
        label = "sending" if len(rows) == 1 else ""
        rows.append(_row(label, at, [("s", whole), ("a", bare)], scale))
    return {
        "name": _short(name, 12),
        "host": _short(host, _LONGEST_HOST),
        "whole": rank.name,
        "y": f"{y + 11:g}",
        "host_y": f"{y + 26:g}",
        "phases": [_phase(part, scale, y) for part in sorted(rank.phases, key=_begin)],
        "rows": rows,
        "height": _PHASE + len(rows) * (_LANE + _GAP),
    }


def _begin(part: Part) -> float:
    return part.begin


def _phase(part: Part, scale: _Scale, y: float) -> dict[str, Any]:
    x, wide = scale.x(part.begin), (part.end - part.begin) / scale.longest * _PLOT
    fits = wide > len(part.name) * _CHAR_PX + 6
    return {
        "kind": part.name if part.name in PHASES else "other",
        "says": f"{part.name} {_ms(part.end - part.begin)}",
        "x": f"{x:.1f}",
        "y": f"{y:g}",
        "width": f"{max(wide, 0.6):.1f}",
        "height": _PHASE,
        "label": part.name if fits else "",
        "label_x": f"{x + wide / 2:.1f}",
        "label_y": f"{y + 14:g}",
    }


def _row(
    label: str, y: float, kinds: Sequence[tuple[str, list[Stretch]]], scale: _Scale
) -> dict[str, Any]:
    paths = [{"kind": kind, "d": scale.path(parts, _LANE)} for kind, parts in kinds if parts]
    return {"label": label, "y": f"{y:g}", "label_y": f"{y + 8:g}", "height": _LANE, "paths": paths}


def _ticks(scale: _Scale) -> list[dict[str, str]]:
    """Round milliseconds, about ten of them."""
    power = 10.0 ** _exponent(scale.longest / _TICKS)
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= scale.longest / _TICKS)
    values = takewhile(lambda at: at <= scale.longest * 1.0001, (step * i for i in range(99)))
    return [{"x": f"{scale.x(at):.1f}", "text": f"{at:.6g}"} for at in values]


def _exponent(value: float) -> int:
    """Of the power of ten at or below a positive value."""
    return int(f"{value:e}".partition("e")[2])


def _legend(blocks: Sequence[Block]) -> list[dict[str, str]]:
    seen = {part.name for block in blocks for rank in _shown_ranks(block) for part in rank.phases}
    kinds = [(f"p-{name}", name) for name in PHASES if name in seen]
    kinds += [("p-other", "other phases")] if seen.difference(PHASES) else []
    kinds += [("c", "computing"), ("s", "sending beside computing")]
    kinds += [("a", "sending while nothing computes")]
    entries, x = [], float(_LEFT)
    for kind, text in kinds:
        entries.append({"kind": kind, "text": text, "x": f"{x:.0f}", "text_x": f"{x + 17:.0f}"})
        x += 17 + len(text) * 6.2 + 16
    return entries


def _notes(trace: Mapping[str, Any], found: Sequence[Block]) -> list[str]:
    notes = [
        "One recorded step of each strategy, under the profiler: it may be slower than those timed."
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


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
