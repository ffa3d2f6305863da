"""Sections of what was compared or lasted: grids, training, settings, soaks, goodput, several runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from wirespeed.model.derived_records import Comparison, Versus
from wirespeed.model.records import Measurement, Run
from wirespeed.model.training_records import LoadFigures, Training
from wirespeed.model.units import format_duration
from wirespeed.statistics import has_interval
from wirespeed.views import comparison as words
from wirespeed.views import lasting, sections
from wirespeed.views.combinations import grid_tables, settings_tables, winner_lines
from wirespeed.views.comparison import versus_grid
from wirespeed.views.compute import compute_tables
from wirespeed.views.html import training_charts as charts
from wirespeed.views.html.collectives import Line, busbw_chart, lines_of, time_chart
from wirespeed.views.html.parts import Section, Spot, chart, html_tables, section, study
from wirespeed.views.html.timeline import timeline_svg
from wirespeed.views.job_traffic import shape_tables
from wirespeed.views.sections import series_of
from wirespeed.views.storage import NOTE as STORAGE_NOTE
from wirespeed.views.storage import conclusion as storage_said
from wirespeed.views.storage import storage_tables
from wirespeed.views.text import NOTHING, Column, Grid, Style, shortened
from wirespeed.views.tools import tool_tables
from wirespeed.views.training import name, number_cell, reach, tables, training_notes

_UNWRAPPED = Style(width=100_000)
_STEP_NOTE = (
    "A bar is the mean step of the slowest rank, by part; the whisker is the 95 % interval of the mean "
    "(a wide one leaves the chart). The thin bar marks exposed communication: what the step takes "
    "beyond the same step without synchronisation (median of the rounds)."
)
_SCALING_NOTE = (
    "Throughput over ranks times that of the smallest world; whiskers are 95 % intervals. "
    "strong: the same batch on any number of ranks; weak: the same batch a rank."
)
_LOAD_NOTE = (
    "Time beside the others over time alone (the dotted line); whiskers are 95 % intervals."
)
_GRID_NOTE = "Samples a second over all ranks, from the mean step; whiskers are its 95 % intervals."


def study_sections(run: Run, trace: Mapping[str, Any] | None, spot: Spot) -> Iterator[Section]:
    """In the order of the page; trace: of training steps, where one was recorded."""
    compared = [one for one in run.training if one.study == "compare"]
    if found := grid_tables(run):
        yield _grid(compared, found, spot)
    if compared and not run.grid:
        yield _strategies(run, compared, spot)
    yield from _timeline(run, trace, spot)
    yield from _scaling(run, spot)
    yield from _memory(run, spot)
    if run.shape is not None:
        found = shape_tables(run, run.shape)
        yield study(spot, "shape", "Shape of the job", "What the job's groups send", found)
    yield from _load(run, spot)
    yield from _settings(run, spot)
    yield from _compute(run, spot)
    if run.figures:
        yield study(spot, "tools", "Other tools", "What the tool measured", tool_tables(run))
    yield from _storage(run, spot)
    yield from _lasting(run, spot)


def _grid(rows: Sequence[Training], found: Iterable[tuple[str, Grid]], spot: Spot) -> Section:
    drawn = charts.throughput_chart(rows)
    shown = [chart(spot, "throughput", "Throughput", drawn, _GRID_NOTE)] if drawn else []
    title = "Every world of the grid"
    return study(spot, "grid", "Grid", title, found, label="throughput", charts=shown)


def _strategies(run: Run, rows: Sequence[Training], spot: Spot) -> Section:
    drawn = charts.step_chart(rows)
    return study(
        spot,
        "strategies",
        "Strategies",
        "Which strategy is fastest",
        _tables(run, rows),
        label="steps",
        said=_fastest(rows),
        charts=[chart(spot, "steps", "Step time by strategy", drawn, _STEP_NOTE)],
        notes=training_notes(replace(run, training=tuple(rows)), _UNWRAPPED),
    )


def _fastest(rows: Sequence[Training]) -> str:
    """One sentence for who reads no chart; empty where nobody won."""
    first = next((one for one in rows if one.verdict.startswith("fastest")), None)
    if first is None:
        return ""
    words = f"{name(first)} is {first.verdict}: {format_duration(first.step.mean)} a step"
    words += f", {number_cell(first.samples_per_s)} samples a second."
    equal = [name(one) for one in rows if one.verdict == "same"]
    words += f" No difference was found to {_listed(equal)}." if equal else ""
    open_ = [name(one) for one in rows if one.verdict == "not enough rounds"]
    return words + (f" It takes more rounds to tell for {_listed(open_)}." if open_ else "")


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _timeline(run: Run, trace: Mapping[str, Any] | None, spot: Spot) -> Iterator[Section]:
    from markupsafe import Markup

    # Every foreign word in it is escaped where it is made.
    if picture := Markup(timeline_svg(trace, spot.at)) if trace is not None else "":
        told = {"picture": picture, "job": run.watched is not None}
        yield section(spot, "timeline", "Timeline of a step", "timeline.html", **told)


def _scaling(run: Run, spot: Spot) -> Iterator[Section]:
    rows = [one for one in run.training if one.study != "compare" and one.verdict != "yardstick"]
    if rows:
        drawn = charts.scaling_chart(rows)
        title = "Scaling efficiency"
        shown = [chart(spot, "scaling", title, drawn, _SCALING_NOTE)] if drawn else []
        found = _tables(run, rows)
        yield study(spot, "scaling", "Scaling", "How it scales", found, charts=shown)


def _memory(run: Run, spot: Spot) -> Iterator[Section]:
    measured = [(one, one.memory) for one in run.training if one.memory is not None]
    if not measured:
        return
    found = [one for one in tables(replace(run, under_load=())) if one[0].startswith("memory ")]
    titles = [cells[0] for cells in found[0][1].rows]
    rows = [
        (title, memory, one.memory_predicted)
        for title, (one, memory) in zip(titles, measured, strict=True)
    ]
    note = "Each kind at its largest; the line is the most that was live at once in a step"
    note += ", the diamond what was predicted." if any(row[2] for row in rows) else "."
    drawn = charts.memory_chart(rows)
    shown = [chart(spot, "memory", "Memory of the rank that needs most", drawn, note)]
    yield study(spot, "memory", "Memory", "Where the memory goes", found, charts=shown)


def _load(run: Run, spot: Spot) -> Iterator[Section]:
    """In words what certainly suffers most, if anything certainly does."""
    if not run.under_load:
        return
    worst = max(run.under_load, key=lambda one: (_is_slowed(one), one.ratio.value))
    ratio = worst.ratio
    said = (
        f"{worst.name} takes {ratio.value:.2f} times as long beside {worst.beside} as alone "
        f"(95 %: {ratio.low:.2f} to {ratio.high:.2f})."
    )
    title = "Computing beside sending"
    drawn = charts.load_chart(run.under_load)
    yield study(
        spot,
        "load",
        title,
        title,
        tables(replace(run, training=())),
        said=said if _is_slowed(worst) else "",
        charts=[chart(spot, "load", "What each costs the others", drawn, _LOAD_NOTE)],
    )


def _is_slowed(one: LoadFigures) -> bool:
    """Return whether the whole interval says that it takes longer beside the others."""
    return has_interval(one.rounds) and one.ratio.low > 1


def _tables(run: Run, rows: Iterable[Training]) -> list[tuple[str, Grid]]:
    """Those of these rows, without that of memory, which has a section of its own."""
    kept = tuple(replace(one, memory=None) for one in rows)
    return tables(replace(run, training=kept, under_load=()))


def _settings(run: Run, spot: Spot) -> Iterator[Section]:
    if run.settings:
        found = settings_tables(run)
        said = " ".join(line.strip() for line in winner_lines(run))
        yield study(spot, "settings", "Settings", "Which setting is faster", found, said=said)


def _compute(run: Run, spot: Spot) -> Iterator[Section]:
    if run.compute is not None:
        found = compute_tables(run.compute, every=len(run.compute.rates) <= _MOST_ROWS)
        yield study(spot, "compute", "Devices", "What the devices compute and remember", found)


def _storage(run: Run, spot: Spot) -> Iterator[Section]:
    if run.storage is not None and (found := storage_tables(run.storage)):
        title, said = "Data and checkpoints", storage_said(run)
        yield study(spot, "storage", "Storage", title, found, said=said, notes=[STORAGE_NOTE])


def _lasting(run: Run, spot: Spot) -> Iterator[Section]:
    if run.soak is not None:
        found, said = lasting.soak_tables(run, every=True), lasting.summary(run.soak)
        notes = [lasting.timeline(run.soak)]
        yield study(spot, "soak", "Soak", "The soak", found, said=said, notes=notes)
    if one := run.goodput:
        drawn = charts.goodput_chart(lasting.parts_shown(one))
        note = "Seconds by cause; they add up to the wall time."
        yield study(
            spot,
            "goodput",
            "Goodput",
            "How much of the time was useful",
            lasting.goodput_tables(run),
            said=" ".join(f"{line[0].upper()}{line[1:]}." for line in lasting.conclusion(one)),
            charts=[chart(spot, "goodput", "Where the time went", drawn, note)],
            notes=lasting.goodput_notes(one),
        )


# Several runs in one page: what differs between them, the verdicts of the comparison, the figures.

_MOST_ROWS, _MOST_CHARTS, _MOST_VALUE = 600, 24, 300
_FIGURES = "side-by-side"


def comparison_section(runs: Sequence[Run], comparison: Comparison) -> Section:
    """What sets the runs apart, each verdict, and the figures of all runs side by side."""
    spot = Spot()
    notes = [*words.evidence(comparison), words.advice(comparison)]
    figures = html_tables(side_by_side(runs), _FIGURES)
    title = "Better, worse or noise"
    return section(
        spot,
        "comparison",
        title,
        "comparison.html",
        title=title,
        said=f"{words.conclusion(comparison)}: {words.counts(comparison)}.",
        verdicts=html_tables(_verdicts(comparison), "comparison"),
        notes=[note for note in notes if note],
        # The figures of every chart stand in the first of the tables.
        charts=list(_op_charts(runs, spot)) if figures else [],
        figures=figures,
    )


def _verdicts(comparison: Comparison) -> Iterator[tuple[str, Grid]]:
    """(caption, grid): of each side against the first what differs, then its figures."""
    for one in comparison.versus:
        sides = f"{one.before.name} and {one.after.name}"
        if one.differences:
            yield f"what differs between {sides}", _differences(one)
        how, varying = words.common_words([row.what for row in one.rows])
        if one.rows:
            grid = versus_grid(one, varying)
            yield f"{sides}: verdicts for changes of {comparison.fail_on:.0%} · {how}", grid


def _differences(one: Versus) -> Grid:
    titles = ("", "name", one.before.name, one.after.name)
    grid = Grid([Column(title, left=True) for title in titles])
    for difference in one.differences[:_MOST_ROWS]:
        sides = (shortened(text, _MOST_VALUE) for text in (difference.before, difference.after))
        grid.add(difference.group, difference.name, *sides)
    return grid


def _run_names(runs: Sequence[Run]) -> list[str]:
    return [f"run {run.id}" for run in runs]


def side_by_side(runs: Sequence[Run]) -> Iterator[tuple[str, Grid]]:
    """(caption, grid) of the operations and of the strategies that several of the runs have."""
    operations = _common([{_how(m): m for m in run.measurements} for run in runs])
    if operations:
        yield "busbw in GB/s, with the 95 % interval and the samples", _operations(runs, operations)
    steps = _common(
        [
            {(*t.key, t.model, t.batch, t.precision, t.micro_batches): t for t in run.training}
            for run in runs
        ]
    )
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


def _operations(runs: Sequence[Run], rows: Mapping[Any, Sequence[Measurement | None]]) -> Grid:
    grid = Grid.of("<operation|size|<place|<how", *_run_names(runs))
    for row in list(rows.values())[:_MOST_ROWS]:
        m = next(one for one in row if one is not None)
        how = series_of([m])[0].title
        cells = [_rate(one) for one in row]
        grid.add(m.op, sections.size(m), sections.place(m), how, *cells)
    return grid


def _rate(m: Measurement | None) -> str:
    """Bus bandwidth; the time of what has none, as a barrier."""
    if m is None:
        return NOTHING
    rate = sections.gigabytes(m.busbw) if m.busbw > 0 else format_duration(m.time.median)
    return f"{rate} ({sections.precision(m)})"


def _steps(runs: Sequence[Run], rows: Mapping[Any, Sequence[Training | None]]) -> Grid:
    titles = _run_names(runs)
    grid = Grid.of("<strategy|ranks|<study", *titles)
    for row in list(rows.values())[:_MOST_ROWS]:
        one = next(one for one in row if one is not None)
        grid.add(name(one), str(one.ranks), one.study, *map(_step, row))
    return grid


def _step(one: Training | None) -> str:
    if one is None:
        return NOTHING
    return f"{format_duration(one.step.mean)} ({reach(one.step, one.rounds)}, n={one.step.samples})"


def _op_charts(runs: Sequence[Run], spot: Spot) -> Iterator[dict[str, Any]]:
    """A curve a run, for each operation that more than one of them timed."""
    table = f"{_FIGURES}-1-caption"
    made = 0
    for op in dict.fromkeys(m.op for run in runs for m in run.measurements):
        lines = [line for run in runs for line in _lines_of_run(run, op)]
        if len({line.name.split(",")[0] for line in lines}) < 2 or made >= _MOST_CHARTS:
            continue
        made += 1
        drawn = busbw_chart(lines) or time_chart(lines)
        if drawn is not None:
            note = "A line a run; whiskers are 95 % intervals."
            yield chart(spot, f"compared-{made}", op, drawn, note, table)


def _lines_of_run(run: Run, op: str) -> list[Line]:
    series = series_of(m for m in run.measurements if m.op == op)
    return [Line(f"run {run.id}, {line.name}", line.rows) for line in lines_of(series)]
