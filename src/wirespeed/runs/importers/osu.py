"""The OSU micro-benchmarks (`osu_allreduce`, `osu_latency`, `osu_bw`, …), versions 3 to 7.

A block begins with `# OSU MPI Allreduce Latency Test v7.4`, perhaps `# Datatype: MPI_INT.`, then the
names of the columns after a `#`, then a row a size. Blocking collectives become measurements like ours:
their average is over ranks and iterations, where ours is the slowest rank's. The rest become figures of
the tool. "MB/s" is 10^6 bytes. Ranks stand nowhere in it but in the command, where a log shows that.
Source: c/util/osu_util_mpi.c and c/mpi of OSU micro-benchmarks 7.4.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.bench_records import FigureUnit, ToolFigure
from wirespeed.model.records import Finding, Measurement, Run
from wirespeed.runs.findings import make_finding
from wirespeed.runs.importers.lines import CellJoiner
from wirespeed.runs.importers.repeats import (
    combine_cycles,
    combine_figures,
    find_changed_cycles,
    once,
)
from wirespeed.runs.importers.table import argument, one_figure
from wirespeed.runs.importers.told import MICRO, number, tool_run

_TITLE = re.compile(r"#\s*OSU (\w+)(-\w+)? (.{1,80}?) Test(?: v?(\d[\w.]*))?\s*$", re.IGNORECASE)
_DETAIL = re.compile(r"#\s*(?:Window creation|Synchronization):\s*(\S{1,60})\s*$")
_PAIRS = re.compile(r"#\s*\[ (pairs: \d+) \] \[ (window size: \d+) \]")
_LIBRARIES = ("MPI", "NCCL", "RCCL")
_DATATYPE = re.compile(r"#\s*Datatype:\s*MPI_(\w+?)\.?\s*$")
_COLUMNS = re.compile(r"#\s*((?:Size|Avg Latency|Bandwidth|Overall|MB/s)\b.*)")
_BETWEEN_COLUMNS = re.compile(r"\s{2,}|(?<=\))\s+")
"""A unit in parentheses ends a name, too: `osu_bw -z` has only a space after it."""
_RANKS = re.compile(
    r"\b(?:mpirun|mpiexec|srun|prun)\b[^\n]{0,2000}?\s(?:-np?|--np|--ntasks=?)\s*(\d{1,7})\b"
)
_LONGEST = 4096
"""Characters of a line in which a command is looked for."""
_OPERATIONS = {
    "Allreduce": "all_reduce",
    "Allgather": "all_gather",
    "All-to-All Personalized Exchange": "all_to_all",
    "Barrier": "barrier",
    "Broadcast": "broadcast",
    "Gather": "gather",
    "Reduce": "reduce",
    "Reduce_scatter": "reduce_scatter",
    "Scatter": "scatter",
}
"""Those of which the size means the same in every version: one rank's message, of Reduce_scatter the
whole."""
_WHOLE = ("all_reduce", "broadcast", "reduce", "reduce_scatter", "barrier")
_DTYPES = {"CHAR": "int8", "BYTE": "uint8", "INT": "int32", "FLOAT": "float32", "DOUBLE": "float64"}
_ITEM = {"int8": 1, "uint8": 1, "int32": 4, "float32": 4, "float64": 8}
_UNITS: tuple[tuple[str, FigureUnit, float], ...] = (
    ("(us)", "s", MICRO),
    ("MB/s", "B/s", 1e6),
    ("Messages/s", "1/s", 1.0),
)


@dataclass(slots=True)
class _Block:
    """One test as it stands in the log."""

    kind: str
    """The library, or the call where the test is of one call: `MPI`, `NCCL`, `MPI_Put`."""
    buffers: str
    """`CUDA`, `ROCM`, … where the title names the memory; empty: the host's."""
    title: str
    version: str
    ranks: int
    dtype: str = ""
    details: list[str] = field(default_factory=list)
    """What else sets it apart: window creation and synchronization, pairs and window size."""
    joiner: CellJoiner = field(default_factory=CellJoiner)
    columns: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def op(self) -> str:
        """Of a collective; empty for everything else."""
        known = self.kind in _LIBRARIES
        return _OPERATIONS.get(self.title.removesuffix(" Latency"), "") if known else ""

    @property
    def engine(self) -> str:
        """Return `osu`, with the library and the memory where these are not MPI on the host."""
        kind = f"{self.kind}-{self.buffers}" if self.buffers else self.kind
        return "osu" if kind == "MPI" else f"osu {kind}"

    @property
    def settings(self) -> str:
        kind = f"{self.kind}-{self.buffers}" if self.buffers else self.kind
        return ", ".join([kind, *self.details])


class _Cell(NamedTuple):
    name: str
    text: str

    @property
    def value(self) -> float:
        return number(self.text) or 0.0


def runs_of_osu(text: str, name: str, ranks: int = 0) -> Iterator[Run]:
    """One run of all blocks that have rows; none where there is none. ranks: as told, 0: not."""
    blocks = [one for one in _blocks(text) if one.rows] if "# OSU" in text else []
    if not blocks:
        return
    blocks, copies = _unique([replace(one, ranks=ranks or one.ranks) for one in blocks])
    measured = [m for block in blocks for m in _measurements(block)]
    measurements, cycles = combine_cycles(measured)
    run = tool_run(
        "osu",
        name=name,
        figures=combine_figures(figure for block in blocks for figure in _figures(block)),
        measurements=measurements,
        findings=[*_findings(blocks, name), *find_changed_cycles(cycles)],
        versions={"osu": next((one.version for one in blocks if one.version), "")},
        ranks=max(one.ranks for one in blocks),
    )
    yield once(run, copies)


