"""One offline HTML file of a run, or of several: verdict, findings, maps, charts, nodes, environment.

Everything is in the file, plotly.js too; a content security policy forbids it to load anything.
Each section is a function that gives its HTML or nothing, with a template of the same name.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wirespeed.errors import UsageError
from wirespeed.records import Run, Verdict
from wirespeed.records_comparison import Comparison
from wirespeed.records_prediction import Prediction
from wirespeed.views import comparing
from wirespeed.views.html_table import html_table
from wirespeed.views.html_training import training_sections
from wirespeed.views.report.collectives import collectives_section
from wirespeed.views.report.comparison import comparison_section, runs_grid
from wirespeed.views.report.environment import environment_section
from wirespeed.views.report.findings import KINDS, culprits_section, others_section, verdict_header
from wirespeed.views.report.goodput import goodput_section
from wirespeed.views.report.grid import grid_section
from wirespeed.views.report.maps import maps_section, simulation_section
from wirespeed.views.report.nodes import nodes_section
from wirespeed.views.report.prediction import prediction_head, prediction_sections
from wirespeed.views.report.section import Section, Spot
from wirespeed.views.report.settings import settings_section
from wirespeed.views.report.soak import soak_section
from wirespeed.views.templating import filled, plotly_script, policy, source

__all__ = ["Trace", "page", "prediction_page", "report"]

Trace = Mapping[str, Any]
"""A Chrome trace of training steps."""

_FIGURES = ('data-figure="', 'data-chart="')
_COMPARED = {0: "pass", 3: "warn"}
"""By exit code of the comparison."""
_KINDS = ("fail", "warn", "pass")
_WORST: tuple[Verdict, ...] = (
    "NOT READY",
    "CAUSE NAMED",
    "UNKNOWN",
    "SYMPTOMS ONLY",
    "NOTHING KNOWN",
    "READY",
    "GOOD END SHOWN",
)


def page(run: Run, trace: Trace | None = None) -> str:
    """The whole file as text. The same run gives the same text.

    trace: of its training steps, where one was recorded.
    """
    spot = Spot()
    sections = [one for one in _sections(run, trace, spot) if one.html]
    parts = [verdict_header(run, spot), _contents(sections, "Contents")]
    title = f"wirespeed {run.command}: {run.verdict}"
    return _whole(title, [*parts, *(one.html for one in sections)], *_made_of([run]))


def report(
    runs: Sequence[Run],
    traces: Sequence[Trace | None] = (),
    comparison: Comparison | None = None,
) -> str:
    """One file of these runs; of several, compared, then each whole.

    traces: one for each run, or none at all. comparison: of the runs, in their order; UsageError where
    several have none.
    """
    known = [*traces, *[None] * (len(runs) - len(traces))]
    if len(runs) == 1:
        return page(runs[0], known[0])
    if not runs or comparison is None:
        raise UsageError("no runs, or several that were not compared", expected="a comparison")
    beside = comparison_section(runs, comparison)
    each = [_run(run, trace, n) for n, (run, trace) in enumerate(zip(runs, known, strict=True), 1)]
    contents = [Section("runs", "The runs", "-"), beside, *each]
    parts = [_head(runs, contents, comparison), beside.html, *(one.html for one in each)]
    return _whole(f"wirespeed: {len(runs)} runs", parts, *_made_of(runs))


def prediction_page(prediction: Prediction) -> str:
    """What `predict` found as a file of the same kind."""
    spot = Spot()
    sections = [one for one in prediction_sections(prediction, spot) if one.html]
    refused = [Section("refused", "Not predicted", "-")] if prediction.refusals else []
    listed = [Section("said", "In words", "-"), *refused, *sections]
    parts = [prediction_head(prediction, _contents(listed, "Contents"))]
    ids = [one.id for one in prediction.sources]
    again = f"wirespeed predict {' '.join(ids)} --nodes N,… --html FILE"
    return _whole("wirespeed predict", [*parts, *(one.html for one in sections)], ids, "", again)


def _head(runs: Sequence[Run], contents: Sequence[Section], comparison: Comparison) -> str:
    """What the comparison comes to, then the verdict of each run; the colour is that of the worst."""
    verdicts = [run.verdict for run in runs]
    worst = next(one for one in _WORST if one in verdicts)
    counted = ", ".join(f"{verdicts.count(one)} {one}" for one in _WORST if one in verdicts)
    kinds = (_COMPARED.get(comparison.exit_code, "fail"), KINDS[worst])
    return filled(
        "runs.html",
        title=comparing.conclusion(comparison),
        kind=min(kinds, key=_KINDS.index),
        said=[comparing.counts(comparison), f"{len(runs)} runs: {counted}"],
        contents=_contents(contents, "Contents"),
        table=html_table(runs_grid(runs), "each run in a line", "runs-1"),
    )


def _run(run: Run, trace: Trace | None, number: int) -> Section:
    """One of several runs: all that its own page has, under one heading."""
    clean = re.sub("[^a-z0-9]+", "-", run.id.lower()).strip("-")
    spot = Spot(f"run-{number}-{clean}-", 3)
    sections = [one for one in _sections(run, trace, spot) if one.html]
    title = f"Run {run.id}: {run.command}, {run.verdict}"
    html = filled(
        "run.html",
        spot=spot,
        head=verdict_header(run, spot),
        contents=_contents(sections, f"Contents of run {run.id}"),
        sections=[one.html for one in sections],
        title=title,
    )
    return Section(spot.id("run"), title, html)


def _sections(run: Run, trace: Trace | None, spot: Spot) -> Iterator[Section]:
    """In the order of the page; a section that has nothing to say is empty."""
    yield culprits_section(run, spot)
    yield maps_section(run, spot)
    yield simulation_section(run, spot)
    yield grid_section(run, spot)
    yield from training_sections(run, trace, spot)
    yield settings_section(run, spot)
    yield soak_section(run, spot)
    yield goodput_section(run, spot)
    yield collectives_section(run, spot)
    yield nodes_section(run, spot)
    yield environment_section(run, spot)
    yield others_section(run, spot)


def _contents(sections: Sequence[Section], label: str) -> str:
    return filled("contents.html", sections=sections, label=label) if len(sections) > 1 else ""


def _made_of(runs: Sequence[Run]) -> tuple[list[str], str, str]:
    """(ids, version, the command that makes the file again)."""
    ids = [run.id for run in runs]
    version = runs[0].versions.get("wirespeed", "")
    return ids, version, f"wirespeed report {' '.join(ids)} --to FILE"


def _whole(title: str, parts: Sequence[str], ids: Sequence[str], version: str, again: str) -> str:
    # A quotation mark in foreign text is escaped, so these are attributes of ours.
    drawn = any(mark in text for mark in _FIGURES for text in parts)
    scripts = [source("page.js"), *([plotly_script(), source("draw.js")] if drawn else [])]
    whole = filled(
        "page.html",
        title=title,
        policy=policy(scripts),
        style=source("style.css"),
        parts=parts,
        scripts=scripts,
        version=version,
        ids=ids,
        again=again,
    )
    return str(whole)
