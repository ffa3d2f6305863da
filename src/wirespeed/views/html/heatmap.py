"""The pair matrix as a heat map: a plotly figure as a plain dict, so that no plotly is needed for it.

Host names come from other machines. Plotly reads a little HTML in labels, so they are escaped here.
"""

import html
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import median
from typing import Any, Literal

from wirespeed.model.records import Located, PairFigures
from wirespeed.model.units import GIGA, format_duration
from wirespeed.views.html.parts import label
from wirespeed.views.pairs import Suspects
from wirespeed.views.text import Style

Quantity = Literal["bandwidth", "latency"]

COLORS: tuple[tuple[float, str], ...] = (
    (0.0, "rgb(39,63,108)"),
    (0.2, "rgb(76,85,107)"),
    (0.36, "rgb(104,106,112)"),
    (0.5, "rgb(131,129,120)"),
    (0.64, "rgb(161,152,118)"),
    (0.79, "rgb(192,177,109)"),
    (0.93, "rgb(225,204,92)"),
    (1.0, "rgb(255,233,69)"),
)
"""From usual to slow: cividis without its darkest end, which a dark page would swallow.

Cividis was made so that colour-blind and other readers see the same picture (Nuñez, Anderton,
Renslow, 2018, doi 10.1371/journal.pone.0199239). Its lightness rises evenly, so it prints grey, too.
"""

_TICKS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""Times slower than usual."""
_MOST, _LEAST_MOST = 8.0, 2.0
"""The brightest colour stands for no more, so that 8 and 100 times look alike, and for no less, so
that noise stays dark."""
_BELOW = 0.25
"""Share of the way up that the scale goes down: what is faster than usual needs fewer colours."""
_TICK_GAP = 0.11
"""Of the bar's length: ticks that are nearer than this would overlap."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Figures to colours: z is log2 of (times slower than usual)."""

    quantity: Quantity
    usual: float
    """What a good pair shows: bytes a second or seconds."""
    low: float
    high: float
    """z of the ends of the colour bar."""

    def z(self, value: float) -> float:
        """Of a rate that is 0 the end of the scale."""
        return round(_slowness(self.quantity, self.usual, value, self.high), 3)

    def colorbar(self) -> dict[str, Any]:
        """The colour bar of plotly for this scale: the figures, and times slower than usual."""
        kept: list[float] = []
        gap = _TICK_GAP * (self.high - self.low)
        for times in _TICKS:
            z = math.log2(times)
            fits = self.low - 1e-9 <= z <= self.high + 1e-9
            if fits and (not kept or z - math.log2(kept[-1]) >= gap):
                kept.append(times)
        return {
            "tickvals": [math.log2(times) for times in kept],
            "ticktext": [self._tick(times) for times in kept],
            "thickness": 14,
            "outlinewidth": 0,
        }

    def _tick(self, times: float) -> str:
        value = self.usual / times if self.quantity == "bandwidth" else self.usual * times
        text = figure_text(self.quantity, value)
        more = "+" if times == _MOST else ""
        return f"{text}  usual" if times == 1 else f"{text}  {times:g}×{more}"


def scale_for(quantity: Quantity, usual: float, values: Iterable[float]) -> Scale:
    """A scale that reaches to the slowest of `values`, within reason."""
    least, most = math.log2(_LEAST_MOST), math.log2(_MOST)
    slowest = max((_slowness(quantity, usual, value, most) for value in values), default=least)
    high = min(max(slowest, least), most)
    return Scale(quantity, usual, -_BELOW * high, high)


def _slowness(quantity: Quantity, usual: float, value: float, worst: float) -> float:
    if value <= 0 or usual <= 0:
        return worst if quantity == "bandwidth" else 0.0
    times = usual / value if quantity == "bandwidth" else value / usual
    return math.log2(times)


def figure_text(quantity: Quantity, value: float) -> str:
    """`49.0` GB/s without its unit, `6.34 µs` with it; three digits."""
    if quantity == "latency":
        return format_duration(value)
    rate = value / GIGA
    if rate >= 999.5:
        return f"{rate:,.0f}"
    return f"{rate:#.3g}".rstrip(".") if rate else "0"


