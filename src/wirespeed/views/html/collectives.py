"""The section of the timed operations: one line each, then curves and every figure of each."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wirespeed.model.bench_records import ReferenceFigure
from wirespeed.model.records import Measurement, Run
from wirespeed.model.units import GIGA, format_duration, format_size
from wirespeed.statistics import lacks_samples
from wirespeed.views import sections
from wirespeed.views.html import parts
from wirespeed.views.html.parts import Figure, Section, Spot
from wirespeed.views.table import sizes_grid, summary_grid
from wirespeed.views.text import Style, shortened

MOST_LINES = 12
"""Of one chart; more could not be told apart. The tables hold all."""
_LONGEST = 48
_FAR = 3.0
_REFERENCE_LINES = (("--text", "dash"), ("--soft", "dot"))
"""(colour, dash) of what a figure was graded against, and of what a model allows."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: measurements of one operation that differ in size only."""

    name: str
    rows: tuple[Measurement, ...]


def busbw_chart(lines: Sequence[Line], references: Iterable[ReferenceFigure] = ()) -> Figure | None:
    """GB/s over size; None where nothing has a bus bandwidth."""
    drawn = _with_points(lines, lambda m: m.busbw > 0 and math.isfinite(m.busbw))
    if not drawn:
        return None
    traces = [_trace(line, index, rated=True) for index, line in enumerate(drawn)]
    sizes = [m.size_bytes for line in drawn for m in line.rows]
    most = max(m.busbw for line in drawn for m in line.rows)
    shown = [one for one in references if one.quantity == "busbw" and not far_above(one, most)]
    traces += [_reference(one, 1 / GIGA, sizes) for one in shown]
    y = {"title": parts.axis_title("busbw, GB/s"), "rangemode": "tozero"}
    return {"data": traces, "layout": _layout(traces, sizes, y)}


def time_chart(lines: Sequence[Line], references: Iterable[ReferenceFigure] = ()) -> Figure | None:
    """Median time over size, both logarithmic; None where nothing has a time."""
    drawn = _with_points(lines, lambda m: m.time.median > 0 and math.isfinite(m.time.median))
    if not drawn:
        return None
    traces = [_trace(line, index, rated=False) for index, line in enumerate(drawn)]
    sizes = [m.size_bytes for line in drawn for m in line.rows]
    traces += [_reference(one, 1e6, sizes) for one in references if one.quantity == "time"]
    y = {"title": parts.axis_title("time"), "type": "log"} | _time_ticks(traces)
    return {"data": traces, "layout": _layout(traces, sizes, y)}


def far_above(one: ReferenceFigure, busbw: float) -> bool:
    """Whether a model allows so much more that the curves would be flat beneath its line."""
    return one.kind == "roofline" and one.value > _FAR * busbw


def _time_ticks(traces: Sequence[Figure]) -> Figure:
    """Ticks that say their unit: decades, and steps between where there are few."""
    values = [value for trace in traces for value in trace["y"]]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = (1, 2, 5) if high - low <= 2 else (1,)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    return {"tickvals": ticks, "ticktext": [_tick(tick) for tick in ticks]}


def _tick(us: float) -> str:
    for unit, name in ((1e6, "s"), (1e3, "ms"), (1.0, "µs")):
        if us >= unit:
            return f"{us / unit:g} {name}"
    return f"{us * 1e3:g} ns"


def _with_points(lines: Sequence[Line], good: Callable[[Measurement], bool]) -> list[Line]:
    kept = [
        Line(line.name, tuple(m for m in line.rows if m.size_bytes > 0 and good(m)))
        for line in lines
    ]
    return [line for line in kept if line.rows][:MOST_LINES]


def _layout(traces: Sequence[Figure], sizes: Sequence[int], y: Figure) -> Figure:
    longest = max(len(trace["name"]) for trace in traces)
    return parts.curve_layout(parts.size_axis(sizes), y, len(traces), longest)


def _reach(m: Measurement, rated: bool) -> tuple[float, float]:
    """How far the interval reaches down and up: the slow end of the time is the low end of the rate.

    Nothing where there are too few samples for one: a whisker is read as an interval.
    """
    time = m.time
    if lacks_samples(m.samples):
        return 0.0, 0.0
    if not time.low < time.high < math.inf or time.median <= 0:
        return 0.0, 0.0
    if not rated:
        return max(0.0, time.median - time.low) * 1e6, max(0.0, time.high - time.median) * 1e6
    if time.low <= 0:
        return 0.0, 0.0
    down, up = m.busbw * time.median / time.high, m.busbw * time.median / time.low
    return max(0.0, m.busbw - down) / GIGA, max(0.0, up - m.busbw) / GIGA


