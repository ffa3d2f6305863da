"""Files of rules: what they may say, and what is told of one that is wrong."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from wirespeed.diagnose import rules
from wirespeed.diagnose.rule_file import RuleFileError, read_rules, rule_schema, with_own

GOOD = """\
defaults:
  role: cause
  explains: [exit-code]
rules:
  - id: MINE-001
    category: storage
    anchors: [stale file handle]
    pattern: '(?P<path>/\\S+): stale file handle'
    sentence: 'the NFS server no longer knows {path}'
    fix: mount it again
    least: 2
    positive: ['cat: /data/x: Stale file handle']
  - id: MINE-002
    category: storage
    general: true
    texts:
      - quota of * is used up
    sentence: '{what}'
    explains: []
    fix: delete something
"""


def wrong(text: str) -> list[str]:
    with pytest.raises(RuleFileError) as told:
        with_own({"mine.yaml": text}, rules.all_rules())
    return str(told.value).partition("; expected")[0].splitlines()


def test_a_file_gives_its_rules_beside_ours() -> None:
    found = {rule.id: rule for rule in with_own({"mine.yaml": GOOD}, rules.all_rules())}
    assert len(found) == len(rules.all_rules()) + 2
    first, second = found["MINE-001"], found["MINE-002"]
    assert (first.role, first.explains, first.least) == ("cause", ("exit-code",), 2)
    assert (second.general, second.explains) == (True, ())
    assert second.match("the quota of x is used up") == {"what": "quota of x is used up"}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "    fix: mount it again",
            "    fixx: mount",
            "mine.yaml:10: rules[0].fixx: saw an unknown key",
        ),
        ("role: cause", "roles: cause", "mine.yaml:2: defaults.roles: saw an unknown key"),
        (
            "role: cause",
            "role: guess",
            "mine.yaml:2: defaults.role: saw 'guess', expected one of cause, consequence, fact, symptom",
        ),
        ("id: MINE-001", "id: mine-1", "saw 'mine-1', expected text that matches '^[A-Z]"),
        ("  role: cause\n", "", "mine.yaml:4: rules[0].role: saw nothing, expected a value"),
        (
            "[stale file handle]",
            "stale",
            "mine.yaml:7: rules[0].anchors: saw 'stale', expected a list",
        ),
        (
            "least: 2",
            "least: two",
            "mine.yaml:11: rules[0].least: saw 'two', expected a whole number",
        ),
        ("general: true", "general: 7x", "rules[1].general: saw '7x', expected true or false"),
        ("MINE-001", "mine", "mine.yaml:5: rules[0].id: saw 'mine', expected"),
        (
            "MINE-002",
            "MINE-001",
            "mine.yaml:13: rules[1].id: saw MINE-001, expected an id that no other",
        ),
        ("MINE-002", "NCCL-001", "rules[1].id: saw NCCL-001, expected an id that no other"),
        ("'(?P<path>", "'(?P<path", "mine.yaml:8: rules[0].pattern: saw "),
        ("Stale file", "Fresh file", "mine.yaml:12: rules[0].positive: saw 'cat: /data/x: Fresh"),
        ("quota of * is used up", "a * of", "rules[1].texts: saw texts without a plain part"),
        (
            "[exit-code]",
            "[no-such]",
            "rules[0].explains: saw no-such, expected ids of rules or categ",
        ),
        ("rules:", "rule:", "mine.yaml:4: rule: saw an unknown key, expected about, defaults or"),
        ("rules:\n", "rules: all\nx:\n", "rules: saw 'all', expected a list of rules"),
        ("defaults:", "defaults: &a", "saw an anchor"),
        ("fix: mount it again", "\tfix: x", "a tab in the indentation"),
    ],
)
def test_a_wrong_file_names_line_and_key(old: str, new: str, told: str) -> None:
    assert old in GOOD
    lines = wrong(GOOD.replace(old, new, 1))
    assert any(told in line for line in lines), lines


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(RuleFileError, match=r"mine\.yaml:2: saw the byte 0xff"):
        read_rules(b"rules:\n  - \xff\n", "mine.yaml")


def test_a_meaning_is_asked_for_what_was_meant() -> None:
    (line,) = wrong(GOOD.replace("    fix: mount it again", "    fixes: mount it again"))
    assert line.endswith("did you mean fix?")


class TestSchema:
    def test_it_knows_every_file_of_ours(self) -> None:
        known = jsonschema.Draft202012Validator(rule_schema())
        files = sorted(Path(rules.__file__).parent.glob("*.yaml"))
        assert len(files) > 60
        for file in files:
            known.validate(yaml.load(file.read_text(), yaml.CSafeLoader))

    @pytest.mark.parametrize("part", [{"rules": [{}]}, {"rules": [{"id": "A-001", "x": 1}]}, {}])
    def test_and_refuses_what_is_none(self, part: dict[str, Any]) -> None:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(part, rule_schema())

    def test_each_key_is_described(self) -> None:
        keys = rule_schema()["properties"]["rules"]["items"]["properties"]
        assert [name for name, one in keys.items() if not one.get("description")] == []
        assert json.loads(json.dumps(rule_schema()))["title"]
