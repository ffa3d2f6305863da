"""perftest's `ib_write_bw`, `ib_read_lat` and the like: what they print, and `--out_json`.

The text has a title (`RDMA_Write BW Test`), settings, a line of columns that begins with `#bytes`,
and a row a size. "MB/sec" and "MiB/sec" are both 2^20 bytes, "Gb/sec" 10^9 bits. The JSON does not
tell which of them its figures are in: the message rate does. Before 2024 it had neither quotes nor
commas in the right places, so it is read line by line. Source: src/perftest_parameters.[ch] of
linux-rdma/perftest.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from wirespeed.model.bench_records import FigureUnit, ToolFigure
from wirespeed.model.records import Finding, Run
from wirespeed.model.units import format_bandwidth, format_size
from wirespeed.runs.findings import make_finding
from wirespeed.runs.importers.lines import CellJoiner
from wirespeed.runs.importers.repeats import combine_figures, level_change
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
_CELLS = re.compile(r"\s*\d[\d.]{0,24}(?:\s+\d[\d.]{0,24}){0,11}\s*")
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
_SETTINGS = {
    "number of qps": "qps",
    "placeof_qps": "qps",
    "connection type": "connection",
    "connection_type": "connection",
    "transport type": "transport",
    "transport_type": "transport",
    "link type": "link",
    "link_type": "link",
    "mtu": "mtu",
    "dual-port": "dual port",
    "dual_port": "dual port",
    "using srq": "srq",
    "using_srq": "srq",
    "using ddp": "ddp",
}
"""What sets one series apart from another, by its name in the text or the JSON."""
_SETTING = re.compile(
    rf"(?<![\w-])\"?({'|'.join(_SETTINGS)})\"?\s*:\s*\"?([\w.+-]{{1,40}})", re.IGNORECASE
)
_USUAL = ("dual port OFF", "srq OFF", "ddp OFF")
"""Not mentioned: what is off."""
_SIDES = ("", ": local", ": remote")
"""Of `--report-both` in one block: the sum of both ways, then each side's."""
_SUM = 0.02
"""By so much may the two ways miss the sum, which is rounded."""


@dataclass(slots=True)
class _Block:
    """One test: its rows, and what is said of it."""

    test: str
    device: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    sides: list[str] = field(default_factory=list)
    """Of each row, where the JSON names it: empty for the sum."""
    times: list[str] = field(default_factory=list)
    """When each row was printed; empty: not told."""

    @property
    def about(self) -> str:
        told = (f"{name} {value}" for name, value in sorted(self.settings.items()))
        return ", ".join(one for one in told if one not in _USUAL)


def runs_of_perftest(text: str, name: str, times: Sequence[str] = ()) -> Iterator[Run]:
    """Yield one run of all tests in the text or JSON; none where there is none.

    times: when each line was written; empty: not told.
    """
    if "#bytes" not in text and not _JSON_START.search(text, 0, _NEAR):
        return
    blocks: list[_Block] = []
    errors: list[str] = []
    rows = _json_rows if _JSON_START.search(text, 0, _NEAR) else _text_rows
    for place, (line, row, side) in enumerate(rows(text.split("\n"))):
        if found := _TITLE.search(line):
            blocks.append(_Block(_name(found)))
        if _ERRORS.fullmatch(line) and len(errors) < _MOST_ERRORS:
            errors.append(line.strip())
        if blocks:
            _take(blocks[-1], line, row, side)
            if row:
                blocks[-1].times.append(times[place] if place < len(times) else "")
            check_number(len(blocks[-1].rows), name)
    figures, findings = _of_blocks(blocks)
    if errors:
        findings.insert(0, reported("perftest", errors[0], evidence=errors))
    if figures or (errors and blocks):
        yield tool_run("perftest", name=name, figures=figures, findings=findings)


def _take(block: _Block, line: str, row: Row, side: str) -> None:
    if found := _DEVICE.search(line):
        block.device = found[1]
    for key, value in _SETTING.findall(line[:1000]):
        block.settings.setdefault(_SETTINGS[key.lower()], value)
    if row:
        block.rows.append(row)
        block.sides.append(side)


def _of_blocks(blocks: Sequence[_Block]) -> tuple[list[ToolFigure], list[Finding]]:
    """Return the figures of all blocks, and what changed within one.

    The client and the server of one test print the same block, which counts once.
    """
    unique: list[_Block] = []
    for block in blocks:
        if not any(_is_same(block, one) for one in unique):
            unique.append(block)
    figures: list[ToolFigure] = []
    findings: list[Finding] = []
    for block in unique:
        own = [
            (figure, time)
            for row, side, time in _with_sides(block)
            for figure in _figures(row, f"{block.test}{side}", block.device, block.about)
        ]
        findings += _level_changes(own)
        figures += [figure for figure, _ in own]
    return combine_figures(figures), findings


