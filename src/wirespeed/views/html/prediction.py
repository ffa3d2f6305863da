"""What `predict` says as a page: bandwidth and steps over nodes, each with the band of its interval."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from wirespeed.model.derived_records import (
    CollectiveTime,
    Estimate,
    Prediction,
    StepTime,
    Stretch,
    WorldSize,
)
from wirespeed.model.units import GIGA, format_bandwidth, format_duration, format_size
from wirespeed.views.html import parts
from wirespeed.views.html.parts import Figure, Section, Spot
from wirespeed.views.prediction import between, sections, sentences, world_name

MOST_LINES = 8
"""Of one chart: bands over more could not be told apart. The tables hold all."""
_LONGEST = 48
"""Characters of a name in a legend."""
_BOUNDS = (0.8, 0.5)
_NOTE = "The band is the 95 % interval of a measurement to come; hollow: beyond what was measured"
_STOPS = "A cross marks where efficiency falls below 80 or 50 %: there it stops scaling."


@dataclass(frozen=True, slots=True)
class _Point:
    world: WorldSize
    figure: Estimate
    """In the unit of the axis."""
    said: str
    beyond: bool = False


_Lines = Mapping[str, Sequence[_Point]]
"""By name the points of each."""


def prediction_sections(prediction: Prediction, spot: Spot) -> Iterator[Section]:
    """In the order of the page; those that have nothing to say are left out."""
    tables = dict(sections(prediction, every=True))
    steps = {name: tables.pop(name) for name in ("Training steps",) if name in tables}
    told = ("Collectives", "Replayed steps")
    collectives = {name: tables.pop(name) for name in told if name in tables}
    for name, title, charts, shown in (
        ("steps", "Training steps", _step_charts, steps),
        ("collectives", "Collectives", _collective_charts, collectives),
        ("models", "What it rests on", None, tables),
    ):
        if shown:
            grids = {"name": name, "title": title, "tables": parts.html_tables(shown.items(), name)}
            drawn = list(charts(prediction, spot)) if charts else []
            yield parts.section(spot, name, title, "prediction.html", charts=drawn, **grids)


def prediction_head(prediction: Prediction, contents: str) -> str:
    """What it comes to, in words; what is refused, with the runs that would help."""
    found = len(prediction.collectives) + len(prediction.steps) + len(prediction.replays)
    refused = len(prediction.refusals)
    return parts.filled(
        "predicted.html",
        title="How fast on more nodes" if found else "Nothing could be predicted",
        kind="fail" if not found else "warn" if refused else "pass",
        facts=[f"{found} figures predicted", f"{refused} refused"],
        said=sentences(prediction),
        refusals=prediction.refusals,
        notes=prediction.notes,
        contents=contents,
    )


def _collective_charts(prediction: Prediction, spot: Spot) -> Iterator[dict[str, Any]]:
    """One an operation: its bus bandwidth, or its time where that has no meaning."""
    rows = prediction.collectives
    for number, op in enumerate(dict.fromkeys(one.op for one in rows), 1):
        own = [one for one in rows if one.op == op]
        rated = all(one.busbw.value > 0 for one in own)
        sizes = _by(own, lambda one: one.size_bytes)
        lines = {
            format_size(size): [_collective(one, rated) for one in part] for size, part in sizes
        }
        stars = [one for one in own if one.measured and one.time.value]
        title = f"{op}: {'bus bandwidth' if rated else 'time'} over {_axis_name(prediction)}"
        drawn = _figure(prediction, lines, "busbw, GB/s" if rated else "time, ms")
        if stars:
            x = [_at(prediction, one.world) for one in stars]
            y = [parts.six(_measured(one, rated)) for one in stars]
            marker = {"color": "--text", "size": 11, "symbol": "star"}
            hover = "measured: %{y:.4g}<extra></extra>"
            drawn["data"].append(parts.marks("measured", x, y, hover, marker))
        note = f"{_NOTE}; a star was measured." if stars else f"{_NOTE}."
        name = f"collectives-{number}-chart"
        yield parts.chart(spot, name, title, drawn, note, "collectives-1-caption")


def _collective(one: CollectiveTime, rated: bool) -> _Point:
    figure = _scaled(one.busbw, 1 / GIGA) if rated else _scaled(one.time, 1e3)
    said = f"{format_duration(one.time.value)} ({_span(one.time)})"
    if rated:
        said += f", {format_bandwidth(one.busbw.value)}"
    return _Point(one.world, figure, f"{said}, n={one.points}", bool(one.beyond))


def _measured(one: CollectiveTime, rated: bool) -> float:
    """The measured median in the unit of the axis: bandwidths go with the inverse of the time."""
    time = one.measured or one.time.value
    return one.busbw.value * one.time.value / time / GIGA if rated else time * 1e3


def _step_charts(prediction: Prediction, spot: Spot) -> Iterator[dict[str, Any]]:
    """Step and efficiency of each strategy with the bucket that is quickest on each world."""
    steps: dict[str, list[_Point]] = {}
    shares: dict[str, list[_Point]] = {}
    for name, own in _by(prediction.steps, lambda one: one.strategy):
        worlds = [part for _, part in _by(own, lambda one: one.world)]
        quickest = [min(part, key=lambda one: one.step.value) for part in worlds]
        steps[name], shares[name] = list(map(_step, quickest)), list(map(_efficiency, quickest))
    if not steps:
        return
    over, table = _axis_name(prediction), "steps-1-caption"
    drawn = _figure(prediction, steps, "step, ms")
    yield parts.chart(spot, "steps-time", f"Step time over {over}", drawn, f"{_NOTE}.", table)
    drawn = _figure(prediction, shares, "efficiency")
    drawn["layout"]["yaxis"] |= {"tickformat": ".0%", "range": [0, 1.05]}
    drawn["data"] += _stops(prediction.stretches)
    drawn["layout"]["shapes"] = [parts.level(bound) for bound in _BOUNDS]
    title, note = f"Efficiency over {over}", f"{_NOTE}. {_STOPS}"
    yield parts.chart(spot, "steps-efficiency", title, drawn, note, table)


def _step(one: StepTime) -> _Point:
    said = f"{_bucket(one)}{format_duration(one.step.value)} ({_span(one.step)}), n={one.samples}"
    return _Point(one.world, _scaled(one.step, 1e3), said)


def _efficiency(one: StepTime) -> _Point:
    share = one.efficiency
    said = f"{_bucket(one)}{share.value:.0%} ({share.low:.0%} … {share.high:.0%}), n={one.samples}"
    return _Point(one.world, share, said)


def _bucket(one: StepTime) -> str:
    return "" if one.bucket_mb is None else f"{one.bucket_mb:g} MB: "


def _stops(stretches: Iterable[Stretch]) -> list[Figure]:
    known = [(one, one.nodes) for one in stretches if one.nodes is not None]
    if not known:
        return []
    x, y = [nodes for _, nodes in known], [one.bound for one, _ in known]
    marker = {"color": "--bad", "size": 11, "symbol": "x"}
    drawn = parts.marks("stops scaling", x, y, "%{customdata}<extra></extra>", marker)
    said = [
        f"{parts.label(one.strategy)} below {one.bound:.0%} from {nodes} nodes on"
        for one, nodes in known
    ]
    return [drawn | {"customdata": said}]


def _figure(prediction: Prediction, lines: _Lines, unit: str) -> Figure:
    drawn = dict(islice(lines.items(), MOST_LINES))
    traces = [
        trace
        for index, (name, points) in enumerate(drawn.items())
        for trace in _traces(prediction, name, points, index)
    ]
    worlds = [point.world for points in drawn.values() for point in points]
    places = sorted({_at(prediction, world) for world in worlds})
    x = {
        "title": {"text": _axis_name(prediction), "font": {"size": 13}},
        "type": "log",
        "tickangle": 0,
        "tickvals": places,
        "ticktext": [f"{place:,}" for place in places],
    }
    y = {"title": parts.axis_title(unit), "rangemode": "tozero"}
    longest = min(max(map(len, drawn)), _LONGEST)
    layout = parts.curve_layout(x, y, len(drawn) + 1, longest + 2)
    return {"data": traces, "layout": layout}


def _traces(prediction: Prediction, title: str, told: Sequence[_Point], index: int) -> list[Figure]:
    """The band, then the line on it."""
    points = sorted(told, key=lambda point: _at(prediction, point.world))
    x = [_at(prediction, point.world) for point in points]
    name = parts.label(title[:_LONGEST])
    drawn = parts.curve(name, index, x, [parts.six(point.figure.value) for point in points])
    color, symbol = drawn["line"]["color"], drawn["marker"]["symbol"]
    drawn["marker"]["symbol"] = [f"{symbol}-open" if one.beyond else symbol for one in points]
    ends = [parts.six(point.figure.low) for point in points]
    ends += [parts.six(point.figure.high) for point in reversed(points)]
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": [*x, *reversed(x)],
            "y": ends,
            "fill": "toself",
            "fillcolor": color,
            "opacity": 0.16,
            "line": {"width": 0, "color": color},
            "hoverinfo": "skip",
            "showlegend": False,
        },
        drawn
        | {
            "customdata": [f"{world_name(point.world)}: {point.said}" for point in points],
            "hovertemplate": "%{customdata}<extra>%{fullData.name}</extra>",
        },
    ]


def _by(rows: Iterable[Any], key: Any) -> list[tuple[Any, list[Any]]]:
    """In the order in which each key comes first."""
    found: dict[Any, list[Any]] = {}
    for one in rows:
        found.setdefault(key(one), []).append(one)
    return list(found.items())


def _on_one_node(prediction: Prediction) -> bool:
    worlds = [one.world for one in prediction.collectives]
    worlds += [one.world for one in prediction.steps]
    return all(world.nodes == 1 for world in worlds)


def _axis_name(prediction: Prediction) -> str:
    return "ranks" if _on_one_node(prediction) else "nodes"


def _at(prediction: Prediction, world: WorldSize) -> int:
    return world.ranks if _on_one_node(prediction) else world.nodes


def _span(one: Estimate) -> str:
    return f"95 %: {between(one)}"


def _scaled(one: Estimate, factor: float) -> Estimate:
    return Estimate(one.value * factor, one.low * factor, one.high * factor)
