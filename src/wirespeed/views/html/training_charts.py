"""What `train` measured as plotly figures: steps by strategy, scaling, memory, goodput.

Plain dicts, so that no plotly is needed for them. A colour is the name of a variable of the page's
style, `--c1`; charts.js puts its value in, for the light or the dark page.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from wirespeed.model.training_records import (
    LoadFigures,
    Ratio,
    Spread,
    Training,
    TrainingMemory,
)
from wirespeed.model.units import format_duration
from wirespeed.statistics import lacks_samples
from wirespeed.views.html import parts
from wirespeed.views.html.parts import Figure
from wirespeed.views.sections import no_interval
from wirespeed.views.text import shortened
from wirespeed.views.training import exposed_interval, name, seconds_cell

_PARTS = {
    "data": "--c-data",
    "forward": "--c-forward",
    "backward": "--c-backward",
    "synchronise": "--c-synchronise",
    "optimizer": "--c-optimizer",
}
_MEMORY = {
    "parameters": "--c-backward",
    "gradients": "--c-forward",
    "optimizer": "--c-optimizer",
    "activations": "--c-activations",
    "communication": "--c-synchronise",
    "other": "--c-data",
}
_CAUSES = {
    "useful": "--good",
    "start": "--c-data",
    "restore": "--c-violet",
    "checkpoint": "--c-gold",
    "lost": "--mark",
    "down": "--c-synchronise",
    "other": "--soft",
}
_MIB = 1 << 20
_ROW_PX, _EDGE_PX, _SCALING_PX, _GOODPUT_PX, _LEGEND_PX = 46, 92, 400, 150, 22
_MOST_OF_BARS = 1.6
"""The longest bar times this is the end of the axis; few rounds have very wide intervals."""
_BAR, _EXPOSED_BAR, _EXPOSED_AT = 0.5, 0.13, 0.35
"""Of a row: how high the bars are, and how far below the middle the lower one lies."""
_AXIS = {"gridcolor": "--line", "zerolinecolor": "--line", "automargin": True}


def step_chart(rows: Sequence[Training]) -> Figure:
    """One bar a strategy, stacked by part; whiskers are the 95 % interval of the mean.

    A thin bar below it marks what is exposed: from the step without synchronisation to this one.
    """
    shares = {kind: [_shown(one.parts.get(kind)) for one in rows] for kind in _PARTS}
    traces = [_times(kind, _PARTS[kind], values) for kind, values in shares.items() if any(values)]
    whole = [0.0 if any(map(math.isfinite, one.parts.values())) else _ms(one) for one in rows]
    if any(whole):
        traces.append(_times("step", "--c-backward", whole))
    traces += [*_exposed(rows), _means(rows)]
    return {"data": traces, "layout": _step_layout(rows)}


def _step_layout(rows: Sequence[Training]) -> Figure:
    layout = _bar_layout([name(one) for one in rows], "ms a step, of the slowest rank", above=22)
    layout["xaxis"] |= {"range": [0, _end(rows)]}
    yardstick = next((_ms(one) for one in rows if one.verdict == "yardstick"), 0.0)
    if yardstick:
        line = {"color": "--text", "width": 1.5, "dash": "dot"}
        ends = {"yref": "paper", "y0": 0, "y1": 1, "x0": yardstick, "x1": yardstick}
        layout["shapes"] = [{"type": "line", "line": line} | ends]
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


def _ms(one: Training) -> float:
    return _shown(one.step.mean)


def _shown(seconds: float | None) -> float:
    """ms; 0 for what cannot be drawn."""
    return 1e3 * seconds if seconds is not None and math.isfinite(seconds) else 0.0


def _bars(kind: str, color: str, values: Sequence[float]) -> Figure:
    """Of one kind, a bar a row."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": kind,
        "y": list(range(len(values))),
        "x": values,
        "marker": {"color": color},
    }


