"""JUnit XML for CI: each finding a test case, so that a build shows which check failed and why.

The shape is the one that Jenkins, GitLab and GitHub's test reporters read: `testsuites`, a `testsuite`
for each run, `testcase` with `failure`, `error` or `skipped`. A case is named by its check and its
subject, not by figures, so that the same check is the same case in the next build.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from xml.etree import ElementTree as ET

from wirespeed.model.derived_records import Comparison, Row, Versus
from wirespeed.model.records import Finding, Run
from wirespeed.model.verdicts import MEANINGS, standing_of
from wirespeed.views import comparison as comparison_view
from wirespeed.views.findings import FIELDS, family, sorted_by_family
from wirespeed.views.prometheus import samples_of
from wirespeed.views.sections import head_line
from wirespeed.views.text import Style

_PLAIN = Style()
_ILLEGAL = re.compile("[^\\x09\\x0a\\x0d\\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 does not allow in a document, however it is written."""


def render(run: Run, style: Style) -> str:
    return render_all([run], style)


def render_all(runs: Sequence[Run], _: Style) -> str:
    """One document of all runs, as text that ends in a line end."""
    return _document([_suite(run) for run in runs])


def render_comparison(comparison: Comparison) -> str:
    """A suite for each side that was held against the first, a case for each figure of both.

    WORSE and wrong data are failures, `not enough runs` is skipped; that nothing at all is decided, or
    pairs, is an error, so that such a build is not green.
    """
    found = enumerate(comparison.versus, 2)
    return _document([_versus(comparison, one, number) for number, one in found])


def _document(suites: Sequence[ET.Element]) -> str:
    root = ET.Element("testsuites", {"name": "wirespeed", **_totals(suites)})
    root.extend(suites)
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _totals(suites: Sequence[ET.Element]) -> dict[str, str]:
    counted = {
        name: str(sum(int(suite.attrib[name]) for suite in suites))
        for name in ("tests", "failures", "errors", "skipped")
    }
    return counted | {"time": _seconds(sum(float(suite.attrib["time"]) for suite in suites))}


def _suite(run: Run) -> ET.Element:
    name = f"wirespeed.{_name(run.command)}"
    told = {"run": run.id, "verdict": run.verdict, "exit_code": str(run.exit_code)}
    if run.speed_judged is not None:
        told["speed_judged"] = str(run.speed_judged).lower()
    told |= {"world": head_line(run, _PLAIN), **run.versions, **_figures(run)}
    return _filled(name, run.seconds, run.started, told, _cases(run, name))


def _figures(run: Run) -> dict[str, str]:
    """Of work that lasts what Prometheus is told, but for the times of each operation."""
    told = {}
    for metric, samples in samples_of(run).items():
        for labels, value in samples if metric.lasts and "op" not in metric.labels else ():
            about = labels.get("cause") or labels.get("id")
            name = metric.name.removeprefix("wirespeed_") + (f" {about}" if about else "")
            told[name] = f"{value:.6g}" if isinstance(value, float) else str(value)
    return told


def _filled(
    name: str, seconds: float, started: str, told: Mapping[str, str], cases: Sequence[ET.Element]
) -> ET.Element:
    """A suite; told: its properties."""
    attributes = {"name": _text(name), "tests": str(len(cases))}
    for plural, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        attributes[plural] = str(sum(case.find(tag) is not None for case in cases))
    attributes |= {"time": _seconds(seconds), "timestamp": _text(started[:19])}
    suite = ET.Element("testsuite", attributes)
    properties = ET.SubElement(suite, "properties")
    for key, value in told.items():
        ET.SubElement(properties, "property", {"name": _text(key), "value": _text(value)})
    suite.extend(cases)
    return suite


def _versus(comparison: Comparison, one: Versus, number: int) -> ET.Element:
    """Named by its place, not by ids of runs: the next build compares others."""
    name = (
        "wirespeed.compare" if len(comparison.versus) == 1 else f"wirespeed.compare.side_{number}"
    )
    alone = replace(comparison, versus=(one,))
    told = {"conclusion": comparison_view.conclusion(alone), "fail_on": f"{comparison.fail_on:.0%}"}
    told |= {"before": ", ".join(one.before.runs), "after": ", ".join(one.after.runs)}
    told |= {f"changed {d.group} {d.name}": f"{d.before} → {d.after}" for d in one.differences}
    cases = [case for rows in comparison_view.by_kind(one.rows) for case in _rows(rows, name)]
    if alone.exit_code == 3:
        message = f"{comparison_view.conclusion(alone)}: {comparison_view.counts(alone)}"
        cases.append(_error(name, message, comparison_view.advice(alone)))
    return _filled(name, 0.0, one.after.started, told, cases)


