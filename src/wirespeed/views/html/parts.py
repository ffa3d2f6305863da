"""What sections of the HTML page are made of: places, templates, tables, charts."""

import base64
import hashlib
import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from wirespeed.model.units import format_size
from wirespeed.views.text import Grid, Style

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a run stands in the page: a page of several runs holds the same sections several times."""

    at: str = ""
    """What every id of this run begins with: empty, or `91ae33fe-`; never foreign text."""
    level: int = 2
    """Of the headings of its sections."""

    @property
    def below(self) -> int:
        """Of the headings within a section."""
        return self.level + 1

    def id(self, name: str) -> str:
        return f"{self.at}{name}"


@dataclass(frozen=True, slots=True)
class Section:
    """One section of the page. What has nothing to say gives none."""

    id: str
    title: str
    """As the list of contents names it."""
    html: str


def section(spot: Spot, name: str, listed: str, template: str, /, **values: Any) -> Section:
    """A template as a section; listed: its title in the list of contents."""
    return Section(spot.id(name), listed, filled(template, spot=spot, **values))


_PLAIN = Style()
_JSON_IN_HTML = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def filled(template: str, /, *, of: str = "", **values: Any) -> "Markup":
    """A template of templates/ with these values; `of`: another package, whose templates come first."""
    from markupsafe import Markup

    # Autoescape is on: what a template gives is HTML, and safe to put into another.
    return Markup(_environment(of).get_template(template).render(values))


@cache
def _environment(package: str) -> "Environment":
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    packages = filter(None, (package, "wirespeed.views"))
    return Environment(
        loader=ChoiceLoader([PackageLoader(one) for one in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _clean(value: Any) -> Any:
    """Foreign text without control characters and marks that turn it around; its lines stay."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return "\n".join(_PLAIN.text(line) for line in value.split("\n"))
    return value


def source(name: str, of: str = "wirespeed.views") -> "Markup":
    """A file of ours, as it is."""
    from markupsafe import Markup

    return Markup((files(of) / "templates" / name).read_text("utf-8"))


def plotly_script() -> "Markup":
    """plotly.js (MIT)."""
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    return Markup(get_plotlyjs())


def policy(scripts: Sequence["Markup"]) -> str:
    """Content security policy: only these very scripts run, and nothing is fetched from anywhere."""
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def script_json(value: Any) -> "Markup":
    """JSON that cannot end the script element it stands in."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.translate(_JSON_IN_HTML))


_TONES = {"red": "fail", "green": "pass", "yellow": "warn"}


def html_table(
    grid: Grid, caption: str, name: str, links: Mapping[tuple[int, int], str] | None = None
) -> "Markup":
    """`name` becomes its id; as in the text form, a column without a single cell is left out.

    links: where a cell leads to, by its row and column.
    """
    shown = grid.shown
    rows = [
        [
            {
                "text": cells[i],
                "left": grid.columns[i].left,
                "tone": _TONES.get(grid.color(number, i), ""),
                "link": (links or {}).get((number, i), ""),
            }
            for i in shown
        ]
        for number, cells in enumerate(grid.rows)
    ]
    titles = [grid.columns[i] for i in shown]
    return filled("table.html", name=name, caption=caption, titles=titles, rows=rows)


def html_tables(found: Iterable[tuple[str, Grid]], name: str) -> "list[Markup]":
    """(caption, grid) of each; their ids are `name` with a number."""
    return [html_table(grid, title, f"{name}-{i}") for i, (title, grid) in enumerate(found, 1)]


Figure = dict[str, Any]

LINES = ("--c-backward", "--mark", "--good", "--c-violet", "--c-gold", "--soft")
"""Colours of lines, as names of the page's variables; each stands out from the page by 3 to 1."""
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star")
_HEIGHT, _LEGEND_ROW_PX = 320, 22
_MOST_TICKS = 5
LEGEND: Figure = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom"}