MOST_IN_MAP = 128
"""Nodes; with more, a cell would be smaller than what a mouse can point at."""
SHOWN_OF_MANY = 24
"""Rows of a larger fleet: the nodes that are named or slowest. All others share one more row."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The rows, which are the columns too."""

    names: tuple[str, ...]
    index: dict[str, int]
    """Row of each node."""
    folded: int = 0
    """Nodes that share the last row; 0: each has its own."""


@dataclass(frozen=True, slots=True)
class Cell:
    """From the node of the row to that of the column: medians over rounds and rails."""

    rate: float
    """Bytes a second; 0: nothing came through."""
    latency: float | None
    """Seconds; None: no reading has one."""
    readings: int


Cells = dict[tuple[int, int], Cell]
"""(row, column) of the pairs that were measured."""


def axis_of(located: Located, named: Sequence[str]) -> Axis:
    """Every node up to `MOST_IN_MAP`; of more, those of `named` and the slowest, in their order."""
    if len(located.nodes) <= MOST_IN_MAP:
        return Axis(located.nodes, {node: row for row, node in enumerate(located.nodes)})
    chosen = set(list(dict.fromkeys((*named, *_slowest_first(located))))[:SHOWN_OF_MANY])
    shown = [node for node in located.nodes if node in chosen]
    index = {node: len(shown) for node in located.nodes}
    index.update((node, row) for row, node in enumerate(shown))
    folded = len(located.nodes) - len(shown)
    return Axis((*shown, f"median of {folded:,} others"), index, folded)


def _slowest_first(located: Located) -> list[str]:
    rates: dict[str, list[float]] = defaultdict(list)
    for pair in located.pairs:
        for node in (pair.first, pair.second):
            rates[node] += (pair.forth, pair.back)
    return sorted(rates, key=lambda node: median(rates[node]))


def cells_of(pairs: Iterable[PairFigures], axis: Axis) -> Cells:
    rates: dict[tuple[int, int], list[float]] = defaultdict(list)
    late: dict[tuple[int, int], list[float]] = defaultdict(list)
    for pair in pairs:
        row, column = axis.index.get(pair.first), axis.index.get(pair.second)
        if row is None or column is None:
            continue
        for place, rate in (((row, column), pair.forth), ((column, row), pair.back)):
            if math.isfinite(rate):
                rates[place].append(rate)
                late[place] += _known(pair)
    return {
        place: Cell(median(found), median(late[place]) if late[place] else None, len(found))
        for place, found in rates.items()
    }


def _known(pair: PairFigures) -> list[float]:
    """The latency, where there is one: in a stored run it may be anything that JSON can say."""
    return [] if pair.latency is None or not math.isfinite(pair.latency) else [pair.latency]


def usual_figures(located: Located, named: frozenset[str]) -> dict[Quantity, float]:
    """Bytes a second and seconds: the medians of the readings without a node of `named`.

    Of all readings where none is without; 0 where there is none at all.
    """
    others = [pair for pair in located.pairs if named.isdisjoint((pair.first, pair.second))]
    pairs = others or located.pairs
    rates = [rate for pair in pairs for rate in (pair.forth, pair.back) if 0 < rate < math.inf]
    late = [latency for pair in pairs for latency in _known(pair)]
    return {"bandwidth": median(rates) if rates else 0.0, "latency": median(late) if late else 0.0}


NOT_MEASURED = "not measured"
_NOBODY = Suspects()
_MARK = "▶ "
_LONGEST = 26
"""Characters of a name on an axis; the hover text has the whole of it."""
_CELL_PX = ((6, 72), (8, 60), (12, 50), (16, 44), (32, 22), (48, 16), (64, 12), (128, 6))
_SMALL_CELL_PX = ((8, 36), (16, 22), (32, 11), (64, 6), (128, 4))
"""(up to so many rows, pixels a cell)."""
_TEXT_FROM_PX, _GAP_FROM_PX = 44, 7
"""Cells from which on a figure fits in, and a line between two of them hides neither."""
_LABEL_PX, _CHAR_PX = 13, 7.5
_BAR_PX, _EDGE_PX = 124, 14
_MARK_COLOR = "#d55e00"


