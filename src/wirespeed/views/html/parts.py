"""What sections of the HTML page are made of: places, templates, tables, charts."""

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
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
    """One section of the page; `html` is empty where it has nothing to say."""

    id: str
    title: str
    """As the list of contents names it."""
    html: str


_PLAIN = Style()
_JSON_IN_HTML = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def filled(template: str, **values: Any) -> "Markup":
    """A template of templates/ with these values."""
    from markupsafe import Markup

    # Autoescape is on: what a template gives is HTML, and safe to put into another.
    return Markup(_environment().get_template(template).render(values))


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("wirespeed.views"),
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


def source(name: str) -> "Markup":
    """A file of ours, as it is."""
    from markupsafe import Markup

    return Markup((files("wirespeed.views") / "templates" / name).read_text("utf-8"))


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


def html_table(grid: Grid, caption: str, name: str) -> "Markup":
    """`name` becomes its id; as in the text form, a column without a single cell is left out."""
    shown = grid.shown
    rows = [
        [
            {
                "text": cells[i],
                "left": grid.columns[i].left,
                "tone": _TONES.get(grid.painted.get((number, i), grid.columns[i].color), ""),
            }
            for i in shown
        ]
        for number, cells in enumerate(grid.rows)
    ]
    titles = [grid.columns[i] for i in shown]
    return filled("table.html", name=name, caption=caption, titles=titles, rows=rows)


Figure = dict[str, Any]

LINES = (
    "--c-backward",
    "--mark",
    "--good",
    "--c-violet",
    "--c-gold",
    "--soft",
)
"""Colours of lines, as names of the page's variables; each stands out from the page by 3 to 1."""
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star")
_HEIGHT, _LEGEND_ROW_PX = 320, 22
_MOST_TICKS = 5
_LEGEND: Figure = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom"}


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


def curve_layout(x: Figure, y: Figure, lines: int, names: int) -> Figure:
    """names: the characters of the longest name, which tell how many fit in a row of the legend."""
    rows = math.ceil(max(lines, 1) * (names * 7 + 60) / 480)
    above = 18 + _LEGEND_ROW_PX * rows
    return {
        "height": _HEIGHT + above,
        "margin": {"l": 10, "r": 16, "t": above, "b": 52},
        "xaxis": {"gridcolor": "--line", "zeroline": False, "automargin": True} | x,
        "yaxis": {"gridcolor": "--line", "zerolinecolor": "--line", "automargin": True} | y,
        "legend": _LEGEND,
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


def whiskers(ends: Sequence[tuple[float, float]], color: str) -> Figure:
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
    title: str,
    found: Iterable[tuple[str, Grid]],
    *,
    label: str = "",
    said: str = "",
    charts: Sequence[dict[str, Any]] = (),
    notes: Sequence[str] = (),
) -> "Markup":
    """A section: one sentence, charts, tables as (caption, grid), notes; `label` begins tables' ids."""
    tables = [
        html_table(grid, caption, spot.id(f"{label or name}-{number}"))
        for number, (caption, grid) in enumerate(found, 1)
    ]
    return filled(
        "training.html",
        spot=spot,
        name=name,
        title=title,
        said=said,
        charts=charts,
        tables=tables,
        notes=notes,
    )
