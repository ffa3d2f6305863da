"""Aligned columns of text."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from wirespeed.views.style import Style

__all__ = ["Column", "Grid"]


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    left: bool = False
    """Aligned to the left; figures are aligned to the right."""
    color: str = ""


@dataclass(slots=True)
class Grid:
    """Rows of cells; a column without a single cell is not printed."""

    columns: Sequence[Column]
    rows: list[Sequence[str]] = field(default_factory=list)
    painted: dict[tuple[int, int], str] = field(default_factory=dict)
    """Colour of one cell, by (row, column)."""

    def add(self, *cells: str, red: int | None = None) -> None:
        """A row; the cell at index `red` is shown in red."""
        if red is not None:
            self.painted[len(self.rows), red] = "red"
        self.rows.append(cells)

    def lines(self, style: Style, *, indent: str = "", gap: str = "  ") -> list[str]:
        shown = [i for i in range(len(self.columns)) if any(row[i] for row in self.rows)]
        cells = [[style.text(row[i]) for i in shown] for row in self.rows]
        titles = [style.text(self.columns[i].title) for i in shown]
        widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
        lines = [indent + style.paint(self._line(titles, shown, widths, gap), "dim")]
        for number, row in enumerate(cells):
            painted = {k: self._color(number, i) for k, i in enumerate(shown)}
            lines.append(indent + self._line(row, shown, widths, gap, style, painted))
        return lines

    def _color(self, row: int, column: int) -> str:
        return self.painted.get((row, column), self.columns[column].color)

    def _line(
        self,
        cells: Sequence[str],
        shown: Sequence[int],
        widths: Sequence[int],
        gap: str,
        style: Style | None = None,
        colors: dict[int, str] | None = None,
    ) -> str:
        parts = []
        for index, (cell, column, width) in enumerate(zip(cells, shown, widths, strict=True)):
            padded = cell.ljust(width) if self.columns[column].left else cell.rjust(width)
            color = (colors or {}).get(index, "")
            parts.append(style.paint(padded, color) if style and color else padded)
        return gap.join(parts).rstrip()