class Maps:
    """Maps of the same pairs; what they share is made once, since a run may have 80,000 pairs.

    The scale is the same for the whole and every rail, so that they compare.
    """

    def __init__(self, located: Located, suspects: Suspects = _NOBODY) -> None:
        self.axis = axis_of(located, suspects.named)
        self.pairs: dict[int | None, list[PairFigures]] = defaultdict(list)
        """By rail; None: of all."""
        for pair in located.pairs:
            self.pairs[pair.rail].append(pair)
        self.pairs[None] = list(located.pairs)
        self.suspects = suspects
        self._cells: dict[int | None, Cells] = {}
        self._usual = usual_figures(located, frozenset(suspects.named))

    def figure(self, quantity: Quantity = "bandwidth", rail: int | None = None) -> dict[str, Any]:
        """A plotly figure: from the node of the row to that of the column.

        That of one rail has no colour bar and fewer labels, to stand beside others of its kind.
        """
        whole = rail is None
        pixels = _cell_px(len(self.axis.names), small=not whole)
        traces = _traces(self.axis, self._of(rail), self._scale(quantity), pixels, bar=whole)
        layout = _layout(self.axis, self.suspects, pixels, bar=whole)
        return {"data": traces, "layout": layout}

    def _of(self, rail: int | None) -> Cells:
        if rail not in self._cells:
            self._cells[rail] = cells_of(self.pairs[rail], self.axis)
        return self._cells[rail]

    def _scale(self, quantity: Quantity) -> Scale:
        return scale_for(
            quantity, self._usual[quantity], _values(self._of(None), quantity).values()
        )


def _values(cells: Cells, quantity: Quantity) -> dict[tuple[int, int], float]:
    """Of the cells that have one."""
    values = {
        place: cell.rate if quantity == "bandwidth" else cell.latency
        for place, cell in cells.items()
    }
    return {place: value for place, value in values.items() if value is not None}


def _traces(
    axis: Axis, cells: Cells, scale: Scale, pixels: int, *, bar: bool
) -> list[dict[str, Any]]:
    """The cells that have a figure; those without one are as the page behind them, and say why."""
    values = _values(cells, scale.quantity)
    measured = _trace(axis, {place: scale.z(value) for place, value in values.items()}, pixels)
    measured |= {
        "name": "measured",
        "zmin": scale.low,
        "zmax": scale.high,
        "colorscale": [list(stop) for stop in COLORS],
        "showscale": bar,
        "customdata": _grid(axis, {place: _said(cells[place]) for place in values}, ""),
    }
    measured |= {"colorbar": scale.colorbar()} if bar else {}
    if pixels >= _TEXT_FROM_PX:
        shown = {place: figure_text(scale.quantity, value) for place, value in values.items()}
        measured |= {"text": _grid(axis, shown, ""), "texttemplate": "%{text}"}
    missing = [place for place in _pairs(axis) if place not in values]
    why = dict.fromkeys(missing, NOT_MEASURED)
    why |= {at: f"latency not measured, {_said(cells[at])}" for at in missing if at in cells}
    empty = _trace(axis, dict.fromkeys(missing, 0), pixels) | {
        "name": NOT_MEASURED,
        "colorscale": [[0, "#ffffff"], [1, "#ffffff"]],
        "showscale": False,
        "customdata": _grid(axis, why, ""),
    }
    return [measured, empty]


def _pairs(axis: Axis) -> Iterator[tuple[int, int]]:
    """Every cell but those of a node with itself; the shared last row has pairs of its own."""
    size = len(axis.names)
    for row in range(size):
        for column in range(size):
            if row != column or (axis.folded and row == size - 1):
                yield row, column


def _trace(axis: Axis, z: Mapping[tuple[int, int], float], pixels: int) -> dict[str, Any]:
    names = [label(name) for name in axis.names]
    gap = 1 if pixels >= _GAP_FROM_PX else 0
    return {
        "type": "heatmap",
        "x": names,
        "y": names,
        "z": _grid(axis, z, None),
        "xgap": gap,
        "ygap": gap,
        "hoverongaps": False,
        "hovertemplate": "%{y} → %{x}<br>%{customdata}<extra></extra>",
    }


def _grid(axis: Axis, values: Mapping[tuple[int, int], Any], missing: Any) -> list[list[Any]]:
    size = range(len(axis.names))
    return [[values.get((row, column), missing) for column in size] for row in size]


def _said(cell: Cell) -> str:
    rate = f"{figure_text('bandwidth', cell.rate)} GB/s" if cell.rate else "nothing came through"
    late = "latency not known"
    if cell.latency is not None:
        late = f"latency {figure_text('latency', cell.latency)}"
    median = f", medians of {cell.readings} readings" if cell.readings > 1 else ""
    return f"{rate}, {late}{median}"