def _unique(blocks: Sequence[_Block]) -> tuple[list[_Block], int]:
    """Return the blocks without copies, and how often the most frequent is there."""
    found: list[_Block] = []
    times: list[int] = []
    for block in blocks:
        same = next((n for n, one in enumerate(found) if _is_copy(one, block)), None)
        if same is None:
            found.append(block)
            times.append(1)
        else:
            times[same] += 1
    return found, max(times, default=0)


def _is_copy(one: _Block, other: _Block) -> bool:
    names = ("settings", "title", "ranks", "rows")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _blocks(text: str) -> Iterator[_Block]:
    block, ranks = None, 0
    for raw in text.split("\n"):
        line = raw.strip()
        if found := _RANKS.search(line, 0, _LONGEST):
            ranks = int(found[1])
        if found := _TITLE.match(line):
            if block is not None:
                yield block
            buffers = (found[2] or "").removeprefix("-")
            block = _Block(found[1], buffers, found[3], found[4] or "", ranks)
        elif block is not None:
            _take(block, line)
    if block is not None:
        yield block


def _take(block: _Block, line: str) -> None:
    """A line of a block: its datatype, its columns, a row, or nothing of it."""
    if found := _DATATYPE.match(line):
        block.dtype = _DTYPES.get(found[1], found[1].lower())
    elif found := _DETAIL.match(line) or _PAIRS.match(line):
        block.details += found.groups()
    elif (found := _COLUMNS.match(line)) and not block.rows:
        block.columns = tuple(_BETWEEN_COLUMNS.split(found[1].strip()))
    elif block.columns and line[:1].isdigit():
        cells = block.joiner.take(line.split(), len(block.columns))
        if cells and number(cells[0]) is not None:
            block.rows.append(tuple(cells))


def _cells(block: _Block, row: Sequence[str]) -> dict[str, _Cell]:
    """By the first word of the column: `Size`, `Avg`, `Min`, `Max`, `Iterations`, `Validation`, …"""
    pairs = zip(block.columns, row, strict=True)
    return {name.split()[0]: _Cell(name, text) for name, text in pairs}


def _measurements(block: _Block) -> Iterator[Measurement]:
    if not (op := block.op):
        return
    known = CATALOGUE[op]
    dtype = block.dtype or ("float32" if known.reduces else "int8")
    for cells in (_cells(block, row) for row in block.rows):
        time = cells["Avg"].value * MICRO if "Avg" in cells else 0.0
        if time <= 0:
            continue
        size, count = _size(op, cells, dtype, block.ranks)
        algbw = size / time
        yield Measurement(
            op=op,
            engine=block.engine,
            dtype=dtype,
            redop="sum" if known.reduces else "none",
            root=0 if known.rooted else -1,
            in_place=False,
            size_bytes=size,
            count=count,
            ranks=block.ranks,
            iterations=int(cells["Iterations"].value) if "Iterations" in cells else 0,
            time=one_figure(time),
            algbw=algbw,
            busbw=algbw * known.bus_factor(block.ranks) if block.ranks else 0.0,
            wrong=0 if _validation(cells) == "pass" else None,
            skew=max(0.0, cells["Max"].value - cells["Min"].value) * MICRO
            if "Max" in cells and "Min" in cells
            else 0.0,
        )


def _validation(cells: dict[str, _Cell]) -> str:
    """`pass`, `fail`, or nothing where data were not compared (`-c`)."""
    return cells["Validation"].text.lower() if "Validation" in cells else ""


def _size(op: str, cells: dict[str, _Cell], dtype: str, ranks: int) -> tuple[int, int]:
    """(bytes as nccl-tests counts them, elements): theirs is one rank's message."""
    told, item = int(cells["Size"].value) if "Size" in cells else 0, _ITEM.get(dtype, 1)
    factor = CATALOGUE[op].size_factor(ranks) if ranks else 1
    if op in _WHOLE:
        return told, told // item // factor
    return told * factor, told // item


def _figures(block: _Block) -> Iterator[ToolFigure]:
    if block.op:
        return
    own = "" if block.kind in _LIBRARIES else block.kind
    ranks = f"{block.ranks} ranks" if block.ranks > 2 else ""
    test = " ".join(word for word in (own, block.title, ranks) if word)
    for cells in (_cells(block, row) for row in block.rows):
        size = int(cells["Size"].value) if "Size" in cells else 0
        samples = int(cells["Iterations"].value) if "Iterations" in cells else 0
        for cell in cells.values():
            unit, scale = next(
                ((unit, scale) for ending, unit, scale in _UNITS if ending in cell.name), ("", 0.0)
            )
            if unit and cell.value > 0 and not cell.name.startswith(("Min", "Max")):
                only = cell.name.startswith(("Avg", "Latency", "Bandwidth", "MB/s"))
                yield ToolFigure(
                    tool="osu",
                    test=test if only else f"{test}: {cell.name.partition('(')[0].strip()}",
                    size_bytes=size,
                    unit=unit,
                    value=cell.value * scale,
                    samples=samples,
                    settings=block.settings,
                )


def _findings(blocks: Sequence[_Block], name: str) -> Iterator[Finding]:
    wrong = [
        f"{block.title}, {row[0]} B: validation failed"
        for block in blocks
        for row in block.rows
        if _validation(_cells(block, row)) == "fail"
    ]
    if wrong:
        yield make_finding("wrong_data", saw=wrong[0], because="", evidence=wrong[:10])
    if any(block.op and not block.ranks for block in blocks):
        yield make_finding(
            "unknown_ranks", file=argument(name), saw="no command with its number of ranks"
        )