def chart(
    spot: Spot, name: str, title: str, figure: Figure, note: str, table: str = ""
) -> dict[str, Any]:
    """What chart.html takes. table: id of the element that says the same in figures."""
    return {
        "name": spot.id(name),
        "title": title,
        "note": note,
        "table": table or f"{spot.id(name)}-1-caption",
        "height": figure["layout"]["height"],
        "json": script_json(figure),
    }


def label(name: str) -> str:
    """A name as plotly may show it: no HTML, no control characters."""
    return html.escape(_PLAIN.text(name))


def six(value: float) -> float:
    """Six digits, which no picture shows more of."""
    return float(f"{value:.6g}")


def axis_title(text: str) -> Figure:
    return {"text": text, "font": {"size": 13}, "standoff": 8}


def curve(name: str, index: int, x: Sequence[float], y: Sequence[float]) -> Figure:
    """A line with marks; each index looks another way."""
    color, dash = LINES[index % len(LINES)], DASHES[index // len(LINES) % len(DASHES)]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": x,
        "y": y,
        "line": {"color": color, "width": 2, "dash": dash},
        "marker": {"color": color, "size": 8, "symbol": SYMBOLS[index % len(SYMBOLS)]},
    }


def marks(
    name: str, x: Sequence[float | None], y: Iterable[float], hover: str, marker: Figure
) -> Figure:
    """Single marks."""
    drawn = {"type": "scatter", "mode": "markers", "name": name, "x": x, "y": list(y)}
    return drawn | {"marker": marker, "hovertemplate": hover}


def level(y: float, dash: str = "dot") -> Figure:
    """A line from one side to the other, behind all else."""
    line = {"color": "--soft", "width": 1, "dash": dash}
    ends = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y}
    return ends | {"line": line, "layer": "below"}


def curve_layout(x: Figure, y: Figure, lines: int, names: int) -> Figure:
    """names: the characters of the longest name, which tell how many fit in a row of the legend."""
    rows = math.ceil(max(lines, 1) * (names * 7 + 60) / 480)
    above = 18 + _LEGEND_ROW_PX * rows
    return {
        "height": _HEIGHT + above,
        "margin": {"l": 10, "r": 16, "t": above, "b": 52},
        "xaxis": {"gridcolor": "--line", "zeroline": False, "automargin": True} | x,
        "yaxis": {"gridcolor": "--line", "zerolinecolor": "--line", "automargin": True} | y,
        "legend": LEGEND,
        "showlegend": True,
    }


def size_axis(sizes: Sequence[int]) -> Figure:
    """A logarithmic axis whose ticks are sizes that were measured."""
    known = sorted({size for size in sizes if size > 0}) or [1]
    low, high = math.log10(known[0]), math.log10(known[-1])
    ticks = known[:1]
    for size in known[1:]:
        if math.log10(size / ticks[-1]) >= (high - low) / _MOST_TICKS:
            ticks.append(size)
    room = max(0.1, 0.04 * (high - low))
    return {
        # No `standoff`: where a label does not fit, Plotly would put the title at minus infinity.
        "title": {"text": "size", "font": {"size": 13}},
        "type": "log",
        "tickangle": 0,
        "tickvals": ticks,
        "ticktext": [format_size(size) for size in ticks],
        "range": [low - room, high + room],
    }


def whiskers(ends: Sequence[tuple[float, ...]], color: str) -> Figure:
    """ends: how far each interval reaches (down, up), in the unit of the axis."""
    return {
        "type": "data",
        "symmetric": False,
        "arrayminus": [down for down, _ in ends],
        "array": [up for _, up in ends],
        "color": color,
        "thickness": 1.2,
        "width": 3,
    }


def study(
    spot: Spot,
    name: str,
    listed: str,
    title: str,
    found: Iterable[tuple[str, Grid]],
    *,
    label: str = "",
    said: str = "",
    charts: Sequence[dict[str, Any]] = (),
    notes: Sequence[str] = (),
) -> Section:
    """One sentence, charts, tables as (caption, grid), notes; `label` begins tables' ids."""
    tables = html_tables(found, spot.id(label or name))
    told = {"said": said, "charts": charts, "tables": tables, "notes": notes}
    return section(spot, name, listed, "training.html", name=name, title=title, **told)
