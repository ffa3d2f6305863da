"""Comma-separated values (RFC 4180, bare line feeds): a row a measurement, strategy or finding;
of a soak a row an operation of a window, then a row an incident.

Names of columns carry their units, as in JSON. A cell that a spreadsheet would take for a formula
gets an apostrophe in front.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from wirespeed.harmless import unformulated
from wirespeed.records import Run
from wirespeed.views.json_view import document
from wirespeed.views.style import Style

__all__ = ["render", "render_all"]

_UNITS = ("_GBps", "_us")
_SAME = ("op", "engine", "dtype", "redop", "in_place", "size_bytes", "ranks")
"""What a measurement and the figure that it was graded against have in common."""


def render(run: Run, style: Style) -> str:
    return render_all([run], style)


def render_all(runs: Sequence[Run], _: Style) -> str:
    """The rows of all runs under the columns of all; the first column says whose a row is."""
    rows = [(run.id, _flat(row)) for run in runs for row in _rows(document(_told(run)))]
    columns = list(dict.fromkeys(name for _, row in rows for name in row))
    return _text(["run", *columns], ([id, *(row.get(c, "") for c in columns)] for id, row in rows))


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


def _text(columns: list[str], rows: Iterable[list[Any]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(_cell, columns))
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return unformulated(value)
    return "" if value is None else value
