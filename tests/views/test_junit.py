"""JUnit XML: the shape that CI systems read, the right counts, and text that stays text."""

import re
from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from wirespeed.model.derived_records import (
    CompareVerdict,
    Comparison,
    Difference,
    Row,
    Side,
    Versus,
    What,
)
from wirespeed.model.records import Run
from wirespeed.views import Style
from wirespeed.views.junit import render, render_all, render_comparison

EVIL = '<script>alert("x")</script>]]>&\x1b[31m\x00\ufffe'
COUNTED = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
# The schema that Jenkins' xunit plugin publishes (junit-10.xsd), as far as it is used: by element,
# the attributes it must and may have, and what may stand in it, in this order where it matters.
SCHEMA: dict[str, tuple[set[str], set[str], tuple[str, ...]]] = {
    "testsuites": (set(), {"name", "time", *COUNTED}, ("testsuite",)),
    "testsuite": (
        {"name", "tests"},
        {"failures", "errors", "skipped", "time", "timestamp", "hostname", "id", "package"},
        ("properties", "testcase", "system-out", "system-err"),
    ),
    "properties": (set(), set(), ("property",)),
    "property": ({"name", "value"}, set(), ()),
    "testcase": (
        {"name", "classname"},
        {"time"},
        ("skipped", "error", "failure", "system-out", "system-err"),
    ),
    "failure": (set(), {"message", "type"}, ()),
    "error": (set(), {"message", "type"}, ()),
    "skipped": (set(), {"message", "type"}, ()),
    "system-out": (set(), set(), ()),
}


def faults(element: ET.Element) -> Iterator[str]:
    """What of the document is not as the schema says."""
    if element.tag not in SCHEMA:
        yield f"unknown element {element.tag}"
        return
    must, may, inside = SCHEMA[element.tag]
    if missing := must - set(element.keys()):
        yield f"{element.tag} without {missing}"
    if strange := set(element.keys()) - must - may:
        yield f"{element.tag} with {strange}"
    order = [inside.index(child.tag) for child in element if child.tag in inside]
    if len(order) != len(element) or order != sorted(order):
        yield f"{element.tag} holds {[child.tag for child in element]}"
    for name in ("time", *COUNTED):
        if name in element.attrib and not re.fullmatch(r"\d+(\.\d+)?", element.attrib[name]):
            yield f"{name} of {element.tag} is {element.attrib[name]!r}"
    for child in element:
        yield from faults(child)


def read(text: str) -> ET.Element:
    root = ET.fromstring(text.encode())
    assert list(faults(root)) == []
    for suite in (root, *root.iter("testsuite")):
        for attribute, tag in COUNTED.items():
            assert suite.attrib[attribute] == str(len(list(suite.iter(tag)))), attribute
    return root


def test_the_schema_check_can_fail() -> None:
    assert list(faults(ET.fromstring("<testsuites><testcase name='x'/></testsuites>")))
    assert list(faults(ET.fromstring("<testsuite name='x' tests='many'/>")))


