"""Rows of the index as Parquet files, a file a table, for DuckDB, pandas, Spark and the like."""

import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from wirespeed.errors import StorageError, UsageError
from wirespeed.runs.index import RunFilter
from wirespeed.runs.rows import FigureRow, FindingRow, NodeRow, RunRow
from wirespeed.runs.source import StoredRuns

TABLES: dict[str, type] = {
    "runs": RunRow,
    "figures": FigureRow,
    "findings": FindingRow,
    "nodes": NodeRow,
}
"""Rows by the name of their file."""


def export(index: StoredRuns, which: RunFilter, folder: Path) -> Iterator[tuple[Path, int]]:
    """Write each table's rows of these runs; its file and how many rows it holds, as it is done.

    UsageError without pyarrow, StorageError where a file cannot be written.
    """
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            "pyarrow is not installed",
            expected="pyarrow, which writes Parquet",
            next="pip install 'wirespeed[parquet]'",
        ) from error
    for table, kind in TABLES.items():
        path = folder / f"{table}.parquet"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "wb") as out:
                yield path, _write(parquet, index, which, kind, out)
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def _write(parquet: Any, index: StoredRuns, which: RunFilter, kind: type[Any], out: Any) -> int:
    import pyarrow as arrow

    types: dict[Any, Any] = {
        str: arrow.string(),
        int: arrow.int64(),
        float: arrow.float64(),
        bool: arrow.bool_(),
    }
    names = [(field.name, types.get(field.type, arrow.float64())) for field in fields(kind)]
    schema, count = arrow.schema(names), 0
    with parquet.ParquetWriter(out, schema) as writer:
        for rows in index.pages(kind, which):
            columns = [[getattr(row, name) for row in rows] for name, _ in names]
            writer.write_table(arrow.table(columns, schema=schema))
            count += len(rows)
    return count
