"""From a table of another tool to a run of ours, with what was found in it."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from wirespeed.collectives.dtypes import ALIASES
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import (
    Choice,
    Finding,
    Measurement,
    NodeFacts,
    Run,
    TimeStats,
    ToldShape,
    World,
)
from wirespeed.runs.folder import new_id
from wirespeed.runs.importers.operations import (
    OPERATIONS,
    argument,
    choose_operation,
    choose_ranks,
)
from wirespeed.runs.importers.table import Device, Fabric, Row, Side, Table, layout_of

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
    """The run that `table` tells of: one measurement a row and side, verdict UNKNOWN.

    The verdict is NOT READY where the data was wrong. `op` and `ranks` are what the user said,
    `fabric` what the log says of the network. InputError where the operation cannot be told.
    """
    operation, why = choose_operation(table, option=op, name=name)
    count, counted = choose_ranks(table, operation, option=ranks)
    told, laid = _told(table, count, fabric)
    build = _Measurements(table, operation, count)
    measurements = tuple(build.all())
    findings = tuple(_findings(table, measurements, count, name))
    failed = any(finding.status == "fail" for finding in findings)
    each = any(side.stats for _, side in table.sides())
    return Run(
        id=new_id(),
        command="import",
        verdict="NOT READY" if failed else "UNKNOWN",
        exit_code=1 if failed else 3,
        started=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        seconds=table.seconds,
        world=replace(_world(table.devices, count), told=told),
        versions=table.versions,
        environment=table.environment,
        config={"source": name, "program": table.program, **table.settings, **table.config},
        choices=tuple(
            choice
            for choice in (why, counted, *laid, _EACH_ITERATION if each else _ONE_FIGURE)
            if choice is not None
        ),
        findings=findings,
        measurements=measurements,
    )


def _told(
    table: Table, ranks: int, fabric: Fabric | None
) -> tuple[ToldShape | None, tuple[Choice, ...]]:
    """What a shortened list and NCCL's lines say of nodes and network, with the reasons."""
    layout = layout_of(table, ranks)
    choices = []
    if layout:
        nodes = f"{layout.nodes} of {layout.gpus_per_node} GPUs"
        choices.append(Choice("nodes", nodes, layout.why))
    if fabric:
        choices.append(fabric[1])
        layout = replace(layout or ToldShape(), interconnect=fabric[0].interconnect)
    return layout, tuple(choices)


