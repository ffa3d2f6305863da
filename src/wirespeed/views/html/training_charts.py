"""What `train` measured as plotly figures: step time by strategy, efficiency over ranks, memory.

Plain dicts, so that no plotly is needed for them. A colour is the name of a variable of the page's
style, `--c1`; charts.js puts its value in, for the light or the dark page.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from wirespeed.model.training_records import Spread, Training, TrainingMemory
from wirespeed.model.units import format_duration
from wirespeed.views.html.heatmap import label
from wirespeed.views.training import name

_PARTS = (
    ("data", "--c-data"),
    ("forward", "--c-forward"),
    ("backward", "--c-backward"),
    ("synchronise", "--c-synchronise"),
    ("optimizer", "--c-optimizer"),
)
_MEMORY = (
    ("parameters", "--c-backward"),
    ("gradients", "--c-forward"),
    ("optimizer", "--c-optimizer"),
    ("activations", "--c-activations"),
    ("communication", "--c-synchronise"),
    ("other", "--c-data"),
)
_LINES = ("--c-backward", "--mark", "--good", "--c-violet", "--c-gold", "--soft")
_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star")
_MIB = 1 << 20
_ROW_PX, _EDGE_PX, _SCALING_PX = 46, 92, 400
_MOST_OF_BARS = 1.6
"""The longest bar times this is the end of the axis; few rounds have very wide intervals."""
_BAR, _EXPOSED_BAR, _EXPOSED_AT = 0.5, 0.13, 0.35
"""Of a row: how high the bars are, and how far below the middle the lower one lies."""

Figure = dict[str, Any]


def step_chart(rows: Sequence[Training]) -> Figure:
    """One bar a strategy, stacked by part; whiskers are the 95 % interval of the mean.

    A thin bar below it marks what is exposed: from the step without synchronisation to this one.
    """
    places = list(range(len(rows)))
    traces = [_bar(kind, color, places, _parts(rows, kind)) for kind, color in _PARTS]
    traces = [trace for trace in traces if any(trace["x"])]
    whole = [0.0 if any(math.isfinite(v) for v in one.parts.values()) else _ms(one) for one in rows]
    if any(whole):
        traces.append(_bar("step", "--c-backward", places, whole))
    traces += [*_exposed(rows), _whiskers(rows, places)]
    return {"data": traces, "layout": _step_layout(rows)}


def _step_layout(rows: Sequence[Training]) -> Figure:
    layout = _bar_layout([name(one) for one in rows], "ms a step, of the slowest rank", above=22)
    layout["xaxis"] |= {"range": [0, _end(rows)]}
    yardstick = next((_ms(one) for one in rows if one.verdict == "yardstick"), 0.0)
    if yardstick:
        line = {"color": "--text", "width": 1.5, "dash": "dot"}
        layout["shapes"] = [
            {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": line}
            | {"x0": yardstick, "x1": yardstick}
        ]
        layout["annotations"] = [
            {"x": yardstick, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False}
            | {"text": "without synchronisation", "font": {"size": 12, "color": "--soft"}}
        ]
    return layout


def _end(rows: Sequence[Training]) -> float:
    """ms: as far as the whiskers reach, but never so far that the bars could not be told apart."""
    bars = max(map(_ms, rows), default=0.0)
    highest = max((_shown(one.step.high) for one in rows), default=0.0)
    return 1.04 * min(max(bars, highest), _MOST_OF_BARS * bars) or 1.0


def _parts(rows: Iterable[Training], kind: str) -> list[float]:
    return [_shown(one.parts.get(kind)) for one in rows]


def _ms(one: Training) -> float:
    return _shown(one.step.mean)


def _shown(seconds: float | None) -> float:
    """ms; 0 for what cannot be drawn."""
    return 1e3 * seconds if seconds is not None and math.isfinite(seconds) else 0.0


def _bar(kind: str, color: str, places: Sequence[int], values: Sequence[float]) -> Figure:
    return {
        "type": "bar",
        "orientation": "h",
        "name": kind,
        "y": list(places),
        "x": [round(value, 6) for value in values],
        "width": _BAR,
        "marker": {"color": color},
        "customdata": [format_duration(value / 1e3) for value in values],
        "hovertemplate": f"{kind} %{{customdata}}<extra></extra>",
    }


def _exposed(rows: Sequence[Training]) -> list[Figure]:
    """The thin bars; none where nothing is exposed."""
    found = [
        (place, one.exposed)
        for place, one in enumerate(rows)
        if one.exposed is not None and math.isfinite(one.exposed.value) and one.exposed.value > 0
    ]
    if not found:
        return []
    values = [exposed.value * 1e3 for _, exposed in found]
    bases = [_ms(rows[place]) - value for (place, _), value in zip(found, values, strict=True)]
    trace = _bar("exposed communication", "--c-exposed", [place for place, _ in found], values)
    said = [
        f"{format_duration(one.value)} ({_signed(one.low)} … {_signed(one.high)})"
        for _, one in found
    ]
    moved = [place + _EXPOSED_AT for place, _ in found]
    # With a base of its own a bar is not stacked onto the others.
    return [trace | {"base": bases, "width": _EXPOSED_BAR, "y": moved, "customdata": said}]


def _signed(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "?"
    return ("−" if seconds < 0 else "") + format_duration(abs(seconds))


def _whiskers(rows: Sequence[Training], places: Sequence[int]) -> Figure:
    ends = [_reach(one.step.mean, one.step.low, one.step.high, 1e3) for one in rows]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "mean and 95 % interval",
        "x": [_ms(one) for one in rows],
        "y": list(places),
        "marker": {"color": "--text", "size": 5},
        "error_x": _errors(ends),
        "customdata": [_interval(one.step) for one in rows],
        "hovertemplate": "step %{customdata}<extra></extra>",
    }


def _interval(step: Spread) -> str:
    """`72.2 ms (68.1 ms … 76.3 ms)`, where the interval is known."""
    known = math.isfinite(step.high) and step.low < step.high
    reach = f" ({_signed(max(step.low, 0.0))} … {_signed(step.high)})" if known else ""
    return _signed(step.mean) + reach


def _errors(ends: Sequence[tuple[float, float]]) -> Figure:
    return {
        "type": "data",
        "symmetric": False,
        "arrayminus": [down for down, _ in ends],
        "array": [up for _, up in ends],
        "color": "--text",
        "thickness": 1.4,
        "width": 5,
    }


def _reach(value: float, low: float, high: float, unit: float) -> tuple[float, float]:
    """How far the interval reaches down (never below 0) and up; nothing where it is not known."""
    if not all(map(math.isfinite, (value, low, high))) or not low < high:
        return 0.0, 0.0
    return max(0.0, value - max(low, 0.0)) * unit, max(0.0, high - value) * unit


def memory_chart(rows: Sequence[tuple[str, TrainingMemory, TrainingMemory | None]]) -> Figure:
    """(title, measured, predicted): stacked by kind, marks for the peaks."""
    places = list(range(len(rows)))
    traces = []
    for kind, color in _MEMORY:
        sizes = [getattr(memory, kind) / _MIB for _, memory, _ in rows]
        trace = _bar(kind, color, places, sizes)
        trace["hovertemplate"] = f"{kind} %{{x:,.2f}} MiB<extra></extra>"
        del trace["customdata"]
        traces.append(trace)
    traces.append(_peaks("peak", "line-ns", [memory.peak for _, memory, _ in rows]))
    if any(predicted for _, _, predicted in rows):
        peaks = [predicted.peak if predicted else None for _, _, predicted in rows]
        traces.append(_peaks("peak, predicted", "diamond-open", peaks))
    return {"data": traces, "layout": _bar_layout([title for title, _, _ in rows], "MiB")}


def _peaks(title: str, symbol: str, sizes: Sequence[int | None]) -> Figure:
    size, wide = (22, 3) if symbol == "line-ns" else (9, 1.5)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": title,
        "x": [None if one is None else one / _MIB for one in sizes],
        "y": list(range(len(sizes))),
        "marker": {"color": "--text", "symbol": symbol, "size": size}
        | {"line": {"color": "--text", "width": wide}},
        "hovertemplate": f"{title} %{{x:,.2f}} MiB<extra></extra>",
    }


def _bar_layout(titles: Sequence[str], unit: str, above: int = 0) -> Figure:
    """above: pixels between the bars and the legend."""
    size = len(titles)
    plot = _ROW_PX * size
    return {
        "height": _EDGE_PX + above + plot,
        "barmode": "stack",
        "margin": {"l": 10, "r": 16, "t": 40 + above, "b": 52},
        "xaxis": {"title": _axis_title(unit), "rangemode": "tozero", "gridcolor": "--line"}
        | {"zerolinecolor": "--line", "automargin": True},
        "yaxis": {
            "tickvals": list(range(size)),
            "ticktext": [f"{label(_short(title))} " for title in titles],
            "range": [size - 0.45, -0.55],
            "automargin": True,
            "zeroline": False,
            "showgrid": False,
        },
        "legend": _LEGEND | {"traceorder": "normal", "y": 1 + above / plot},
    }


def _axis_title(text: str) -> Figure:
    return {"text": text, "font": {"size": 13}, "standoff": 8}


_LEGEND: Figure = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom"}


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


def scaling_chart(rows: Sequence[Training]) -> Figure | None:
    """Efficiency over ranks with its interval, one line a strategy and kind; None without figures."""
    lines: dict[tuple[str, str], list[Training]] = {}
    for one in rows:
        if one.efficiency is not None and math.isfinite(one.efficiency.value):
            lines.setdefault((one.study, name(one)), []).append(one)
    if not lines:
        return None
    ranks = sorted({one.ranks for line in lines.values() for one in line})
    traces = [_line(key, line, i) for i, (key, line) in enumerate(lines.items())]
    return {"data": traces, "layout": _scaling_layout(ranks, len(lines))}


def _line(key: tuple[str, str], rows: list[Training], index: int) -> Figure:
    kind, strategy = key
    rows = sorted(rows, key=lambda one: one.ranks)
    parts = [one.efficiency for one in rows if one.efficiency is not None]
    color = _LINES[index % len(_LINES)]
    ends = [_reach(one.value, one.low, one.high, 100) for one in parts]
    dash = _DASHES[index // len(_LINES) % len(_DASHES)]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": f"{kind}: {label(strategy)}",
        "x": [one.ranks for one in rows],
        "y": [100 * one.value for one in parts],
        "error_y": _errors(ends) | {"color": color},
        "line": {"color": color, "width": 2, "dash": dash},
        "marker": {"color": color, "size": 8, "symbol": _SYMBOLS[index % len(_SYMBOLS)]},
        "customdata": [one.grade for one in rows],
        "hovertemplate": "%{x} ranks: %{y:.1f} % %{customdata}",
    }


def _scaling_layout(ranks: Sequence[int], lines: int) -> Figure:
    levels = ((100, "ideal", "solid"), (90, "excellent above", "dot"), (80, "good above", "dot"))
    return {
        "height": _SCALING_PX + 20 * (lines // 4),
        "margin": {"l": 10, "r": 16, "t": 40, "b": 52},
        "xaxis": {"title": _axis_title("ranks"), "type": "log", "tickvals": list(ranks)}
        | {"ticktext": [str(one) for one in ranks], "showgrid": False, "automargin": True}
        | {"zeroline": False, "range": _log_range(ranks)},
        "yaxis": {
            "title": _axis_title("scaling efficiency"),
            "rangemode": "tozero",
            "ticksuffix": " %",
        }
        | {"gridcolor": "--line", "zerolinecolor": "--line", "automargin": True},
        "legend": _LEGEND,
        "shapes": [
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": at, "y1": at}
            | {"line": {"color": "--soft", "width": 1, "dash": dash}, "layer": "below"}
            for at, _, dash in levels
        ],
        "annotations": [
            {"xref": "paper", "x": 1, "xanchor": "right", "y": at, "yanchor": "bottom"}
            | {"text": text, "showarrow": False, "font": {"size": 11, "color": "--soft"}}
            for at, text, _ in levels
        ],
    }


def throughput_chart(rows: Sequence[Training]) -> Figure | None:
    """Samples a second of a grid, over ranks (over the batch where those are one), a line a strategy.

    None without figures.
    """
    if not rows:
        return None
    by_ranks = len({one.ranks for one in rows}) > 1
    lines: dict[tuple[str, int], list[Training]] = {}
    for one in rows:
        lines.setdefault((name(one), one.batch if by_ranks else one.ranks), []).append(one)
    places = sorted({one.ranks if by_ranks else one.batch for one in rows})
    several = len({other for _, other in lines}) > 1
    other = "samples" if by_ranks else "ranks"
    traces = []
    for index, ((strategy, number), line) in enumerate(lines.items()):
        title = f"{label(strategy)}, {number} {other}" if several else label(strategy)
        traces.append(_throughput(title, line, index, by_ranks=by_ranks))
    layout = _scaling_layout(places, len(lines))
    layout["xaxis"]["title"] = _axis_title("ranks" if by_ranks else "samples a step")
    layout["yaxis"] |= {"title": _axis_title("samples a second"), "ticksuffix": ""}
    return {"data": traces, "layout": layout | {"shapes": [], "annotations": []}}


def _throughput(title: str, rows: list[Training], index: int, *, by_ranks: bool) -> Figure:
    rows = sorted(rows, key=lambda one: (one.ranks, one.batch))
    color = _LINES[index % len(_LINES)]
    ends = [
        _reach(one.samples_per_s, _rate(one, one.step.high), _rate(one, one.step.low), 1)
        for one in rows
    ]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": title,
        "x": [one.ranks if by_ranks else one.batch for one in rows],
        "y": [one.samples_per_s for one in rows],
        "error_y": _errors(ends) | {"color": color},
        "line": {"color": color, "width": 2, "dash": _DASHES[index // len(_LINES) % len(_DASHES)]},
        "marker": {"color": color, "size": 8, "symbol": _SYMBOLS[index % len(_SYMBOLS)]},
        "hovertemplate": "%{x}: %{y:.1f} samples/s",
    }


def _rate(one: Training, seconds: float) -> float:
    return one.batch / seconds if seconds > 0 else math.inf


def _log_range(ranks: Sequence[int]) -> list[float]:
    """Decimal exponents, with room for the whiskers at both ends."""
    low, high = math.log10(max(ranks[0], 1)), math.log10(max(ranks[-1], 1))
    room = max(0.06, 0.08 * (high - low))
    return [low - room, high + room]
