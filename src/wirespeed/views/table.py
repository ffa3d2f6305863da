"""The default view: findings, then for `check` one line an operation, else every size.

Each time stands with its 95 % interval and the number of samples.
"""

from collections.abc import Iterator, Sequence

from wirespeed.model.records import Measurement, Run, Verification
from wirespeed.model.units import format_duration, format_size
from wirespeed.statistics import lacks_samples
from wirespeed.views import sections
from wirespeed.views.findings import finding_lines, folded, of_interest
from wirespeed.views.text import NOTHING, Grid, Style, titled

_NOT_CHECKED = "wrong –: the data of that row was not checked"
_IMPORTED = "imported figures are shown, not judged"
_ONE_AVERAGE = "no interval: the source gives one average, so these figures carry no verdict"
_ONE_SAMPLE = (
    "no interval: a 95 % interval needs 6 samples (-n 6), so these figures carry no verdict"
)


def render(run: Run, style: Style) -> str:
    blocks = [
        [sections.head_line(run, style)],
        sections.choices_grid(run).lines(style) if style.verbose else [],
        finding_lines(run.findings, style)
        if style.verbose
        else finding_lines(of_interest(folded(run), run), style, brief=True),
        *_pairs(run, style),
        *_particular(run, style),
        _figures(run, style),
        sections.closing_lines(run, style),
    ]
    return join_blocks(blocks)


def _pairs(run: Run, style: Style) -> list[list[str]]:
    """Blocks of `locate`. Here and below a module is loaded only for a run that it has words for."""
    if run.located is None and run.simulation is None:
        return []
    from wirespeed.views.pairs import pair_lines, simulation_lines

    return [pair_lines(run, style), simulation_lines(run, style)]


def _particular(run: Run, style: Style, *, wide: bool = False) -> list[list[str]]:
    """Blocks of a watched job, of training, of compared settings, of storage, and of what lasted."""
    blocks = []
    if run.watched is not None:
        from wirespeed.views.watched import watched_lines

        blocks.append(watched_lines(run, style, wide=wide))
    if run.shape is not None:
        from wirespeed.views.job_traffic import shape_tables

        blocks.append(titled(shape_tables(run, run.shape), style)[:-1])
    if run.training or run.under_load or run.grid:
        from wirespeed.views.training import training_lines

        blocks.append(training_lines(run, style))
    if run.settings:
        from wirespeed.views.combinations import settings_lines

        blocks.append(settings_lines(run, style))
    for tables, told in studies(run, every=wide):
        blocks.append(titled(tables, style)[:-1] + (sections.note(told, style) if told else []))
    if run.soak is not None or run.goodput is not None:
        from wirespeed.views.lasting import goodput_lines, soak_lines

        blocks += [soak_lines(run, style), goodput_lines(run, style)]
    return blocks


def studies(run: Run, *, every: bool = False) -> Iterator[tuple[list[tuple[str, Grid]], str]]:
    """(tables by title, note) of devices, a replay, another tool and storage; every: a row each."""
    if run.compute is not None:
        from wirespeed.views import compute

        note = compute.NOTE if run.compute.rates else ""
        yield compute.compute_tables(run.compute, every=every), note
    if run.replay is not None:
        from wirespeed.views.job_traffic import replay_tables

        yield replay_tables(run, run.replay), ""
    if run.figures:
        from wirespeed.views.tools import tool_tables

        yield tool_tables(run, every=every), ""
    if run.storage is not None:
        from wirespeed.views import storage

        note = storage.NOTE if run.storage.figures else ""
        yield storage.storage_tables(run.storage), note


def join_blocks(blocks: Sequence[Sequence[str]]) -> str:
    """The blocks that have lines, with a blank line between them."""
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _figures(run: Run, style: Style) -> list[str]:
    series = sections.series_of(run.measurements)
    if run.command == "check":
        lines = summary_grid(series).lines(style)
    else:
        joint = run.command == "bench" and bool(run.grid)
        lines = [] if run.settings or run.replay or run.shape or joint else _sizes(series, style)
        if joint:
            from wirespeed.views.combinations import grid_lines

            lines = [*([] if run.settings else grid_lines(run, style)), ""]
    return lines + _notes(run, style)


def _notes(run: Run, style: Style) -> list[str]:
    notes = sections.verification_line(run, style) + sections.bandwidth_note(run, style)
    unknown = any(m.wrong is None for m in run.measurements)
    if unknown and run.command != "check":
        notes += sections.note(_NOT_CHECKED, style)
    one_average = any(
        m.time.low == m.time.high and not lacks_samples(m.samples) for m in run.measurements
    )
    if one_average or any(f.unit and f.low is None for f in run.figures):
        notes += sections.note(_ONE_AVERAGE if run.command == "import" else _ONE_SAMPLE, style)
    elif any(lacks_samples(m.samples) for m in run.measurements):
        notes += sections.note(_ONE_SAMPLE, style)
    if run.command == "import" and run.verdict in ("NONE", "UNKNOWN"):
        notes += sections.note(_IMPORTED, style)
    return notes


def _sizes(series: Sequence[sections.Series], style: Style) -> list[str]:
    """One block an operation, one row a size."""
    blocks = []
    for one in series:
        title = style.paint(style.text(one.first.op), "bold")
        how = style.paint(style.text(one.title), "dim")
        blocks.append([f"{title}  {how}", *sizes_grid(one).lines(style, indent="  "), ""])
    return [line for block in blocks for line in block]