def _trace(line: Line, index: int, *, rated: bool) -> Figure:
    """GB/s if rated, else µs."""
    values = [m.busbw / GIGA if rated else m.time.median * 1e6 for m in line.rows]
    x, y = [m.size_bytes for m in line.rows], list(map(parts.six, values))
    drawn = parts.curve(parts.label(shortened(line.name, _LONGEST)), index, x, y)
    drawn["marker"]["size"] = 7
    ends = [tuple(map(parts.six, _reach(m, rated))) for m in line.rows]
    return drawn | {
        "error_y": parts.whiskers(ends, drawn["line"]["color"]),
        "customdata": [_said(m, rated) for m in line.rows],
        "hovertemplate": "%{customdata}<extra>%{fullData.name}</extra>",
    }


def _said(m: Measurement, rated: bool) -> str:
    figure = sections.bandwidth(m.busbw) if rated else format_duration(m.time.median)
    return f"{format_size(m.size_bytes)}: {figure} ({sections.precision(m)})"


def _reference(one: ReferenceFigure, factor: float, sizes: Sequence[int]) -> Figure:
    """A level line over the whole width, with a mark and its spread at the size that it holds for.

    A trace, so that the axis reaches to it.
    """
    value = parts.six(one.value * factor)
    low, high = (value if end is None else parts.six(end * factor) for end in (one.low, one.high))
    ends = [(0.0, 0.0), (max(0.0, value - low), max(0.0, high - value)), (0.0, 0.0)]
    color, dash = _REFERENCE_LINES[one.kind == "roofline"]
    at = format_size(one.size_bytes)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": parts.label(f"{sections.KINDS[one.kind]} at {at}: {sections.reference_value(one)}"),
        "x": [min(sizes), one.size_bytes, max(sizes)],
        "y": [value] * 3,
        "error_y": parts.whiskers(ends, color),
        "line": {"color": color, "width": 1.5, "dash": dash},
        "marker": {"color": color, "size": [0, 9, 0], "symbol": "diamond-open"},
        "customdata": [parts.label(f"{sections.KINDS[one.kind]} at {at}: {one.source}")] * 3,
        "hovertemplate": "%{customdata}<extra></extra>",
    }


_GRADED = "what figures were graded against; share: 1 is as good, more is better"
_UNWRAPPED = Style(width=100_000)
_BUSBW_NOTE = "Medians; whiskers are their 95 % intervals (none below 6 samples)."
_TIME_NOTE = "Median time of the slowest rank; whiskers are 95 % intervals. Both axes logarithmic."


def collectives_section(run: Run, spot: Spot) -> Iterator[Section]:
    """Everything that was timed."""
    series = sections.series_of(run.measurements)
    if not series:
        return
    graded = sections.references_grid(run)
    yield parts.section(
        spot,
        "collectives",
        "Operations",
        "collectives.html",
        title="How fast each operation is",
        summary=parts.html_table(
            summary_grid(series), "each operation in a line", spot.id("operations")
        ),
        graded=parts.html_table(graded, _GRADED, spot.id("references")) if graded else "",
        operations=list(_operations(series, sections.references_of(run), spot)),
        notes=sections.bandwidth_note(run, _UNWRAPPED),
    )


def lines_of(series: Sequence[sections.Series]) -> list[Line]:
    """The lines of one operation's charts, named by what sets them apart."""
    lines = []
    for one in series:
        for in_place in (False, True):
            rows = tuple(m for m in one.rows if m.in_place is in_place)
            where = "in place" if in_place else "out of place"
            name = where if len(series) == 1 else f"{one.title}, {where}"
            lines += [Line(name, rows)] if rows else []
    return lines


def _operations(
    series: Sequence[sections.Series], references: Sequence[ReferenceFigure], spot: Spot
) -> Iterator[dict[str, Any]]:
    for number, op in enumerate(dict.fromkeys(one.first.op for one in series), 1):
        own = [one for one in series if one.first.op == op]
        lines = lines_of(own)
        name = f"op-{number}"
        yield {
            "name": spot.id(name),
            "op": op,
            "more": max(0, len(lines) - MOST_LINES),
            "charts": list(_charts(op, name, lines, [r for r in references if r.op == op], spot)),
            "tables": parts.html_tables(
                ((f"{op} · {one.title}", sizes_grid(one)) for one in own), spot.id(name)
            ),
        }


def _charts(
    op: str, name: str, lines: Sequence[Line], wanted: Sequence[ReferenceFigure], spot: Spot
) -> Iterator[dict[str, Any]]:
    table = spot.id(f"{name}-1-caption")
    rates, times = busbw_chart(lines, wanted), time_chart(lines, wanted)
    if rates is not None:
        note = _BUSBW_NOTE + _not_drawn(lines, wanted)
        yield parts.chart(spot, f"{name}-busbw", f"{op}: bus bandwidth", rates, note, table)
    if times is not None:
        yield parts.chart(spot, f"{name}-time", f"{op}: time", times, _TIME_NOTE, table)


def _not_drawn(lines: Sequence[Line], references: Sequence[ReferenceFigure]) -> str:
    """The limits that are far above the chart, in words."""
    most = max(m.busbw for line in lines for m in line.rows)
    far = [one for one in references if one.quantity == "busbw" and far_above(one, most)]
    return "".join(f" Far above: a roofline of {sections.reference_value(one)}." for one in far)
