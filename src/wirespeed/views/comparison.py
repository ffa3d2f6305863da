"""A comparison as table, Markdown or JSON."""

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from wirespeed.model.derived_records import (
    CompareVerdict,
    Comparison,
    Difference,
    Row,
    Unpaired,
    Versus,
    What,
)
from wirespeed.model.units import (
    GIGA,
    format_bandwidth,
    format_duration,
    format_figure,
    format_size,
)
from wirespeed.views.text import (
    NOTHING,
    Column,
    Grid,
    Style,
    Views,
    escape,
    rendered,
    shortened,
    table,
)

# Figures of a comparison in words: what was measured, changes, intervals, closing lines.

_BANDWIDTH_FROM = 2**20
"""Above this size an operation is told by its bus bandwidth, up to it by its time."""
_SAID_BY_LABEL = ("figure", "op", "place", "size_bytes", "strategy", "test", "unit")
_SPELLED: dict[str, tuple[str, object]] = {
    "batch": ("batch {}", None),
    "beside": ("beside {}", None),
    "blocking": ("async", True),
    "bucket_mb": ("{:g} MB", None),
    "for_s": ("for {:g} s", None),
    "groups": ("groups {}", "all"),
    "in_flight": ("{} in flight", 1),
    "in_place": ("in place", False),
    "micro_batches": ("{} micro batches", 1),
    "ranks": ("{} ranks", 0),
    "redop": ("{}", "none"),
    "root": ("root {}", -1),
    "cores": ("{} cores", 0),
    "together": ("all at once", False),
    "study": ("{} scaling", "compare"),
}
"""How a field is told, and what is the usual, which is not told."""
_MOST_VALUE = 60
"""Characters of a value that differs; a list of 1,000 hosts is in `-o json`."""
_NOISE = {
    "repeats": "as the repeats show",
    "history": "as the repeats and stored ones show",
    "stated": "with what --noise says",
}


def by_rate(what: What, *busbw: float) -> bool:
    """Whether it is told by what is better when it is more: a large size's busbw, a share."""
    if what.is_ratio or what.unit:
        return True
    size = what.get("size_bytes") or (what.kind == "compute" and what.get("size"))
    return isinstance(size, int) and size > _BANDWIDTH_FROM and all(b > 0 for b in busbw)


def label(what: What, varying: Iterable[str] = (), *, rate: bool = False) -> str:
    """`all_reduce 1 GiB busbw`, with the fields that are not alike in the whole table."""
    first = "figure" if what.kind == "load" else "test" if what.kind == "tool" else "strategy"
    said = [what.get("op") or what.get(first), what.get("place")]
    size = what.get("size_bytes")
    said += [format_size(size)] if isinstance(size, int) and size else []
    said += [_word(name, what.get(name)) for name in varying if name not in _SAID_BY_LABEL]
    return " ".join(str(word) for word in [*said, _unit(what, rate)] if word)


def _unit(what: What, rate: bool) -> str:
    """What the figure is a figure of."""
    if (figure := what.get("figure")) and what.kind != "load":
        return "not exposed" if figure == "unexposed" else str(figure)
    if what.kind == "compute":
        return "rate" if rate else "time of 10¹² operations"
    if what.kind in ("soak", "tool"):
        return "call" if what.kind == "soak" else ""
    return "busbw" if rate else "step" if what.kind == "training" else "time"


def by_kind(rows: Sequence[Row]) -> list[list[Row]]:
    """Collectives and training apart: they are measured in ways of their own."""
    kinds = dict.fromkeys(row.what.kind for row in rows)
    return [[row for row in rows if row.what.kind == kind] for kind in kinds]


def common_words(whats: Sequence[What]) -> tuple[str, list[str]]:
    """(how all of it was measured, names of the fields that a row must tell).

    An operation without reduction or root does not differ in that from those that have one.
    """
    names = dict.fromkeys(name for what in whats for name, _ in what.fields)
    common: list[str] = []
    varying: list[str] = []
    for name in (name for name in names if name not in _SAID_BY_LABEL):
        by_label: dict[str, set[str]] = {}
        for what in whats:
            by_label.setdefault(label(what), set()).add(_word(name, what.get(name)))
        words = set().union(*by_label.values()) - {""}
        if len(words) > 1 or any(len(own) > 1 for own in by_label.values()):
            varying.append(name)
        else:
            common += words
    return " · ".join(common), varying


def _word(name: str, value: object) -> str:
    """Short, and nothing for what is the usual."""
    words, usual = _SPELLED.get(name, ("{}", None))
    return "" if value is None or value == usual else words.format(value)


def value(what: What, time: float, busbw: float, *, rate: bool) -> str:
    """One figure with its unit."""
    if what.is_ratio:
        return f"{100 / time:.1f} %"
    if what.unit:
        return format_figure(1 / time, what.unit)
    return format_bandwidth(busbw) if rate else format_duration(time)


