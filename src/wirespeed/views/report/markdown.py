"""Several runs as GitHub Markdown: a line each, the comparison, then each run folded away."""

from collections.abc import Sequence

from wirespeed.records import Run
from wirespeed.records_comparison import Comparison
from wirespeed.views import comparison as comparison_view
from wirespeed.views import md
from wirespeed.views.grid import Grid
from wirespeed.views.markdown import escape, plain_text, table
from wirespeed.views.report.comparison import runs_grid
from wirespeed.views.style import Style

__all__ = ["render_all"]


def render_all(runs: Sequence[Run], style: Style, comparison: Comparison | None) -> str:
    """One run as its own view shows it; of several, verdicts first. Text that ends in a line end."""
    if len(runs) == 1:
        return md.render(runs[0], style)
    plain = Style(ascii=style.ascii, verbose=style.verbose)
    verdicts = [run.verdict for run in runs]
    counted = [f"{verdicts.count(one)} {one}" for one in dict.fromkeys(verdicts)]
    blocks = [f"# {len(runs)} runs: {', '.join(counted)}", "\n".join(_grid(runs_grid(runs), plain))]
    if comparison is not None:
        blocks.append(comparison_view.render(comparison, "md", style).rstrip("\n"))
    blocks += [_folded(run, style, plain) for run in runs]
    return plain_text("\n\n".join(blocks), style) + "\n"


def _folded(run: Run, style: Style, plain: Style) -> str:
    # Within an HTML element Markdown is not read, but what it escapes stays harmless there.
    title = f"run {escape(run.id, plain)}: {escape(run.command, plain)}, {run.verdict}"
    whole = md.render(run, style).rstrip("\n")
    return f"<details><summary>{title}</summary>\n\n{whole}\n\n</details>"


def _grid(grid: Grid, style: Style) -> list[str]:
    titles = [escape(column.title, style) for column in grid.columns]
    rows = [[escape(cell, style) for cell in row] for row in grid.rows]
    right = [escape(column.title, style) for column in grid.columns if not column.left]
    return table(titles, rows, right)
