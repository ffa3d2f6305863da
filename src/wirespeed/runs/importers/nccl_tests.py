"""The text that nccl-tests prints, every layout since 1.x of 2017, out of whatever log it lies in.

Known: `res` with times in milliseconds (until 2019), `error` (a float) and `#wrong` (a count) columns,
with and without `redop` and `root`,
`cputime`, the columns of a per-iteration report, timestamps, N/A where nothing was checked, one
side only; prefixes of mpirun, srun, kubectl and of log collectors; lines of NCCL's own between the
rows; several tables in one file. Layouts: src/util.cu and src/common.cu of NVIDIA/nccl-tests.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import fmean
from typing import Any

from wirespeed.errors import InputError
from wirespeed.model.records import TimeStats
from wirespeed.runs import jsontext
from wirespeed.runs.importers.table import Device, Row, Side, Table
from wirespeed.runs.importers.told import GIGA, MICRO, MILLI, number, part
from wirespeed.statistics import median_interval

_HEADER = re.compile(r"(?:#\s*|^\s*|\s)nThread\s+\d+\s+nGpus\s+\d+")
_SETTING = re.compile(
    r"(minBytes|maxBytes|warmup iters|agg iters|iters|validation|graph):?\s+(\d{1,18})\b"
)
_DEVICE = re.compile(
    r"#\s*Rank\s+(\d{1,7})\s+(?:Group\s+(\d{1,7})\s+)?(?:Pid\s+(\d{1,10})\s+)?on\s+(\S+)\s+device\s+(\d{1,4})"
    r"\s+\[([^\]]*)\]\s*(.*)"
)
_COLUMNS = re.compile(
    r"#\s*((?:size\s+count|bytes\s+N)\s+type\b.*\b(?:cpu)?time\s+algbw\s+busbw.*)"
)
_CLOSING = re.compile(r"Out of bounds values|Avg bus bandwidth|nThread \d+ nGpus ")
"""What stands without `#` until 2019."""
_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d{1,18})\s+(?:OK|FAILED)")
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:")
_CONCLUDED = re.compile(r"#\s*Collective test concluded:\s*(\w+)")
_PROGRAM = re.compile(r"(?<![A-Za-z0-9_])([a-z]\w*_perf(?:_mpi)?)\b")
_COMMENT = re.compile(r"#+\s*(?:(?:test|operation|op|collective)\s*:?\s*)?([A-Za-z_]{5,20})\s*$")
_ELLIPSIS = re.compile(r"[^A-Za-z]*(?:\.\.\.|…)")
_TESTS_VERSION = re.compile(r"nccl-tests version (\S+)")
_RCCL_TESTS_VERSION = re.compile(r"\s*rccl-tests: Version (\S+)")
"""It stands without `#`, behind the line of the settings."""
_NCCL_VERSION = re.compile(r"\bNCCL version (\d+\.\d[\w.+-]*)")
_ROW = re.compile(
    r"(?<![\w.:-])(\d{1,18})\s+(\d{1,18})\s+"
    r"(float|half|double|bfloat16|char|u?int(?:8|32|64)?|f(?:loat|p)?8\w*)\b(.*)"
)
_REDOP = re.compile(r"[a-z]+")
_ROOT = re.compile(r"-?\d{1,7}")
_STAMP = re.compile(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$")
_BLANK_SIDE = re.compile(r"\S\s{24,}\S")
_CELL = r"(?:-?\d[\d.]*(?:e[+-]?\d+)?|N/A|-?nan)"
_FOREIGN = r"(?:#|[A-Za-z][\w.-]*:\d+:\d+ \[)"
"""Another line that begins right behind a cell: a comment, or a line of NCCL's."""
_CELLS = re.compile(
    rf"\s*((?:(?:none|sum|prod|max|min|avg|mulsum|all)\s+)?{_CELL}(?:\s+{_CELL})*)\s*(?:$|{_FOREIGN}.*)",
    re.IGNORECASE,
)
"""Nothing but cells of a row, up to its end or to a line that was printed into it."""
_TIMES = ("time", "cputime")
_BASIC = ("time", "algbw", "busbw", "#wrong")


