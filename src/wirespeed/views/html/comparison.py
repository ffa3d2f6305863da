"""Several runs in one page: what differs between them, the verdicts of the comparison, the figures."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wirespeed.model.derived_records import Comparison, Versus
from wirespeed.model.records import Measurement, Run
from wirespeed.model.training_records import Training
from wirespeed.model.units import format_duration
from wirespeed.views import comparison as comparison_view
from wirespeed.views import sections
from wirespeed.views.comparison import versus_grid
from wirespeed.views.html.collectives import Line, busbw_chart, lines_of, time_chart
from wirespeed.views.html.parts import Section, Spot, chart, html_tables, section
from wirespeed.views.sections import counts, series_of
from wirespeed.views.text import VERDICTS, Column, Grid
from wirespeed.views.training import name as name_of

_MOST_ROWS, _MOST_CHARTS = 600, 24
_NOTHING = "–"
_FIGURES = "side-by-side"


def comparison_section(runs: Sequence[Run], comparison: Comparison) -> Section:
    """What sets the runs apart, each verdict, and the figures of all runs side by side."""
    spot = Spot()
    notes = [*comparison_view.evidence(comparison), comparison_view.advice(comparison)]
    figures = html_tables(side_by_side(runs), _FIGURES)
    title = "Better, worse or noise"
    return section(
        spot,
        "comparison",
        title,
        "comparison.html",
        title=title,
        said=f"{comparison_view.conclusion(comparison)}: {comparison_view.counts(comparison)}.",
        verdicts=html_tables(_verdicts(comparison), "comparison"),
        notes=[note for note in notes if note],
        # The figures of every chart stand in the first of the tables.
        charts=list(_charts(runs, spot)) if figures else [],
        figures=figures,
    )


def _verdicts(comparison: Comparison) -> Iterator[tuple[str, Grid]]:
    """(caption, grid): of each side against the first what differs, then its figures."""
    for one in comparison.versus:
        sides = f"{one.before.name} and {one.after.name}"
        if one.differences:
            yield f"what differs between {sides}", _differences(one)
        how, varying = comparison_view.common_words([row.what for row in one.rows])
        if one.rows:
            grid = versus_grid(one, varying)
            yield f"{sides}: verdicts for changes of {comparison.fail_on:.0%} · {how}", grid


def _differences(one: Versus) -> Grid:
    titles = ("", "name", one.before.name, one.after.name)
    grid = Grid([Column(title, left=True) for title in titles])
    for difference in one.differences[:_MOST_ROWS]:
        grid.add(difference.group, difference.name, difference.before, difference.after)
    return grid


def runs_grid(runs: Sequence[Run]) -> Grid:
    """The runs themselves, a line each."""
    grid = Grid.of("<run|<command|<started (UTC)|<verdict|<findings|ranks|nodes|<backend")
    for run in runs:
        size, nodes = str(run.world.size or ""), str(run.world.node_count or "")
        when = run.started[:19].replace("T", " ")
        about = (run.id, run.command, when, run.verdict, counts(run))
        color = VERDICTS[run.verdict]
        grid.add(*about, size, nodes, run.world.backend, color=color, at=3)
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
    grid = Grid.of("<operation|size|<place|<how", *_titles(runs))
    for row in list(rows.values())[:_MOST_ROWS]:
        m = next(one for one in row if one is not None)
        how = series_of([m])[0].title
        cells = [_rate(one) for one in row]
        grid.add(m.op, sections.size(m), sections.place(m), how, *cells)
    return grid


def _rate(m: Measurement | None) -> str:
    """Bus bandwidth; the time of what has none, as a barrier."""
    if m is None:
        return _NOTHING
    rate = sections.gigabytes(m.busbw) if m.busbw > 0 else format_duration(m.time.median)
    known = sections.interval(m)
    return f"{rate} ({known + ', ' if known else ''}n={m.iterations})"


def _steps(runs: Sequence[Run], rows: Mapping[Any, Sequence[Training | None]]) -> Grid:
    titles = _titles(runs)
    grid = Grid.of("<strategy|ranks|<study", *titles)
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
