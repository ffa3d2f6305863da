"""The layout of nccl-tests, for the parsers that people already have.

One section an operation: its settings, the device lines, rows of 13 columns (out-of-place, then
in-place), the closing lines. Widths are those of src/util.cu in NVIDIA/nccl-tests 2.18. What that
tool would never print:

- a side that was not measured has `nan` for its figures, which number parsers take for a missing
  value, and `N/A` in `#wrong`;
- `time` is our median, not an average;
- device names other than GPUs' where there are none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.records import Measurement, NodeFacts, Run
from wirespeed.model.units import GIGA
from wirespeed.views.text import Style

_DTYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
}
_US = 1e6
_NONE = "nan"

_SIDE = ("time", "algbw", "busbw", "#wrong")
_UNITS = ("(us)", "(GB/s)", "(GB/s)", "")


@dataclass(frozen=True, slots=True)
class _Row:
    """The two sides of one line; one of them may be missing."""

    out: Measurement | None
    inside: Measurement | None

    @property
    def any(self) -> Measurement:
        found = self.out or self.inside
        if found is None:
            raise ValueError("a row without a side")
        return found


def render(run: Run, style: Style) -> str:
    # Its table has no place for compared settings: the default's figures stand here.
    sections = [
        _section(run, rows) for rows in _tables([m for m in run.measurements if not m.setting])
    ]
    if not sections:
        return f"# no measurements in run {style.text(run.id)}\n"
    return "\n".join(style.text(line) for section in sections for line in section) + "\n"


def _tables(measurements: Sequence[Measurement]) -> list[list[Measurement]]:
    """One table an operation and way of measuring; dtypes and roots share it, as with `-d all`."""
    tables: dict[tuple[object, ...], list[Measurement]] = {}
    for m in measurements:
        how = (m.op, m.engine, m.ranks, m.groups, m.timing, m.blocking, m.in_flight)
        tables.setdefault(how, []).append(m)
    return list(tables.values())


def _rows(measurements: Sequence[Measurement]) -> list[_Row]:
    """Out-of-place and in-place of one configuration side by side, in the order measured."""
    rows: dict[tuple[object, ...], _Row] = {}
    for m in measurements:
        key: tuple[object, ...] = (m.size_bytes, m.count, m.dtype, m.redop, m.root)
        while (m.in_place, *key) in rows:  # measured twice: a line of its own
            key = (*key, "again")
        rows[(m.in_place, *key)] = _Row(None, m) if m.in_place else _Row(m, None)
    merged: list[_Row] = []
    for (in_place, *rest), row in rows.items():
        other = rows.get((not in_place, *rest))
        if other is None:
            merged.append(row)
        elif not in_place:
            merged.append(_Row(row.out, other.inside))
    return merged


def _section(run: Run, measurements: Sequence[Measurement]) -> list[str]:
    op = measurements[0].op
    program = f"{(op in CATALOGUE and CATALOGUE[op].program) or op}_perf"
    return [
        f"# Collective test starting: {program}",
        _settings(measurements),
        *_remarks(run, measurements),
        "#",
        "# Using devices",
        *_devices(run.world.nodes, measurements[0].groups),
        "#",
        *_titles(),
        *(_line(row) for row in _rows(measurements)),
        *_closing(measurements),
        "#",
        f"# Collective test concluded: {program}",
    ]


def _settings(measurements: Sequence[Measurement]) -> str:
    sizes = sorted({m.size_bytes for m in measurements})
    checked = int(any(m.wrong is not None for m in measurements))
    least = min(measurements, key=lambda m: m.iterations)
    graph = int(least.timing == "graph")
    return (
        f"# nThread 1 nGpus 1 minBytes {sizes[0]} maxBytes {sizes[-1]} step: {_step(sizes)} "
        f"warmup iters: {least.warmup} iters: {least.iterations} agg iters: {least.in_flight} "
        f"validation: {checked} graph: {graph}"
    )


def _step(sizes: Sequence[int]) -> str:
    """`4(factor)` or `1048576(bytes)`, as nccl-tests says it; the first step where they differ."""
    if len(sizes) < 2:
        return "2(factor)"
    pairs = list(pairwise(sizes))
    steps = {high - low for low, high in pairs}
    if len(steps) == 1 and len(pairs) > 1:
        return f"{steps.pop()}(bytes)"
    return f"{max(2, round(pairs[0][1] / pairs[0][0])) if pairs[0][0] else 2}(factor)"


def _remarks(run: Run, measurements: Sequence[Measurement]) -> Iterator[str]:
    least, most = (pick(m.iterations for m in measurements) for pick in (min, max))
    if measurements[0].engine == "nccl-tests":
        yield f"# imported by wirespeed, run {run.id}"
    else:
        yield f"# printed by wirespeed, run {run.id}: time is the median over the iterations"
    if least != most:
        yield f"# each size was timed until its interval was narrow: {least} to {most} iterations"
    if measurements[0].blocking and measurements[0].engine != "nccl-tests":
        yield "# Blocking Enabled: wait for completion and barrier after each collective "


def _devices(nodes: Sequence[NodeFacts], groups: str) -> Iterator[str]:
    places = sorted(
        (rank, index, number)
        for number, node in enumerate(nodes)
        for index, rank in enumerate(node.ranks)
    )
    for rank, index, number in places:
        node = nodes[number]
        gpu = node.gpus[index] if index < len(node.gpus) else {}
        bus = str(gpu.get("bus") or gpu.get("pci") or gpu.get("pci.bus_id") or "0000:00:00")
        name = str(gpu.get("name") or node.facts.cpu_model or "CPU")
        group = _group(groups, rank, index, number)
        yield (
            f"#  Rank {rank:2d} Group {group:2d} Pid {0:6d} on {node.host:>10} "
            f"device {index:2d} [{bus}] {name}"
        )


def _group(groups: str, rank: int, index: int, node: int) -> int:
    """The number of the group that a rank is in."""
    if groups == "nodes":
        return node
    if groups == "rails":
        return index
    if groups == "pairs":
        return rank // 2
    every = groups.removeprefix("every-")
    return rank % int(every) if every != groups and every.isdigit() and int(every) else 0


def _titles() -> Iterator[str]:
    blank = _left("", "", "", "", "")
    yield f"{blank}           out-of-place                       in-place          "
    yield _left("size", "count", "type", "redop", "root") + _sides(_SIDE) + " "
    yield _left("(B)", "(elements)", "", "", "") + _sides(_UNITS) + " "


def _left(size: str, count: str, dtype: str, redop: str, root: str) -> str:
    return f"# {size:>10}  {count:>12}  {dtype:>8}  {redop:>6}  {root:>6}"


def _sides(cells: Sequence[str]) -> str:
    time, algbw, busbw, wrong = cells
    return f"  {time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>6}" * 2


def _line(row: _Row) -> str:
    m = row.any
    dtype = _DTYPES.get(m.dtype, m.dtype)
    left = f"{m.size_bytes:12d}  {m.count:12d}  {dtype:>8}  {m.redop:>6}  {m.root:6d}"
    return left + _side(row.out) + _side(row.inside)


def _side(m: Measurement | None) -> str:
    if m is None:
        return f"  {_NONE:>7}  {_NONE:>6}  {_NONE:>6}  {'N/A':>6}"
    wrong = "N/A" if m.wrong is None else f"{m.wrong:g}"
    rates = f"{_figure(m.algbw / GIGA, 6)}  {_figure(m.busbw / GIGA, 6)}"
    return f"  {_figure(m.time.median * _US, 7)}  {rates}  {wrong:>6}"


def _figure(value: float, width: int) -> str:
    """As many of two decimals as fit; an exponent for what is wider still."""
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.1e}" if width >= 7 else f"{value:{width}.0e}"


def _closing(measurements: Sequence[Measurement]) -> Iterator[str]:
    wrong = sum(m.wrong or 0 for m in measurements)
    average = sum(m.busbw for m in measurements) / len(measurements) / GIGA
    yield f"# {'Out of bounds values':<20} : {wrong} {'FAILED' if wrong else 'OK'}"
    yield f"# {'Avg bus bandwidth':<20} : {average:g} "