def _is_same(one: _Block, other: _Block) -> bool:
    names = ("test", "device", "settings", "rows", "sides")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _with_sides(block: _Block) -> Iterator[tuple[Row, str, str]]:
    """Yield (row, side, time): three rows, of which the first is the sum, report both ways."""
    rows, at = block.rows, 0
    both = "bidirectional" in block.test
    while at < len(rows):
        three = rows[at : at + 3]
        if (
            both
            and len(three) == len(_SIDES)
            and not any(block.sides[at : at + 3])
            and _is_report(three)
        ):
            yield from zip(three, _SIDES, block.times[at : at + 3], strict=True)
            at += len(_SIDES)
        else:
            side = f": {block.sides[at]}" if block.sides[at] else ""
            yield rows[at], side, block.times[at]
            at += 1


def _is_report(three: Sequence[Row]) -> bool:
    if len({row.get("#bytes") for row in three}) > 1:
        return False
    rates = [
        next((value for name, value in row.items() if name.startswith("BW average")), 0.0)
        for row in three
    ]
    return rates[1] > 0 and rates[2] > 0 and abs(rates[1] + rates[2] - rates[0]) <= _SUM * rates[0]


def _level_changes(figures: Sequence[tuple[ToolFigure, str]]) -> Iterator[Finding]:
    """Report a stretch of rows of one size that is clearly slower (`--run_infinitely`)."""
    series: dict[tuple[str, int], list[tuple[float, str]]] = {}
    for one, time in figures:
        if one.unit == "B/s":
            series.setdefault((one.test, one.size_bytes), []).append((one.value, time))
    for (test, size), rows in series.items():
        values = [value for value, _ in rows]
        if stretch := level_change(values):
            first, last = stretch
            where = f"from row {first + 1} to row {last + 1} of {len(values)}"
            begin, end = rows[first][1], rows[last][1]
            where += f", {begin} to {end}" if begin and end else ""
            inside = median(values[first : last + 1])
            rest = median((*values[:first], *values[last + 1 :]))
            yield make_finding(
                "level_changed",
                what=f"{test}, {format_size(size)}: the rate changes within the run, {where}",
                saw=f"{format_bandwidth(inside)} {where}, {format_bandwidth(rest)} in the rest",
            )


def _name(found: re.Match[str]) -> str:
    """`ib_write_bw`, with what its title says beside: `ib_send_bw bidirectional`."""
    verb = _VERBS[found[1]] + (found[2] or "")
    kind = "bw" if found[4] == "BW" else "lat"
    return " ".join([f"ib_{verb}_{kind}", *found[3].replace("_", " ").lower().split()])


def _text_rows(lines: Iterable[str]) -> Iterator[tuple[str, Row, str]]:
    """Yield (line, the row that it is or nothing, no side)."""
    columns: Sequence[str] = ()
    joiner = CellJoiner()
    for line in lines:
        row: Row = {}
        if "#bytes" in line:
            columns, joiner = _COLUMN.findall(line[:1000]), CellJoiner()
        elif columns and _CELLS.fullmatch(line):
            own = line.split()
            # More cells than columns: the last columns of the header are not known.
            whole = own if len(own) > len(columns) > 2 else joiner.take(own, len(columns))
            row = _row(columns, whole) if whole else {}
        yield line, row, ""


def _row(columns: Sequence[str], cells: Sequence[str]) -> Row:
    values = [number(cell) for cell in cells]
    pairs = zip(columns, values, strict=False)
    return {name: value for name, value in pairs if value is not None}


def _json_rows(lines: Iterable[str]) -> Iterator[tuple[str, Row, str]]:
    """Yield each result when its brace closes, under the text's names of columns, and its side."""
    found: dict[str, float] = {}
    side = ""
    for line in lines:
        if section := _SECTION.match(line):
            side = (section[1] or "").removeprefix("_")
        if pair := _PAIR.fullmatch(line):
            found[pair[1]] = number(pair[2]) or 0.0
        closes = line.strip().startswith("}")
        told = _told(found) if closes and "MsgSize" in found else {}
        if told:
            found = {}
        yield line, told, side


_SECTION = re.compile(r"\s*\"?results(_local|_remote)?\"?\s*:\s*\{")


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


def _figures(row: Row, test: str, device: str, about: str) -> Iterator[ToolFigure]:
    for column, value in row.items():
        name, _, unit = column.rstrip("]").partition("[")
        if name == "BW average" and unit in _RATES:
            yield _figure(row, test, device, about, "B/s", value * _RATES[unit])
        elif name == "t_typical" or (name == "t_avg" and "t_typical[usec]" not in row):
            yield _figure(row, test, device, about, "s", value * MICRO)
        elif name == "99% percentile":
            yield _figure(row, f"{test} 99 %", device, about, "s", value * MICRO)


def _figure(
    row: Row, test: str, device: str, about: str, unit: FigureUnit, value: float
) -> ToolFigure:
    return ToolFigure(
        tool="perftest",
        test=test,
        place=device,
        size_bytes=int(row.get("#bytes", 0)),
        unit=unit,
        value=value,
        samples=int(row.get("#iterations", 0)),
        settings=about,
    )
