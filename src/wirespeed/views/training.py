"""What `train` measured, as columns: strategies, scaling, memory, and computing beside sending.

The columns follow what people compare: step time with its interval, how much of it is communication
and how much of that is exposed, throughput, memory, and a verdict against the fastest.
"""

from collections.abc import Iterable, Sequence

from wirespeed.model.bench_records import GridPoint, Missing
from wirespeed.model.records import Run
from wirespeed.model.training_records import Ends, Ratio, Spread, Training, TrainingMemory
from wirespeed.model.units import format_duration
from wirespeed.statistics import has_interval, lacks_samples
from wirespeed.views.sections import no_interval, note
from wirespeed.views.text import NOTHING, Grid, Style, counted, titled

ALL = "all"
_KINDS = ("data", "forward", "backward", "synchronise", "optimizer")
_MEMORY = ("parameters", "gradients", "optimizer", "activations", "communication", "other", "peak")
_MIB = 1 << 20
_SENDING = "communication of a step (comm: mean of n profiled steps; exposed: median of the rounds)"
_PEAKS = "memory of the rank that needs most, MiB (in brackets: predicted)"
_POINTS = "memory at three points, MiB alive (in brackets: the most since the point before)"
_COLORS = {
    "slower": "red",
    "fastest": "green",
    "fastest so far": "yellow",
    "not enough rounds": "yellow",
    "poor": "red",
    "excellent": "green",
    "good": "green",
}


def training_lines(run: Run, style: Style) -> list[str]:
    """Every table with its title, and what the columns mean; nothing for other runs."""
    lines = titled(tables(run), style)
    return [*lines, *training_notes(run, style)] if lines else []


def tables(run: Run) -> list[tuple[str, Grid]]:
    """(title, grid) of each table that this run has figures for."""
    found = []
    compared = [one for one in run.training if one.study == "compare"]
    if run.grid:
        compared.sort(key=lambda one: (one.ranks, one.batch))
    found += [grid_table(run)] if run.grid and run.command == "train" else []
    if compared and not run.grid:
        found.append((_title(compared[0]), _strategies(compared)))
    if compared:
        found.append(("where a step goes (mean of the slowest rank)", _parts(compared)))
    sending = [one for one in compared if one.comm and one.comm_spread]
    if sending:
        found.append((_SENDING, _communication(sending)))
    for kind in ("strong", "weak"):
        scaled = [one for one in run.training if one.study == kind and one.verdict != "yardstick"]
        if scaled:
            found.append((_scaling_title(kind, scaled[0]), _scaling(scaled)))
    with_memory = [one for one in run.training if one.memory]
    if with_memory:
        found.append((_PEAKS, _memory(with_memory)))
    at_points = [one for one in with_memory if one.memory and one.memory.started is not None]
    if at_points:
        found.append((_POINTS, _points(at_points)))
    if run.under_load:
        found.append(("alone and side by side", _load(run)))
    return found


def _title(one: Training) -> str:
    parts = [one.model, counted(one.ranks, "rank"), f"{one.batch} samples a step", one.precision]
    parts += [f"{one.micro_batches} micro batches"] if one.micro_batches > 1 else []
    if one.data_workers is not None:
        workers = counted(one.data_workers, "data worker")
        parts.append(workers if one.data_workers else "no data workers")
    return " · ".join([*parts, f"{one.rounds} rounds"])


def _scaling_title(kind: str, one: Training) -> str:
    what = "the same batch on any number of ranks" if kind == "strong" else "the same batch a rank"
    return f"{kind} scaling: {what} · {one.model} · {one.precision} (on the right: where the rest went)"


def name(one: Training) -> str:
    """`bucketed 25 MB`."""
    return one.strategy if one.bucket_mb is None else f"{one.strategy} {one.bucket_mb:g} MB"