def _layout(axis: Axis, suspects: Suspects, pixels: int, *, bar: bool) -> dict[str, Any]:
    places, texts = _ticks(axis, suspects, pixels)
    longest = round(_CHAR_PX * max((len(text) for text in texts), default=0))
    room = _EDGE_PX + longest
    side = pixels * len(axis.names)
    shared = {
        "type": "category",
        "tickvals": places,
        "ticktext": [_tick(text) for text in texts],
        "showgrid": False,
        "zeroline": False,
        "fixedrange": side < 400,
        "constrain": "domain",
    }
    flat = longest <= pixels
    above, right = 34 if flat else room, _BAR_PX if bar else _EDGE_PX
    return {
        "width": room + side + right + 24,
        "height": above + side + _EDGE_PX + 24,
        "margin": {"l": room + 24, "r": right, "t": above + 24, "b": _EDGE_PX},
        "xaxis": shared
        | {"side": "top", "tickangle": 0 if flat else -90, "title": {"text": "to", "standoff": 4}},
        "yaxis": shared | {"autorange": "reversed", "title": {"text": "from", "standoff": 4}},
        "shapes": list(_shapes(axis, suspects)),
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "#d5d8dc",
        "font": {"size": 12},
        "hoverlabel": {"align": "left"},
    }


def _ticks(axis: Axis, suspects: Suspects, pixels: int) -> tuple[list[int], list[str]]:
    """(rows, texts): those named by a finding first, then as many others as there is room for."""
    named = [axis.index[node] for node in suspects.named if node in axis.index]
    own = [row for row in range(len(axis.names)) if axis.folded and row == len(axis.names) - 1]
    taken: list[int] = []
    step = -(-_LABEL_PX // pixels)
    others = range(0, len(axis.names), step)
    for row in (*named, *own, *others):
        if all(abs(row - other) >= step for other in taken):
            taken.append(row)
    taken.sort()
    domain = _domain(axis.names[:-1] if axis.folded else axis.names)
    shown = [axis.names[row].removesuffix(domain) for row in taken]
    return taken, [_shown(name, row in named) for name, row in zip(shown, taken, strict=True)]


def _domain(names: Sequence[str]) -> str:
    """What all names end in after their first dot, such as `.example.org`; never part of an address."""
    if len(names) < 2 or not any(one.isalpha() for name in names for one in name):
        return ""
    endings = zip(*(name.split(".")[:0:-1] for name in names), strict=False)
    shared = [labels[0] for labels in takewhile(lambda labels: len(set(labels)) == 1, endings)]
    return "".join(f".{label}" for label in reversed(shared))


def _shown(name: str, named: bool) -> str:
    """Both ends of a long name stay: hosts differ at the one or at the other."""
    clean = Style().text(name)
    if len(clean) > _LONGEST:
        half = _LONGEST // 2
        clean = f"{clean[: half - 1]}…{clean[-half:]}"
    return f"{_MARK}{clean}" if named else clean


def _tick(text: str) -> str:
    shown = html.escape(text)
    return f"<b>{shown}</b>" if text.startswith(_MARK) else shown


def _shapes(axis: Axis, suspects: Suspects) -> Iterator[dict[str, Any]]:
    """Frames: the row and the column of a node, the two cells of a link."""
    end = len(axis.names) - 0.5
    for node in suspects.nodes:
        row = axis.index[node]
        yield _frame(-0.5, row - 0.5, end, row + 0.5)
        yield _frame(row - 0.5, -0.5, row + 0.5, end)
    for first, second in suspects.links:
        for y, x in ((first, second), (second, first)):
            column, row = axis.index[x], axis.index[y]
            yield _frame(column - 0.5, row - 0.5, column + 0.5, row + 0.5)


def _frame(x0: float, y0: float, x1: float, y1: float) -> dict[str, Any]:
    line = {"color": _MARK_COLOR, "width": 2}
    return {"type": "rect", "x0": x0, "y0": y0, "x1": x1, "y1": y1, "line": line}


def _cell_px(rows: int, small: bool) -> int:
    sizes = _SMALL_CELL_PX if small else _CELL_PX
    return next(pixels for most, pixels in sizes if rows <= most)
