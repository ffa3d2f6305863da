"""What charts of the page share: the frame of one, its axes, its whiskers and its colours."""

import math
from collections.abc import Sequence
from typing import Any

from wirespeed.units import format_size
from wirespeed.views.report.section import Spot
from wirespeed.views.templating import script_json

__all__ = ["DASHES", "LINES", "SYMBOLS", "Figure", "chart", "curve_layout", "size_axis", "whiskers"]

Figure = dict[str, Any]

LINES = (
    "--c-backward",
    "--mark",
    "--good",
    "--c-violet",
    "--c-gold",
    "--soft",
)
"""Colours of lines, as names of the page's variables; each stands out from the page by 3 to 1."""
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star")
_HEIGHT, _LEGEND_ROW_PX = 320, 22
_MOST_TICKS = 5
_LEGEND: Figure = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom"}


def chart(
    spot: Spot, name: str, title: str, figure: Figure, note: str, table: str = ""
) -> dict[str, Any]:
    """What chart.html takes. table: id of the element that says the same in figures."""
    return {
        "name": spot.id(name),
        "title": title,
        "note": note,
        "table": table or f"{spot.id(name)}-1-caption",
        "height": figure["layout"]["height"],
        "json": script_json(figure),
    }


def curve_layout(x: Figure, y: Figure, lines: int, names: int) -> Figure:
    """names: the characters of the longest name, which tell how many fit in a row of the legend."""
    rows = math.ceil(max(lines, 1) * (names * 7 + 60) / 480)
    above = 18 + _LEGEND_ROW_PX * rows
    return {
        "height": _HEIGHT + above,
        "margin": {"l": 10, "r": 16, "t": above, "b": 52},
        "xaxis": {"gridcolor": "--line", "zeroline": False, "automargin": True} | x,
        "yaxis": {"gridcolor": "--line", "zerolinecolor": "--line", "automargin": True} | y,
        "legend": _LEGEND,
        "showlegend": True,
    }


def size_axis(sizes: Sequence[int]) -> Figure:
    """A logarithmic axis whose ticks are sizes that were measured."""
    known = sorted({size for size in sizes if size > 0}) or [1]
    low, high = math.log10(known[0]), math.log10(known[-1])
    ticks = known[:1]
    for size in known[1:]:
        if math.log10(size / ticks[-1]) >= (high - low) / _MOST_TICKS:
            ticks.append(size)
    room = max(0.1, 0.04 * (high - low))
    return {
        # No `standoff`: where a label does not fit, Plotly would put the title at minus infinity.
        "title": {"text": "size", "font": {"size": 13}},
        "type": "log",
        "tickangle": 0,
        "tickvals": ticks,
        "ticktext": [format_size(size) for size in ticks],
        "range": [low - room, high + room],
    }


def whiskers(ends: Sequence[tuple[float, float]], color: str) -> Figure:
    """ends: how far each interval reaches (down, up), in the unit of the axis."""
    return {
        "type": "data",
        "symmetric": False,
        "arrayminus": [down for down, _ in ends],
        "array": [up for _, up in ends],
        "color": color,
        "thickness": 1.2,
        "width": 3,
    }
