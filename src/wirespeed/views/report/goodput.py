"""The section of training that lasted: the bar of where the time went, the figures, the incidents."""

from typing import Any

from wirespeed.records import Run
from wirespeed.records_lasting import Goodput
from wirespeed.units import format_duration
from wirespeed.views.goodput import conclusion, goodput_notes, parts_shown, tables
from wirespeed.views.html_table import html_table
from wirespeed.views.report.charts import chart
from wirespeed.views.report.section import Section, Spot
from wirespeed.views.templating import filled

__all__ = ["goodput_section"]

_COLORS = {
    "useful": "--good",
    "start": "--c-data",
    "restore": "--c-violet",
    "checkpoint": "--c-gold",
    "lost": "--mark",
    "down": "--c-synchronise",
    "other": "--soft",
}
_HEIGHT = 150


def goodput_section(run: Run, spot: Spot) -> Section:
    """Empty for a run that did not train for a time."""
    one = run.goodput
    if one is None:
        return Section("", "", "")
    note = "Seconds by cause; they add up to the wall time."
    drawn = chart(spot, "goodput", "Where the time went", _figure(one), note)
    html = filled(
        "training.html",
        spot=spot,
        name="goodput",
        title="How much of the time was useful",
        said=" ".join(f"{line[0].upper()}{line[1:]}." for line in conclusion(one)),
        charts=[drawn],
        tables=[
            html_table(grid, caption, spot.id(f"goodput-{number}"))
            for number, (caption, grid) in enumerate(tables(run), 1)
        ],
        notes=goodput_notes(one),
    )
    return Section(spot.id("goodput"), "Goodput", html)


def _figure(one: Goodput) -> dict[str, Any]:
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": [0],
            "x": [round(seconds, 6)],
            "marker": {"color": _COLORS[name]},
            "hovertemplate": f"{name} {format_duration(seconds)}<extra></extra>",
        }
        for name, seconds in parts_shown(one)
    ]
    layout = {
        "height": _HEIGHT,
        "barmode": "stack",
        "margin": {"l": 10, "r": 16, "t": 36, "b": 44},
        "xaxis": {"title": {"text": "s"}, "gridcolor": "--line", "zeroline": False},
        "yaxis": {"visible": False},
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        "showlegend": True,
    }
    return {"data": bars, "layout": layout}