def _rows(rows: Sequence[Row], suite: str) -> list[ET.Element]:
    _, varying = comparison_view.common_words([row.what for row in rows])
    seen: Counter[str] = Counter()
    cases = []
    for row in rows:
        name, before, after, change, interval, runs, samples, verdict = comparison_view.row_cells(
            row, varying
        )
        many = f"runs {runs}, n={samples}" if any(row.samples) else f"runs {runs}"
        told = f"{verdict}: {before} → {after}, {change} (95 %: {interval}; {many})"
        case = _testcase(_numbered(name, seen), f"{suite}.{row.what.kind}")
        if row.verdict in ("WORSE", "wrong data"):
            ET.SubElement(case, "failure", {"message": _text(told), "type": row.verdict})
        elif row.verdict == "not enough runs":
            needed = f"; {row.runs_needed} runs per side would show" if row.runs_needed else ""
            ET.SubElement(case, "skipped", {"message": _text(told + needed)})
        else:
            ET.SubElement(case, "system-out").text = _text(told)
        cases.append(case)
    return cases


def _testcase(name: str, place: str) -> ET.Element:
    return ET.Element("testcase", {"name": _text(name), "classname": _text(place), "time": "0"})


def _numbered(name: str, seen: Counter[str]) -> str:
    """Of several cases of one name each has a number, so that each is a case of its own."""
    seen[name] += 1
    return name if seen[name] == 1 else f"{name} #{seen[name]}"


def _cases(run: Run, suite: str) -> list[ET.Element]:
    """Of several findings alike in check and subject, each has a number."""
    seen: Counter[str] = Counter()
    cases = []
    for finding in sorted_by_family(run.findings):
        about = finding.subject
        name = finding.id if about.kind == "job" else f"{finding.id} {about.name}"
        cases.append(_case(finding, _numbered(name, seen), f"{suite}.{_name(family(finding))}"))
    if standing_of(run.verdict) == "undecided":
        message = f"the verdict is {run.verdict}: {MEANINGS[run.verdict].explanation}"
        cases.append(_error(suite, message, kind=run.verdict))
    return cases


def _case(finding: Finding, name: str, place: str) -> ET.Element:
    case = _testcase(name, place)
    title = _text(finding.title)
    if finding.status == "fail":
        attributes = {"message": title, "type": _text(finding.id)}
        ET.SubElement(case, "failure", attributes).text = _told(finding)
    elif finding.status in ("measured", "not_checked", "not_applicable"):
        message = f"{title}: {_text(finding.because)}" if finding.because else title
        ET.SubElement(case, "skipped", {"message": message})
    else:
        word = "warning: " if finding.status == "warn" else ""
        ET.SubElement(case, "system-out").text = f"{word}{_told(finding)}"
    return case


def _error(suite: str, message: str, more: str = "", kind: str = "UNKNOWN") -> ET.Element:
    """What could decide nothing must not look like what passed."""
    case = _testcase("verdict", suite)
    attributes = {"message": _text(message), "type": kind}
    ET.SubElement(case, "error", attributes).text = _text(more) or None
    return case


def _told(finding: Finding) -> str:
    lines = [finding.title]
    lines += [f"{name}: {text}" for name in FIELDS if (text := getattr(finding, name))]
    lines += [f"evidence: {text}" for text in finding.evidence]
    return "\n".join(map(_text, lines))


def _seconds(value: float) -> str:
    return f"{value:.3f}" if 0 <= value < float("inf") else "0.000"


def _name(text: str) -> str:
    """One part of a dotted name."""
    return re.sub(r"[^\w-]+", "_", text) or "_"


def _text(value: str) -> str:
    """One line without what a terminal or XML would take for more than text."""
    return _ILLEGAL.sub("\ufffd", _PLAIN.text(value))
