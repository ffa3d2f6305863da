"""From a table of nccl-tests, or one like it, to a run of ours, with what was found in it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from wirespeed.collectives.collective import ALIASES
from wirespeed.model.bench_records import ToolFigure
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import (
    Choice,
    Finding,
    Measurement,
    NodeFacts,
    Run,
    ToldShape,
    World,
)
from wirespeed.model.units import format_bandwidth, format_size
from wirespeed.runs.findings import make_finding
from wirespeed.runs.importers.limits import find_beyond, most_of_gpus, set_apart
from wirespeed.runs.importers.repeats import (
    combine_cycles,
    find_changed_cycles,
    find_slow_processes,
    level_change,
    once,
)
from wirespeed.runs.importers.table import (
    OPERATIONS,
    Device,
    Fabric,
    Row,
    Side,
    Table,
    argument,
    choose_operation,
    choose_ranks,
    layout_of,
    one_figure,
)
from wirespeed.runs.importers.told import imported

_ALLOWED_ERROR = {"float": 1e-5, "half": 1e-2, "bfloat16": 1e-2, "double": 1e-12}
"""Largest relative error that the old nccl-tests counted as right (`DeltaMaxValue` in its
src/common.cu): its inputs did not sum exactly, so a correct sum differs in the last digits."""

_ONE_FIGURE = Choice(
    "interval",
    "not known",
    "nccl-tests prints one average over its iterations: median, low, high, min, p95, p99 and max "
    "all hold that average",
)
_EACH_ITERATION = Choice(
    "interval", "95 % of the median", "from the times of each iteration in the file"
)
_SLACK = 0.02
_CLEAR = 1e9
"""Bytes a second from which two printed decimals tell one factor from another."""


def run_from_table(
    table: Table, *, name: str, op: str = "", ranks: int = 0, fabric: Fabric | None = None
) -> Run:
    """Return the run that `table` tells of: one measurement per row and side, without a verdict.

    The verdict is FAILED where the data was wrong. `op` and `ranks` are what the user said,
    `fabric` what the log says of the network. InputError where the operation cannot be told.
    """
    operation, why = choose_operation(table, option=op, name=name)
    count, counted = choose_ranks(table, operation, option=ranks)
    told, laid = _told(table, count, fabric)
    each_cycle = tuple(_measurements(table, operation, count))
    most = most_of_gpus({device.name for device in table.devices})
    possible, beyond = set_apart(each_cycle, most)
    measurements, cycles = combine_cycles(possible)
    findings = [
        *_findings(table, measurements, count, name),
        *(list(_level_changes(table)) or find_changed_cycles(cycles)),
        *_slow_processes(table),
        *find_beyond(beyond, most),
    ]
    each = any(side.stats and side.stats.low < side.stats.high for _, side in table.sides())
    run = imported(
        findings,
        {"source": name, "program": table.program, **table.settings, **table.config},
        seconds=table.seconds,
        world=replace(_world(table, count), told=told),
        versions=table.versions,
        environment=table.environment,
        choices=tuple(
            choice
            for choice in (why, counted, *laid, _interval(each, max(map(len, cycles), default=0)))
            if choice is not None
        ),
        measurements=measurements,
        figures=(*_enqueue_times(table, operation), *beyond),
    )
    return once(run, table.copies)


def _interval(each: bool, cycles: int) -> Choice:
    """Return where the ends of the times come from. cycles: most repetitions of one row."""
    if cycles:
        why = f"over {cycles} cycles of each size, each an average: the median of the cycles"
        return Choice("interval", "of the cycles", why)
    return _EACH_ITERATION if each else _ONE_FIGURE


def _enqueue_times(table: Table, operation: str) -> Iterator[ToolFigure]:
    """Yield the times of a table of CPU time: they are no durations of the operation."""
    for row in table.rows:
        for in_place, side in sorted(row.sides.items()):
            if side.cpu and side.time > 0:
                place = "in-place" if in_place else "out-of-place"
                yield ToolFigure(
                    tool="nccl-tests",
                    test=f"{operation}, {place}: CPU time",
                    size_bytes=row.size,
                    unit="s",
                    value=side.time,
                    settings=", ".join(word for word in (row.dtype, row.redop) if word),
                )


def _level_changes(table: Table) -> Iterator[Finding]:
    """Report when the cycles of the largest size that shows it went to another level."""
    series: dict[tuple[object, ...], list[tuple[Row, Side]]] = {}
    for row in table.rows:
        for in_place, side in row.sides.items():
            if side.time > 0 and not side.cpu:
                key = (row.size, in_place, row.dtype, row.redop, row.root)
                series.setdefault(key, []).append((row, side))
    for same in sorted(series.values(), key=lambda one: -one[0][0].size):
        stretch = level_change([1 / side.time for _, side in same])
        if stretch:
            first, last = stretch
            inside = median(side.busbw or side.algbw for _, side in same[first : last + 1])
            rest = median(
                side.busbw or side.algbw for _, side in (*same[:first], *same[last + 1 :])
            )
            where = f"from cycle {first + 1} to {last + 1} of {len(same)}"
            begin, end = same[first][0].at, same[last][0].at
            where += f", {begin} to {end}" if begin and end else ""
            size = format_size(same[0][0].size)
            yield make_finding(
                "level_changed",
                what=f"{size}: the rate changes within the run, {where}",
                saw=f"{format_bandwidth(inside)} {where}, {format_bandwidth(rest)} in the rest",
            )
            return


def _slow_processes(table: Table) -> Iterator[Finding]:
    """Report each slow process once, by the largest size at which it is slow."""
    found: dict[str, Finding] = {}
    for row, side in sorted(table.sides(), key=lambda pair: pair[0].size):
        about = f"{format_size(row.size)}"
        for one in find_slow_processes(side.processes, table.devices, about):
            found[one.title] = one
    yield from found.values()


def _told(
    table: Table, ranks: int, fabric: Fabric | None
) -> tuple[ToldShape | None, tuple[Choice, ...]]:
    """What a shortened list and NCCL's lines say of nodes and network, with the reasons."""
    layout = layout_of(table, ranks) or table.told
    choices = []
    if layout:
        nodes = f"{layout.nodes} of {layout.gpus_per_node} GPUs"
        choices.append(Choice("nodes", nodes, layout.why))
    if fabric:
        choices.append(fabric[1])
        layout = replace(layout or ToldShape(), interconnect=fabric[0].interconnect)
    return layout, tuple(choices)


