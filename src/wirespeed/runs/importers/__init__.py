"""What other tools wrote, as runs: one file a format."""

from wirespeed.errors import InputError
from wirespeed.records import Run
from wirespeed.runs.importers.build import run_from_table
from wirespeed.runs.importers.nccl_tests import read_tables
from wirespeed.runs.importers.nccl_tests_json import read_json

__all__ = ["import_bytes"]


def import_bytes(data: bytes, *, name: str, op: str = "", ranks: int = 0) -> list[Run]:
    """One run for each table in the text or JSON of nccl-tests.

    `name` is the file's, for messages and as the last hint to the operation; `op` and `ranks` are
    what the user said, or nothing. InputError for anything else than such a file.
    """
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    if text.lstrip().startswith("{"):
        tables = [read_json(text, source=name)]
    else:
        tables = read_tables(text)
    tables = [table for table in tables if any(row.sides for row in table.rows)]
    if not tables:
        raise InputError(
            f"{name}: no rows of nccl-tests in {_size(data)}",
            expected="rows such as `1024  256  float  sum  -1  61.2  0.02  0.03  0 …`, "
            "or the JSON of nccl-tests -J",
        )
    return [run_from_table(table, name=name, op=op, ranks=ranks) for table in tables]


def _size(data: bytes) -> str:
    lines = data.count(b"\n")
    return f"{len(data)} bytes, {lines} lines" if data else "an empty file"
