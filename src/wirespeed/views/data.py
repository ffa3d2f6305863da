"""Formats for programs: JSON, JSON lines, CSV."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

from wirespeed.escaping import unformulated
from wirespeed.model.codec import to_json
from wirespeed.model.records import Run
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
    data: dict[str, Any] = _plain(to_json(run))
    return data


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is str and value.isascii():
        return value
    if kind is float and math.isfinite(value):
        return value
    if isinstance(value, (dict, Mapping)):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value).encode("utf-8", "replace").decode()


_LISTS = {
    "measurements": "measurement",
    "verifications": "verification",
    "findings": "finding",
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
    if goodput := data.get("goodput"):
        return [_lasted(goodput)]
    if data.get("soak", {}).get("windows"):
        return list(_soaked(data["soak"]))
    if data.get("training"):
        return list(data["training"])
    return _graded(data) or list(data["findings"])


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