def _strategies(rows: Sequence[Training]) -> Grid:
    grid = Grid.of(
        "<strategy|step|95 %|std|n|data|of step|"
        "comm|95 %|of step|exposed|<95 %|of step|samples/s|tokens/s|MFU|predicted|<against the fastest"
    )
    for one in rows:
        step = one.step
        grid.add(
            name(one),
            format_duration(step.mean),
            reach(step, one.rounds),
            format_duration(step.std),
            str(step.samples),
            *data_cells(one),
            seconds_cell(one.comm or None),
            reach(one.comm_spread, one.profiled_rounds) if one.comm and one.comm_spread else "",
            share_cell(one.comm_fraction or None),
            _signed(one.exposed),
            exposed_interval(one),
            share_cell(one.exposed_fraction),
            number_cell(one.samples_per_s),
            number_cell(one.tokens_per_s),
            share_cell(one.mfu) if one.mfu is not None else "",
            seconds_cell(one.predicted_step) if one.predicted_step is not None else "",
            ratio_cell(one),
            color=_COLORS.get(one.verdict, ""),
        )
    return grid


def _parts(rows: Sequence[Training]) -> Grid:
    shown = [kind for kind in _KINDS if any(kind in one.parts for one in rows)]
    cells = [
        (name(one), _world(one, rows), *(seconds_cell(one.parts.get(kind)) for kind in shown))
        for one in rows
    ]
    return Grid.filled("|".join(["<strategy|<world", *shown]), cells)


def data_cells(one: Training) -> tuple[str, str]:
    """(waiting for a batch, its share of the step); empty where no loader read it."""
    waited = one.parts.get("data")
    if one.data_workers is None or waited is None:
        return "", ""
    return seconds_cell(waited), share_cell(waited / one.step.mean)


def _world(one: Training, rows: Sequence[Training]) -> str:
    """`2 ranks · 32 samples` where there are several."""
    several = len({(row.ranks, row.batch) for row in rows}) > 1
    return f"{counted(one.ranks, 'rank')} · {one.batch} samples" if several else ""


def _communication(rows: Sequence[Training]) -> Grid:
    grid = Grid.of("<strategy|<world|comm|std|<95 %|n|of step|<95 %|exposed|<95 %")
    for one in rows:
        spread, share, rounds = one.comm_spread, one.comm_fraction_spread, one.profiled_rounds
        if spread is None:
            continue
        grid.add(
            name(one),
            _world(one, rows),
            format_duration(spread.mean),
            format_duration(spread.std),
            _ends(spread.low, spread.high, rounds),
            str(spread.samples),
            share_cell(one.comm_fraction),
            _share_ends(share, rounds),
            _signed(one.exposed),
            exposed_interval(one),
        )
    return grid


def _ends(low: float, high: float, rounds: int) -> str:
    """Return `38.1 ms … 44.2 ms`, or `2 rounds, no interval`."""
    if lacks_samples(rounds):
        return no_interval(rounds, "round")
    return f"{seconds_cell(low)} … {seconds_cell(high)}" if low < high else ""


def exposed_interval(one: Training) -> str:
    """Return the interval of the difference that exposed communication is, or that there is none."""
    return _ends(one.exposed.low, one.exposed.high, one.rounds) if one.exposed else ""


def _share_ends(share: Spread | Ratio | None, rounds: int) -> str:
    """Return `31 % … 34 %`, or `2 rounds, no interval`."""
    if share is None:
        return ""
    if lacks_samples(rounds):
        return no_interval(rounds, "round")
    return f"{share.low:.0%} … {share.high:.0%}" if share.low < share.high else ""


def _scaling(rows: Sequence[Training]) -> Grid:
    causes = list(dict.fromkeys(cause for one in rows for cause in one.loss))
    grid = Grid.of(
        "<strategy|ranks|nodes|batch|step|95 %|samples/s|efficiency|<95 %|<grade", *causes
    )
    for one in rows:
        part = one.efficiency
        grid.add(
            name(one),
            str(one.ranks),
            str(one.nodes),
            str(one.batch),
            format_duration(one.step.mean),
            reach(one.step, one.rounds),
            number_cell(one.samples_per_s),
            share_cell(part.value) if part else NOTHING,
            _share_ends(part, one.rounds) if part and part.value != 1 else "",
            one.grade,
            *(share_cell(one.loss[cause]) if _lost(one, cause) else "" for cause in causes),
            color=_COLORS.get(one.grade, ""),
            at=9,
        )
    return grid


