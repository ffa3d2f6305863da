"""The section of a grid: one table over all its worlds, and for training its throughput."""

from wirespeed.records import Run
from wirespeed.views.grids import grid_tables
from wirespeed.views.html_table import html_table
from wirespeed.views.report.charts import chart
from wirespeed.views.report.section import Section, Spot
from wirespeed.views.templating import filled
from wirespeed.views.training_charts import throughput_chart

__all__ = ["grid_section"]

_NOTE = "Samples a second over all ranks, from the mean step; whiskers are its 95 % intervals."


def grid_section(run: Run, spot: Spot) -> Section:
    """Empty for a run of one world."""
    found = grid_tables(run)
    if not found:
        return Section("", "", "")
    drawn = throughput_chart([one for one in run.training if one.study == "compare"])
    html = filled(
        "training.html",
        spot=spot,
        name="grid",
        title="Every world of the grid",
        said="",
        charts=[chart(spot, "throughput", "Throughput", drawn, _NOTE)] if drawn else [],
        tables=[
            html_table(grid, title, spot.id(f"throughput-{number}"))
            for number, (title, grid) in enumerate(found, 1)
        ],
        notes=[],
    )
    return Section(spot.id("grid"), "Grid", html)