def read_tables(text: str, times: Sequence[str] = ()) -> list[Table]:
    """Return the tables with at least one row, in order. times: when each line was written."""
    reader = _Reader()
    *lines, rest = text.split("\n")
    for line_number, line in enumerate(lines):
        reader.at = times[line_number] if line_number < len(times) else ""
        reader.take(line.rstrip())
    # A last line without its end may be cut in a figure: a row there is not trusted.
    reader.take(rest.rstrip(), cut=True)
    reader.end()
    return [table for table in reader.tables if table.rows]


class _Reader:
    """Takes the lines of a log one by one; keeps the table that they belong to."""

    def __init__(self) -> None:
        self.tables: list[Table] = [Table()]
        self.at = ""
        """When the line was written."""
        self._layout: tuple[str, ...] | None = None
        self._next_program = ""
        self._cut_row: tuple[re.Match[str], str] | None = None
        """The beginning of a row that another line was printed into, and its cells so far."""

    @property
    def _table(self) -> Table:
        return self.tables[-1]

    def take(self, line: str, *, cut: bool = False) -> None:
        if found := _ROW.search(line):
            self.end()
            self._row(found, cut)
        elif self._cut_row and not cut and (found := _CELLS.fullmatch(line)):
            self._go_on(*self._cut_row, found[1])
        elif ("#" in line or _CLOSING.search(line)) and self._comment(line):
            return
        elif found := _NCCL_VERSION.search(line):
            self._table.versions.setdefault("nccl", found[1])
        elif found := _RCCL_TESTS_VERSION.match(line):
            self._table.versions["rccl-tests"] = found[1]
        elif _ELLIPSIS.fullmatch(line) and self._table.devices and not self._table.rows:
            self._table.all_devices = False
        elif found := _PROGRAM.search(line):
            self._program(found[1])

    def end(self) -> None:
        """Count a row that was begun and never completed."""
        self._table.damaged += self._cut_row is not None
        self._cut_row = None

    def _go_on(self, begun: re.Match[str], before: str, cells: str) -> None:
        """Add cells to the row that was begun; with the last of them it is a row."""
        columns = len(self._layout or ()) - len(("size", "count", "type"))
        joined = f"{before} {cells}"
        self._cut_row = begun, joined
        if len(joined.split()) < columns:
            return
        row = _read_row(begun, self._layout, joined)
        if row is not None:
            self._cut_row = None
            self._table.rows.append(replace(row, at=row.at or self.at))
        else:
            self.end()

    def _comment(self, line: str) -> bool:
        if found := _DEVICE.search(line):
            self._device(found)
        elif _HEADER.search(line):
            self._begin()
            self._settings(line)
        elif found := _COLUMNS.search(line):
            self._begin()
            self._layout = tuple(found[1].split())
        elif found := _BOUNDS.search(line):
            self.end()
            self._table.out_of_bounds, self._table.complete = int(found[1]), True
        elif _AVERAGE.search(line):
            self._table.complete = True
        elif "Blocking Enabled" in line:
            self._table.blocking = True
        else:
            return self._named(line)
        return True

    def _named(self, line: str) -> bool:
        if found := _CONCLUDED.search(line):
            self._table.program = self._table.program or found[1]
        elif found := _PROGRAM.search(line) or _COMMENT.search(line):
            self._program(found[1])
        elif found := _TESTS_VERSION.search(line):
            self._begin()
            self._table.versions["nccl-tests"] = found[1]
        else:
            return False
        return True

    def _program(self, name: str) -> None:
        """A program named before a table's rows is that table's; after them, the next one's."""
        if self._table.rows or self._table.complete:
            self._next_program = name
        else:
            self._table.program = name

    def _begin(self) -> None:
        """Start the next table, unless this one has no rows yet."""
        self.end()
        if self._table.complete or self._table.rows:
            self.tables.append(Table(program=self._next_program))
            self._layout, self._next_program = None, ""

    def _settings(self, line: str) -> None:
        self._table.settings = {name: int(value) for name, value in _SETTING.findall(line)}

    def _device(self, found: re.Match[str]) -> None:
        self._begin()
        rank, group, process, host, index, bus, name = found.groups(default="0")
        device = Device(
            int(rank), int(group), host, int(index), bus, name.strip(), process=int(process)
        )
        self._table.devices.append(device)

    def _row(self, found: re.Match[str], cut: bool) -> None:
        if self._table.complete:
            self._begin()
        row = None if cut else _read_row(found, self._layout, found[4])
        if row is None and not cut and self._layout and (cells := _CELLS.fullmatch(found[4])):
            self._cut_row = found, cells[1]
        elif row is None:
            self._table.damaged += not cut
        else:
            self._table.rows.append(replace(row, at=row.at or self.at))