@dataclass(frozen=True, slots=True)
class _Measurements:
    table: Table
    operation: str
    ranks: int

    def all(self) -> Iterator[Measurement]:
        for row in self.table.rows:
            for in_place, side in sorted(row.sides.items()):
                yield self._one(row, side, in_place)

    def _one(self, row: Row, side: Side, in_place: bool) -> Measurement:
        settings = self.table.settings
        shape = OPERATIONS[self.operation]
        algbw = _finer(row.size / side.time if side.time else 0.0, side.algbw, side.busbw_step)
        exact = algbw * shape.factor(self.ranks) if self.ranks else 0.0
        given = settings.get("iters", 0) if row.iterations is None else row.iterations
        return Measurement(
            op=self.operation,
            engine="nccl-tests",
            dtype=ALIASES.get(row.dtype, row.dtype),
            redop=(row.redop or "sum") if shape.reduces else "none",
            root=max(-1, row.root or 0) if shape.rooted else -1,
            in_place=in_place,
            size_bytes=row.size,
            count=row.count,
            ranks=self.ranks,
            groups=_groups(self.table.devices),
            timing="graph" if settings.get("graph", 0) > 0 else "batch",
            blocking=self.table.blocking,
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


def one_figure(time: float) -> TimeStats:
    """See `_ONE_FIGURE`: the run says with it that the interval is not known."""
    return TimeStats(
        median=time, mean=time, low=time, high=time, min=time, p95=time, p99=time, max=time
    )


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


def _world(devices: list[Device], ranks: int) -> World:
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
    return World(size=max(ranks, listed), nodes=nodes, backend="nccl", launcher="nccl-tests")


def _findings(
    table: Table, measurements: tuple[Measurement, ...], ranks: int, name: str
) -> Iterator[Finding]:
    rules: tuple[Callable[[], Finding | None], ...] = (
        lambda: _wrong_data(table, measurements, name),
        lambda: _cut(table, name),
        lambda: _damaged(table, name),
        lambda: _unknown_ranks(ranks, name),
        lambda: _contradiction(measurements),
        lambda: _reported(table, name),
    )
    for rule in rules:
        if (finding := rule()) is not None:
            yield finding


def _wrong_data(table: Table, measurements: tuple[Measurement, ...], name: str) -> Finding | None:
    wrong = [m for m in measurements if m.wrong]
    over = [
        f"{row.size} B {row.dtype}: error {side.error:g}"
        for row, side in table.sides()
        if side.error is not None and _wrong(row, side) is None
    ]
    counted = [f"{m.size_bytes} B {m.dtype}: {m.wrong} wrong elements" for m in wrong]
    if not (wrong or over or table.out_of_bounds):
        return None
    places = Counter("in-place" if m.in_place else "out-of-place" for m in wrong)
    where = ", ".join(f"{count} {place}" for place, count in sorted(places.items()))
    return Finding(
        id="IMP-002",
        status="fail",
        title="the collective gave wrong data",
        saw=(counted + over or [f"Out of bounds values : {table.out_of_bounds}"])[0],
        expected="0 wrong elements in every row",
        because=f"nccl-tests found it when it checked: rows {where}" if where else "",
        costs="a training job on these ranks computes with wrong gradients",
        fix="take the node out that is to blame; look for Xid errors, ECC counts and bad cables",
        next="wirespeed check",
        evidence=tuple([f"{name}: {line}" for line in (counted + over)[:10]]),
    )


def _cut(table: Table, name: str) -> Finding | None:
    if table.complete:
        return None
    return Finding(
        id="IMP-001",
        status="warn",
        title=f"the table ends without its closing lines: {len(table.rows)} rows kept",
        saw=f"no `Out of bounds values` after the last row in {name}",
        expected="the closing lines that nccl-tests prints when it ends",
        because="the job was killed or hung, or the file was cut",
        costs="what the job would have found at larger sizes is not known",
        fix="import the whole output, or run it again",
    )


def _damaged(table: Table, name: str) -> Finding | None:
    if not table.damaged:
        return None
    return Finding(
        id="IMP-003",
        status="warn",
        title=f"{table.damaged} rows could not be read and were left out",
        saw=f"rows that begin as rows and end as something else in {name}",
        because="other lines, such as NCCL's log, were printed into them",
        fix="send the log elsewhere: NCCL_DEBUG_FILE=/tmp/nccl.%h.%p",
    )


def _unknown_ranks(ranks: int, name: str) -> Finding | None:
    if ranks:
        return None
    return Finding(
        id="IMP-004",
        status="warn",
        title="the number of ranks is not known",
        saw="no whole list of devices, and figures that fit several numbers of ranks",
        expected="a line `# Rank …` for each rank",
        costs="this run cannot be compared with a reference",
        fix="say how many there were",
        next=f"wirespeed runs import {argument(name)} --ranks N",
    )


def _contradiction(measurements: tuple[Measurement, ...]) -> Finding | None:
    """Figures that another operation would have: a wrong --op, a wrong name, wrong ranks."""
    clearest = max(measurements, key=lambda m: m.busbw)
    if clearest.ranks < 2 or clearest.busbw < _CLEAR or not clearest.algbw:
        return None
    ratio, model = clearest.busbw / clearest.algbw, OPERATIONS[clearest.op].factor(clearest.ranks)
    if abs(ratio - model) <= _SLACK * model:
        return None
    return Finding(
        id="IMP-006",
        status="warn",
        title=f"the figures are not those of {clearest.op} over {clearest.ranks} ranks",
        saw=f"busbw is {ratio:.3f} × algbw",
        expected=f"{model:.3f} × algbw, as nccl-tests computes it",
        because="the operation or the number of ranks is another one",
        fix="name them: --op OP, --ranks N",
    )


def _reported(table: Table, name: str) -> Finding | None:
    if not table.errors:
        return None
    return Finding(
        id="IMP-005",
        status="warn",
        title="nccl-tests reported an error",
        saw=table.errors[0],
        evidence=tuple(f"{name}: {error}" for error in table.errors[:10]),
    )
