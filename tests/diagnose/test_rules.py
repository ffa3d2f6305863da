"""Every rule proves itself: its examples hit, its counter-examples do not, its texts are whole."""

import re

import pytest

from wirespeed.diagnose.prefix import strip
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.rules import all_rules
from wirespeed.diagnose.scan import Scanner

RULES = {rule.id: rule for rule in all_rules()}
each_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def hits(rule: Rule, line: str) -> bool:
    """As the engine does it: an anchor, then the pattern on the line without its prefixes."""
    anchored = any(anchor.lower() in line.lower() for anchor in rule.anchors)
    return anchored and rule.match(strip(line).text) is not None


def test_ids_are_unique() -> None:
    assert len(RULES) == len(all_rules())
    assert all(re.fullmatch(r"[A-Z0-9]+-\d{3}", id) for id in RULES)


@each_rule
def test_examples_hit_and_counter_examples_do_not(rule: Rule) -> None:
    for line in rule.positive:
        assert hits(rule, line), line
    for line in rule.negative:
        assert not hits(rule, line), line


@each_rule
def test_a_rule_says_what_it_must(rule: Rule) -> None:
    assert rule.sentence
    assert rule.anchors or rule.needs
    assert bool(rule.anchors) == bool(rule.pattern) == bool(rule.positive)
    if rule.role == "cause":
        assert rule.fix
    if rule.role == "symptom":
        assert rule.checks
    assert all(link.startswith("https://") for link in rule.links)


@each_rule
def test_what_a_rule_names_is_there(rule: Rule) -> None:
    known = set(RULES) | {one.category for one in RULES.values()}
    assert set(rule.needs) | set(rule.absent) <= set(RULES)
    assert set(rule.explains) <= known
    assert all(RULES[id].ends for id in rule.until)


@each_rule
def test_texts_name_only_groups_of_the_pattern(rule: Rule) -> None:
    texts = (rule.sentence, rule.because, rule.costs, rule.fix, rule.next, *rule.checks)
    named = {name for text in texts for name in re.findall(r"\{(\w+)\}", text)}
    parts = [rule, *(RULES[id] for id in rule.needs if id in RULES)]
    groups = {name for part in parts if part.compiled for name in part.compiled.groupindex}
    assert rule.derive is not None or named <= groups


def test_no_example_of_a_fact_raises_anything() -> None:
    """What healthy logs say is no trouble, whatever rule looks at it."""
    troubles = [rule for rule in RULES.values() if rule.role in ("cause", "symptom")]
    facts = [
        line
        for rule in RULES.values()
        for line in rule.positive
        if rule.role == "fact" and not re.search("error|warn|fail|timeout", line, re.IGNORECASE)
    ]
    wrong = [
        (rule.id, line)
        for line in facts
        for rule in troubles
        if hits(rule, line) and not rule.needs and rule.least == 1
    ]
    assert wrong == []


def test_all_rules_are_searched_at_once() -> None:
    Scanner(RULES.values())
