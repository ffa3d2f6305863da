"""The section of the timed operations: one line each, then curves and every figure of each."""

from collections.abc import Iterator, Sequence
from typing import Any

from wirespeed.records import Run
from wirespeed.records_reference import ReferenceFigure
from wirespeed.views.figures import Series, series_of
from wirespeed.views.html_table import html_table
from wirespeed.views.references import reference_value, references_grid, references_of
from wirespeed.views.report.charts import chart
from wirespeed.views.report.curves import MOST_LINES, Line, busbw_chart, far_above, time_chart
from wirespeed.views.report.section import Section, Spot
from wirespeed.views.sections import bandwidth_note
from wirespeed.views.style import Style
from wirespeed.views.table import sizes_grid, summary_grid
from wirespeed.views.templating import filled

__all__ = ["collectives_section", "lines_of"]

_GRADED = "what figures were graded against; share: 1 is as good, more is better"
_UNWRAPPED = Style(width=100_000)
_BUSBW_NOTE = "Medians; whiskers are their 95 % intervals."
_TIME_NOTE = "Median time of the slowest rank; whiskers are 95 % intervals. Both axes logarithmic."


def collectives_section(run: Run, spot: Spot) -> Section:
    """Everything that was timed; empty for a run that timed no operation."""
    series = series_of(run.measurements)
    if not series:
        return Section("", "", "")
    graded = references_grid(run)
    html = filled(
        "collectives.html",
        spot=spot,
        title="How fast each operation is",
        summary=html_table(summary_grid(series), "each operation in a line", spot.id("operations")),
        graded=html_table(graded, _GRADED, spot.id("references")) if graded else "",
        operations=list(_operations(series, references_of(run), spot)),
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
    series: Sequence[Series], references: Sequence[ReferenceFigure], spot: Spot
) -> Iterator[dict[str, Any]]:
    for number, op in enumerate(dict.fromkeys(one.first.op for one in series), 1):
        own = [one for one in series if one.first.op == op]
        lines = lines_of(own)
        name = f"op-{number}"
        yield {
            "name": spot.id(name),
            "op": op,
            "more": max(0, len(lines) - MOST_LINES),
            "charts": list(_charts(op, name, lines, references, spot)),
            "tables": [
                html_table(sizes_grid(one), f"{op} · {one.title}", spot.id(f"{name}-{i}"))
                for i, one in enumerate(own, 1)
            ],
        }


def _charts(
    op: str,
    name: str,
    lines: Sequence[Line],
    references: Sequence[ReferenceFigure],
    spot: Spot,
) -> Iterator[dict[str, Any]]:
    wanted = [one for one in references if one.op == op]
    table = spot.id(f"{name}-1-caption")
    rates, times = busbw_chart(lines, wanted), time_chart(lines, wanted)
    if rates is not None:
        note = _BUSBW_NOTE + _not_drawn(lines, wanted)
        yield chart(spot, f"{name}-busbw", f"{op}: bus bandwidth", rates, note, table)
    if times is not None:
        yield chart(spot, f"{name}-time", f"{op}: time", times, _TIME_NOTE, table)


def _not_drawn(lines: Sequence[Line], references: Sequence[ReferenceFigure]) -> str:
    """The limits that are far above the chart, in words."""
    most = max(m.busbw for line in lines for m in line.rows)
    far = [one for one in references if one.quantity == "busbw" and far_above(one, most)]
    return "".join(f" Far above: a roofline of {reference_value(one)}." for one in far)
