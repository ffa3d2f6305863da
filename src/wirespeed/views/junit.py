"""JUnit XML for CI: each finding a test case, so that a build shows which check failed and why.

The shape is the one that Jenkins, GitLab and GitHub's test reporters read: `testsuites`, a `testsuite`
for each run, `testcase` with `failure`, `error` or `skipped`. A case is named by its check and its
subject, not by figures, so that the same check is the same case in the next build.
"""

import re
from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from wirespeed.records import Finding, Run
from wirespeed.views.findings import FIELDS, family, sorted_by_family
from wirespeed.views.sections import head_line
from wirespeed.views.style import Style

__all__ = ["render", "render_all"]

_PLAIN = Style()
_ILLEGAL = re.compile("[^\\x09\\x0a\\x0d\\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 does not allow in a document, however it is written."""


def render(run: Run, style: Style) -> str:
    return render_all([run], style)


def render_all(runs: Sequence[Run], _: Style) -> str:
    """One document of all runs, as text that ends in a line end."""
    suites = [_suite(run) for run in runs]
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
    cases = _cases(run, name)
    counted = {
        "tests": len(cases),
        "failures": _with(cases, "failure"),
        "errors": _with(cases, "error"),
        "skipped": _with(cases, "skipped"),
    }
    attributes = {"name": name, **{key: str(value) for key, value in counted.items()}}
    attributes |= {"time": _seconds(run.seconds), "timestamp": run.started[:19]}
    suite = ET.Element("testsuite", {key: _text(value) for key, value in attributes.items()})
    suite.append(_properties(run))
    suite.extend(cases)
    return suite


def _properties(run: Run) -> ET.Element:
    found = ET.Element("properties")
    told = {"run": run.id, "verdict": run.verdict, "exit_code": str(run.exit_code)}
    told |= {"world": head_line(run, _PLAIN), **run.versions}
    for name, value in told.items():
        ET.SubElement(found, "property", {"name": _text(name), "value": _text(value)})
    return found


def _cases(run: Run, suite: str) -> list[ET.Element]:
    """Of several findings alike in check and subject, each has a number."""
    seen: Counter[str] = Counter()
    cases = []
    for finding in sorted_by_family(run.findings):
        about = finding.subject
        name = finding.id if about.kind == "job" else f"{finding.id} {about.name}"
        seen[name] += 1
        name = name if seen[name] == 1 else f"{name} #{seen[name]}"
        cases.append(_case(finding, name, f"{suite}.{_name(family(finding))}"))
    if run.verdict == "UNKNOWN":
        cases.append(_unknown(suite))
    return cases


def _case(finding: Finding, name: str, place: str) -> ET.Element:
    case = ET.Element("testcase", {"name": _text(name), "classname": _text(place), "time": "0"})
    title = _text(finding.title)
    if finding.status == "fail":
        attributes = {"message": title, "type": _text(finding.id)}
        ET.SubElement(case, "failure", attributes).text = _told(finding)
    elif finding.status == "not_checked":
        message = f"{title}: {_text(finding.because)}" if finding.because else title
        ET.SubElement(case, "skipped", {"message": message})
    else:
        word = "warning: " if finding.status == "warn" else ""
        ET.SubElement(case, "system-out").text = f"{word}{_told(finding)}"
    return case


def _unknown(suite: str) -> ET.Element:
    """A run that could measure nothing must not look like one that passed."""
    case = ET.Element("testcase", {"name": "verdict", "classname": suite, "time": "0"})
    message = "the verdict is UNKNOWN: nothing could be measured or judged"
    ET.SubElement(case, "error", {"message": message, "type": "UNKNOWN"})
    return case


def _told(finding: Finding) -> str:
    lines = [finding.title]
    lines += [f"{name}: {text}" for name in FIELDS if (text := getattr(finding, name))]
    lines += [f"evidence: {text}" for text in finding.evidence]
    return "\n".join(map(_text, lines))


def _with(cases: Sequence[ET.Element], tag: str) -> int:
    return sum(case.find(tag) is not None for case in cases)


def _seconds(value: float) -> str:
    return f"{value:.3f}" if 0 <= value < float("inf") else "0.000"


def _name(text: str) -> str:
    """One part of a dotted name."""
    return re.sub(r"[^\w-]+", "_", text) or "_"


def _text(value: str) -> str:
    """One line without what a terminal or XML would take for more than text."""
    return _ILLEGAL.sub("\ufffd", _PLAIN.text(value))