def change(ratio: float, *, rate: bool) -> str:
    """`−12.6 %`; from ten times on `94×`."""
    shown = 1 / ratio if rate else ratio
    return f"{shown:.3g}×" if shown >= 10 else percent(shown) + " %"


def interval(low: float, high: float, *, rate: bool) -> str:
    """`−13.9 … −11.2 %` of the rate or the time; a dash where the noise is not known."""
    if low == 0 or math.isinf(high):
        return "–"
    ends = (1 / high, 1 / low) if rate else (low, high)
    return f"{percent(ends[0])} … {percent(ends[1])} %"


def percent(ratio: float) -> str:
    """A ratio as a signed change, with the minus sign of figures."""
    if not math.isfinite(ratio) or ratio > 1e4:
        return "+∞" if not math.isfinite(ratio) else f"+{(ratio - 1) * 100:.0e}"
    value = round((ratio - 1) * 100, 1)
    text = f"{abs(value):.1f}" if abs(value) < 1000 else f"{abs(value):.0f}"
    return ("−" if value < 0 else "+") + text


def changed_line(one: Versus) -> str:
    """What differs, then what is the same, then what is not recorded."""
    told = [difference(d) for d in one.differences]
    rest = [f"{', '.join(one.alike)}: same"] if one.alike else []
    rest += [f"{' and '.join(one.unknown)} not recorded"] if one.unknown else []
    head = f"changed between runs: {'; '.join(told)}" if told else "no recorded difference"
    return head + (f"     ({'; '.join(rest)})" if rest else "")


def difference(one: Difference) -> str:
    """`NCCL_ALGO Ring → Tree`."""
    return f"{one.name} {shortened(one.before, _MOST_VALUE)} → {shortened(one.after, _MOST_VALUE)}"


def counts(comparison: Comparison) -> str:
    """`1 worse, 1 same, 0 better`, and what is undecided or of wrong data."""
    parts = [
        f"{comparison.count('WORSE')} worse",
        f"{comparison.count('same')} same",
        f"{comparison.count('better')} better",
    ]
    for verdict in ("not enough runs", "wrong data"):
        if number := comparison.count(verdict):
            parts.append(f"{number} {verdict}")
    return ", ".join(parts)


def conclusion(comparison: Comparison) -> str:
    """The last word; never `no regression` where nothing is known."""
    if not comparison.rows:
        return "NOTHING IN COMMON"
    if comparison.exit_code == 1:
        return "REGRESSION" if comparison.count("WORSE") else "WRONG DATA"
    if comparison.exit_code == 3:
        undecided = comparison.count("not enough runs")
        return "NOT ENOUGH RUNS" if undecided == len(comparison.rows) else "NOT ALL DECIDED"
    return "NO REGRESSION"


def evidence(comparison: Comparison) -> list[str]:
    """Whence the noise is known, and what the correction is: a line each."""
    rows = comparison.rows
    if not rows:
        return []
    sources = list(dict.fromkeys(row.noise_from for row in rows))
    told = ["not known, with one run a side"] if "unknown" in sources else []
    for source in (source for source in sources if source != "unknown"):
        noises = sorted(row.noise for row in rows if row.noise_from == source)
        least, most = percent(1 + noises[0])[1:], percent(1 + noises[-1])[1:]
        spread = f"±{least} %" if least == most else f"±{least} to ±{most} %"
        told.append(f"{spread} {_NOISE[source]}")
    lines = ["noise from run to run: " + "; ".join(told)]
    if len(rows) > 1:
        lines.append(
            f"each interval is for its own row; verdicts allow for {len(rows)} rows "
            "(Benjamini-Hochberg, 5 %)"
        )
    return lines


def advice(comparison: Comparison) -> str:
    """What would decide the undecided rows."""
    undecided = [row for row in comparison.rows if row.verdict == "not enough runs"]
    if not undecided:
        return ""
    told = []
    if any(min(row.runs) < 3 and row.noise_from != "stated" for row in undecided):
        told.append(
            "three runs per side are needed to call a change (bench --repeat 3, then "
            "wirespeed compare last~5..last~3 last:3), or --noise where it is known"
        )
    if needed := sorted(row.runs_needed for row in undecided if row.runs_needed):
        least, most = needed[0], needed[-1]
        many = f"{least} to {most}" if least != most else f"{most}"
        more = " or more" if most == 100 else ""
        bound = f"{comparison.fail_on * 100:g} %"
        told.append(f"{many}{more} runs per side would show a change of {bound} at this noise")
    return "undecided: " + "; ".join(told)


def unpaired_line(one: Unpaired, before: str, after: str) -> str:
    """How many figures only one side has, and how they could pair."""
    parts = [f"{n} only in {side}" for n, side in ((one.before, before), (one.after, after)) if n]
    if not parts:
        return ""
    hint = f"; --across {one.differ_in[0]} pairs some of them" if one.differ_in else ""
    return f"not compared: {', '.join(parts)}{hint}"


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
    return rendered(comparison, format, style, _VIEWS)


