"""The default view: findings, then for `check` one line an operation, else every size.

Each time stands with its 95 % interval and the number of samples.
"""

from collections.abc import Sequence

from wirespeed.records import Measurement, Run
from wirespeed.views import figures
from wirespeed.views.figures import Series, series_of
from wirespeed.views.findings import finding_lines
from wirespeed.views.folding import folded, of_interest
from wirespeed.views.goodput import goodput_lines
from wirespeed.views.grid import Column, Grid
from wirespeed.views.grids import grid_lines
from wirespeed.views.pairs import pair_lines, simulation_lines
from wirespeed.views.sections import (
    bandwidth_note,
    choice_lines,
    closing_lines,
    head_line,
    note,
    verification_line,
)
from wirespeed.views.settings import settings_lines
from wirespeed.views.soak import soak_lines
from wirespeed.views.style import Style
from wirespeed.views.training import training_lines

__all__ = ["join_blocks", "render", "sizes_grid", "summary_grid"]

_NOT_CHECKED = "wrong –: the data of that row was not checked"
_IMPORTED = "imported figures are shown, not judged: the verdict stays UNKNOWN"
_ONE_AVERAGE = "no interval: the source gives one average, so these figures carry no verdict"
_ONE_SAMPLE = "no interval: too few samples, so these figures carry no verdict (a larger -n)"


def render(run: Run, style: Style) -> str:
    blocks = [
        [head_line(run, style)],
        choice_lines(run, style) if style.verbose else [],
        finding_lines(run.findings, style)
        if style.verbose
        else finding_lines(of_interest(folded(run), run), style, brief=True),
        pair_lines(run, style),
        simulation_lines(run, style),
        training_lines(run, style),
        settings_lines(run, style),
        soak_lines(run, style),
        goodput_lines(run, style),
        _figures(run, style),
        closing_lines(run, style),
    ]
    return join_blocks(blocks)


def join_blocks(blocks: Sequence[Sequence[str]]) -> str:
    """The blocks that have lines, with a blank line between them."""
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _figures(run: Run, style: Style) -> list[str]:
    series = series_of(run.measurements)
    if run.command == "check":
        lines = _summary(series, style) if series else []
    else:
        joint = run.command == "bench" and bool(run.grid)
        lines = [] if run.settings else grid_lines(run, style) if joint else _sizes(series, style)
        lines += [""] if joint else []
    return lines + _notes(run, style)


def _notes(run: Run, style: Style) -> list[str]:
    notes = verification_line(run, style) + bandwidth_note(run, style)
    unknown = any(m.wrong is None for m in run.measurements)
    if unknown and run.command != "check":
        notes += note(_NOT_CHECKED, style)
    if any(m.time.low == m.time.high for m in run.measurements):
        notes += note(_ONE_AVERAGE if run.command == "import" else _ONE_SAMPLE, style)
    if run.command == "import" and run.verdict == "UNKNOWN":
        notes += note(_IMPORTED, style)
    return notes


def _sizes(series: Sequence[Series], style: Style) -> list[str]:
    """One block an operation, one row a size."""
    blocks = []
    for one in series:
        title = style.paint(style.text(one.first.op), "bold")
        how = style.paint(style.text(one.title), "dim")
        blocks.append([f"{title}  {how}", *sizes_grid(one).lines(style, indent="  "), ""])
    return [line for block in blocks for line in block]


def sizes_grid(series: Series) -> Grid:
    """One row a size."""
    both = len({m.in_place for m in series.rows}) > 1 or series.first.in_place
    grid = Grid(
        (
            Column("size"),
            Column("place", left=True),
            Column("time"),
            Column("95 %"),
            Column("n"),
            Column("algbw GB/s"),
            Column("busbw GB/s"),
            Column("wrong"),
        )
    )
    for m in series.rows:
        grid.add(
            figures.size(m) if m.size_bytes else "–",
            figures.place(m) if both else "",
            figures.duration(m.time.median),
            figures.interval(m) or "–",
            str(m.iterations) if m.iterations else "–",
            figures.gigabytes(m.algbw),
            figures.gigabytes(m.busbw),
            figures.wrong(m),
            red=7 if m.wrong else None,
        )
    return grid


def _summary(series: Sequence[Series], style: Style) -> list[str]:
    return summary_grid(series).lines(style)


def summary_grid(series: Sequence[Series]) -> Grid:
    """One line an operation: latency at the smallest size, the best bus bandwidth."""
    grid = Grid(
        (
            Column("operation", left=True),
            Column("latency"),
            Column("95 %"),
            Column("n"),
            Column("at"),
            Column("peak busbw"),
            Column("95 %"),
            Column("n"),
            Column("at"),
        )
    )
    for one in series:
        rows = [m for m in one.rows if not m.in_place] or one.rows
        least, best = rows[0], max(rows, key=lambda m: m.busbw)
        has_peak = best.busbw > 0 and best is not least
        grid.add(_name(one, series), *_latency(least), *(_peak(best) if has_peak else [""] * 4))
    return grid


def _name(one: Series, among: Sequence[Series]) -> str:
    """The operation; with how it was measured where that is not alike in all of them."""
    namesakes = [other for other in among if other.first.op == one.first.op]
    return one.first.op if len(namesakes) == 1 else f"{one.first.op}  {one.title}"


def _latency(m: Measurement) -> list[str]:
    at = figures.size(m) if m.size_bytes else "–"
    return [figures.duration(m.time.median), figures.interval(m) or "–", str(m.iterations), at]


def _peak(m: Measurement) -> list[str]:
    rate = figures.bandwidth(m.busbw)
    return [rate, figures.interval(m) or "–", str(m.iterations), figures.size(m)]
