"""Sections of grids, compared settings, soaks and training that lasted."""

from typing import Any

from wirespeed.model.lasting_records import Goodput
from wirespeed.model.records import Run
from wirespeed.model.units import format_duration
from wirespeed.views.combinations import grid_tables, settings_tables, winner_lines
from wirespeed.views.html.parts import Section, Spot, chart, study
from wirespeed.views.html.training_charts import throughput_chart
from wirespeed.views.lasting import (
    conclusion,
    goodput_notes,
    goodput_tables,
    parts_shown,
    soak_tables,
    summary,
    timeline,
)

_NOTE = "Samples a second over all ranks, from the mean step; whiskers are its 95 % intervals."


def grid_section(run: Run, spot: Spot) -> Section:
    """Empty for a run of one world."""
    found = grid_tables(run)
    if not found:
        return Section("", "", "")
    drawn = throughput_chart([one for one in run.training if one.study == "compare"])
    html = study(
        spot,
        "grid",
        "Every world of the grid",
        found,
        label="throughput",
        charts=[chart(spot, "throughput", "Throughput", drawn, _NOTE)] if drawn else [],
    )
    return Section(spot.id("grid"), "Grid", html)


def settings_section(run: Run, spot: Spot) -> Section:
    """Empty for a run that compared none."""
    if not run.settings:
        return Section("", "", "")
    title = "Which setting is faster"
    html = study(
        spot,
        "settings",
        title,
        settings_tables(run),
        said=" ".join(line.strip() for line in winner_lines(run)),
    )
    return Section(spot.id("settings"), "Settings", html)


def soak_section(run: Run, spot: Spot) -> Section:
    """Empty for a run that was no soak."""
    if run.soak is None:
        return Section("", "", "")
    html = study(
        spot,
        "soak",
        "The soak",
        soak_tables(run, every=True),
        said=summary(run.soak),
        notes=[timeline(run.soak)],
    )
    return Section(spot.id("soak"), "Soak", html)


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
    html = study(
        spot,
        "goodput",
        "How much of the time was useful",
        goodput_tables(run),
        said=" ".join(f"{line[0].upper()}{line[1:]}." for line in conclusion(one)),
        charts=[drawn],
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