def _table(comparison: Comparison, style: Style) -> str:
    lines: list[str] = []
    for one in comparison.versus:
        lines += _wrapped(changed_line(one), style)
        for rows in by_kind(one.rows):
            how, varying = common_words([row.what for row in rows])
            lines.append(style.paint(style.text(how), "dim"))
            lines += versus_grid(replace(one, rows=tuple(rows)), varying).lines(style)
        said = unpaired_line(one.unpaired, one.before.name, one.after.name)
        lines += [style.paint(line, "dim") for line in _wrapped(said, style)]
        lines.append("")
    for note in (*evidence(comparison), advice(comparison)):
        lines += [style.paint(line, "dim") for line in _wrapped(note, style)]
    word = conclusion(comparison)
    painted = style.paint(style.paint(word, _CONCLUSIONS.get(word, "yellow")), "bold")
    lines.append(f"{painted}  {counts(comparison)}   exit {comparison.exit_code}")
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
        grid.add(*row_cells(row, varying))
    return grid


def row_cells(row: Row, varying: Iterable[str]) -> list[str]:
    """What was measured, both sides' figures, the change, its interval, runs, samples, the verdict."""
    what = row.what
    rate = by_rate(what, row.busbw_before, row.busbw_after)
    return [
        label(what, varying, rate=rate),
        value(what, row.before, row.busbw_before, rate=rate),
        value(what, row.after, row.busbw_after, rate=rate),
        change(row.ratio, rate=rate),
        interval(row.low, row.high, rate=rate),
        f"{row.runs[0]}+{row.runs[1]}",
        f"{row.samples[0]}+{row.samples[1]}" if any(row.samples) else NOTHING,
        f"{row.verdict}; {outside}" if (outside := outside_text(row)) else row.verdict,
    ]


def outside_text(row: Row) -> str:
    """Return `outside all 3 earlier runs (−88.0 %)` where that is all that can be said yet."""
    if not row.outside or row.verdict != "not enough runs":
        return ""
    which = "earlier" if row.runs[0] > row.runs[1] else "later"
    rate = by_rate(row.what, row.busbw_before, row.busbw_after)
    return f"outside all {row.outside} {which} runs ({change(row.ratio, rate=rate)})"


def _markdown(comparison: Comparison, shown: Style) -> str:
    style = Style(ascii=shown.ascii)
    blocks = [[f"## {conclusion(comparison)}", "", counts(comparison)]]
    for one in comparison.versus:
        blocks.append([escape(changed_line(one), style)])
        blocks += [_markdown_rows(one, rows, style) for rows in by_kind(one.rows)]
        if said := unpaired_line(one.unpaired, one.before.name, one.after.name):
            blocks.append([escape(said, style)])
    notes = [*evidence(comparison), advice(comparison)]
    blocks.append([f"- {escape(note, style)}" for note in notes if note])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _markdown_rows(one: Versus, alike: Sequence[Row], style: Style) -> list[str]:
    how, varying = common_words([row.what for row in alike])
    names = [escape(side.name, style) for side in (one.before, one.after)]
    right = [*names, "change", "95 % interval", "runs", "n"]
    rows = [[escape(cell, style) for cell in row_cells(row, varying)] for row in alike]
    for row, cells in zip(alike, rows, strict=True):
        cells[-1] = f"**{cells[-1]}**" if _COLORS.get(row.verdict) == "red" else cells[-1]
    return [escape(how, style), "", *table(["measured", *right, "verdict"], rows, right)]


def document(comparison: Comparison) -> dict[str, Any]:
    """As JSON: times in µs, bandwidths in GB/s, ratios of times (above 1 is slower, less goodput)."""
    return {
        "schema": SCHEMA,
        "conclusion": conclusion(comparison),
        "exit_code": comparison.exit_code,
        "fail_on": comparison.fail_on,
        "versus": [_versus(one) for one in comparison.versus],
    }


def share(what: What, time: float) -> tuple[str, float]:
    """(name in JSON, value) of what is a ratio: `goodput`, or `exposed`, which is better when less."""
    return ("exposed", 1 - 1 / time) if what.get("figure") == "unexposed" else ("goodput", 1 / time)


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
        "outside_of_runs": row.outside or None,
    }


def _figures(row: Row) -> dict[str, float]:
    if row.what.is_ratio:
        before, after = share(row.what, row.before), share(row.what, row.after)
        return {f"{before[0]}_before": before[1], f"{after[0]}_after": after[1]}
    if row.what.unit:
        return {"rate_before": 1 / row.before, "rate_after": 1 / row.after}
    return {
        "time_before_us": row.before * _US,
        "time_after_us": row.after * _US,
        "busbw_before_GBps": row.busbw_before / GIGA,
        "busbw_after_GBps": row.busbw_after / GIGA,
    }


_VIEWS: Views[Comparison] = {"table": _table, "md": _markdown, "json": lambda one, _: document(one)}
FORMATS = tuple(_VIEWS)
