"""What other tools wrote, as runs: one file a format."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from wirespeed.errors import InputError
from wirespeed.model.records import Choice, Run
from wirespeed.runs import jsontext
from wirespeed.runs.importers.dcgm import runs_of_dcgm
from wirespeed.runs.importers.ddp_script import run_of_script
from wirespeed.runs.importers.ds_bench import runs_of_ds_bench
from wirespeed.runs.importers.ibm import read_ibm_tables
from wirespeed.runs.importers.inspector import runs_of_inspector
from wirespeed.runs.importers.iperf3 import runs_of_iperf3
from wirespeed.runs.importers.lines import PlainText, plain_texts
from wirespeed.runs.importers.nccl_tests import read_json_tables, read_tables
from wirespeed.runs.importers.nvbandwidth import runs_of_nvbandwidth, runs_of_nvbandwidth_text
from wirespeed.runs.importers.osu import runs_of_osu
from wirespeed.runs.importers.p2p_test import runs_of_p2p_test
from wirespeed.runs.importers.perftest import runs_of_perftest
from wirespeed.runs.importers.rccl_tests import read_rccl_tables
from wirespeed.runs.importers.repeats import counted_once
from wirespeed.runs.importers.superbench import runs_of_diagnosis, runs_of_superbench
from wirespeed.runs.importers.table import Fabric, Table, fabric_in
from wirespeed.runs.importers.table_runs import run_from_table
from wirespeed.runs.jsontext import damage

__all__ = ["import_bytes", "run_from_table"]

_Readers = tuple[tuple[re.Pattern[str], Callable[[str, str], Iterator[Run]]], ...]
_DOCUMENTS: _Readers = (
    (re.compile(r'"DCGM (?:GPU )?Diagnostic"\s*:'), runs_of_dcgm),
    (re.compile(r'"nvbandwidth"\s*:'), runs_of_nvbandwidth),
    (re.compile(r'"version"\s*:\s*"iperf 3'), runs_of_iperf3),
    (re.compile(r'"coll_perf"\s*:'), runs_of_inspector),
    (re.compile(r'(?:\A\s*|\n[ \t]*)\{[^\n]{0,100000}?"Defective Details"\s*:'), runs_of_diagnosis),
    (re.compile(r'\A\s*\{\s*"(?:node"\s*:\s*"[^\n]{1,4000}?|[^"/\n]{1,100})/'), runs_of_superbench),
    (re.compile(r'"?test_info"?\s*:\s*\{\s*"?test"?\s*:'), runs_of_perftest),
)
"""JSON of other tools, by what stands near its beginning; the first that fits."""
_TEXTS: tuple[Callable[[PlainText, str, int], Iterator[Run]], ...] = (
    lambda plain, name, ranks: runs_of_osu(plain.text, name, ranks),
    lambda plain, name, ranks: runs_of_perftest(plain.text, name, plain.times),
    lambda plain, name, ranks: runs_of_nvbandwidth_text(plain.text, name),
    lambda plain, name, ranks: runs_of_p2p_test(plain.text, name),
    lambda plain, name, ranks: runs_of_ds_bench(plain.text, name),
)
_NEAR = 1 << 16
_DOCUMENT = re.compile(r"^[ \t]*\{", re.MULTILINE)


def import_bytes(data: bytes, *, name: str, op: str = "", ranks: int = 0) -> list[Run]:
    """Return the runs in what another tool wrote: nccl-tests (one per table), OSU, perftest, iperf3, …

    The content says which tool it was. Prefixes of launchers and log collectors are taken off first,
    and each writer is read by itself; output that was printed twice counts once.
    `name` is the file's, for messages and as the last hint to the operation; `op` and `ranks` are
    what the user said, or nothing. InputError for anything else than such a file.
    """
    with damage(name, expected="the output of one test, as it was printed"):
        return _imported(data, name, op, ranks)


def _imported(data: bytes, name: str, op: str, ranks: int) -> list[Run]:
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    fabric = fabric_in(text)
    found: list[Run] = []
    for own in plain_texts(text):
        body, cut = _whole_lines(own.text)
        runs = _read(PlainText(body, own.times), name, op, ranks, fabric)
        found += [replace(run, choices=(*run.choices, _CUT)) if cut else run for run in runs]
    if not found:
        raise InputError(
            f"{name}: {_unknown(text)} in {_size(data)}",
            expected="rows of nccl-tests such as `1024  256  float  sum  -1  61.2  0.02  0.03  0 …`, "
            "its JSON (-J), or what OSU, perftest, iperf3 -J, nvbandwidth, dcgmi diag -j, ds_bench, "
            "rccl-tests, NCCL Inspector or SuperBench wrote",
        )
    return counted_once(found)


_CUT = Choice("last line", "left out", "it has no end, so that a figure in it may be cut")


def _whole_lines(text: str) -> tuple[str, bool]:
    """Return the text without a last line that may be cut, and whether it has one.

    Of JSON Lines it is one that is no JSON; of everything else one that begins with a digit and has
    no end, since it may be a row. perftest's last column is not used, so its rows count with all cells.
    """
    body, _, last = text.rstrip("\n").rpartition("\n")
    if not body:
        return text, False
    if _is_lines(text):
        cut = not _is_json(last)
    else:
        cut = not text.endswith("\n") and bool(_ROW_BEGINS.match(last)) and "#bytes" not in text
    return (f"{body}\n", True) if cut else (text, False)


_ROW_BEGINS = re.compile(r"\s*\d[\d.]*(?:[\s,]|$)")


def _is_json(line: str) -> bool:
    try:
        jsontext.parse(line, source="import")
    except InputError:
        return False
    return True


def _read(plain: PlainText, name: str, op: str, ranks: int, fabric: Fabric | None) -> list[Run]:
    """Return the runs in the text of one writer; none where no reader knows it."""
    text = plain.text
    for form, reader in _DOCUMENTS:
        if form.search(text, 0, _NEAR) and (found := list(reader(text, name))):
            return found
    if (script := _script(text)) is not None:
        return [run_of_script(script, name=name)]
    if '"out_of_place"' in text and (begin := _DOCUMENT.search(text)):
        text = text[begin.start() :]
    others: list[Run] = []
    tables: list[Table] = read_rccl_tables(text)
    if not tables and text.lstrip().startswith("{"):
        unknown = _is_lines(text) and '"results"' not in text
        tables = [] if unknown else read_json_tables(text, source=name)
    elif not tables:
        others = [found for reader in _TEXTS for found in reader(plain, name, ranks)]
        tables = [*read_tables(text, plain.times), *read_ibm_tables(text)]
    tables = [table for table in tables if any(row.sides for row in table.rows)]
    ours = [run_from_table(one, name=name, op=op, ranks=ranks, fabric=fabric) for one in tables]
    return [*others, *ours]


def _unknown(text: str) -> str:
    """Return what a file is that no reader knows."""
    if _is_lines(text):
        return "JSON Lines of an unknown tool"
    return "no rows of nccl-tests or of another known tool"


def _is_lines(text: str) -> bool:
    """Return whether most lines are a JSON object each."""
    lines = [line.strip() for line in text[:_NEAR].split("\n") if line.strip()]
    objects = [line for line in lines if line.startswith("{") and line.endswith("}")]
    return len(objects) > 1 and 2 * len(objects) > len(lines)


def _script(text: str) -> dict[str, Any] | None:
    """The document of a benchmark script; None for everything else, damaged JSON included."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        data = jsontext.parse(text, source="import")
    except InputError:
        return None
    return data if {"world_size", "timestamp", "results"} <= data.keys() else None


def _size(data: bytes) -> str:
    lines = data.count(b"\n")
    return f"{len(data)} bytes, {lines} lines" if data else "an empty file"
