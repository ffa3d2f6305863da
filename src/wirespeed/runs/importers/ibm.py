"""The table of IBM's communication benchmark: loops over torch.distributed, by sizes of 10^6 bytes.

` size(MB)   tavg(usec)    tmin(usec)    tmax(usec)  avgbw(GB/sec)  maxbw(GB/sec)  minbw(GB/sec)`, then a
row per size. Its bandwidth is busbw. Neither the operation nor the ranks are in the table: busbw over
size / time says which it may be, as in a table of nccl-tests. Source: the benchmark's output as
EldritchJS/ml-dev-env keeps it.
"""

import re

from wirespeed.model.records import TimeStats
from wirespeed.runs.importers.table import Row, Side, Table
from wirespeed.runs.importers.told import GIGA, MICRO, number

_COLUMNS = re.compile(
    r"size\(MB\)\s+tavg\(usec\)\s+tmin\(usec\)\s+tmax\(usec\)\s+avgbw\(GB/sec\)"
    r"\s+maxbw\(GB/sec\)\s+minbw\(GB/sec\)"
)
_CELLS = 7
_MEGA = 1e6
_NCCL = re.compile(r"NCCL version\s*[:=]\s*\((\d+), (\d+), (\d+)\)")
_OF_FLOAT = 4


def read_ibm_tables(text: str) -> list[Table]:
    """Return the tables with rows, in order."""
    tables: list[Table] = []
    versions: dict[str, str] = {}
    table: Table | None = None
    for line in text.split("\n") if "avgbw(GB/sec)" in text else ():
        if found := _NCCL.search(line[:1000]):
            versions = {"nccl": ".".join(found.groups())}
        elif _COLUMNS.search(line[:1000]):
            table = Table(
                engine="torch", launcher="torchrun", versions=dict(versions), complete=True
            )
            tables.append(table)
        elif table is not None and (row := _read_row(line)):
            table.rows.append(row)
    return [one for one in tables if one.rows]


def _read_row(line: str) -> Row | None:
    cells = line[:1000].split()
    values = [number(cell) for cell in cells]
    if len(cells) != _CELLS or None in values:
        return None
    size_mb, average, least, most, busbw = (value or 0.0 for value in values[:5])
    if not 0 < least <= average <= most or not size_mb:
        return None
    size = round(size_mb * _MEGA)
    time = average * MICRO
    side = Side(
        time=time,
        algbw=size / time,
        busbw=busbw * GIGA,
        # The ends of its samples are known, an interval of the average is not.
        stats=TimeStats(
            median=time,
            mean=time,
            low=time,
            high=time,
            min=least * MICRO,
            p95=time,
            p99=time,
            max=most * MICRO,
        ),
        time_step=_half_digit(cells[1]) * MICRO,
        busbw_step=_half_digit(cells[4]) * GIGA,
    )
    return Row(
        size=size,
        count=size // _OF_FLOAT,
        dtype="float",
        redop="",
        root=None,
        sides={True: side},
    )


def _half_digit(text: str) -> float:
    """Return half of the last printed digit: 0.005 for `44.74`."""
    return float(0.5 * 10.0 ** -len(text.partition(".")[2]))