def _measurements(table: Table, operation: str, ranks: int) -> Iterator[Measurement]:
    settings, shape = table.settings, OPERATIONS[operation]
    groups = _groups(table.devices)
    for row in table.rows:
        given = settings.get("iters", 0) if row.iterations is None else row.iterations
        for in_place, side in sorted(row.sides.items()):
            if side.cpu:
                continue
            algbw = _finer(row.size / side.time if side.time else 0.0, side.algbw, side.busbw_step)
            exact = algbw * shape.bus_factor(ranks) if ranks else 0.0
            yield Measurement(
                op=operation,
                engine=table.engine,
                dtype=ALIASES.get(row.dtype, row.dtype),
                redop=(row.redop or "sum") if shape.reduces else "none",
                root=max(-1, row.root or 0) if shape.rooted else -1,
                in_place=in_place,
                size_bytes=row.size,
                count=row.count,
                ranks=ranks,
                groups=groups,
                timing="graph" if settings.get("graph", 0) > 0 else "batch",
                blocking=table.blocking,
                in_flight=max(1, settings.get("agg iters", 1)),
                warmup=settings.get("warmup iters", 0),
                iterations=given,
                time=side.stats or one_figure(side.time),
                algbw=algbw,
                busbw=_finer(exact, side.busbw, side.busbw_step),
                wrong=_wrong(row, side),
            )


