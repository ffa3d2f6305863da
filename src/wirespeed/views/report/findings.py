"""The verdict, what is wrong in full, and what is good in a list."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from wirespeed.records import Finding, Run
from wirespeed.views.figures import counts, duration
from wirespeed.views.findings import FIELDS, family, sorted_by_family
from wirespeed.views.report.section import Section, Spot
from wirespeed.views.sections import head_line, next_command
from wirespeed.views.style import MARKS, VERDICTS, Style
from wirespeed.views.templating import filled

__all__ = ["KINDS", "culprits_section", "others_section", "verdict_header"]

_KIND = {"green": "pass", "red": "fail", "yellow": "warn"}
KINDS = {verdict: _KIND[color] for verdict, color in VERDICTS.items()}
"""By verdict: the class that gives it its colour."""

_PLAIN = Style()
_CULPRIT = "culprit"
_WORDS = {"pass": "passed", "warn": "warning", "fail": "failed", "not_checked": "not checked"}
_MOST_IN_FULL, _MOST_BRIEF, _MOST_EVIDENCE = 100, 2000, 60
_LONGEST_LINE = 2000
"""Characters of one line of evidence; the run folder has the whole of it."""


def verdict_header(run: Run, spot: Spot) -> str:
    """The verdict with its counts, and the next command."""
    facts = [counts(run), f"exit {run.exit_code}", f"run {run.id}"]
    if run.seconds > 0:
        facts.insert(1, duration(run.seconds))
    return filled(
        "verdict.html",
        spot=spot,
        head=head_line(run, _PLAIN),
        verdict=run.verdict,
        kind=KINDS[run.verdict],
        facts=facts,
        started=run.started,
        next=next_command(run),
    )


def culprits_section(run: Run, spot: Spot) -> Section:
    """What failed or warns, in full; the culprits that `locate` names come first."""
    found = [one for one in run.findings if one.status in ("fail", "warn")]
    if not found:
        return Section("", "", "")
    found.sort(key=lambda one: (family(one) != _CULPRIT, one.status != "fail"))
    groups = _alike(found)
    firsts = groups[:_MOST_IN_FULL]
    rest = [one for group in groups[_MOST_IN_FULL:] for one in group]
    told = _Told(spot)
    findings = []
    for first, *others in firsts:
        whole = told.one(first)
        shown = [_differing(told.one(other), whole) for other in others[:_MOST_BRIEF]]
        findings.append({**whole, "others": shown, "left": len(others) - len(shown)})
    html = filled(
        "culprits.html",
        spot=spot,
        findings=findings,
        brief=list(map(told.one, rest[:_MOST_BRIEF])),
        left=max(0, len(rest) - _MOST_BRIEF),
        run=run,
    )
    return Section(spot.id("culprits"), "What is wrong", html)


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


def others_section(run: Run, spot: Spot) -> Section:
    """What passed and what was not checked, folded away."""
    shown = [one for one in run.findings if one.status in ("pass", "not_checked")]
    if not shown:
        return Section("", "", "")
    ordered = sorted_by_family(shown)[:_MOST_BRIEF]
    left = len(shown) - len(ordered)
    told = list(map(_Told(spot).one, ordered))
    html = filled("others.html", spot=spot, findings=told, left=left, run=run)
    return Section(spot.id("others"), "What is good, and what was not checked", html)


class _Told:
    """Findings as the templates take them, each with an id of its own to link to."""

    def __init__(self, spot: Spot) -> None:
        self._spot = spot
        self._seen: Counter[str] = Counter()

    def one(self, finding: Finding) -> dict[str, Any]:
        # A stored run may hold any text as an id.
        name = f"finding-{re.sub('[^a-z0-9]+', '-', finding.id.lower()).strip('-')}"
        self._seen[name] += 1
        anchor = name if self._seen[name] == 1 else f"{name}-{self._seen[name]}"
        return _one(finding, self._spot.id(anchor))


def _one(finding: Finding, anchor: str) -> dict[str, Any]:
    """A finding: its mark, and its fields in their order."""
    shown = finding.evidence[:_MOST_EVIDENCE]
    return {
        "anchor": anchor,
        "id": finding.id,
        "status": finding.status,
        "word": _WORDS[finding.status],
        "mark": MARKS[finding.status][0],
        "title": finding.title,
        "about": _about(finding),
        "because": finding.because,
        "fields": [(name, text) for name in FIELDS if (text := getattr(finding, name))],
        "evidence": [text[:_LONGEST_LINE] for text in shown],
        "more": len(finding.evidence) - len(shown),
    }


def _about(finding: Finding) -> str:
    """Who it is about, where the title does not say so."""
    about = finding.subject
    return "" if about.kind == "job" or about.name in finding.title else about.name
