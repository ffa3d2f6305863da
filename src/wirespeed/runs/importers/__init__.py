"""What other tools wrote, as runs: one file a format."""

from typing import Any

from wirespeed.errors import InputError
from wirespeed.model.records import Run
from wirespeed.runs import jsontext
from wirespeed.runs.importers.build import run_from_table
from wirespeed.runs.importers.ddp_script import is_ddp_script, run_of_ddp_script
from wirespeed.runs.importers.nccl_tests import read_json, read_tables
from wirespeed.runs.importers.table import fabric_in
from wirespeed.runs.jsontext import damage


def import_bytes(data: bytes, *, name: str, op: str = "", ranks: int = 0) -> list[Run]:
    """One run for each table in the text or JSON of nccl-tests, or of a known script's JSON.

    `name` is the file's, for messages and as the last hint to the operation; `op` and `ranks` are
    what the user said, or nothing. InputError for anything else than such a file.
    """
    with damage(name, expected="the output of one test, as it was printed"):
        return _imported(data, name, op, ranks)


def _imported(data: bytes, name: str, op: str, ranks: int) -> list[Run]:
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    if (script := _script(text)) is not None:
        return [run_of_ddp_script(script, name=name)]
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
    fabric = fabric_in(text)
    return [run_from_table(one, name=name, op=op, ranks=ranks, fabric=fabric) for one in tables]


def _script(text: str) -> dict[str, Any] | None:
    """The document of a benchmark script; None for everything else, damaged JSON included."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        data = jsontext.parse(text, source="import")
    except InputError:
        return None
    return data if is_ddp_script(data) else None


def _size(data: bytes) -> str:
    lines = data.count(b"\n")
    return f"{len(data)} bytes, {lines} lines" if data else "an empty file"
