"""A grid of text as an HTML table with a caption and header cells."""

from typing import TYPE_CHECKING

from wirespeed.views.grid import Grid
from wirespeed.views.templating import filled

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["html_table"]

_TONES = {"red": "fail", "green": "pass", "yellow": "warn"}


def html_table(grid: Grid, caption: str, name: str) -> "Markup":
    """`name` becomes its id; as in the text form, a column without a single cell is left out."""
    shown = [i for i in range(len(grid.columns)) if any(row[i] for row in grid.rows)]
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
