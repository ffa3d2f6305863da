"""The section of a soak: how much was checked, when something happened, and what."""

from wirespeed.records import Run
from wirespeed.views.html_table import html_table
from wirespeed.views.report.section import Section, Spot
from wirespeed.views.soak import summary, tables, timeline
from wirespeed.views.templating import filled

__all__ = ["soak_section"]


def soak_section(run: Run, spot: Spot) -> Section:
    """Empty for a run that was no soak."""
    if run.soak is None:
        return Section("", "", "")
    html = filled(
        "training.html",
        spot=spot,
        name="soak",
        title="The soak",
        said=summary(run.soak),
        charts=[],
        tables=[
            html_table(grid, caption, spot.id(f"soak-{number}"))
            for number, (caption, grid) in enumerate(tables(run, every=True), 1)
        ],
        notes=[timeline(run.soak)],
    )
    return Section(spot.id("soak"), "Soak", html)
