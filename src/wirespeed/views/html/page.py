"""One offline HTML page of one or several runs."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from wirespeed.errors import UsageError
from wirespeed.model.derived_records import Comparison, Prediction
from wirespeed.model.records import Finding, Run
from wirespeed.model.units import format_duration
from wirespeed.model.verdicts import worst_first
from wirespeed.views import comparison as comparison_view
from wirespeed.views.findings import FIELDS, family, sorted_by_family
from wirespeed.views.html.collectives import collectives_section
from wirespeed.views.html.nodes import environment_section, maps_section, nodes_section
from wirespeed.views.html.parts import (
    Section,
    Spot,
    filled,
    html_table,
    plotly_script,
    policy,
    section,
    source,
)
from wirespeed.views.html.prediction import prediction_head, prediction_sections
from wirespeed.views.html.studies import comparison_section, study_sections
from wirespeed.views.html.watched import watched_section
from wirespeed.views.sections import counts, head_line, next_command, runs_grid
from wirespeed.views.text import MARKS, WORDS, Style, kind_of

# The verdict, what is wrong in full, and what is good in a list.

_PLAIN = Style()
_CULPRIT = "culprit"
_MOST_IN_FULL, _MOST_BRIEF, _MOST_EVIDENCE = 100, 2000, 60
_LONGEST_LINE = 2000
"""Characters of one line of evidence; the run folder has the whole of it."""


def verdict_header(run: Run, spot: Spot) -> str:
    """The verdict with its counts, and the next command."""
    facts = [counts(run), f"exit {run.exit_code}", f"run {run.id}"]
    if run.seconds > 0:
        facts.insert(1, format_duration(run.seconds))
    return filled(
        "verdict.html",
        spot=spot,
        head=head_line(run, _PLAIN),
        verdict=run.verdict_text,
        kind=kind_of(run.verdict),
        facts=facts,
        started=run.started,
        next=next_command(run),
    )


def culprits_section(run: Run, spot: Spot) -> Iterator[Section]:
    """What failed or warns, in full; the culprits that `locate` names come first."""
    found = [one for one in run.findings if one.status in ("fail", "warn")]
    if not found:
        return
    found.sort(key=lambda one: (family(one) != _CULPRIT, one.status != "fail"))
    groups = _alike(found)
    rest = [one for group in groups[_MOST_IN_FULL:] for one in group]
    told = _Told(spot)
    findings = []
    for first, *others in groups[:_MOST_IN_FULL]:
        whole = told.one(first)
        shown = [_differing(told.one(other), whole) for other in others[:_MOST_BRIEF]]
        findings.append({**whole, "others": shown, "left": len(others) - len(shown)})
    yield section(
        spot,
        "culprits",
        "What is wrong",
        "culprits.html",
        findings=findings,
        brief=list(map(told.one, rest[:_MOST_BRIEF])),
        left=max(0, len(rest) - _MOST_BRIEF),
        run=run,
    )


def _alike(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Those with the same cause and remedy together, in the order of their first: the very same of
    different nodes, or what one rank (or the job) does wrong in many ways."""
    groups: dict[object, list[Finding]] = {}
    for one in findings:
        kind: object = id(one)
        if one.subject.kind == "node" and one.saw:
            kind = (one.id, one.status, one.saw, one.expected, one.because, one.costs, one.fix)
        elif one.subject.kind != "node" and one.because and one.fix:
            kind = (family(one), one.status, one.because, one.fix, one.subject)
        groups.setdefault(kind, []).append(one)
    return list(groups.values())