def _times(kind: str, color: str, values: Sequence[float]) -> Figure:
    """values: ms."""
    return _bars(kind, color, [round(value, 6) for value in values]) | {
        "width": _BAR,
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
    return [
        _times("exposed communication", "--c-exposed", values)
        | {
            # With a base of its own a bar is not stacked onto the others.
            "base": [_ms(rows[at]) - value for (at, _), value in zip(found, values, strict=True)],
            "width": _EXPOSED_BAR,
            "y": [place + _EXPOSED_AT for place, _ in found],
            "customdata": [
                f"{format_duration(one.value)} ({exposed_interval(rows[at])})" for at, one in found
            ],
        }
    ]


def _signed(seconds: float) -> str:
    return seconds_cell(seconds) if math.isfinite(seconds) else "?"


def _means(rows: Sequence[Training]) -> Figure:
    ends = [_reach(one.step.mean, one.step.low, one.step.high, 1e3, one.rounds) for one in rows]
    x, y = [_ms(one) for one in rows], range(len(rows))
    hover = "step %{customdata}<extra></extra>"
    return parts.marks("mean and 95 % interval", x, y, hover, {"color": "--text", "size": 5}) | {
        "error_x": _errors(ends, "--text"),
        "customdata": [_interval(one.step, one.rounds) for one in rows],
    }


def _interval(step: Spread, rounds: int) -> str:
    """Return `72.2 ms (68.1 ms … 76.3 ms)`, where the interval is known."""
    if lacks_samples(rounds):
        return f"{_signed(step.mean)} ({no_interval(rounds, 'round')})"
    known = math.isfinite(step.high) and step.low < step.high
    reach = f" ({_signed(max(step.low, 0.0))} … {_signed(step.high)})" if known else ""
    return _signed(step.mean) + reach


def _errors(ends: Sequence[tuple[float, float]], color: str) -> Figure:
    return parts.whiskers(ends, color) | {"thickness": 1.4, "width": 5}


def _reach(value: float, low: float, high: float, unit: float, rounds: int) -> tuple[float, float]:
    """How far the interval reaches down (never below 0) and up; nothing where it is not known."""
    if lacks_samples(rounds) or not all(map(math.isfinite, (value, low, high))) or not low < high:
        return 0.0, 0.0
    return max(0.0, value - max(low, 0.0)) * unit, max(0.0, high - value) * unit


def memory_chart(rows: Sequence[tuple[str, TrainingMemory, TrainingMemory | None]]) -> Figure:
    """(title, measured, predicted): stacked by kind, marks for the peaks."""
    traces = []
    for kind, color in _MEMORY.items():
        sizes = [round(getattr(memory, kind) / _MIB, 6) for _, memory, _ in rows]
        hover = f"{kind} %{{x:,.2f}} MiB<extra></extra>"
        traces.append(_bars(kind, color, sizes) | {"width": _BAR, "hovertemplate": hover})
    traces.append(_peaks("peak", "line-ns", [memory.peak for _, memory, _ in rows]))
    if any(predicted for _, _, predicted in rows):
        peaks = [predicted.peak if predicted else None for _, _, predicted in rows]
        traces.append(_peaks("peak, predicted", "diamond-open", peaks))
    return {"data": traces, "layout": _bar_layout([title for title, _, _ in rows], "MiB")}


def _peaks(title: str, symbol: str, sizes: Sequence[int | None]) -> Figure:
    size, wide = (22, 3) if symbol == "line-ns" else (9, 1.5)
    marker = {"color": "--text", "symbol": symbol, "size": size}
    marker |= {"line": {"color": "--text", "width": wide}}
    x = [None if one is None else one / _MIB for one in sizes]
    return parts.marks(
        title, x, range(len(sizes)), f"{title} %{{x:,.2f}} MiB<extra></extra>", marker
    )


def _bar_layout(titles: Sequence[str], unit: str, above: int = 0) -> Figure:
    """above: pixels between the bars and the legend."""
    size = len(titles)
    plot = _ROW_PX * size
    return {
        "height": _EDGE_PX + above + plot,
        "barmode": "stack",
        "margin": {"l": 10, "r": 16, "t": 40 + above, "b": 52},
        "xaxis": _AXIS | {"title": parts.axis_title(unit), "rangemode": "tozero"},
        "yaxis": {
            "tickvals": list(range(size)),
            "ticktext": [f"{parts.label(shortened(title, 40))} " for title in titles],
            "range": [size - 0.45, -0.55],
            "automargin": True,
            "zeroline": False,
            "showgrid": False,
        },
        "legend": parts.LEGEND | {"traceorder": "normal", "y": 1 + above / plot},
    }


def load_chart(rows: Sequence[LoadFigures]) -> Figure:
    """How many times as long each takes beside others, with its interval, on a logarithmic axis."""
    ratios = [one.ratio for one in rows]
    ends = [_reach(one.ratio.value, one.ratio.low, one.ratio.high, 1, one.rounds) for one in rows]
    color = parts.LINES[0]
    drawn = parts.marks(
        *("beside the others, 95 % interval", [one.value for one in ratios], range(len(rows))),
        "%{x:.2f} times as long<extra></extra>",
        {"color": color, "size": 9},
    )
    layout = _bar_layout([one.name for one in rows], "times as long as alone")
    ticks = [times * 10**power for power in range(-2, 5) for times in (1, 2, 5)]
    said = {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
    layout["xaxis"] |= {"type": "log"} | said
    layout["yaxis"]["ticktext"] = [
        f"{parts.label(one.name)} <br>beside {parts.label(shortened(one.beside, 60))} "
        for one in rows
    ]
    line = {"color": "--text", "width": 1.5, "dash": "dot"}
    alone = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": 1, "x1": 1, "line": line}
    return {
        "data": [drawn | {"error_x": _errors(ends, color)}],
        "layout": layout | {"shapes": [alone]},
    }


def goodput_chart(shares: Iterable[tuple[str, float]]) -> Figure:
    """(cause, seconds): one bar of all of them."""
    return whole_chart(shares, _CAUSES)


def whole_chart(
    shares: Iterable[tuple[str, float]],
    colors: Mapping[str, str],
    *,
    unit: Literal["s", "ms"] = "s",
) -> Figure:
    """(part, seconds): one bar of all of them. colors: by part; unit: of the axis."""
    bars, times = [], 1.0 if unit == "s" else 1e3
    for part, seconds in shares:
        hover = f"{part} {format_duration(seconds)}<extra></extra>"
        bar = _bars(part, colors[part], [round(times * seconds, 6)])
        bars.append(bar | {"hovertemplate": hover})
    layout = {
        # A narrow page has two names in a row of the legend.
        "height": _GOODPUT_PX + _LEGEND_PX * max(0, math.ceil(len(bars) / 2) - 2),
        "barmode": "stack",
        "margin": {"l": 10, "r": 16, "t": 36, "b": 44},
        "xaxis": {"title": {"text": unit}, "gridcolor": "--line", "zeroline": False},
        "yaxis": {"visible": False},
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        "showlegend": True,
    }
    return {"data": bars, "layout": layout}


def scaling_chart(rows: Iterable[Training]) -> Figure | None:
    """Efficiency over ranks with its interval, one line a strategy and kind; None without figures."""
    known = [(one, one.efficiency) for one in rows if one.efficiency is not None]
    lines: dict[str, list[tuple[Training, Ratio]]] = {}
    for one, part in known:
        if math.isfinite(part.value):
            lines.setdefault(f"{one.study}: {parts.label(name(one))}", []).append((one, part))
    if not lines:
        return None
    traces = []
    for index, (title, line) in enumerate(lines.items()):
        line.sort(key=lambda row: row[0].ranks)
        ends = [_reach(part.value, part.low, part.high, 100, one.rounds) for one, part in line]
        x, y = [one.ranks for one, _ in line], [100 * part.value for _, part in line]
        hover = "%{x} ranks: %{y:.1f} % %{customdata}"
        grades = {"customdata": [one.grade for one, _ in line]}
        traces.append(_curve(title, index, x, y, ends, hover) | grades)
    ranks = sorted({one.ranks for line in lines.values() for one, _ in line})
    layout = _scaling_layout(ranks, "ranks", "scaling efficiency", len(lines))
    layout["yaxis"]["ticksuffix"] = " %"
    levels = ((100, "ideal", "solid"), (90, "excellent above", "dot"), (80, "good above", "dot"))
    layout["shapes"] = [parts.level(at, dash) for at, _, dash in levels]
    layout["annotations"] = [
        {"xref": "paper", "x": 1, "xanchor": "right", "y": at, "yanchor": "bottom"}
        | {"text": text, "showarrow": False, "font": {"size": 11, "color": "--soft"}}
        for at, text, _ in levels
    ]
    return {"data": traces, "layout": layout}


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
    several = len({other for _, other in lines}) > 1
    other = "samples" if by_ranks else "ranks"
    traces = []
    for index, ((strategy, number), line) in enumerate(lines.items()):
        title = f"{parts.label(strategy)}, {number} {other}" if several else parts.label(strategy)
        line.sort(key=lambda one: (one.ranks, one.batch))
        x = [one.ranks if by_ranks else one.batch for one in line]
        rates = [one.samples_per_s for one in line]
        ends = [
            _reach(
                one.samples_per_s,
                _rate(one, one.step.high),
                _rate(one, one.step.low),
                1,
                one.rounds,
            )
            for one in line
        ]
        traces.append(_curve(title, index, x, rates, ends, "%{x}: %{y:.1f} samples/s"))
    places = sorted({one.ranks if by_ranks else one.batch for one in rows})
    over = "ranks" if by_ranks else "samples a step"
    return {"data": traces, "layout": _scaling_layout(places, over, "samples a second", len(lines))}


def _rate(one: Training, seconds: float) -> float:
    return one.batch / seconds if seconds > 0 else math.inf


def _curve(
    title: str,
    index: int,
    x: Sequence[int],
    y: Sequence[float],
    ends: Sequence[tuple[float, float]],
    hover: str,
) -> Figure:
    drawn = parts.curve(title, index, x, y) | {"hovertemplate": hover}
    return drawn | {"error_y": _errors(ends, drawn["line"]["color"])}


def _scaling_layout(places: Sequence[int], over: str, what: str, lines: int) -> Figure:
    ticks = {"tickvals": list(places), "ticktext": [str(one) for one in places]}
    return {
        "height": _SCALING_PX + 20 * (lines // 4),
        "margin": {"l": 10, "r": 16, "t": 40, "b": 52},
        "xaxis": {"title": parts.axis_title(over), "type": "log", "range": _log_range(places)}
        | {"showgrid": False, "automargin": True, "zeroline": False}
        | ticks,
        "yaxis": _AXIS | {"title": parts.axis_title(what), "rangemode": "tozero"},
        "legend": parts.LEGEND,
    }


def _log_range(ranks: Sequence[int]) -> list[float]:
    """Decimal exponents, with room for the whiskers at both ends."""
    low, high = math.log10(max(ranks[0], 1)), math.log10(max(ranks[-1], 1))
    room = max(0.06, 0.08 * (high - low))
    return [low - room, high + room]
