"""Comma-separated values (RFC 4180, bare line feeds): a row a measurement, strategy or finding.

Names of columns carry their units, as in JSON. A cell that a spreadsheet would take for a formula
gets an apostrophe in front.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from wirespeed.records import Run
from wirespeed.views.json_view import document
from wirespeed.views.style import Style

__all__ = ["render", "render_all"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


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
    if "goodput" in data:
        return [{name: v for name, v in data["goodput"].items() if name != "incidents"}]
    rows: list[dict[str, Any]] = data.get("training") or data["measurements"] or data["findings"]
    return rows


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
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value
