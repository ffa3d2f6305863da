"""Figures of copies, network cards and messages held against what their links allow: text and JSON."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TextIO

from wirespeed.cli.options import told_by
from wirespeed.cli.page import table_lines
from wirespeed.cli.reference_answers import WORDS
from wirespeed.model.units import GIGA, format_size
from wirespeed.reference.ask import IMPOSSIBLE
from wirespeed.reference.figures import INTERCONNECTS
from wirespeed.reference.shape import Shape, shape_told
from wirespeed.reference.transfers import (
    Row,
    Transfer,
    TransferAnswer,
    ask_transfer,
    shown,
    size_of,
    value_of,
)
from wirespeed.views.text import Style, style_for


def answer_transfer(test: Transfer, size: str | None, options: dict[str, Any]) -> TransferAnswer:
    """Return the answer for the figure that was typed."""
    value = value_of(test, options["busbw"], options["time"])
    return ask_transfer(test, _shape(options), size_of(size), value)


def _shape(options: dict[str, Any]) -> Shape:
    stated = told_by(options)
    gpu = stated.gpu if stated else ""
    return shape_told(
        gpu,
        per_node=(stated.gpus_per_node if stated else 0) or 2,
        nodes=(stated.nodes if stated else 0) or 1,
        interconnect=stated.interconnect if stated else "",
        nics=(stated.nics if stated else 0) or None,
        nic_Gbitps=(stated.nic_Gbitps if stated else 0.0) or None,
    )


def transfer_text(answer: TransferAnswer, stream: TextIO) -> str:
    """Return the verdict, the limit, what is expected, what others got, and what would decide."""
    style = style_for(stream)
    word, color = WORDS[answer.place]
    if answer.is_time and answer.place == "low":
        word = "SLOW"
    size = f" {format_size(answer.size_bytes)}" if answer.size_bytes else ""
    first = f"  {answer.test.name}{size}, {shown(answer.value, answer.is_time)}{_on(answer.shape)}"
    lines = [style.paint(word, color) + style.text(first)]
    lines += [_wrapped(label, text, style) for label, text in _lines(answer)]
    return "\n".join(lines)


def _on(shape: Shape) -> str:
    over = f" of {shape.nic_Gbitps:g} Gbit/s" if shape.nic_Gbitps else ""
    return f" on {shape.gpu}{over}" if shape.gpu else over


def _lines(answer: TransferAnswer) -> list[tuple[str, str]]:
    lines = []
    if answer.limit is not None:
        share = answer.value / answer.limit
        lines.append(
            ("limit", f"{shown(answer.limit, False)}: {answer.link}; this is {share:.3g} of it")
        )
    if answer.expected is not None:
        low, usual, high = (shown(row, answer.is_time) for row in answer.expected)
        share = answer.value / answer.expected[1]
        lines.append(
            ("expected", f"{usual} ({low} … {high}): {answer.basis}; this is {share:.2f} of it")
        )
    if answer.place == "impossible":
        lines.append(("above it", IMPOSSIBLE))
    lines += [("" if n else "published", row.words) for n, row in enumerate(answer.published)]
    lines += [("" if n else "tell", text) for n, text in enumerate(answer.missing)]
    return lines


def _wrapped(label: str, text: str, style: Style) -> str:
    indent = f"  {label:<9} "
    lines = textwrap.wrap(
        style.text(text), style.width, initial_indent=indent, subsequent_indent=" " * len(indent),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join(lines)


def transfers_table(rows: Sequence[Row]) -> str:
    """Return published figures as a table; a line that says so where there is none."""
    if not rows:
        return "no figures"
    titles = ("system", "test", "GPU", "over", "size", "value", "kind", "source")
    cells = [
        [
            row.system,
            row.test,
            row.gpu,
            _card(row),
            row.size,
            shown(row.base, row.unit == "us"),
            row.kind,
            row.dated,
        ]
        for row in rows
    ]
    return "\n".join(table_lines(titles, cells, ("size", "value")))


def _card(row: Row) -> str:
    over = INTERCONNECTS.get(row.interconnect, "")
    return f"{over} {row.card_Gbitps:g} Gbit/s".strip() if row.card_Gbitps else over


def transfers_json(rows: Sequence[Row]) -> str:
    """Return published figures as JSON."""
    return json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False)


def transfer_json(answer: TransferAnswer) -> str:
    """Return the answer as JSON: rates in GB/s, times in microseconds."""
    unit, scale = ("us", 1e6) if answer.is_time else ("GBps", 1 / GIGA)
    expected = answer.expected and {
        "usual": answer.expected[1] * scale,
        "range": [answer.expected[0] * scale, answer.expected[2] * scale],
        "basis": answer.basis,
    }
    data = {
        "verdict": answer.place,
        "test": answer.test.name,
        "size_bytes": answer.size_bytes or None,
        "value": answer.value * scale,
        "unit": unit,
        "limit": answer.limit and {"value": answer.limit * scale, "link": answer.link},
        "expected": expected,
        "published": [asdict(row) for row in answer.published],
        "missing": list(answer.missing),
    }
    return json.dumps(data, indent=2, ensure_ascii=False)
