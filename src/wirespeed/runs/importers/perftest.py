"""perftest's `ib_write_bw`, `ib_read_lat` and the like: what they print, and `--out_json`.

The text has a title (`RDMA_Write BW Test`), settings, a line of columns that begins with `#bytes`,
and a row a size. "MB/sec" and "MiB/sec" are both 2^20 bytes, "Gb/sec" 10^9 bits. The JSON does not
tell which of them its figures are in: the message rate does. Before 2024 it had neither quotes nor
commas in the right places, so it is read line by line. Source: src/perftest_parameters.[ch] of
linux-rdma/perftest.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from wirespeed.model.bench_records import FigureUnit, ToolFigure
from wirespeed.model.records import Run
from wirespeed.runs.importers.told import (
    GIGA,
    MEBI,
    MICRO,
    check_number,
    number,
    reported,
    tool_run,
)

_TITLE = re.compile(
    r"(?:^|\s|\")(RDMA_Write|RDMA_Read|Send|Atomic)(_imm)?[ _]((?:[^\W_]+[ _]){0,4})(BW|Latency)[ _]"
    r"(?:[^\W_]+[ _])?Test\b"
)
_VERBS = {"RDMA_Write": "write", "RDMA_Read": "read", "Send": "send", "Atomic": "atomic"}
_DEVICE = re.compile(r"\bDevice\"?\s*:\s*\"?([\w.-]{1,64})")
_COLUMN = re.compile(r"#\w+|[\w.%][\w.% ]*?\[[^\]\s]{1,20}\]|tps average")
_ROW = re.compile(r"\s*\d{1,18}(?:\s+\d[\d.]{0,24}){3,10}\s*")
_PAIR = re.compile(r"\s*\"?([A-Za-z][\w ]{0,40}?)\"?\s*:\s*\"?(\d[\d.]{0,24})\"?\s*,?\s*")
_ERRORS = re.compile(
    r"\s*(?:Failed status \d+|Completion with error|Couldn't|Unable to|Failed to|Problems with|"
    r"Error occurred|Did not get Message).{0,300}"
)
_JSON_START = re.compile(r"\"?test_info\"?\s*:\s*\{")
_RATES = {"MB/sec": MEBI, "MiB/sec": MEBI, "Gb/sec": GIGA / 8}
_MOST_ERRORS, _NEAR = 10, 1 << 16

Row = Mapping[str, float]
"""By column: `#bytes`, `BW average[MB/sec]`, `t_typical[usec]`, …"""


def runs_of_perftest(text: str, name: str) -> Iterator[Run]:
    """One run of all tests in the text or JSON; none where there is none."""
    if "#bytes" not in text and not _JSON_START.search(text, 0, _NEAR):
        return
    figures: dict[ToolFigure, None] = {}
    errors: list[str] = []
    test = device = ""
    rows = _json_rows if _JSON_START.search(text, 0, _NEAR) else _text_rows
    for line, row in rows(text.split("\n")):
        if found := _TITLE.search(line):
            test, device = _name(found), ""
        if found := _DEVICE.search(line):
            device = found[1]
        if _ERRORS.fullmatch(line) and len(errors) < _MOST_ERRORS:
            errors.append(line.strip())
        if row and test:
            # The client and the server of one test print the same row.
            figures.update(dict.fromkeys(_figures(row, test, device)))
            check_number(len(figures), name)
    if figures or (errors and test):
        findings = [reported("perftest", errors[0], evidence=errors)] if errors else []
        yield tool_run("perftest", name=name, figures=list(figures), findings=findings)


def _name(found: re.Match[str]) -> str:
    """`ib_write_bw`, with what its title says beside: `ib_send_bw bidirectional`."""
    verb = _VERBS[found[1]] + (found[2] or "")
    kind = "bw" if found[4] == "BW" else "lat"
    return " ".join([f"ib_{verb}_{kind}", *found[3].replace("_", " ").lower().split()])


def _text_rows(lines: Iterable[str]) -> Iterator[tuple[str, Row]]:
    """(each line, the row that it is or nothing)."""
    columns: Sequence[str] = ()
    for line in lines:
        row: Row = {}
        if "#bytes" in line:
            columns = _COLUMN.findall(line[:1000])
        elif columns and _ROW.fullmatch(line):
            row = _row(columns, line.split())
        yield line, row


def _row(columns: Sequence[str], cells: Sequence[str]) -> Row:
    values = [number(cell) for cell in cells]
    pairs = zip(columns, values, strict=False)
    return {name: value for name, value in pairs if value is not None}


def _json_rows(lines: Iterable[str]) -> Iterator[tuple[str, Row]]:
    """Each result when its brace closes, under the text's names of columns."""
    found: dict[str, float] = {}
    for line in lines:
        if pair := _PAIR.fullmatch(line):
            found[pair[1]] = number(pair[2]) or 0.0
        closes = line.strip().startswith("}")
        told = _told(found) if closes and "MsgSize" in found else {}
        if told:
            found = {}
        yield line, told


def _told(found: Mapping[str, float]) -> Row:
    """Bandwidths by the message rate: messages a second times their size, in bytes."""
    row = {"#bytes": found["MsgSize"], "#iterations": found.get("n_iterations", 0.0)}
    for key in ("t_typical", "t_avg"):
        if key in found:
            row[f"{key}[usec]"] = found[key]
    if "percentile_99" in found:
        row["99% percentile[usec]"] = found["percentile_99"]
    average, moved = found.get("BW_average", 0.0), found.get("MsgRate", 0.0) * 1e6 * row["#bytes"]
    if average > 0 and moved > 0:
        near = min(_RATES, key=lambda unit: abs(average * _RATES[unit] / moved - 1))
        if 0.5 < average * _RATES[near] / moved < 2:
            row[f"BW average[{near}]"] = average
    return row


def _figures(row: Row, test: str, device: str) -> Iterator[ToolFigure]:
    for column, value in row.items():
        name, _, unit = column.rstrip("]").partition("[")
        if name == "BW average" and unit in _RATES:
            yield _figure(row, test, device, "B/s", value * _RATES[unit])
        elif name == "t_typical" or (name == "t_avg" and "t_typical[usec]" not in row):
            yield _figure(row, test, device, "s", value * MICRO)
        elif name == "99% percentile":
            yield _figure(row, f"{test} 99 %", device, "s", value * MICRO)


def _figure(row: Row, test: str, device: str, unit: FigureUnit, value: float) -> ToolFigure:
    return ToolFigure(
        tool="perftest",
        test=test,
        place=device,
        size_bytes=int(row.get("#bytes", 0)),
        unit=unit,
        value=value,
        samples=int(row.get("#iterations", 0)),
    )
