"""Figures and answers of `wirespeed reference` as text and JSON."""

import json
from collections.abc import Sequence
from typing import Any, TextIO

from wirespeed.model.units import GIGA, format_bandwidth, format_duration, format_size
from wirespeed.reference import ASSUMED_SPREAD, ORIGINS, Expectation
from wirespeed.reference.ask import Answer, Asked
from wirespeed.reference.figures import INTERCONNECTS, Figure
from wirespeed.reference.roofline import share
from wirespeed.views.text import Column, Grid, Style, style_for

_US = 1e6
_WORDS = {
    "low": ("LOW", "red"),
    "normal": ("NORMAL", "green"),
    "high": ("HIGH", "yellow"),
    "unknown": ("UNKNOWN", "yellow"),
}
_MOST_KNOWN = 4


def figures_table(figures: Sequence[Figure], stream: TextIO) -> str:
    left = ("set", "system", "GPU", "over", "switch", "collective", "kind", "source")
    right = ("a node", "nodes", "size", "busbw", "time")
    order = (*left[:3], *right[:2], *left[3:6], *right[2:], *left[6:])
    grid = Grid(tuple(Column(name, left=name in left) for name in order))
    for one in figures:
        cards = f" {one.nics}×{one.nic_Gbitps:g}G" if one.nics and one.nic_Gbitps else ""
        grid.add(
            *(one.name, one.system, one.gpu or "any"),
            *(str(one.gpus_per_node or "any"), str(one.nodes or "any")),
            *(INTERCONNECTS[one.interconnect] + cards, one.switch, one.collective),
            "peak" if one.size_bytes is None else format_size(one.size_bytes),
            format_bandwidth(one.busbw) if one.busbw else "",
            format_duration(one.time_s) if one.time_s else "",
            *(one.kind, one.dated),
        )
    return "\n".join(grid.lines(style_for(stream)))


def figures_json(figures: Sequence[Figure]) -> str:
    return json.dumps([_figure(one) for one in figures], indent=2, ensure_ascii=False)


def _figure(one: Figure) -> dict[str, Any]:
    return {
        **{n: getattr(one, n) for n in ("name", "system", "gpu", "gpus_per_node", "nodes")},
        **{n: getattr(one, n) for n in ("interconnect", "nics", "nic_Gbitps", "switch")},
        "collective": one.collective,
        "size_bytes": one.size_bytes,
        "busbw_GBps": one.busbw and one.busbw / GIGA,
        "busbw_range_GBps": _scaled(one.busbw_range, 1 / GIGA),
        "time_us": one.time_s and one.time_s * _US,
        "time_range_us": _scaled(one.time_range, _US),
        **{n: getattr(one, n) for n in ("kind", "source", "published", "read")},
    }


def _scaled(ends: tuple[float, float] | None, scale: float) -> list[float] | None:
    return [end * scale for end in ends] if ends else None


def answer_text(answer: Answer, stream: TextIO) -> str:
    """The verdict first, then figure, spread, sources, limit, reasons, next command."""
    style = style_for(stream)
    return "\n".join(_wrapped(label, text, style) for label, text in _lines(answer, style))


