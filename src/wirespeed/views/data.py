"""Formats for programs: JSON, JSON lines, CSV, and the table that nccl-tests prints."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.errors import unformulated
from wirespeed.model.codec import plain, to_json
from wirespeed.model.records import Measurement, NodeFacts, Run
from wirespeed.model.units import GIGA
from wirespeed.statistics import LEAST_SAMPLES, lacks_samples
from wirespeed.views.text import Style

_INDENT = "  "


def render_json(run: Run, style: Style) -> str:
    quoted = encode_basestring_ascii if style.ascii else encode_basestring
    return _text(document(run), quoted, "\n") + "\n"


def _text(value: Any, quoted: Callable[[str], str], margin: str) -> str:
    """What `json.dumps(value, indent=2)` writes of plain values.

    With an indent the package's encoder is one generator a value: 50 MB of a run of 10,000 ranks take
    it three times as long. margin: a line end and the indent of the value.
    """
    kind = type(value)
    if kind is str:
        return quoted(value)
    if kind is float or kind is int:
        return repr(value)
    if not value or kind not in (dict, list):
        return json.dumps(value)
    inner = margin + _INDENT
    if kind is dict:
        parts = [f"{quoted(key)}: {_text(item, quoted, inner)}" for key, item in value.items()]
        return "{" + inner + f",{inner}".join(parts) + margin + "}"
    parts = [_text(item, quoted, inner) for item in value]
    return "[" + inner + f",{inner}".join(parts) + margin + "]"


def document(run: Run) -> dict[str, Any]:
    """The run's JSON; odd values among its settings (infinity, a path) become text."""
    data: dict[str, Any] = plain(to_json(run))
    return data


_LISTS = {
    "measurements": "measurement",
    "verifications": "verification",
    "findings": "finding",
    "figures": "figure",
    "training": "training",
    "under_load": "load",
}


def render_jsonl(run: Run, style: Style) -> str:
    return "".join(json.dumps(line, ensure_ascii=style.ascii) + "\n" for line in _lines(run))


def _lines(run: Run) -> Iterator[dict[str, Any]]:
    """Each item with the run's id, so that lines of several runs may be put together."""
    data = document(run)
    for name, kind in _LISTS.items():
        for item in data.pop(name, ()):
            yield {"kind": kind, "run": run.id, **item}
    yield {"kind": "run", **data}


_UNITS = ("_GBps", "_us")
_SAME = ("op", "engine", "dtype", "redop", "in_place", "size_bytes", "ranks")
"""What a measurement and the figure that it was graded against have in common."""


def render_csv(run: Run, style: Style) -> str:
    return render_all([run], style)


def render_all(runs: Sequence[Run], _: Style) -> str:
    """The rows of all runs under the columns of all; the first column says whose a row is."""
    rows = [(run.id, _flat(row)) for run in runs for row in _rows(document(_told(run)))]
    columns = list(dict.fromkeys(name for _, row in rows for name in row))
    return _cell_text(
        ["run", *columns], ([id, *(row.get(c, "") for c in columns)] for id, row in rows)
    )


def _told(run: Run) -> Run:
    """Without what no row tells: of 10,000 ranks nodes and pairs are nearly all of the run."""
    world = replace(run.world, nodes=())
    return replace(run, world=world, located=None, verifications=())


