"""Several runs in one page: what differs between them, the verdicts of the comparison, the figures."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wirespeed.records import Measurement, Run
from wirespeed.records_comparison import Comparison, Versus
from wirespeed.records_training import Training
from wirespeed.units import format_duration
from wirespeed.views import comparing
from wirespeed.views import figures as figure
from wirespeed.views.comparison import versus_grid
from wirespeed.views.figures import counts, series_of
from wirespeed.views.grid import Column, Grid
from wirespeed.views.html_table import html_table
from wirespeed.views.report.charts import chart
from wirespeed.views.report.collectives import lines_of
from wirespeed.views.report.curves import Line, busbw_chart, time_chart
from wirespeed.views.report.section import Section, Spot
from wirespeed.views.style import VERDICTS
from wirespeed.views.templating import filled
from wirespeed.views.training import name as name_of

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["comparison_section", "runs_grid", "side_by_side"]

_MOST_ROWS, _MOST_CHARTS = 600, 24
_NOTHING = "–"
_FIGURES = "side-by-side"


def comparison_section(runs: Sequence[Run], comparison: Comparison) -> Section:
    """What sets the runs apart, each verdict, and the figures of all runs side by side."""
    spot = Spot()
    notes = [*comparing.evidence(comparison), comparing.advice(comparison)]
    figures = _html(side_by_side(runs), _FIGURES)
    title = "Better, worse or noise"
    html = filled(
        "comparison.html",
        spot=spot,
        title=title,
        said=f"{comparing.conclusion(comparison)}: {comparing.counts(comparison)}.",
        verdicts=_html(_verdicts(comparison), "comparison"),
        notes=[note for note in notes if note],
        # The figures of every chart stand in the first of the tables.
        charts=list(_charts(runs, spot)) if figures else [],
        figures=figures,
    )
    return Section("comparison", title, html)


def _html(grids: Iterable[tuple[str, Grid]], name: str) -> "list[Markup]":
    return [html_table(grid, title, f"{name}-{i}") for i, (title, grid) in enumerate(grids, 1)]


def _verdicts(comparison: Comparison) -> Iterator[tuple[str, Grid]]:
    """(caption, grid): of each side against the first what differs, then its figures."""
    for one in comparison.versus:
        sides = f"{one.before.name} and {one.after.name}"
        if one.differences:
            yield f"what differs between {sides}", _differences(one)
        how, varying = comparing.common_words([row.what for row in one.rows])
        if one.rows:
            grid = versus_grid(one, varying)
            yield f"{sides}: verdicts for changes of {comparison.fail_on:.0%} · {how}", grid


def _differences(one: Versus) -> Grid:
    titles = ("", "name", one.before.name, one.after.name)
    grid = Grid(tuple(Column(title, left=True) for title in titles))
    for difference in one.differences[:_MOST_ROWS]:
        grid.add(difference.group, difference.name, difference.before, difference.after)
    return grid


def runs_grid(runs: Sequence[Run]) -> Grid:
    """The runs themselves, a line each."""
    titles = ("run", "command", "started (UTC)", "verdict", "findings", "ranks", "nodes", "backend")
    left = ("ranks", "nodes")
    grid = Grid(tuple(Column(title, left=title not in left) for title in titles))
    for run in runs:
        grid.painted[len(grid.rows), 3] = VERDICTS[run.verdict]
        size, nodes = str(run.world.size or ""), str(run.world.node_count or "")
        when = run.started[:19].replace("T", " ")
        grid.add(
            run.id, run.command, when, run.verdict, counts(run), size, nodes, run.world.backend
        )
    return grid


def _titles(runs: Sequence[Run]) -> list[str]:
    return [f"run {run.id}" for run in runs]


def side_by_side(runs: Sequence[Run]) -> Iterator[tuple[str, Grid]]:
    """(caption, grid) of the operations and of the strategies that several of the runs have."""
    operations = _common([{_how(m): m for m in run.measurements} for run in runs])
    if operations:
        yield "busbw in GB/s, with the 95 % interval and the samples", _figures(runs, operations)
    steps = _common([{_strategy(one): one for one in run.training} for run in runs])
    if steps:
        yield "step time, with the 95 % interval and the samples", _steps(runs, steps)


def _common(found: Sequence[Mapping[Any, Any]]) -> dict[Any, list[Any]]:
    """By what was measured, the figure of each run (None: it has none); of two runs at least."""
    keys = dict.fromkeys(key for one in found for key in one)
    rows = {key: [one.get(key) for one in found] for key in keys}
    return {key: row for key, row in rows.items() if sum(one is not None for one in row) > 1}


def _how(m: Measurement) -> tuple[object, ...]:
    way = (m.op, m.engine, m.dtype, m.redop, m.root, m.ranks, m.groups, m.timing)
    return (*way, m.blocking, m.in_flight, m.in_place, m.size_bytes, m.setting)


def _strategy(one: Training) -> tuple[object, ...]:
    return (*one.key, one.model, one.batch, one.precision, one.micro_batches)


def _figures(runs: Sequence[Run], rows: Mapping[Any, Sequence[Measurement | None]]) -> Grid:
    first = ("operation", "size", "place", "how")
    columns = [Column(title, left=title != "size") for title in first]
    grid = Grid((*columns, *(Column(title) for title in _titles(runs))))
    for row in list(rows.values())[:_MOST_ROWS]:
        m = next(one for one in row if one is not None)
        how = series_of([m])[0].title
        cells = [_rate(one) for one in row]
        grid.add(m.op, figure.size(m), figure.place(m), how, *cells)
    return grid


def _rate(m: Measurement | None) -> str:
    """Bus bandwidth; the time of what has none, as a barrier."""
    if m is None:
        return _NOTHING
    rate = figure.gigabytes(m.busbw) if m.busbw > 0 else figure.duration(m.time.median)
    known = figure.interval(m)
    return f"{rate} ({known + ', ' if known else ''}n={m.iterations})"


def _steps(runs: Sequence[Run], rows: Mapping[Any, Sequence[Training | None]]) -> Grid:
    titles = _titles(runs)
    grid = Grid(
        (
            Column("strategy", left=True),
            Column("ranks"),
            Column("study", left=True),
            *map(Column, titles),
        )
    )
    for row in list(rows.values())[:_MOST_ROWS]:
        one = next(one for one in row if one is not None)
        grid.add(name_of(one), str(one.ranks), one.study, *map(_step, row))
    return grid


def _step(one: Training | None) -> str:
    if one is None:
        return _NOTHING
    step = one.step
    known = step.low < step.high < float("inf") and step.mean > 0
    reach = f"±{(step.high - step.low) / 2 / step.mean:.1%}, ".replace("%", " %") if known else ""
    return f"{format_duration(step.mean)} ({reach}n={step.samples})"


def _charts(runs: Sequence[Run], spot: Spot) -> Iterator[dict[str, Any]]:
    """A curve a run, for each operation that more than one of them timed."""
    table = f"{_FIGURES}-1-caption"
    made = 0
    for op in dict.fromkeys(m.op for run in runs for m in run.measurements):
        lines = [line for run in runs for line in _lines(run, op)]
        if len({line.name.split(",")[0] for line in lines}) < 2 or made >= _MOST_CHARTS:
            continue
        made += 1
        drawn = busbw_chart(lines) or time_chart(lines)
        if drawn is not None:
            note = "A line a run; whiskers are 95 % intervals."
            yield chart(spot, f"compared-{made}", op, drawn, note, table)


def _lines(run: Run, op: str) -> list[Line]:
    series = series_of(m for m in run.measurements if m.op == op)
    return [Line(f"run {run.id}, {line.name}", line.rows) for line in lines_of(series)]
