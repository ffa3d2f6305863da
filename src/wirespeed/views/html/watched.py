"""The user's own job in the page: steps over time, who was late when, what a step is made of.

Charts are plotly figures as plain dicts, drawn as wide as the page is.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wirespeed.model.records import Run
from wirespeed.model.units import format_duration
from wirespeed.model.watch_records import StepChange, Watched
from wirespeed.views import watched as words
from wirespeed.views.html import parts
from wirespeed.views.html.heatmap import COLORS
from wirespeed.views.html.parts import Figure, Section, Spot
from wirespeed.views.html.training_charts import whole_chart
from wirespeed.views.text import Grid, shortened
from wirespeed.views.watched import RankMeans, rank_name

_PARTS = {
    "data": "--c-data",
    "forward": "--c-forward",
    "backward": "--c-backward",
    "optimizer": "--c-optimizer",
    "blocked": "--c-synchronise",
    "checkpoint": "--c-activations",
    "gc": "--mark",
    "other": "--line",
}
_KINDS: tuple[tuple[str, str, Callable[[RankMeans], float | None]], ...] = (
    ("data", "--c-data", lambda one: one.data),
    ("other own work", "--c-backward", lambda one: _less(one.own, one.data)),
    ("blocked", "--c-synchronise", lambda one: one.blocked),
)
_MOST_IN_TABLE = 64
"""Ranks; of more the table has the latest, and a map of their own shows some of these."""
_LATEST = 16
_LEAST_SCALE, _MOST_SCALE, _BELOW = 0.1, 0.5, 0.25
"""Of a step: the brightest colour stands for no less, so that noise stays dark, and for no more, so
that one rank does not hide the others; and how far the scale goes down, of its way up."""
_ROW_PX = ((8, 28), (16, 24), (32, 16), (64, 9), (128, 5), (256, 3), (512, 2))
"""(up to so many ranks, pixels a row); above, one."""
_TICK_PX, _MOST_TICKS, _GAP_FROM_PX, _MOST_WITH_GAPS = 20, 4, 7, 60
_HOST = 14
_OUTLIER = 4.0
"""Times the longest of nearly all windows: what is above leaves the chart."""
_CHANGE_GAP = 0.05
"""Of the axis: numbers of changes that are nearer would overlap."""

_STEPS_NOTE = (
    "Median over ranks of the mean step of each window; a line marks where a change was found."
)
_LATE_NOTE = (
    "A rank's own work, its step without what it waits in communication, against that of the median "
    "rank: the brighter, the later, up to half a step. An empty cell is not known."
)
_WHOLE_NOTE = "Medians over ranks, so they need not add up to the step."
_RANKS_NOTE = (
    "Means over all windows. Who is late at its own work is blocked least: the others wait."
)


def watched_section(run: Run, spot: Spot) -> Iterator[Section]:
    """Nothing of other runs."""
    if run.watched is not None:
        yield parts.section(
            spot,
            "watched",
            "The watched job",
            "watched.html",
            said=[f"{one[0].upper()}{one[1:]}." for one in words.conclusion(run.watched)],
            parts=list(_parts(run.watched, spot)),
            notes=[*_missing(run.watched), *words.unseen(run.watched)],
        )


def _missing(watched: Watched) -> Iterator[str]:
    if watched.windows and not any(one.own for one in watched.windows):
        large = watched.world_size > 1024
        why = "is kept of at most 1,024 ranks" if large else "was not seen"
        yield f"What each rank did by itself {why}."


def _parts(watched: Watched, spot: Spot) -> Iterator[dict[str, Any]]:
    """Charts, each set with the table that says the same; a long table is folded away."""
    changes = words.changes_grid(watched.changes)
    yield _part(spot, "changes", changes, "what changed")
    yield _steps(watched, spot)
    yield from _ranks(watched, spot)
    yield _whole(watched, spot)
    title, grid = words.traffic_table(watched, every=True)
    yield _part(spot, "traffic", grid, title)


def _part(
    spot: Spot,
    name: str,
    grid: Grid,
    caption: str,
    charts: Sequence[dict[str, Any]] = (),
    folded: str = "",
) -> dict[str, Any]:
    table = parts.html_table(grid, caption, spot.id(f"watched-{name}")) if grid.rows else ""
    return {"charts": charts, "table": table, "folded": folded if table else ""}


def _chart(spot: Spot, name: str, title: str, figure: Figure, note: str, table: str) -> Any:
    table = spot.id(f"watched-{table}-caption")
    return parts.chart(spot, f"watched-{name}", title, figure, note, table)


def _steps(watched: Watched, spot: Spot) -> dict[str, Any]:
    charts = []
    if watched.windows:
        top, beyond = _top([1e3 * one.step for one in watched.windows])
        note = _STEPS_NOTE
        note += f" {beyond} of the windows took longer than the chart shows." if beyond else ""
        figure = steps_chart(watched, top)
        charts.append(_chart(spot, "steps-chart", "Step time", figure, note, "steps"))
    grid = words.windows_grid(watched)
    return _part(spot, "steps", grid, "each window of steps", charts, "Figures by steps")


def _top(values: Sequence[float]) -> tuple[float, int]:
    """(end of the axis, how many are above): a first step that compiles would flatten all others."""
    usual = sorted(values)[int(0.95 * (len(values) - 1))]
    most = max(values)
    if most <= _OUTLIER * usual or usual <= 0:
        return 1.08 * most or 1.0, 0
    top = 2 * usual
    return top, sum(one > top for one in values)


def steps_chart(watched: Watched, top: float) -> Figure:
    """ms over steps, a level a window, with the changes. top: end of the axis, ms."""
    windows = watched.windows
    said = [f"steps {words.span(one)}: {format_duration(one.step)}" for one in windows]
    last = windows[-1].first_step + windows[-1].steps
    trace = {
        "type": "scatter",
        "mode": "lines",
        "name": "step",
        "x": [*(one.first_step for one in windows), last],
        "y": [parts.six(1e3 * one.step) for one in (*windows, windows[-1])],
        "line": {"color": "--c-backward", "width": 2, "shape": "hv"},
        "customdata": [*said, said[-1]],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    ends = [windows[0].first_step, last]
    x = {
        "title": parts.axis_title("step"),
        "range": ends,
        "nticks": 7,
        "tickangle": 0,
        "tickformat": ",d",
    }
    y = {"title": parts.axis_title("ms a step"), "range": [0, top]}
    layout = parts.curve_layout(x, y, 0, 0) | {"showlegend": False}
    layout["shapes"] = [shape for one in watched.changes for shape in _change(one)]
    layout["annotations"] = list(_numbers(watched.changes, *ends))
    return {"data": [trace], "layout": layout}


def _change(one: StepChange) -> Iterator[Figure]:
    """A line at the step, and its interval behind it."""
    upright = {"yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    line = {"color": "--mark", "width": 1.5}
    yield {"type": "line", "x0": one.step, "x1": one.step, "line": line} | upright
    band = {"type": "rect", "x0": one.low_step, "x1": one.high_step, "line": {"width": 0}}
    yield band | {"fillcolor": "--mark", "opacity": 0.2} | upright


def _numbers(changes: Sequence[StepChange], begin: int, end: int) -> Iterator[Figure]:
    """The step above the line of a change, and about whom it is."""
    free = float(begin) - 1
    for one in sorted(changes, key=lambda one: one.step):
        if begin <= one.step <= end and one.step >= free:
            free = one.step + _CHANGE_GAP * (end - begin)
            yield {
                **{"x": one.step, "y": 1, "yref": "paper", "yanchor": "bottom"},
                **{"showarrow": False, "font": {"size": 12, "color": "--mark"}},
                **{"text": f"{one.step:,}", "hovertext": parts.label(one.subject)},
            }


def _ranks(watched: Watched, spot: Spot) -> Iterator[dict[str, Any]]:
    """Maps of lateness and bars by rank, where ranks are known."""
    found = words.ranks_of(watched)
    if not found:
        return
    charts, every = [], range(len(found))
    if any(one.late is not None for one in found):
        late = words.latest(found, _LATEST)
        if len(found) > _MOST_IN_TABLE:
            some = sorted(one.rank for one in late)
            title = f"Lateness of the {len(some)} latest ranks"
            figure = lateness_chart(watched, some)
            charts.append(_chart(spot, "latest-chart", title, figure, _LATE_NOTE, "ranks"))
        title = f"Lateness of {'every rank' if len(found) > 1 else 'the rank'}"
        figure = lateness_chart(watched, every)
        charts.append(_chart(spot, "late-chart", title, figure, _LATE_NOTE, "ranks"))
    charts.append(
        _chart(spot, "ranks-chart", "A step by rank", ranks_chart(found), _RANKS_NOTE, "ranks")
    )
    shown, caption = found, "each rank: means over all windows"
    if len(found) > _MOST_IN_TABLE:
        shown = words.latest(found, _MOST_IN_TABLE)
        caption = f"the {_MOST_IN_TABLE} latest of {len(found):,} ranks: means over all windows"
    grid = words.ranks_grid(watched, shown)
    yield _part(spot, "ranks", grid, caption, charts, "Figures by rank")


def lateness_chart(watched: Watched, ranks: Sequence[int]) -> Figure:
    """A row a rank, a column a window; ms against the median rank of that window."""
    columns = [words.lateness(one) for one in watched.windows]
    rows = [[_ms(column, rank) for column in columns] for rank in ranks]
    scale = 1e3 * (watched.step or max(one.step for one in watched.windows))
    # Of all ranks, so that maps of the same job compare.
    most = 1e3 * max((late for one in columns for late in one if late is not None), default=0.0)
    high = min(max(most, _LEAST_SCALE * scale), _MOST_SCALE * scale) or 1.0
    pixels = next((px for count, px in _ROW_PX if len(ranks) <= count), 1)
    gap = int(pixels >= _GAP_FROM_PX and len(columns) <= _MOST_WITH_GAPS)
    trace = {
        "type": "heatmap",
        "x": [f"steps {words.span(one)}" for one in watched.windows],
        "y": [parts.label(rank_name(rank, words.host_of(watched, rank))) for rank in ranks],
        "z": rows,
        **{"zmin": -_BELOW * high, "zmax": high, "xgap": gap, "ygap": gap},
        "colorscale": [list(stop) for stop in COLORS],
        "colorbar": _colorbar(high),
        "hoverongaps": False,
        "hovertemplate": "%{y}<br>%{x}<br>%{z:+.3~f} ms<extra></extra>",
    }
    return {"data": [trace], "layout": _map_layout(watched, ranks, pixels)}


def _ms(column: Sequence[float | None], rank: int) -> float | None:
    late = column[rank] if rank < len(column) else None
    return None if late is None else float(f"{1e3 * late:.3g}")


def _colorbar(high: float) -> Figure:
    """Lying above the map, so that a narrow page has all its width for the map."""
    return {
        **{"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom"},
        **{"len": 0.85, "thickness": 10, "outlinewidth": 0, "ypad": 6, "xpad": 0},
        **{"tickvals": [0, high], "ticktext": ["median", f"+{format_duration(high / 1e3)}"]},
        **{"ticklabelposition": "outside top", "tickangle": 0},
    }


def _map_layout(watched: Watched, ranks: Sequence[int], pixels: int) -> Figure:
    step = 1
    while step * pixels < _TICK_PX:
        step *= 2
    rows = range(0, len(ranks), step)
    few = len(ranks) <= _LATEST
    hosts = [words.host_of(watched, rank) if few else "" for rank in ranks]
    texts = [parts.label(f"{ranks[row]} {shortened(hosts[row], _HOST)}".strip()) for row in rows]
    columns = range(0, len(watched.windows), -(-len(watched.windows) // _MOST_TICKS))
    plain = {"type": "category", "showgrid": False, "zeroline": False, "automargin": True}
    above = 62
    return {
        "height": above + pixels * len(ranks) + 52,
        "margin": {"l": 10, "r": 16, "t": above, "b": 52},
        "xaxis": plain
        | {"title": parts.axis_title("step"), "tickvals": list(columns), "tickangle": 0}
        | {"ticktext": [f"{watched.windows[at].first_step:,}" for at in columns]},
        "yaxis": plain
        | {"title": parts.axis_title("rank"), "autorange": "reversed"}
        | {"tickvals": list(rows), "ticktext": texts},
    }


def ranks_chart(ranks: Sequence[RankMeans]) -> Figure:
    """Stacked, ms of a step by what the rank did; areas where bars would be thinner than a pixel."""
    traces = []
    for kind, color, of in _KINDS:
        values = [of(one) for one in ranks]
        if any(values):
            traces.append(_stacked(kind, color, ranks, values))
    x = {"title": parts.axis_title("rank"), "nticks": 7, "tickangle": 0, "tickformat": ",d"}
    x |= {"showgrid": False}
    x |= {"tickvals": [one.rank for one in ranks]} if len(ranks) <= 8 else {}
    y = {"title": parts.axis_title("ms a step"), "rangemode": "tozero"}
    layout = parts.curve_layout(x, y, len(traces), 14)
    return {"data": traces, "layout": layout | {"barmode": "stack", "bargap": 0.3}}


def _stacked(
    kind: str, color: str, ranks: Sequence[RankMeans], values: Sequence[float | None]
) -> Figure:
    few = len(ranks) <= _MOST_IN_TABLE
    shape: Figure = {"type": "bar", "marker": {"color": color}}
    area = {"line": {"color": color, "width": 1.5, "shape": "hvh"}, "fillcolor": color}
    area |= {"type": "scatter", "mode": "lines", "stackgroup": "step"}
    return (shape if few else area) | {
        "name": kind,
        "x": [one.rank for one in ranks],
        "y": [0 if value is None else parts.six(1e3 * value) for value in values],
        "customdata": [parts.label(one.name) for one in ranks],
        "hovertemplate": f"%{{customdata}}<br>{kind} %{{y:.3~f}} ms<extra></extra>",
    }


def _less(whole: float | None, part: float | None) -> float | None:
    return None if whole is None else max(0.0, whole - (part or 0.0))


def _whole(watched: Watched, spot: Spot) -> dict[str, Any]:
    """One bar of what a step is made of."""
    told = [(name, watched.parts_ms.get(name, 0.0) / 1e3) for name in _PARTS]
    kept = [(name, seconds) for name, seconds in told if seconds > 0]
    charts = []
    if kept:
        figure = whole_chart(kept, _PARTS, unit="ms")
        charts.append(
            _chart(spot, "parts-chart", "What a step is made of", figure, _WHOLE_NOTE, "parts")
        )
    grid = words.parts_grid(watched)
    return _part(spot, "parts", grid, "where a step goes (median over ranks)", charts)