def _rows(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the run is about: strategies, else measurements, else (of logs and facts) findings."""
    if watched := data.get("watched"):
        return list(_of_job(watched))
    if goodput := data.get("goodput"):
        return [_lasted(goodput)]
    if data.get("soak", {}).get("windows"):
        return list(_soaked(data["soak"]))
    if (rates := data.get("compute", {}).get("rates")) and not data["measurements"]:
        return list(rates)
    if data.get("training"):
        return list(data["training"])
    return [*_graded(data), *data.get("figures", ())] or list(data["findings"])


def _of_job(watched: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row of the job as a whole, then one a window, a change, and a collective of a group."""
    rows = {"windows": "window", "changes": "change", "traffic": "traffic"}
    yield {"row": "job", **{name: one for name, one in watched.items() if name not in rows}}
    for name, kind in rows.items():
        yield from ({"row": kind, **one} for one in watched.get(name, ()))


def _lasted(goodput: Mapping[str, Any]) -> dict[str, Any]:
    """Training that lasted, with its ratio; what went wrong meanwhile is counted in it, not listed."""
    wall, useful = goodput["wall_s"], goodput["parts_s"].get("useful", 0.0)
    rest = {name: value for name, value in goodput.items() if name != "incidents"}
    return {"goodput_ratio": useful / wall if wall > 0 else 0.0, **rest}


def _soaked(soak: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each operation of each window, then one for each incident."""
    for window in soak["windows"]:
        when = {name: window[name] for name in ("since_s", "seconds", "world")}
        yield from ({"row": "operation", **when, **cell} for cell in window["cells"])
    yield from ({"row": "incident", **incident} for incident in soak["incidents"])


def _graded(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The measurements, each with what it was graded against, in columns by the kind of that."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for reference in (one for told in data["findings"] for one in told.get("references", ())):
        own = found.setdefault(_what(reference), {})
        figures = {k: v for k, v in reference.items() if k == "source" or k.endswith(_UNITS)}
        own[f"graded_{reference['kind']}"] = own.get(f"graded_{reference['kind']}", {}) | figures
    return [m | found.get(_what(m), {}) for m in data["measurements"]]


def _what(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(one[name] for name in _SAME)


def _flat(row: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """`{"step_ms": {"mean": 1}}` as `{"step_ms.mean": 1}`; lists with spaces between their items."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{above}{name}.")
        elif isinstance(value, list):
            flat[f"{above}{name}"] = " ".join(map(str, value))
        else:
            flat[f"{above}{name}"] = value
    return flat


def _cell_text(columns: list[str], rows: Iterable[list[Any]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(_cell, columns))
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return unformulated(value)
    return "" if value is None else value


# The layout of nccl-tests, for the parsers that people already have.
#
# One section an operation: its settings, the device lines, rows of 13 columns (out-of-place, then
# in-place), the closing lines. Widths are those of src/util.cu in NVIDIA/nccl-tests 2.18. What that
# tool would never print:
#
# - a side that was not measured has `nan` for its figures, which number parsers take for a missing
#   value, and `N/A` in `#wrong`;
# - `time` is our median, not an average;
# - device names other than GPUs' where there are none.

_DTYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
}
_MICRO = 1e6
_NONE = "nan"

_SIDE = ("time", "algbw", "busbw", "#wrong")
_HEADS = ("(us)", "(GB/s)", "(GB/s)", "")


def render_nccl_tests(run: Run, style: Style) -> str:
    # Its table has no place for compared settings: the default's figures stand here.
    sections = [
        _section(run, rows) for rows in _tables([m for m in run.measurements if not m.setting])
    ]
    if not sections:
        return f"# no measurements in run {style.text(run.id)}\n"
    return "\n".join(style.text(line) for section in sections for line in section) + "\n"


def _tables(measurements: Sequence[Measurement]) -> list[list[Measurement]]:
    """One table an operation and way of measuring; dtypes and roots share it, as with `-d all`."""
    tables: dict[tuple[object, ...], list[Measurement]] = {}
    for m in measurements:
        how = (m.op, m.engine, m.ranks, m.groups, m.timing, m.blocking, m.in_flight)
        tables.setdefault(how, []).append(m)
    return list(tables.values())


def _nccl_rows(measurements: Sequence[Measurement]) -> list[dict[bool, Measurement]]:
    """Of one configuration out-of-place and in-place, by `in_place`; in the order measured."""
    rows: dict[tuple[object, ...], dict[bool, Measurement]] = {}
    for m in measurements:
        key: tuple[object, ...] = (m.size_bytes, m.count, m.dtype, m.redop, m.root)
        while m.in_place in rows.get(key, ()):  # measured twice: a line of its own
            key = (*key, "again")
        rows.setdefault(key, {})[m.in_place] = m
    return list(rows.values())


def _section(run: Run, measurements: Sequence[Measurement]) -> list[str]:
    op = measurements[0].op
    program = f"{(op in CATALOGUE and CATALOGUE[op].program) or op}_perf"
    return [
        f"# Collective test starting: {program}",
        _settings(measurements),
        *_remarks(run, measurements),
        "#",
        "# Using devices",
        *_devices(run.world.nodes, measurements[0].groups),
        "#",
        *_titles(),
        *(_line(row) for row in _nccl_rows(measurements)),
        *_closing(measurements),
        "#",
        f"# Collective test concluded: {program}",
    ]


def _settings(measurements: Sequence[Measurement]) -> str:
    sizes = sorted({m.size_bytes for m in measurements})
    checked = int(any(m.wrong is not None for m in measurements))
    least = min(measurements, key=lambda m: m.iterations)
    graph = int(least.timing == "graph")
    return (
        f"# nThread 1 nGpus 1 minBytes {sizes[0]} maxBytes {sizes[-1]} step: {_step(sizes)} "
        f"warmup iters: {least.warmup} iters: {least.iterations} agg iters: {least.in_flight} "
        f"validation: {checked} graph: {graph}"
    )


def _step(sizes: Sequence[int]) -> str:
    """`4(factor)` or `1048576(bytes)`, as nccl-tests says it; the first step where they differ."""
    if len(sizes) < 2:
        return "2(factor)"
    pairs = list(pairwise(sizes))
    steps = {high - low for low, high in pairs}
    if len(steps) == 1 and len(pairs) > 1:
        return f"{steps.pop()}(bytes)"
    return f"{max(2, round(pairs[0][1] / pairs[0][0])) if pairs[0][0] else 2}(factor)"


def _remarks(run: Run, measurements: Sequence[Measurement]) -> Iterator[str]:
    least, most = (pick(m.iterations for m in measurements) for pick in (min, max))
    if measurements[0].engine == "nccl-tests":
        yield f"# imported by wirespeed, run {run.id}"
    else:
        yield f"# printed by wirespeed, run {run.id}: time is the median over the iterations"
    if least != most:
        yield f"# each size was timed until its interval was narrow: {least} to {most} iterations"
    if any(lacks_samples(m.samples) for m in measurements):
        yield f"# no interval where a size has fewer than {LEAST_SAMPLES} iterations"
    if measurements[0].blocking and measurements[0].engine != "nccl-tests":
        yield "# Blocking Enabled: wait for completion and barrier after each collective "


def _devices(nodes: Sequence[NodeFacts], groups: str) -> Iterator[str]:
    places = sorted(
        (rank, index, number)
        for number, node in enumerate(nodes)
        for index, rank in enumerate(node.ranks)
    )
    for rank, index, number in places:
        node = nodes[number]
        gpu = node.gpus[index] if index < len(node.gpus) else {}
        bus = str(gpu.get("bus") or gpu.get("pci") or gpu.get("pci.bus_id") or "0000:00:00")
        name = str(gpu.get("name") or node.facts.cpu_model or "CPU")
        group = _group(groups, rank, index, number)
        yield (
            f"#  Rank {rank:2d} Group {group:2d} Pid {0:6d} on {node.host:>10} "
            f"device {index:2d} [{bus}] {name}"
        )


def _group(groups: str, rank: int, index: int, node: int) -> int:
    """The number of the group that a rank is in."""
    if groups == "nodes":
        return node
    if groups == "rails":
        return index
    if groups == "pairs":
        return rank // 2
    every = groups.removeprefix("every-")
    return rank % int(every) if every != groups and every.isdigit() and int(every) else 0


def _titles() -> Iterator[str]:
    blank = _left("", "", "", "", "")
    yield f"{blank}           out-of-place                       in-place          "
    yield _left("size", "count", "type", "redop", "root") + _sides(_SIDE) + " "
    yield _left("(B)", "(elements)", "", "", "") + _sides(_HEADS) + " "


def _left(size: str, count: str, dtype: str, redop: str, root: str) -> str:
    return f"# {size:>10}  {count:>12}  {dtype:>8}  {redop:>6}  {root:>6}"


def _sides(cells: Sequence[str]) -> str:
    time, algbw, busbw, wrong = cells
    return f"  {time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>6}" * 2


def _line(row: Mapping[bool, Measurement]) -> str:
    m = next(iter(row.values()))
    dtype = _DTYPES.get(m.dtype, m.dtype)
    left = f"{m.size_bytes:12d}  {m.count:12d}  {dtype:>8}  {m.redop:>6}  {m.root:6d}"
    return left + _side(row.get(False)) + _side(row.get(True))


def _side(m: Measurement | None) -> str:
    if m is None:
        return f"  {_NONE:>7}  {_NONE:>6}  {_NONE:>6}  {'N/A':>6}"
    wrong = "N/A" if m.wrong is None else f"{m.wrong:g}"
    rates = f"{_figure(m.algbw / GIGA, 6)}  {_figure(m.busbw / GIGA, 6)}"
    return f"  {_figure(m.time.median * _MICRO, 7)}  {rates}  {wrong:>6}"


def _figure(value: float, width: int) -> str:
    """As many of two decimals as fit; an exponent for what is wider still."""
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.1e}" if width >= 7 else f"{value:{width}.0e}"


def _closing(measurements: Sequence[Measurement]) -> Iterator[str]:
    wrong = sum(m.wrong or 0 for m in measurements)
    average = sum(m.busbw for m in measurements) / len(measurements) / GIGA
    yield f"# {'Out of bounds values':<20} : {wrong} {'FAILED' if wrong else 'OK'}"
    yield f"# {'Avg bus bandwidth':<20} : {average:g} "