def sizes_grid(series: sections.Series) -> Grid:
    """One row a size."""
    both = len({m.in_place for m in series.rows}) > 1 or series.first.in_place
    grid = Grid.of(sections.SIZE_COLUMNS)
    for m in series.rows:
        cells = sections.size_cells(m)
        cells[0] = cells[0] if m.size_bytes else "–"
        cells[1] = cells[1] if both else ""
        cells[4] = cells[4] if m.iterations else "–"
        grid.add(*cells, color="red" if m.wrong else "")
    return grid


def summary_grid(series: Sequence[sections.Series]) -> Grid:
    """One line an operation: latency at the smallest size, the best bus bandwidth."""
    grid = Grid.of("<operation|latency|95 %|n|at|peak busbw|95 %|n|at")
    for one in series:
        rows = [m for m in one.rows if not m.in_place] or one.rows
        least, best = rows[0], max(rows, key=lambda m: m.busbw)
        has_peak = best.busbw > 0 and best is not least
        grid.add(_name(one, series), *_latency(least), *(_peak(best) if has_peak else [""] * 4))
    return grid


def _name(one: sections.Series, among: Sequence[sections.Series]) -> str:
    """The operation; with how it was measured where that is not alike in all of them."""
    namesakes = [other for other in among if other.first.op == one.first.op]
    return one.first.op if len(namesakes) == 1 else f"{one.first.op}  {one.title}"


def _latency(m: Measurement) -> list[str]:
    at = sections.size(m) if m.size_bytes else "–"
    return [
        format_duration(m.time.median),
        sections.interval(m.time, m.samples),
        str(m.iterations),
        at,
    ]


def _peak(m: Measurement) -> list[str]:
    rate = sections.bandwidth(m.busbw)
    return [rate, sections.interval(m.time, m.samples), str(m.iterations), sections.size(m)]


_CONFIGURATION = "<setting|<op|<engine|<dtype|<redop|root|<groups|ranks|<place|size"
_MEASURED = (
    "count|<timing|flight|warm|n|<stopped|median|95 %|mean|low|high|"
    "min|p95|p99|max|algbw GB/s|busbw GB/s|wrong|skew|last rank"
)
_VERIFIED = "count|elements|wrong|<why not"
_WRONG = "<op|rank|<host|wrong|of|bytes|<chunk|<guess|<example"


def render_wide(run: Run, style: Style) -> str:
    blocks = [
        [sections.head_line(run, style)],
        sections.choices_grid(run).lines(style),
        finding_lines(run.findings, style),
        *_particular(run, style, wide=True),
        _measurements(run, style),
        _verifications(run, style),
        _wrong_data(run, style),
        sections.bandwidth_note(run, style),
        sections.closing_lines(run, style),
    ]
    return join_blocks(blocks)


def _measurements(run: Run, style: Style) -> list[str]:
    grid = Grid.of(f"{_CONFIGURATION}|{_MEASURED}")
    for m in run.measurements:
        grid.add(*_configuration(m), *_measured(m), color="red" if m.wrong else "", at=-3)
    return grid.lines(style)


def _configuration(m: Measurement | Verification) -> list[str]:
    root = str(m.root) if m.root >= 0 else "–"
    place = "in" if m.in_place else "out"
    shape = [m.groups, str(m.ranks or "–"), place, format_size(m.size_bytes)]
    return [m.setting, m.op, m.engine, m.dtype, m.redop, root, *shape]


def _measured(m: Measurement) -> list[str]:
    times = (m.time.mean, m.time.low, m.time.high, m.time.min, m.time.p95, m.time.p99, m.time.max)
    return [
        str(m.count),
        m.timing if m.blocking else f"{m.timing} async",
        str(m.in_flight),
        str(m.warmup),
        str(m.iterations or "–"),
        m.stopped_by,
        format_duration(m.time.median),
        sections.interval(m.time, m.samples),
        *map(format_duration, times),
        sections.gigabytes(m.algbw),
        sections.gigabytes(m.busbw),
        sections.wrong(m),
        format_duration(m.skew) if m.skew else "–",
        f"{m.last_rank} ({m.last_share:.0%})" if m.last_rank >= 0 else "–",
    ]


def _verifications(run: Run, style: Style) -> list[str]:
    grid = Grid.of(f"{_CONFIGURATION}|{_VERIFIED}")
    for v in run.verifications:
        wrong = NOTHING if v.wrong is None else str(v.wrong)
        cells = [str(v.count), f"{v.elements:,}", wrong, v.reason]
        grid.add(*_configuration(v), *cells, color="red" if v.wrong else "", at=-2)
    return ["data checks", *grid.lines(style, indent="  ")] if grid.rows else []


def _wrong_data(run: Run, style: Style) -> list[str]:
    grid = Grid.of(_WRONG)
    for v in run.verifications:
        for e in v.errors:
            span = f"{e.first_byte}–{e.last_byte}"
            cells = [str(e.wrong), str(e.elements), span, e.chunk, e.guess, e.example]
            grid.add(v.op, str(e.rank), e.host, *cells)
    return ["wrong data", *grid.lines(style, indent="  ")] if grid.rows else []
