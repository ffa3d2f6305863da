"""The section of compared settings: who wins, and the figures of each combination."""

from wirespeed.records import Run
from wirespeed.views.html_table import html_table
from wirespeed.views.report.section import Section, Spot
from wirespeed.views.settings import tables, winner_lines
from wirespeed.views.templating import filled

__all__ = ["settings_section"]


def settings_section(run: Run, spot: Spot) -> Section:
    """Empty for a run that compared none."""
    if not run.settings:
        return Section("", "", "")
    title = "Which setting is faster"
    html = filled(
        "training.html",
        spot=spot,
        name="settings",
        title=title,
        said=" ".join(line.strip() for line in winner_lines(run)),
        charts=[],
        tables=[
            html_table(grid, caption, spot.id(f"settings-{number}"))
            for number, (caption, grid) in enumerate(tables(run), 1)
        ],
        notes=[],
    )
    return Section(spot.id("settings"), "Settings", html)