def _finer(exact: float, printed: float, step: float) -> float:
    """The figure before it was rounded for printing, where the two agree."""
    close = abs(exact - printed) <= 1.1 * step + _SLACK * printed
    return exact if exact and close else printed


def _wrong(row: Row, side: Side) -> int | None:
    if side.error is None:
        return side.wrong
    # Above the bound there are wrong elements, but the old layout does not tell how many.
    return 0 if side.error <= _ALLOWED_ERROR.get(row.dtype, 0.0) else None


def _groups(devices: list[Device]) -> str:
    """How the ranks were cut, from the device list's group numbers."""
    groups = {device.group for device in devices}
    if len(groups) <= 1:
        return "all"
    if all(device.group == device.rank % len(groups) for device in devices):
        return f"every-{len(groups)}"
    hosts = {(device.group, device.host) for device in devices}
    per_node = len(hosts) == len(groups) == len({device.host for device in devices})
    return "nodes" if per_node else f"{len(groups)} groups"


def _world(table: Table, ranks: int) -> World:
    devices = table.devices
    hosts: dict[str, list[Device]] = {}
    for device in devices:
        hosts.setdefault(device.host, []).append(device)
    nodes = tuple(
        NodeFacts(
            host=host,
            ranks=tuple(device.rank for device in here),
            facts=Facts(),
            gpus=tuple(
                {"index": device.index, "name": device.name, "bus": device.bus} for device in here
            ),
        )
        for host, here in hosts.items()
    )
    listed = max((device.rank + 1 for device in devices), default=0)
    return World(size=max(ranks, listed), nodes=nodes, backend="nccl", launcher=table.launcher)


def _findings(
    table: Table, measurements: tuple[Measurement, ...], ranks: int, name: str
) -> Iterator[Finding]:
    yield from _wrong_data(table, measurements, name)
    if any(side.cpu for _, side in table.sides()):
        yield make_finding("cpu_time")
    if not table.complete:
        yield make_finding("cut", rows=len(table.rows), name=name)
    if table.damaged:
        yield make_finding("damaged_rows", rows=table.damaged, name=name)
    if not ranks:
        yield make_finding("unknown_ranks", file=argument(name))
    yield from _contradiction(measurements)
    if table.errors:
        evidence = tuple(f"{name}: {error}" for error in table.errors[:10])
        yield make_finding("reported", saw=table.errors[0], evidence=evidence)


def _wrong_data(
    table: Table, measurements: tuple[Measurement, ...], name: str
) -> Iterator[Finding]:
    wrong = [m for m in measurements if m.wrong]
    told = [f"{m.size_bytes} B {m.dtype}: {m.wrong} wrong elements" for m in wrong]
    told += [
        f"{row.size} B {row.dtype}: error {side.error:g}"
        for row, side in table.sides()
        if side.error is not None and _wrong(row, side) is None
    ]
    if told or table.out_of_bounds:
        places = Counter("in-place" if m.in_place else "out-of-place" for m in wrong)
        where = ", ".join(f"{count} {place}" for place, count in sorted(places.items()))
        yield make_finding(
            "wrong_data",
            saw=(told or [f"Out of bounds values : {table.out_of_bounds}"])[0],
            because=f"nccl-tests found it when it checked: rows {where}" if where else "",
            evidence=tuple(f"{name}: {line}" for line in told[:10]),
        )


def _contradiction(measurements: tuple[Measurement, ...]) -> Iterator[Finding]:
    """Figures that another operation would have: a wrong --op, a wrong name, wrong ranks."""
    clearest = max(measurements, key=lambda m: m.busbw, default=None)
    if clearest is None or clearest.ranks < 2 or clearest.busbw < _CLEAR or not clearest.algbw:
        return
    ratio = clearest.busbw / clearest.algbw
    model = OPERATIONS[clearest.op].bus_factor(clearest.ranks)
    if abs(ratio - model) > _SLACK * model:
        about = f"{clearest.op} over {clearest.ranks} ranks"
        yield make_finding("contradiction", about=about, ratio=ratio, model=model)
