"""The JSON and the CSV of rccl-tests: an object or a line per row and side.

Names: numCycle, name, size, type, redop, inPlace, time, algBw, busBw, wrong; over several nodes also
nodes, ranks, ranksPerNode and gpusPerRank. Times are microseconds, bandwidths GB/s. Source: the models
with which ROCm/cvs reads them.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from wirespeed.model.records import ToldShape
from wirespeed.runs.importers.table import Row, Side, Table, operation_in
from wirespeed.runs.importers.told import GIGA, MICRO, number, objects

_NAMES = ("numCycle", "name", "size", "type", "redop", "inPlace", "time", "algBw", "busBw", "wrong")
_NEEDED = frozenset(_NAMES) - {"numCycle", "redop", "wrong"}
_ITEM = {"double": 8, "float": 4, "half": 2, "bfloat16": 2}
_NEAR = 1 << 16


def read_rccl_tables(text: str) -> list[Table]:
    """Return a table per operation and number of ranks; none where the text is something else."""
    if not all(word in text[:_NEAR] for word in ("busBw", "algBw", "inPlace")):
        return []
    tables: dict[tuple[str, int], Table] = {}
    seen = Counter[str]()
    for item in _items(text):
        line = json.dumps(item, sort_keys=True)
        seen[line] += 1
        if seen[line] > 1:
            continue
        op, per_rank = operation_in(str(item.get("name", ""))), _whole(item, "gpusPerRank") or 1
        ranks = _whole(item, "ranks") * per_rank
        if not op or not item.keys() >= _NEEDED:
            continue
        table = tables.setdefault(
            (op, ranks),
            Table(
                program=f"{op}_perf",
                launcher="rccl-tests",
                told=_shape(item, per_rank),
                told_ranks=ranks,
                complete=True,
            ),
        )
        row = _row(item)
        if row is None:
            table.damaged += 1
        else:
            table.rows.append(row)
    for table in tables.values():
        table.copies = max(seen.values())
    return [table for table in tables.values() if table.rows]


def _whole(item: Mapping[str, Any], name: str) -> int:
    return int(number(item.get(name)) or 0)


def _shape(item: Mapping[str, Any], per_rank: int) -> ToldShape | None:
    nodes, ranks = _whole(item, "nodes"), _whole(item, "ranksPerNode")
    if not nodes or not ranks:
        return None
    why = "the columns nodes and ranksPerNode"
    return ToldShape(gpus_per_node=ranks * per_rank, nodes=nodes, why=why)


def _items(text: str) -> Iterator[Mapping[str, Any]]:
    start = text.find("[")
    if text.lstrip()[:1] in ("[", "{"):
        yield from _of_json(text, max(start, 0))
        return
    lines = text.split("\n")
    first = next((n for n, line in enumerate(lines) if "busBw" in line), 0)
    rows = csv.DictReader(io.StringIO("\n".join(lines[first:])), skipinitialspace=True)
    for row in rows:
        yield {key.strip(): value for key, value in row.items() if key and isinstance(value, str)}


def _of_json(text: str, start: int) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a list; of one that was cut those that are whole."""
    decoder = json.JSONDecoder(parse_constant=lambda _: None)
    at = text.find("{", start)
    while at >= 0:
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield from objects([found])
        at = text.find("{", end)


def _row(item: Mapping[str, Any]) -> Row | None:
    size, time = number(item["size"]), number(item["time"])
    algbw, busbw = number(item["algBw"]), number(item["busBw"])
    in_place = number(item["inPlace"])
    if size is None or time is None or algbw is None or busbw is None or in_place not in (0, 1):
        return None
    dtype = str(item["type"]).strip()
    wrong = number(item.get("wrong"))
    side = Side(
        time=time * MICRO,
        algbw=algbw * GIGA,
        busbw=busbw * GIGA,
        wrong=None if wrong is None else int(wrong),
        time_step=0.005 * MICRO,
        busbw_step=0.005 * GIGA,
    )
    return Row(
        size=int(size),
        count=int(size) // _ITEM.get(dtype, 1),
        dtype=dtype,
        redop=str(item.get("redop") or "").strip(),
        root=None,
        sides={bool(in_place): side},
    )