def _lost(one: Training, cause: str) -> bool:
    """Nothing is lost in the smallest world, which is the base."""
    return cause in one.loss and one.efficiency is not None and one.efficiency.value != 1


def _memory(rows: Sequence[Training]) -> Grid:
    grid = Grid.of("<strategy", *_MEMORY, "resident", "largest batch of a rank")
    for one in rows:
        memory = one.memory
        if memory is None:
            continue
        cells = [_mebibytes(memory, one.memory_predicted, kind) for kind in _MEMORY]
        resident = f"{memory.resident / _MIB:,.0f}" if memory.resident else ""
        largest = "" if one.largest_samples is None else str(one.largest_samples)
        grid.add(_with_world(one, rows), *cells, resident, largest)
    return grid


def _points(rows: Sequence[Training]) -> Grid:
    titles = {
        "started": "after the start",
        "before_optimizer": "before the optimizer's step",
        "after_optimizer": "after it",
    }
    grid = Grid.of("<strategy", *titles.values())
    for one in rows:
        read = [
            (getattr(one.memory, point), getattr(one.memory, f"{point}_peak")) for point in titles
        ]
        cells = [
            "" if alive is None else f"{_mib(alive)} ({_mib(peak or 0)})" for alive, peak in read
        ]
        grid.add(_with_world(one, rows), *cells)
    return grid


def _with_world(one: Training, rows: Sequence[Training]) -> str:
    if one.study != "compare":
        return f"{name(one)}, {one.study}, {counted(one.ranks, 'rank')}"
    return ", ".join(filter(None, (name(one), _world(one, rows))))


def _mebibytes(memory: TrainingMemory, predicted: TrainingMemory | None, kind: str) -> str:
    text = _mib(getattr(memory, kind))
    return f"{text} ({_mib(getattr(predicted, kind))})" if predicted else text


def _mib(size: int) -> str:
    value = size / _MIB
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _load(run: Run) -> Grid:
    """One row a figure; what all of them at once bring stands in the first row of a comparison."""
    grid = Grid.of(
        "<what|<beside|alone|95 %|together|95 %|slower|<95 %|rounds|at once brings|<95 %"
    )
    told: Ratio | None = None
    for one in run.under_load:
        gain, told = (one.gain if one.gain != told else None), one.gain
        grid.add(
            *(one.name, one.beside),
            *(format_duration(one.alone), _around(one.alone, one.alone_interval, one.rounds)),
            *(
                format_duration(one.together),
                _around(one.together, one.together_interval, one.rounds),
            ),
            *(f"{one.ratio.value:.2f}×", _between(one.ratio, one.rounds), str(one.rounds)),
            *((f"{gain.value:.2f}×", _between(gain, one.rounds)) if gain else ("", "")),
        )
    return grid


def _between(ratio: Ratio, rounds: int) -> str:
    if lacks_samples(rounds):
        return no_interval(rounds, "round")
    return f"{ratio.low:.2f}× … {ratio.high:.2f}×"


def _around(middle: float, ends: Ends | None, rounds: int) -> str:
    """Return `±3.1 %`; nothing where no interval is known."""
    if ends is None or middle <= 0:
        return ""
    if lacks_samples(rounds):
        return no_interval(rounds, "round")
    return f"±{max(ends.high - middle, middle - ends.low) / middle:.1%}".replace("%", " %")


def training_notes(run: Run, style: Style) -> list[str]:
    """What the figures mean; once, below all tables."""
    if not run.training:
        return []
    lines = note(
        "step: of the slowest rank, after a common start; comm: time in which a collective was under "
        "way, from its own start to its own end; exposed: step time beyond the same step without "
        "synchronisation (none), interleaved in the same run (docs/training.md)",
        style,
    )
    for one in run.training:
        text = "" if run.grid else _beyond_sending(one)
        lines += note(text, style) if text else []
    if any(one.verdict == "not enough rounds" for one in run.training):
        lines += note("not enough rounds: --rounds or --max-time give more", style)
    return lines


