"""A grid as one table: every world, size and strategy a row, and what could not run says why."""

from collections.abc import Iterable, Sequence

from wirespeed.records import Measurement, Run
from wirespeed.records_grid import GridPoint, Missing
from wirespeed.records_training import Training
from wirespeed.units import format_duration, format_size
from wirespeed.views import figures
from wirespeed.views.grid import Column, Grid
from wirespeed.views.style import Style

__all__ = ["grid_lines", "grid_tables", "world_of"]

_NOTHING = "–"
_ALL = "all"


def grid_lines(run: Run, style: Style) -> list[str]:
    """The joint table with its title; nothing for other runs."""
    lines: list[str] = []
    for title, grid in grid_tables(run):
        head = style.paint(style.text(title), "bold")
        lines += [*([""] if lines else []), head, *grid.lines(style, indent="  ")]
    return lines


def grid_tables(run: Run) -> list[tuple[str, Grid]]:
    """(title, grid): one table."""
    if not run.grid:
        return []
    worlds = f"grid of {len(run.grid)} worlds"
    if run.command == "train":
        first = run.training[0] if run.training else None
        about = f" · {first.model} · {first.precision}" if first else ""
        return [(worlds + about, _training(run))]
    return [(worlds, _operations(run))]


def world_of(one: Training) -> str:
    """`2 ranks · 32 samples`: tells strategies of several worlds apart."""
    return f"{one.ranks} rank{'s' if one.ranks > 1 else ''} · {one.batch} samples"


def _operations(run: Run) -> Grid:
    grid = Grid(
        (
            Column("operation", left=True),
            Column("backend", left=True),
            Column("ranks"),
            Column("size"),
            Column("place", left=True),
            Column("time"),
            Column("95 %"),
            Column("n"),
            Column("algbw GB/s"),
            Column("busbw GB/s"),
            Column("wrong"),
            Column("why not", left=True),
        )
    )
    both = len({m.in_place for m in run.measurements}) > 1
    for point in run.grid:
        rows = [m for m in run.measurements if (m.backend, m.ranks) == (point.backend, point.ranks)]
        order = list(dict.fromkeys(map(_what, rows)))
        for m in sorted(rows, key=lambda m: (order.index(_what(m)), m.size_bytes, m.in_place)):
            grid.add(
                _what(m),
                point.backend,
                str(point.ranks),
                figures.size(m) if m.size_bytes else _NOTHING,
                figures.place(m) if both else "",
                figures.duration(m.time.median),
                figures.interval(m) or _NOTHING,
                str(m.iterations),
                figures.gigabytes(m.algbw),
                figures.gigabytes(m.busbw),
                figures.wrong(m),
                "",
                red=10 if m.wrong else None,
            )
        for one in _missing(point):
            size = format_size(one.size_bytes) if one.size_bytes else _ALL
            gap = [_NOTHING] * 6
            grid.add(one.what, point.backend, str(point.ranks), size, "", *gap, one.reason)
            grid.painted[len(grid.rows) - 1, 11] = "yellow"
    return grid


def _what(m: Measurement) -> str:
    return " ".join([m.op, m.dtype, *([m.redop] if m.redop != "none" else [])])


def _missing(point: GridPoint) -> Sequence[Missing]:
    """One line for a world that never ran."""
    if point.missing or not point.reason:
        return point.missing
    return [Missing(what=_ALL, reason=point.reason)]


def _training(run: Run) -> Grid:
    from wirespeed.views.training import (
        data_cells,
        name,
        number_cell,
        ratio_cell,
        reach,
        seconds_cell,
        share_cell,
    )

    grid = Grid(
        (
            Column("strategy", left=True),
            Column("ranks"),
            Column("batch"),
            Column("step"),
            Column("95 %"),
            Column("n"),
            Column("data"),
            Column("of step"),
            Column("comm"),
            Column("95 %"),
            Column("of step"),
            Column("exposed"),
            Column("samples/s"),
            Column("tokens/s"),
            Column("peak MiB"),
            Column("against the fastest", left=True),
            Column("why not", left=True),
        )
    )
    for point in run.grid:
        world = str(point.ranks), str(point.batch or _NOTHING)
        for one in _of(run.training, point):
            grid.add(
                name(one),
                str(one.ranks),
                str(one.batch),
                format_duration(one.step.mean),
                reach(one.step),
                str(one.step.samples),
                *data_cells(one),
                seconds_cell(one.comm or None),
                reach(one.comm_spread) if one.comm and one.comm_spread else "",
                share_cell(one.comm_fraction or None),
                "" if one.exposed is None else seconds_cell(one.exposed.value),
                number_cell(one.samples_per_s),
                number_cell(one.tokens_per_s),
                f"{one.memory.peak / 2**20:,.1f}" if one.memory else "",
                ratio_cell(one),
                "",
            )
        for row in _missing(point):
            grid.add(row.what, *world, *[_NOTHING] * 2, *[""] * 11, row.reason)
            grid.painted[len(grid.rows) - 1, 16] = "yellow"
    return grid


def _of(rows: Iterable[Training], point: GridPoint) -> list[Training]:
    """Of that world; where no batch was asked for there is one of each number of ranks."""
    return [
        one
        for one in rows
        if one.study == "compare" and one.ranks == point.ranks and point.batch in (0, one.batch)
    ]