def _read_row(found: re.Match[str], layout: tuple[str, ...] | None, cells: str) -> Row | None:
    """Return the row, or None when it is not whole. cells: what stands behind its dtype."""
    stamp = _STAMP.search(cells)
    rest = _STAMP.sub("", cells)
    words = rest.split()
    redop = words.pop(0) if words and _REDOP.fullmatch(words[0]) and words[0] != "nan" else ""
    columns = _side_columns(layout)
    has_root = "root" in layout if layout else len(words) % len(columns) == 1
    root = int(words.pop(0)) if has_root and words and _ROOT.fullmatch(words[0]) else None
    if has_root and root is None:
        return None
    one_side = layout is not None and sum(name in _TIMES for name in layout) == 1
    unit = MILLI if layout and layout[0] == "bytes" else MICRO
    blank = bool(_BLANK_SIDE.search(rest))
    further = _count_further(layout, len(columns))
    sides = _read_sides(words, columns, unit, one_side=one_side, blank=blank, further=further)
    if sides is None:
        return None
    return Row(
        size=int(found[1]),
        count=int(found[2]),
        dtype=found[3],
        redop=redop,
        root=root,
        sides=sides,
        at=stamp[0].strip() if stamp else "",
    )


def _side_columns(layout: tuple[str, ...] | None) -> tuple[str, ...]:
    """The columns of one side, from the header line; the second side has the same."""
    if layout is None:
        return _BASIC
    starts = [index for index, name in enumerate(layout) if name in _TIMES]
    end = starts[1] if len(starts) > 1 else len(layout)
    names = (name for name in layout[starts[0] : end] if name != "timestamp")
    return tuple("error" if name == "res" else name for name in names)


def _count_further(layout: tuple[str, ...] | None, width: int) -> int:
    """Return how many columns stand behind the second side, as rccl-tests' algorithm and protocol do.

    A timestamp is none of them: it is taken off a row beforehand.
    """
    starts = [index for index, name in enumerate(layout or ()) if name in _TIMES]
    if layout is None or len(starts) < 2:
        return 0
    named = sum(name != "timestamp" for name in layout[starts[1] :])
    return max(0, named - width)


def _read_sides(
    words: list[str],
    columns: tuple[str, ...],
    unit: float,
    *,
    one_side: bool,
    blank: bool,
    further: int,
) -> dict[bool, Side] | None:
    """Return the sides that were measured.

    `blank`: the out-of-place half was left empty; `further`: columns behind both sides.
    """
    width = len(columns)
    if len(words) == 2 * width + further and not one_side:
        halves = {False: words[:width], True: words[width : 2 * width]}
    elif len(words) == width and (one_side or blank):
        halves = {not one_side: words}
    else:
        return None
    sides = {
        in_place: _read_side(dict(zip(columns, half, strict=True)), unit)
        for in_place, half in halves.items()
    }
    if None in sides.values():
        return None
    return {in_place: side for in_place, side in sides.items() if isinstance(side, Side)}


def _read_side(words: dict[str, str], unit: float) -> Side | str | None:
    """The side; "absent" where its time is none; None where a figure cannot be read."""
    shown = words.get("time") or words.get("cputime") or ""
    if shown.lower() in ("nan", "n/a", "-nan"):
        return "absent"
    figures = [number(text) for text in (shown, words.get("algbw", ""), words.get("busbw", ""))]
    mark = words.get("#wrong", words.get("error", "N/A"))
    checked = number(mark)
    if None in figures or (checked is None and mark.upper() != "N/A"):
        return None
    time, algbw, busbw = (value or 0.0 for value in figures)
    return Side(
        time=time * unit,
        algbw=algbw * GIGA,
        busbw=busbw * GIGA,
        wrong=None if checked is None or "error" in words else int(checked),
        error=checked if "error" in words else None,
        time_step=_half_digit(shown) * unit,
        busbw_step=_half_digit(words["busbw"]) * GIGA,
        cpu="cputime" in words,
    )


