"""A comparison as table, Markdown or JSON."""

import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from wirespeed.errors import UsageError
from wirespeed.harmless import escaped
from wirespeed.records_comparison import CompareVerdict, Comparison, Row, Versus
from wirespeed.units import GIGA
from wirespeed.views import comparing
from wirespeed.views.grid import Column, Grid
from wirespeed.views.markdown import escape, table
from wirespeed.views.style import Style

__all__ = ["FORMATS", "document", "render", "versus_grid"]

FORMATS = ("table", "md", "json")
SCHEMA = "wirespeed.comparison/1"

_COLORS: dict[CompareVerdict, str] = {
    "WORSE": "red",
    "wrong data": "red",
    "better": "green",
    "not enough runs": "yellow",
}
_CONCLUSIONS = {"REGRESSION": "red", "WRONG DATA": "red", "NO REGRESSION": "green"}
_US = 1e6


def render(comparison: Comparison, format: str, style: Style) -> str:
    """Text that ends in a line end; UsageError for a format that there is not."""
    if format == "json":
        return escaped(json.dumps(document(comparison), indent=2, ensure_ascii=style.ascii)) + "\n"
    if format == "md":
        return _markdown(comparison, Style(ascii=style.ascii, verbose=style.verbose))
    if format == "table":
        return _table(comparison, style)
    raise UsageError(f"unknown output format {format!r}", expected=", ".join(FORMATS))


def _table(comparison: Comparison, style: Style) -> str:
    lines: list[str] = []
    for one in comparison.versus:
        lines += _wrapped(comparing.changed_line(one), style)
        for rows in comparing.by_kind(one.rows):
            how, varying = comparing.common_words([row.what for row in rows])
            lines.append(style.paint(style.text(how), "dim"))
            lines += versus_grid(replace(one, rows=tuple(rows)), varying).lines(style)
        said = comparing.unpaired_line(one.unpaired, one.before.name, one.after.name)
        lines += [style.paint(line, "dim") for line in _wrapped(said, style)]
        lines.append("")
    for note in (*comparing.evidence(comparison), comparing.advice(comparison)):
        lines += [style.paint(line, "dim") for line in _wrapped(note, style)]
    word = comparing.conclusion(comparison)
    painted = style.paint(style.paint(word, _CONCLUSIONS.get(word, "yellow")), "bold")
    lines.append(f"{painted}  {comparing.counts(comparison)}   exit {comparison.exit_code}")
    return "\n".join(lines) + "\n"


def _wrapped(text: str, style: Style) -> list[str]:
    return textwrap.wrap(style.text(text), style.width, break_on_hyphens=False)


def versus_grid(one: Versus, varying: list[str]) -> Grid:
    """A row a figure; varying: names of the fields that are not alike in all rows."""
    names = (one.before.name, one.after.name, "change", "95 % interval", "runs", "n")
    grid = Grid((Column("", left=True), *map(Column, names), Column("verdict", left=True)))
    for row in one.rows:
        if color := _COLORS.get(row.verdict):
            grid.painted[len(grid.rows), len(names) + 1] = color
        grid.add(*_cells(row, varying))
    return grid


def _cells(row: Row, varying: list[str]) -> list[str]:
    rate = comparing.by_rate(row.what, row.busbw_before, row.busbw_after)
    return [
        comparing.label(row.what, varying, rate=rate),
        *comparing.values(row),
        comparing.change(row.ratio, rate=rate),
        comparing.interval(row.low, row.high, rate=rate),
        f"{row.runs[0]}+{row.runs[1]}",
        f"{row.samples[0]}+{row.samples[1]}" if any(row.samples) else "–",
        row.verdict,
    ]


def _markdown(comparison: Comparison, style: Style) -> str:
    blocks = [[f"## {comparing.conclusion(comparison)}", "", comparing.counts(comparison)]]
    for one in comparison.versus:
        blocks.append([escape(comparing.changed_line(one), style)])
        blocks += [_markdown_rows(one, rows, style) for rows in comparing.by_kind(one.rows)]
        if said := comparing.unpaired_line(one.unpaired, one.before.name, one.after.name):
            blocks.append([escape(said, style)])
    notes = [*comparing.evidence(comparison), comparing.advice(comparison)]
    blocks.append([f"- {escape(note, style)}" for note in notes if note])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _markdown_rows(one: Versus, alike: Sequence[Row], style: Style) -> list[str]:
    how, varying = comparing.common_words([row.what for row in alike])
    names = [escape(side.name, style) for side in (one.before, one.after)]
    right = [*names, "change", "95 % interval", "runs", "n"]
    rows = [[escape(cell, style) for cell in _cells(row, varying)] for row in alike]
    for row, cells in zip(alike, rows, strict=True):
        cells[-1] = f"**{cells[-1]}**" if _COLORS.get(row.verdict) == "red" else cells[-1]
    return [escape(how, style), "", *table(["measured", *right, "verdict"], rows, right)]


def document(comparison: Comparison) -> dict[str, Any]:
    """As JSON: times in µs, bandwidths in GB/s, ratios of times (above 1 is slower, less goodput)."""
    return {
        "schema": SCHEMA,
        "conclusion": comparing.conclusion(comparison),
        "exit_code": comparison.exit_code,
        "fail_on": comparison.fail_on,
        "versus": [_versus(one) for one in comparison.versus],
    }


def _versus(one: Versus) -> dict[str, Any]:
    return {
        "before": asdict(one.before),
        "after": asdict(one.after),
        "differences": [asdict(difference) for difference in one.differences],
        "alike": list(one.alike),
        "not_recorded": list(one.unknown),
        "unpaired": asdict(one.unpaired),
        "rows": [_row(row) for row in one.rows],
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "kind": row.what.kind,
        "measured": dict(row.what.fields),
        **_figures(row),
        "ratio": row.ratio,
        "low": row.low if math.isfinite(row.high) else None,
        "high": row.high if math.isfinite(row.high) else None,
        "p": row.p,
        "adjusted_p": row.adjusted_p,
        "runs": list(row.runs),
        "samples": list(row.samples),
        "noise": row.noise if math.isfinite(row.noise) else None,
        "noise_from": row.noise_from,
        "verdict": row.verdict,
        "runs_needed": row.runs_needed or None,
    }


def _figures(row: Row) -> dict[str, float]:
    if row.what.is_ratio:
        return {"goodput_before": 1 / row.before, "goodput_after": 1 / row.after}
    return {
        "time_before_us": row.before * _US,
        "time_after_us": row.after * _US,
        "busbw_before_GBps": row.busbw_before / GIGA,
        "busbw_after_GBps": row.busbw_after / GIGA,
    }
