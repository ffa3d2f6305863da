"""Every rule proves itself, and a rule that does not is told with what is wrong."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wirespeed.diagnose import rules
from wirespeed.diagnose.derived import DERIVED
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.rule_file import faults, faults_between
from wirespeed.diagnose.rules import all_rules
from wirespeed.diagnose.scan import Scanner

RULES = {rule.id: rule for rule in all_rules()}
GOOD = Rule(
    id="T-001",
    category="door",
    role="cause",
    anchors=("door",),
    pattern=r"door (?P<number>\d+) is shut",
    sentence="door {number} is shut",
    fix="open door {number}",
    positive=("rank 1: door 7 is shut",),
    negative=("door seven is shut",),
)


def test_there_are_hundreds_each_once() -> None:
    assert len(RULES) == len(all_rules()) > 600


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_each_proves_itself(rule: Rule) -> None:
    assert list(faults(rule)) == []
    assert list(faults_between(rule, RULES.values())) == []
    assert all(RULES[id].ends for id in rule.until)


def test_each_derived_rule_has_its_function_and_each_function_its_rule() -> None:
    assert {rule.derive for rule in RULES.values() if rule.derive} == set(DERIVED)


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"pattern": "("}, "pattern"),
        ({"unless": "[z-a]"}, "unless"),
        ({"sentence": ""}, "sentence"),
        ({"anchors": ()}, "anchors"),
        ({"anchors": ("or",)}, "anchors"),
        ({"positive": ()}, "positive"),
        ({"positive": ("door x is shut",)}, "positive"),
        ({"unless": "shut"}, "positive"),
        ({"negative": ("door 8 is shut",)}, "negative"),
        ({"fix": ""}, "fix"),
        ({"role": "symptom"}, "checks"),
        ({"unproven": True, "confidence": "certain"}, "confidence"),
        ({"derive": "magic"}, "derive"),
        ({"links": ("http://example.org",)}, "links"),
        ({"sentence": "door {name} is shut"}, "sentence"),
        ({"checks": ("look at {name}",)}, "checks"),
    ],
)
def test_what_is_wrong_with_a_rule_is_told(changed: dict[str, Any], key: str) -> None:
    assert list(faults(GOOD)) == []
    assert key in {fault.key for fault in faults(msgspec.structs.replace(GOOD, **changed))}


@pytest.mark.parametrize("key", ["needs", "absent", "until", "explains"])
def test_what_a_rule_names_must_be_there(key: str) -> None:
    wrong = msgspec.structs.replace(GOOD, **{key: ("NO-999",)})
    assert [(one.key, one.saw) for one in faults_between(wrong, [wrong])] == [(key, "NO-999")]
    by_category = msgspec.structs.replace(GOOD, explains=("door",))
    assert list(faults_between(by_category, [by_category])) == []


def test_no_example_of_a_fact_raises_anything() -> None:
    """What healthy logs say is no trouble, whatever rule looks at it."""
    troubles = [rule for rule in RULES.values() if rule.role in ("cause", "symptom")]
    told = [
        msgspec.structs.replace(rule, positive=(), negative=facts(), needs=(), links=())
        for rule in troubles
        if not rule.needs and rule.least == 1
    ]
    wrong = [(rule.id, one.saw) for rule in told for one in faults(rule) if one.key == "negative"]
    assert wrong == []


def facts() -> tuple[str, ...]:
    bad = ("error", "warn", "fail", "timeout")
    return tuple(
        line
        for rule in RULES.values()
        for line in rule.positive
        if rule.role == "fact" and not any(word in line.lower() for word in bad)
    )


def test_all_rules_are_searched_at_once() -> None:
    Scanner(RULES.values())


def test_what_was_read_when_the_package_was_built_is_what_the_files_say(
    tmp_path: Path,
) -> None:
    """And where it is of other files, or none, or damaged, the files are read."""
    for file in rules.RULES.folder.glob("*.yaml"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    kept = replace(rules.RULES, folder=tmp_path)
    for old in (None, b"{", b'{"digest":"other","rules":[]}'):
        if old is not None:
            (tmp_path / "compiled.json").write_bytes(old)
        assert kept.load() == tuple(RULES.values())
    kept.write()
    assert kept.load() == tuple(RULES.values())
    for file in tmp_path.glob("*.yaml"):
        file.unlink()
    assert kept.load() == ()
