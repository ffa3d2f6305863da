"""The section of the timed operations: one line each, then curves and every figure of each."""

from collections.abc import Iterator, Sequence
from typing import Any

from wirespeed.records import Run
from wirespeed.views.figures import Series, series_of
from wirespeed.views.html_table import html_table
from wirespeed.views.report.charts import chart
from wirespeed.views.report.curves import MOST_LINES, Line, busbw_chart, time_chart
from wirespeed.views.report.expectations import Expected, expectations
from wirespeed.views.report.section import Section, Spot
from wirespeed.views.sections import bandwidth_note
from wirespeed.views.style import Style
from wirespeed.views.table import sizes_grid, summary_grid
from wirespeed.views.templating import filled

__all__ = ["collectives_section", "lines_of"]

_UNWRAPPED = Style(width=100_000)
_BUSBW_NOTE = "Medians; whiskers are their 95 % intervals."
_TIME_NOTE = "Median time of the slowest rank; whiskers are 95 % intervals. Both axes logarithmic."


def collectives_section(run: Run, spot: Spot) -> Section:
    """Everything that was timed; empty for a run that timed no operation."""
    series = series_of(run.measurements)
    if not series:
        return Section("", "", "")
    expected = expectations(run.findings)
    html = filled(
        "collectives.html",
        spot=spot,
        title="How fast each operation is",
        summary=html_table(summary_grid(series), "each operation in a line", spot.id("operations")),
        operations=list(_operations(series, expected, spot)),
        notes=bandwidth_note(run, _UNWRAPPED),
    )
    return Section(spot.id("collectives"), "Operations", html)


def lines_of(series: Sequence[Series]) -> list[Line]:
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
    series: Sequence[Series], expected: Sequence[Expected], spot: Spot
) -> Iterator[dict[str, Any]]:
    for number, op in enumerate(dict.fromkeys(one.first.op for one in series), 1):
        own = [one for one in series if one.first.op == op]
        lines = lines_of(own)
        name = f"op-{number}"
        yield {
            "name": spot.id(name),
            "op": op,
            "more": max(0, len(lines) - MOST_LINES),
            "charts": list(_charts(op, name, lines, expected, spot)),
            "tables": [
                html_table(sizes_grid(one), f"{op} · {one.title}", spot.id(f"{name}-{i}"))
                for i, one in enumerate(own, 1)
            ],
        }


def _charts(
    op: str, name: str, lines: Sequence[Line], expected: Sequence[Expected], spot: Spot
) -> Iterator[dict[str, Any]]:
    wanted = [one for one in expected if one.op == op]
    table = spot.id(f"{name}-1-caption")
    rates, times = busbw_chart(lines, wanted), time_chart(lines, wanted)
    if rates is not None:
        yield chart(spot, f"{name}-busbw", f"{op}: bus bandwidth", rates, _BUSBW_NOTE, table)
    if times is not None:
        yield chart(spot, f"{name}-time", f"{op}: time", times, _TIME_NOTE, table)