def _half_digit(text: str) -> float:
    """Half of the last printed digit: 0.005 for `44.74`."""
    mantissa, _, power = text.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    exponent = int(power) if power.lstrip("+-").isdigit() else 0
    return float(0.5 * 10.0 ** (min(exponent, 20) - digits))


# Which environment variables of a foreign file are kept: few, and never a secret.

_KNOWN = re.compile(
    r"(NCCL|RCCL|GLOO|UCX|OMPI|FI|SHARP|TORCH|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_MAX_CONNECTIONS)"
    r"(_[A-Z0-9_]*)?"
)
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL|COOKIE|AUTH", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")


def keep_known(pairs: Iterable[object]) -> dict[str, str]:
    """The `K=V` texts that tell how communication was set up, without logins in addresses."""
    kept = {}
    for pair in pairs:
        name, found, value = str(pair).partition("=")
        if found and _KNOWN.fullmatch(name) and not _SECRET.search(name):
            kept[name] = _LOGIN.sub("***@", value)[:1000]
    return dict(sorted(kept.items()))


# The JSON that nccl-tests writes with `-J`, versions 1 to 3, with its quirks.
#
# Booleans are the texts "true" and "false", `okay` may be "unchecked", `root` is a padded text, NaN
# is the text "nan", `nwrong` may be null, a side that was not run is null, and `env` holds every
# variable, secrets too: of those only communication settings are kept. A file whose writer was
# killed is cut in the middle: its whole results are kept. Source: src/util.cu of NVIDIA/nccl-tests.

_SETTINGS = {
    "minimum_bytes": "minBytes",
    "maximum_bytes": "maxBytes",
    "warmup_iters": "warmup iters",
    "iterations": "iters",
    "aggregated_iterations": "agg iters",
    "validation": "validation",
    "graph": "graph",
}
_DECODER = json.JSONDecoder()
_ITER_STATS = ("p50_us", "min_us", "p95_us", "p99_us", "max_us")


def read_json_tables(text: str, *, source: str) -> list[Table]:
    """Return a table per document; InputError where one is no such file or has no results."""
    return [read_json(one, source=source) for one in _documents(text)]


def _documents(text: str) -> Iterator[str]:
    """Yield each of the documents that stand one after the other; the last may be cut."""
    at = 0
    while (start := text.find("{", at)) >= 0:
        try:
            _, at = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            at = len(text)
        yield text[start:at]


def read_json(text: str, *, source: str) -> Table:
    """The table; InputError where `text` is not such a file or has no results."""
    data, whole = _parse(text, source)
    if not isinstance(data, dict) or not isinstance(data.get("results"), list):
        raise InputError(
            f"{source}: JSON without a list `results`",
            expected="the JSON of nccl-tests -J, or of another tool that runs import --help names",
        )
    config = part(data, "config")
    table = Table(
        program=_first_text(data.get("args")),
        settings=_settings(config),
        blocking=config.get("blocking_collectives") in ("true", True),
        versions=_versions(data),
        environment=keep_known(_list(data.get("env"))),
        devices=[device for item in _list(config.get("devices")) if (device := _device(item))],
        complete=whole and "out_of_bounds" in data,
        out_of_bounds=_integer(part(data, "out_of_bounds").get("count")),
        errors=[str(error)[:500] for error in _list(data.get("errors")) if error],
        seconds=_seconds(data),
    )
    for item in data["results"]:
        row = _row(part(item))
        if row is None:
            table.damaged += 1
        else:
            table.rows.append(row)
    return table


def _parse(text: str, source: str) -> tuple[Any, bool]:
    """The document and whether it was whole; one that was cut is closed after its last result."""
    try:
        return jsontext.parse(text, source=source), True
    except InputError:
        closed = _close(text)
        if closed is None:
            raise
        return jsontext.parse(closed, source=source), False


def _close(text: str) -> str | None:
    """`text` up to the last whole object in a list of the outermost object, with its ends."""
    open_brackets: list[str] = []
    last, in_text, escaped = 0, False, False
    for index, letter in enumerate(text):
        if in_text:
            in_text = escaped or letter != '"'
            escaped = letter == "\\" and not escaped
        elif letter == '"':
            in_text = True
        elif letter in "{[":
            open_brackets.append(letter)
        elif letter in "}]":
            if not open_brackets:
                return None
            open_brackets.pop()
            if open_brackets == ["{", "["]:
                last = index + 1
    return text[:last] + "]}" if last else None