def _differing(other: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
    """Of a finding what the first of its kind does not say already."""
    fields = [field for field in other["fields"] if field not in first["fields"]]
    evidence = [line for line in other["evidence"] if line not in first["evidence"]]
    return {**other, "fields": fields, "evidence": evidence}


def others_section(run: Run, spot: Spot) -> Iterator[Section]:
    """What neither failed nor warns, folded away."""
    shown = [one for one in run.findings if one.status not in ("fail", "warn")]
    if shown:
        ordered = sorted_by_family(shown)[:_MOST_BRIEF]
        told = {"findings": list(map(_Told(spot).one, ordered)), "left": len(shown) - len(ordered)}
        title = "Passed, measured and skipped checks"
        yield section(spot, "others", title, "others.html", run=run, **told)


class _Told:
    """Findings as the templates take them, each with an id of its own to link to."""

    def __init__(self, spot: Spot) -> None:
        self._spot = spot
        self._seen: Counter[str] = Counter()

    def one(self, finding: Finding) -> dict[str, Any]:
        """Its mark, who it is about where the title does not say so, and its fields in their order."""
        # A stored run may hold any text as an id.
        name = f"finding-{re.sub('[^a-z0-9]+', '-', finding.id.lower()).strip('-')}"
        self._seen[name] += 1
        anchor = name if self._seen[name] == 1 else f"{name}-{self._seen[name]}"
        about, shown = finding.subject, finding.evidence[:_MOST_EVIDENCE]
        return {
            "anchor": self._spot.id(anchor),
            "id": finding.id,
            "status": finding.status,
            "word": WORDS[finding.status],
            "mark": MARKS[finding.status][0],
            "title": finding.title,
            "about": "" if about.kind == "job" or about.name in finding.title else about.name,
            "because": finding.because,
            "fields": [(name, text) for name in FIELDS if (text := getattr(finding, name))],
            "evidence": [text[:_LONGEST_LINE] for text in shown],
            "more": len(finding.evidence) - len(shown),
        }


Trace = Mapping[str, Any]
"""A Chrome trace of training steps."""

_FIGURES = ('data-figure="', 'data-chart="')
_COMPARED = {0: "pass", 3: "warn"}
"""By exit code of the comparison."""
_KINDS = ("fail", "warn", "measured", "pass", "not_checked")


def page(run: Run, trace: Trace | None = None) -> str:
    """The whole file as text. The same run gives the same text.

    trace: of its training steps, where one was recorded.
    """
    return _whole(
        f"wirespeed {run.command}: {run.verdict_text}", run_parts(run, trace), *_made_of([run])
    )


def run_parts(run: Run, trace: Trace | None = None) -> list[str]:
    """What stands in the page of one run, from top to bottom."""
    spot = Spot()
    sections = _sections(run, trace, spot)
    parts = [verdict_header(run, spot), _contents(sections, "Contents")]
    return [*parts, *(one.html for one in sections)]


def report(
    runs: Sequence[Run], traces: Sequence[Trace | None] = (), comparison: Comparison | None = None
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


def comparison_parts(runs: Sequence[Run], comparison: Comparison) -> list[str]:
    """What a page of a comparison alone is made of."""
    beside = comparison_section(runs, comparison)
    head = _head(runs, [Section("runs", "The runs", "-"), beside], comparison, "comparison")
    return [head, beside.html]


def prediction_page(prediction: Prediction) -> str:
    """What `predict` found as a file of the same kind."""
    spot = Spot()
    sections = list(prediction_sections(prediction, spot))
    refused = [Section("refused", "Not predicted", "-")] if prediction.refusals else []
    listed = [Section("said", "In words", "-"), *refused, *sections]
    parts = [prediction_head(prediction, _contents(listed, "Contents"))]
    ids = [one.id for one in prediction.sources]
    again = f"wirespeed predict {' '.join(ids)} --nodes N,… --html FILE"
    return _whole("wirespeed predict", [*parts, *(one.html for one in sections)], ids, "", again)


def _head(
    runs: Sequence[Run],
    contents: Sequence[Section],
    comparison: Comparison,
    head: str = "wirespeed report",
) -> str:
    """What the comparison comes to, then the verdict of each run; the colour is that of the worst."""
    verdicts: list[str] = [run.verdict for run in runs]
    ordered = worst_first(list(dict.fromkeys(verdicts)))
    counted = ", ".join(f"{verdicts.count(word)} {word}" for word in ordered)
    kinds = (_COMPARED.get(comparison.exit_code, "fail"), kind_of(ordered[0]))
    return filled(
        "runs.html",
        head=head,
        title=comparison_view.conclusion(comparison),
        kind=min(kinds, key=_KINDS.index),
        said=[comparison_view.counts(comparison), f"{len(runs)} runs: {counted}"],
        contents=_contents(contents, "Contents"),
        table=html_table(runs_grid(runs), "each run in a line", "runs-1"),
    )


def _run(run: Run, trace: Trace | None, number: int) -> Section:
    """One of several runs: all that its own page has, under one heading."""
    clean = re.sub("[^a-z0-9]+", "-", run.id.lower()).strip("-")
    spot = Spot(f"run-{number}-{clean}-", 3)
    sections = _sections(run, trace, spot)
    title = f"Run {run.id}: {run.command}, {run.verdict_text}"
    html = filled(
        "run.html",
        spot=spot,
        head=verdict_header(run, spot),
        contents=_contents(sections, f"Contents of run {run.id}"),
        sections=[one.html for one in sections],
        title=title,
    )
    return Section(spot.id("run"), title, html)


def _sections(run: Run, trace: Trace | None, spot: Spot) -> list[Section]:
    """In the order of the page."""
    return [
        *culprits_section(run, spot),
        *maps_section(run, spot),
        *watched_section(run, spot),
        *study_sections(run, trace, spot),
        *collectives_section(run, spot),
        *nodes_section(run, spot),
        *environment_section(run, spot),
        *others_section(run, spot),
    ]


def _contents(sections: Sequence[Section], label: str) -> str:
    return filled("contents.html", sections=sections, label=label) if len(sections) > 1 else ""


def _made_of(runs: Sequence[Run]) -> tuple[list[str], str, str]:
    """(ids, version, the command that makes the file again)."""
    ids = [run.id for run in runs]
    version = runs[0].versions.get("wirespeed", "")
    return ids, version, f"wirespeed report {' '.join(ids)} --to FILE"


def drawn(parts: Sequence[str]) -> bool:
    """Whether a part has a chart or a map, which need plotly."""
    # A quotation mark in foreign text is escaped, so these are attributes of ours.
    return any(mark in text for mark in _FIGURES for text in parts)


def _whole(title: str, parts: Sequence[str], ids: Sequence[str], version: str, again: str) -> str:
    scripts = [source("page.js"), *([plotly_script(), source("draw.js")] if drawn(parts) else [])]
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
