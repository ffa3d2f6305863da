"""One offline HTML file of a run: verdict, findings, heat maps of the pairs, charts of training.

Everything is in the file, plotly.js too; a content security policy forbids it to load anything.
Each section is a function that gives its HTML or nothing, with a template of the same name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wirespeed.records import Finding, Located, Run
from wirespeed.views.figures import counts, duration
from wirespeed.views.findings import FIELDS, family, sorted_by_family
from wirespeed.views.heatmap import figure
from wirespeed.views.heatmap_cells import MOST_IN_MAP, axis_of
from wirespeed.views.heatmap_scale import Quantity
from wirespeed.views.html_training import training_sections
from wirespeed.views.pairs import simulation_lines
from wirespeed.views.sections import head_line, next_command
from wirespeed.views.style import MARKS, Style
from wirespeed.views.suspects import Suspects, suspects_of
from wirespeed.views.templating import filled, plotly_scripts, policy, script_json, source

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["page"]

_PLAIN = Style()
_CULPRIT = "culprit"
_WORDS = {"pass": "passed", "warn": "warning", "fail": "failed", "not_checked": "not checked"}
_DRAWERS = (('data-figure="', "draw.js"), ('data-chart="', "charts.js"))
_CLASSES = {"READY": "pass", "NOT READY": "fail", "UNKNOWN": "warn"}


def page(run: Run, trace: Mapping[str, Any] | None = None) -> str:
    """The whole file as text. The same run gives the same text.

    trace: the Chrome trace of its training steps, where one was recorded.
    """
    sections = [text for text in _sections(run, trace) if text]
    scripts = _scripts(sections)
    whole = filled(
        "page.html",
        title=f"wirespeed {run.command}: {run.verdict}",
        policy=policy(scripts),
        style=source("style.css"),
        sections=sections,
        scripts=scripts,
        run=run,
    )
    return str(whole)


def _sections(run: Run, trace: Mapping[str, Any] | None) -> Iterator[str]:
    """In the order of the page; a section that has nothing to say is empty."""
    for section in _FIRST:
        yield section(run)
    yield from training_sections(run, trace)
    yield _others(run)


def _scripts(sections: Sequence[str]) -> "list[Markup]":
    """Those that draw what is there, after plotly; none where nothing is to be drawn."""
    # A quotation mark in foreign text is escaped, so these are attributes of ours.
    needed = [file for mark, file in _DRAWERS if any(mark in text for text in sections)]
    return plotly_scripts(*needed) if needed else []


def _verdict(run: Run) -> str:
    facts = [counts(run), f"exit {run.exit_code}", f"run {run.id}"]
    if run.seconds > 0:
        facts.insert(1, duration(run.seconds))
    return filled(
        "verdict.html",
        head=head_line(run, _PLAIN),
        verdict=run.verdict,
        kind=_CLASSES[run.verdict],
        facts=facts,
        started=run.started,
        next=next_command(run),
    )


def _culprits(run: Run) -> str:
    """What failed or warns, in full; the culprits that `locate` names come first."""
    shown = [one for one in run.findings if one.status in ("fail", "warn")]
    shown.sort(key=lambda one: (family(one) != _CULPRIT, one.status != "fail"))
    return filled("culprits.html", findings=[_told(one) for one in shown]) if shown else ""


def _maps(run: Run) -> str:
    """The heat maps, and in words what they leave out."""
    located = run.located
    if located is None or not located.pairs:
        return filled("no_maps.html", why=_why_no_map(run)) if run.command == "locate" else ""
    suspects = suspects_of(run.findings, located.nodes)
    rails = sorted({pair.rail for pair in located.pairs})
    return filled(
        "maps.html",
        located=located,
        folded=axis_of(located, suspects.named).folded,
        most=MOST_IN_MAP,
        suspects=suspects,
        maps=list(_whole_fabric(located, suspects)),
        rails=list(_by_rail(located, suspects, rails)) if len(rails) > 1 else [],
    )


def _whole_fabric(located: Located, suspects: Suspects) -> Iterator[dict[str, Any]]:
    yield _map("bandwidth", "Bandwidth, GB/s", figure(located, suspects=suspects))
    if any(pair.latency is not None for pair in located.pairs):
        title = "Latency, half of a small round trip"
        yield _map("latency", title, figure(located, "latency", suspects=suspects))


def _by_rail(located: Located, suspects: Suspects, rails: list[int]) -> Iterator[dict[str, Any]]:
    for rail in rails:
        marked = rail in suspects.rails
        drawn = figure(located, rail=rail, suspects=suspects, small=True)
        yield _map(f"rail-{rail}", f"Rail {rail}", drawn, marked=marked)
    late = sorted({pair.rail for pair in located.pairs if pair.latency is not None})
    quantity: Quantity = "latency"
    for rail in late if len(late) > 1 else ():
        drawn = figure(located, quantity, rail=rail, suspects=suspects, small=True)
        yield _map(f"latency-{rail}", f"Rail {rail}, latency", drawn)


def _map(name: str, title: str, drawn: dict[str, Any], *, marked: bool = False) -> dict[str, Any]:
    """What map.html takes: the figure, and the room it needs before it is drawn."""
    room = {side: drawn["layout"][side] for side in ("width", "height")}
    return {"name": name, "title": title, "marked": marked, "json": script_json(drawn), **room}


def _why_no_map(run: Run) -> str:
    if run.simulation is not None:
        return "a simulation of that many nodes does not keep the figures of single pairs"
    return "no pair of nodes was measured"


def _simulation(run: Run) -> str:
    lines = simulation_lines(run, _PLAIN)
    return filled("simulation.html", lines=lines) if lines else ""


def _others(run: Run) -> str:
    """What passed and what was not checked, folded away."""
    shown = [one for one in run.findings if one.status in ("pass", "not_checked")]
    found = [_told(one) for one in sorted_by_family(shown)]
    return filled("others.html", findings=found, counts=counts(run)) if found else ""


_FIRST: tuple[Callable[[Run], str], ...] = (_verdict, _culprits, _maps, _simulation)
"""What stands before the sections of training, in this order."""


def _told(finding: Finding) -> dict[str, Any]:
    """A finding as the templates take it: its mark, and its fields in their order."""
    return {
        "id": finding.id,
        "status": finding.status,
        "word": _WORDS[finding.status],
        "mark": MARKS[finding.status][0],
        "title": finding.title,
        "because": finding.because,
        "fields": [(name, text) for name in FIELDS if (text := getattr(finding, name))],
        "evidence": finding.evidence,
    }