def _settings(config: Mapping[str, Any]) -> dict[str, int]:
    found = {name: _integer(config.get(key)) for key, name in _SETTINGS.items()}
    return {name: value for name, value in found.items() if value is not None}


def _versions(data: Mapping[str, Any]) -> dict[str, str]:
    """NCCL writes 2.27.3 as 22703."""
    number = _integer(data.get("nccl_version"))
    if not number or number < 10_000:
        return {}
    return {"nccl": f"{number // 10_000}.{number // 100 % 100}.{number % 100}"}


def _device(item: Any) -> Device | None:
    fields = part(item)
    rank, host = _integer(fields.get("rank")), fields.get("hostname")
    if rank is None or not isinstance(host, str):
        return None
    return Device(
        rank=rank,
        group=_integer(fields.get("group")) or 0,
        host=host.strip(),
        index=_integer(fields.get("device")) or 0,
        bus=str(fields.get("device_hex", "")),
        name=str(fields.get("device_info", "")).strip(),
        process=_integer(fields.get("pid")) or 0,
    )


def _row(item: Mapping[str, Any]) -> Row | None:
    size, count = _integer(item.get("size")), _integer(item.get("count"))
    if size is None or count is None or not isinstance(item.get("type"), str):
        return None
    sides = {}
    for in_place, key in ((False, "out_of_place"), (True, "in_place")):
        side = _side(part(item, key), part(item, f"{key}_per_iter"))
        if side is not None:
            sides[in_place] = side
    root = _integer(item.get("root"), least=-1)
    return Row(
        size=size,
        count=count,
        dtype=item["type"],
        redop=str(item.get("redop") or ""),
        root=root,
        sides=sides,
        iterations=_integer(item.get("actual_iterations")),
    )


def _side(fields: Mapping[str, Any], per_iteration: Mapping[str, Any]) -> Side | None:
    time = number(fields.get("time", fields.get("cpu_time")))
    algbw, busbw = number(fields.get("alg_bw")), number(fields.get("bus_bw"))
    if time is None or algbw is None or busbw is None:
        return None
    return Side(
        time=time * MICRO,
        algbw=algbw * GIGA,
        busbw=busbw * GIGA,
        wrong=_integer(fields.get("nwrong")),
        stats=_stats(per_iteration),
        cpu="cpu_time" in fields and "time" not in fields,
        processes=_processes(per_iteration),
        time_step=0.5e-6 * MICRO,
        busbw_step=0.5e-6 * GIGA,
    )


def _stats(fields: Mapping[str, Any]) -> TimeStats | None:
    """Of the per-iteration report; the interval of the median and the mean from its times."""
    numbers = [number(fields.get(name)) for name in _ITER_STATS]
    times = [t * MICRO for item in _list(fields.get("times_us")) if (t := number(item)) is not None]
    if None in numbers or not times:
        return None
    median, least, p95, p99, most = ((one or 0.0) * MICRO for one in numbers)
    interval = median_interval(times)
    return TimeStats(
        median=median,
        mean=fmean(times),
        low=min(interval.low, median),
        high=max(interval.high, median),
        min=least,
        p95=p95,
        p99=p99,
        max=most,
    )


def _processes(fields: Mapping[str, Any]) -> tuple[tuple[float, ...], ...]:
    """Return the times of each process, its slowest thread's in each iteration."""
    told = _list(fields.get("per_process_max_times_us"))
    times = [[number(item) for item in _list(one)] for one in told]
    whole = all(one and None not in one for one in times)
    return tuple(tuple((t or 0.0) * MICRO for t in one) for one in times) if whole else ()


def _seconds(data: Mapping[str, Any]) -> float:
    """From `start_time` to `end_time`; 0 where they are not both there."""
    try:
        start, end = (datetime.fromisoformat(str(data[k])) for k in ("start_time", "end_time"))
        return max(0.0, (end - start).total_seconds())
    except (KeyError, ValueError, TypeError):
        return 0.0


def _integer(value: object, *, least: int = 0) -> int | None:
    if isinstance(value, str) and value.strip() == "-1" and least < 0:
        return -1
    if value == -1 and least < 0 and not isinstance(value, bool):
        return -1
    found = number(value)
    return int(found) if found is not None else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _first_text(value: object) -> str:
    items = _list(value)
    return str(items[0]).rpartition("/")[2] if items else ""