def _wrapped(label: str, text: str, style: Style) -> str:
    if not label:
        return text
    import textwrap

    indent = f"  {label:<9} "
    lines = textwrap.wrap(
        style.text(text), style.width, initial_indent=indent, subsequent_indent=" " * len(indent),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join(lines)


def _lines(answer: Answer, style: Style) -> list[tuple[str, str]]:
    word, color = _WORDS[answer.place]
    asked = f"{answer.op} {format_size(answer.figure.size_bytes)}, {_asked(answer.figure)}"
    lines = [("", style.paint(word, color) + style.text(f"  {asked} on {answer.shape.words}"))]
    lines += _expected(answer)
    if answer.limit is not None:
        lines.append(("limit", share(answer.figure.busbw, answer.limit)))
    if answer.above:
        lines.append(("above it", answer.above))
    lines += [
        ("likeliest" if n == 1 else "", f"{n}. {one}") for n, one in enumerate(answer.reasons, 1)
    ]
    lines.append(("next", _next(answer)))
    return [
        (label or " ", text) if index else (label, text)
        for index, (label, text) in enumerate(lines)
    ]


def _asked(figure: Asked) -> str:
    told = f"{format_bandwidth(figure.busbw)} busbw"
    if figure.busbw_range is None:
        return f"{told} (told without an interval)"
    low, high = map(format_bandwidth, figure.busbw_range)
    return f"{told} ({low} … {high}, n={figure.iterations})"


def _expected(answer: Answer) -> list[tuple[str, str]]:
    found = answer.expectation
    if answer.figure.too_wide:
        return [("because", "its 95 % interval is wider than ±50 %, so it supports no verdict")]
    if found is None or not found.busbw:
        lines = [("because", "no figure is known for such nodes, this operation and size")]
        known = [_short(one) for one in answer.known[:_MOST_KNOWN]]
        return lines + [("known" if n == 0 else "", text) for n, text in enumerate(known)]
    ends = found.busbw_range
    spread = "one figure of another size, so its spread is not known"
    if answer.beside:
        spread = _assumed(found.busbw, answer.beside)
    if ends:
        own = found.samples == 1 and found.origin != "reference"
        among = "its 95 % interval" if own else "among them"
        spread = f"{format_bandwidth(ends[0])} … {format_bandwidth(ends[1])}, {among}"
    gate = f"; below {format_bandwidth(found.gate)} the source warns" if found.gate else ""
    lines = [
        (
            "expected",
            f"{format_bandwidth(found.busbw)}: this is {answer.share or 0:.2f} of {_it(found)}",
        ),
        ("spread", f"{spread}{gate}"),
        ("from", f"{ORIGINS[found.origin]}: {found.source}"),
    ]
    return lines + [("figures" if n == 0 else "", note) for n, note in enumerate(found.notes)]


def _it(found: Expectation) -> str:
    return "the only known figure" if found.lone else "it"


def _assumed(busbw: float, beside: str) -> str:
    low, high = (format_bandwidth(busbw * (1 + sign * ASSUMED_SPREAD)) for sign in (-1, 1))
    where = {"near": "within it", "below": "below it", "above": "above it"}[beside]
    return (
        f"±{ASSUMED_SPREAD * 100:.0f} % assumed of a lone figure ({low} … {high}): this is {where}"
    )


def verdict_line(answer: Answer, style: Style) -> str:
    """`NORMAL  all_reduce 1 GiB: 1.00 of 45.4 GB/s, the only known figure (source)`."""
    word, color = _WORDS[answer.place]
    found = answer.expectation
    told = f"{answer.op} {format_size(answer.figure.size_bytes)}"
    if found is None or not found.busbw:
        text = f"{told}: no figure is known for {answer.shape.words}, this operation and size"
    else:
        only = ", the only known figure" if found.lone else ""
        share = f"{answer.share or 0:.2f} of {format_bandwidth(found.busbw)}"
        text = f"{told}: {share}{only} ({ORIGINS[found.origin]}: {found.source})"
    return style.paint(word, color) + style.text(f"  {text}")


def _short(one: Figure) -> str:
    size = "peak" if one.size_bytes is None else format_size(one.size_bytes)
    rate = format_bandwidth(one.busbw) if one.busbw else ""
    nodes = "1 node" if one.nodes == 1 else f"{one.nodes or 'any number of'} nodes"
    over = INTERCONNECTS[one.interconnect]
    return f"{one.system}: {nodes}, {over}, {one.collective} {size} {rate} ({one.dated})"


def _next(answer: Answer) -> str:
    size = answer.figure.size_bytes
    if answer.figure.too_wide:
        return f"wirespeed bench {answer.op} -b {size} -e {size} --max-time 10"
    if answer.place == "low" and answer.shape.nodes > 1:
        return "wirespeed locate   (which node, link or rail)"
    if answer.place == "unknown" and not answer.shape.interconnect:
        return (
            "the same with --interconnect, such as ib, roce, efa or tcp: figures hold for one only"
        )
    if answer.place == "unknown":
        return "wirespeed reference list; with a run that you trust: wirespeed reference add RUN"
    return f"wirespeed bench {answer.op} -b {size} -e {size}"


def answer_json(answer: Answer) -> str:
    found, limit = answer.expectation, answer.limit
    expected = found and {
        "busbw_GBps": found.busbw and found.busbw / GIGA,
        "range_GBps": _scaled(found.busbw_range, 1 / GIGA),
        "figures": found.samples,
        "gate_GBps": found.gate and found.gate / GIGA,
        "origin": found.origin,
        "source": found.source,
        "notes": list(found.notes),
    }
    data = {
        "verdict": answer.place,
        "collective": answer.op,
        "size_bytes": answer.figure.size_bytes,
        "busbw_GBps": answer.figure.busbw / GIGA,
        "busbw_range_GBps": _scaled(answer.figure.busbw_range, 1 / GIGA),
        "iterations": answer.figure.iterations or None,
        "share": answer.share,
        "beside_the_only_figure": answer.beside,
        "assumed_spread": ASSUMED_SPREAD if answer.beside else None,
        "world": answer.shape.words,
        "expected": expected,
        "limit": limit and {"busbw_GBps": limit.busbw / GIGA, "model": limit.model},
        "above_limit": answer.above,
        "reasons": list(answer.reasons),
    }
    return json.dumps(data, indent=2, ensure_ascii=False)