@pytest.mark.parametrize("name", ["check", "bench", "flip", "train"])
def test_every_finding_is_a_case(name: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(name)
    cases = list(read(render(run, Style())).iter("testcase"))
    assert len(cases) == len(run.findings) + (run.verdict == "UNKNOWN")
    keys = [(case.attrib["classname"], case.attrib["name"]) for case in cases]
    assert len(keys) == len(set(keys)), "a case for each"


def test_what_each_status_becomes(check: Run) -> None:
    cases = {case.attrib["name"]: case for case in read(render(check, Style())).iter("testcase")}
    failure = cases["NET-003 node-b"].find("failure")
    assert failure is not None and failure.text
    assert "memlock limit is 64 KiB on node-b" in failure.text
    assert cases["CAP-001"].find("skipped") is not None
    assert [child.tag for child in cases["GPU-011 node-a"]] == ["system-out"]
    assert (cases["GPU-011 node-a"].findtext("system-out") or "").startswith("warning: ")
    assert cases["NET-003 node-b"].attrib["classname"] == "wirespeed.check.network"


def test_the_name_of_a_case_holds_no_figures(check: Run) -> None:
    """In the next build the same check is the same case."""
    other = replace(
        check, findings=tuple(replace(one, title=f"{one.title} 2") for one in check.findings)
    )
    first, second = (
        [case.attrib["name"] for case in read(render(run, Style())).iter("testcase")]
        for run in (check, other)
    )
    assert first == second


def test_unknown_is_not_green(check: Run) -> None:
    root = read(render(replace(check, verdict="UNKNOWN", findings=()), Style()))
    assert root.attrib["errors"] == "1" and root.attrib["tests"] == "1"


def test_several_runs_are_several_suites(check: Run, train: Run) -> None:
    root = read(render_all([check, train], Style()))
    assert [suite.attrib["name"] for suite in root] == ["wirespeed.check", "wirespeed.train"]


def test_foreign_text_stays_text(check: Run) -> None:
    findings = tuple(
        replace(one, title=EVIL, saw=EVIL, because=EVIL, evidence=(EVIL,)) for one in check.findings
    )
    made = replace(check, findings=findings, command=EVIL, id=EVIL, versions={EVIL: EVIL})
    root, harmless = read(render(made, Style())), read(render(check, Style()))
    assert [e.tag for e in root.iter("testcase")] == [e.tag for e in harmless.iter("testcase")]
    message = next(root.iter("failure")).attrib["message"]
    assert message.startswith('<script>alert("x")</script>]]>&')
    assert not re.search("[\x00\x1b\ufffe]", render(made, Style()))


def compared(*verdicts: CompareVerdict, name: str = "all_reduce") -> Comparison:
    """A row a verdict, of sizes of their own."""
    rows = tuple(
        Row(
            what=What("collective", (("op", name), ("size_bytes", 1024 << number))),
            before=1e-3,
            after=1.2e-3,
            ratio=1.2,
            low=1.1,
            high=1.3,
            p=0.01,
            runs=(1, 1),
            samples=(40, 40),
            noise=0.01,
            noise_from="stated",
            verdict=verdict,
            runs_needed=5,
        )
        for number, verdict in enumerate(verdicts)
    )
    sides = [Side(name=name, runs=(name,), started="2026-11-21T12:00:00.000Z") for _ in range(2)]
    differs = (Difference("versions", name, name, name),)
    one = Versus(
        before=sides[0], after=sides[1], differences=differs, alike=(), unknown=(), rows=rows
    )
    return Comparison(fail_on=0.05, versus=(one,))


def test_a_regression_is_a_failure_and_what_is_undecided_is_skipped() -> None:
    root = read(
        render_comparison(compared("WORSE", "same", "not enough runs", "wrong data", "better"))
    )
    (suite,) = root
    counts = {name: suite.attrib[name] for name in COUNTED}
    assert counts == {"tests": "5", "failures": "2", "errors": "0", "skipped": "1"}
    (worse, wrong) = suite.iter("failure")
    assert worse.attrib["type"] == "WORSE" and "+20.0 %" in worse.attrib["message"]
    assert "+10.0 … +30.0 %" in worse.attrib["message"]
    assert wrong.attrib["type"] == "wrong data"
    (skipped,) = suite.iter("skipped")
    assert "not enough runs" in skipped.attrib["message"]
    assert "5 runs per side" in skipped.attrib["message"]


@pytest.mark.parametrize("verdicts", [(), ("not enough runs", "not enough runs")])
def test_a_comparison_that_decides_nothing_is_not_green(
    verdicts: tuple[CompareVerdict, ...],
) -> None:
    root = read(render_comparison(compared(*verdicts)))
    assert root.attrib["errors"] == "1" and root.attrib["failures"] == "0"


def test_a_case_has_the_same_name_in_the_next_build() -> None:
    def names(comparison: Comparison) -> list[tuple[str, str]]:
        cases = read(render_comparison(comparison)).iter("testcase")
        return [(case.attrib["classname"], case.attrib["name"]) for case in cases]

    first = compared("WORSE", "same")
    (one,) = first.versus
    later = replace(one, after=replace(one.after, name="ffff", runs=("ffff",)))
    assert names(first) == names(replace(first, versus=(later,)))
    assert len(set(names(first))) == 2


@pytest.mark.hostile("hostile values")
def test_hostile_names_of_a_comparison_stay_text() -> None:
    text = render_comparison(compared("WORSE", "not enough runs", name=EVIL))
    root = read(text)
    assert "<script" not in text and "\x1b" not in text and "\x00" not in text
    assert any("alert" in case.attrib["name"] for case in root.iter("testcase"))