def _beyond_sending(one: Training) -> str:
    """Why more of a step is exposed than is communication; nothing where it is not."""
    comm, exposed = one.comm_spread, one.exposed
    if comm is None or exposed is None or one.comm is None or exposed.value <= one.comm:
        return ""
    more = f"{name(one)}: exposed is {format_duration(exposed.value - one.comm)} above comm"
    rounds = min(one.rounds, one.profiled_rounds)
    if not has_interval(rounds):
        return f"{more} ({no_interval(rounds, 'round')})"
    # They were not measured in the same steps, so the ends of the difference are those farthest apart.
    more += f" ({_ends(exposed.low - comm.high, exposed.high - comm.low, rounds)})"
    if exposed.low <= comm.high and comm.low <= exposed.high:
        return f"{more}, less than their intervals tell apart"
    return (
        f"{more}: beside sending, its step copies gradients, runs hooks and wakes threads, and cores "
        "that send compute less"
    )


def ratio_cell(one: Training) -> str:
    ratio = one.ratio
    if one.verdict in ("fastest", "fastest so far", "yardstick", "") or ratio is None:
        return one.verdict
    if lacks_samples(one.rounds):
        return f"{ratio.value:.2f}×  {one.verdict}"
    return f"{ratio.value:.2f}× ({ratio.low:.2f} … {ratio.high:.2f})  {one.verdict}"


def reach(step: Spread, rounds: int) -> str:
    """Return `±3.1 %`: half of the 95 % interval of the mean, relative to it.

    `2 rounds, no interval` where the rounds are too few.
    """
    if lacks_samples(rounds):
        return no_interval(rounds, "round")
    if not step.low < step.high < float("inf"):
        return NOTHING
    return f"±{(step.high - step.low) / 2 / step.mean:.1%}".replace("%", " %")


def seconds_cell(value: float | None) -> str:
    """A duration, which may be below 0."""
    return NOTHING if value is None else f"{'−' if value < 0 else ''}{format_duration(abs(value))}"


def _signed(value: Ratio | None) -> str:
    return NOTHING if value is None else seconds_cell(value.value)


def share_cell(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1%}".replace("-", "−")


def number_cell(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def grid_table(run: Run) -> tuple[str, Grid]:
    """(title, all worlds of a grid), with what each has not run."""
    first = run.training[0] if run.training else None
    about = f" · {first.model} · {first.precision}" if first else ""
    grid = Grid.of(
        "<strategy|ranks|batch|step|95 %|n|data|of step|"
        "comm|95 %|of step|exposed|<95 %|samples/s|tokens/s|peak MiB|<against the fastest|<why not"
    )
    for point in run.grid:
        world = str(point.ranks), str(point.batch or NOTHING)
        for one in _of(run.training, point):
            grid.add(
                name(one),
                str(one.ranks),
                str(one.batch),
                format_duration(one.step.mean),
                reach(one.step, one.rounds),
                str(one.step.samples),
                *data_cells(one),
                seconds_cell(one.comm or None),
                reach(one.comm_spread, one.profiled_rounds) if one.comm and one.comm_spread else "",
                share_cell(one.comm_fraction or None),
                "" if one.exposed is None else seconds_cell(one.exposed.value),
                exposed_interval(one),
                number_cell(one.samples_per_s),
                number_cell(one.tokens_per_s),
                f"{one.memory.peak / 2**20:,.1f}" if one.memory else "",
                ratio_cell(one),
                "",
                color=_COLORS.get(one.verdict, ""),
                at=-2,
            )
        for row in missing(point):
            grid.add(row.what, *world, *[NOTHING] * 2, *[""] * 12, row.reason, color="yellow")
    return f"grid of {len(run.grid)} worlds{about}", grid


def _of(rows: Iterable[Training], point: GridPoint) -> list[Training]:
    """Of that world; where no batch was asked for there is one of each number of ranks."""
    return [
        one
        for one in rows
        if one.study == "compare" and one.ranks == point.ranks and point.batch in (0, one.batch)
    ]


def missing(point: GridPoint) -> Sequence[Missing]:
    """One line for a world that never ran."""
    if point.missing or not point.reason:
        return point.missing
    return [Missing(what=ALL, reason=point.reason)]
