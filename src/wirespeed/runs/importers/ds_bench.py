"""DeepSpeed's communication benchmark, `ds_bench`, and scripts that print its table.

A block begins with `---- Performance of all_reduce on 8 devices`, then names of columns with their
units, then `31.67 GB  8501054668x4  3176.620 ms  171.272  149.863`. Its sizes are one rank's buffer in
1024-based units, rounded; the description has elements times bytes each, which is exact. Its throughput
of all_reduce is 2 · size / time, which is no algbw: bandwidths here are computed from the time. Source:
benchmarks/communication/utils.py of microsoft/DeepSpeedExamples.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.records import Measurement, Run
from wirespeed.runs.importers.repeats import combine_cycles, find_changed_cycles, once
from wirespeed.runs.importers.table import one_figure, operation_in
from wirespeed.runs.importers.told import MICRO, MILLI, number, tool_run

_TITLE = re.compile(r"-{4} Performance of (\w{2,40}) on (\d{1,7}) devices -{3,}")
_COLUMNS = re.compile(r"Size \(Bytes\)\s+Description\s+Duration( \(us\))?\s+Throughput \((\w+)\)")
_ROW = re.compile(
    r"[\d.]{1,20}(?: [KMGTPEZY]?B)?\s+(\d{1,16})x(\d{1,2})\s+([\d.]{1,20})( us| ms| s)?"
    r"\s+([\d.]{1,20})\s+([\d.]{1,20})\s*"
)
_UNITS = {" us": MICRO, " ms": MILLI, " s": 1.0}
_DTYPES = {1: "int8", 2: "float16", 4: "float32", 8: "float64"}
"""By the bytes of an element: what the table leaves open (bfloat16 has two, too)."""
_POINT_TO_POINT = ("pt2pt", "p2p")


@dataclass(slots=True)
class _Block:
    op: str
    ranks: int
    raw: bool = False
    """Whether durations are microseconds without a unit (`--raw`)."""
    rows: list[re.Match[str]] = field(default_factory=list)


def runs_of_ds_bench(text: str, name: str) -> Iterator[Run]:
    """Yield one run of all blocks with rows; none where there is none."""
    blocks = [one for one in _blocks(text) if one.rows] if "---- Performance of" in text else []
    if not blocks:
        return
    times = Counter(map(_key, blocks))
    unique = list({_key(block): block for block in blocks}.values())
    measured = [m for block in unique for m in _measurements(block)]
    measurements, cycles = combine_cycles(measured)
    run = tool_run(
        "ds_bench",
        name=name,
        measurements=measurements,
        findings=list(find_changed_cycles(cycles)),
        ranks=max(one.ranks for one in blocks),
    )
    yield once(run, max(times.values()))


def _key(block: _Block) -> tuple[object, ...]:
    return block.op, block.ranks, block.raw, *(row[0].strip() for row in block.rows)


def _blocks(text: str) -> Iterator[_Block]:
    block: _Block | None = None
    for line in text.split("\n"):
        if found := _TITLE.search(line[:1000]):
            if block is not None:
                yield block
            op = "send_recv" if found[1] in _POINT_TO_POINT else operation_in(found[1])
            block = _Block(op, int(found[2])) if op and int(found[2]) else None
        elif block is not None and (columns := _COLUMNS.search(line[:1000])):
            block.raw = bool(columns[1])
        elif block is not None and (row := _ROW.fullmatch(line.strip()[:1000])):
            block.rows.append(row)
    if block is not None:
        yield block


def _measurements(block: _Block) -> Iterator[Measurement]:
    known = CATALOGUE[block.op]
    for row in block.rows:
        count, item = int(row[1]), int(row[2])
        time = (number(row[3]) or 0.0) * _UNITS.get(row[4] or "", MICRO)
        if time <= 0 or (not row[4] and not block.raw):
            continue
        size = count * item * (block.ranks if block.op == "all_gather" else 1)
        algbw = size / time
        yield Measurement(
            op=block.op,
            engine="ds_bench",
            dtype=_DTYPES.get(item, f"{item} bytes"),
            redop="sum" if known.reduces else "none",
            root=0 if known.rooted else -1,
            in_place=block.op in ("all_reduce", "broadcast"),
            size_bytes=size,
            count=count,
            ranks=block.ranks,
            timing="batch",
            iterations=0,
            time=one_figure(time),
            algbw=algbw,
            busbw=algbw * known.bus_factor(block.ranks),
        )
