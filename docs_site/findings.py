"""One page of all findings: what each id of `check`, `diagnose` and the other verbs means."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from urllib.parse import quote

import yaml

from docs_site.markdown import code, prose, text
from wirespeed.checks.registry import EXPLAINED, OF_LOGS, Check
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.rules import RULES, all_rules

__all__ = ["finding_anchors", "findings_page"]

_INTRO = """\
# Findings

Each finding has an id that never changes its meaning. `wirespeed check --explain COL-001` prints what
stands here, for ids of logs `wirespeed diagnose --explain SHM-001`. The address of this page with `#`
and an id in lower case leads to its text.
"""
_LOGS = """\
## In logs {#logs}

`wirespeed diagnose` knows these. A *cause* explains a failure by itself; a *symptom* shows that
something is wrong and not why; a *consequence* follows from somebody else's end.
"""


def findings_page(
    checks: Mapping[str, Check] = EXPLAINED, rules: Iterable[Rule] | None = None
) -> str:
    """The page as Markdown, with an anchor a finding."""
    known = _rules() if rules is None else list(rules)
    parts = [_INTRO, *_checks(checks), _LOGS, *_explanations(), *_all_rules(known)]
    return "\n".join(parts)


def finding_anchors() -> dict[str, str]:
    """Anchor by id, which means one thing in all of them."""
    rules = (rule.id for rule in _rules())
    return {id: id.lower() for id in (*rules, *OF_LOGS, *EXPLAINED)}


def _rules() -> list[Rule]:
    """What `--list` shows: facts are told by DIAG-001 and name no trouble."""
    return [rule for rule in all_rules() if rule.role != "fact"]


def _checks(checks: Mapping[str, Check]) -> Iterator[str]:
    for family in dict.fromkeys(check.family for check in checks.values()):
        yield f"## {text(family.capitalize())} {{#family-{family}}}\n"
        for check in checks.values():
            if check.family == family:
                yield _entry(check.id, check.title)
                yield prose(check.explanation) + "\n"


def _explanations() -> Iterator[str]:
    for check in OF_LOGS.values():
        yield f"### {text(check.id)} {{#{check.id.lower()}}}\n"
        yield prose(check.explanation) + "\n"


def _all_rules(rules: list[Rule]) -> Iterator[str]:
    words = _words_of_families()
    for family, group in groupby(sorted(rules, key=lambda rule: rule.id), _family):
        yield f"## In logs: {text(family)} {{#logs-{family.lower()}}}\n"
        yield " ".join(map(prose, words.get(family, ()))) + "\n"
        for rule in group:
            yield _entry(rule.id, re.sub(r"\{\w+\}", "…", rule.sentence))
            yield from _rule(rule)


def _words_of_families() -> dict[str, list[str]]:
    """What the files of rules say they are for, by family."""
    told: dict[str, list[str]] = {}
    for path in sorted(RULES.folder.glob(RULES.pattern)):
        file = yaml.safe_load(path.read_text())
        role = {"role": file.get("defaults", {}).get("role")}
        troubles = [one["id"] for one in file["rules"] if (role | one)["role"] != "fact"]
        for family in {id.rpartition("-")[0] for id in troubles}:
            told.setdefault(family, []).append(file["about"])
    return told


def _family(rule: Rule) -> str:
    return rule.id.rpartition("-")[0]


def _entry(id: str, title: str) -> str:
    return f"### {text(id)} <small>{prose(title)}</small> {{#{id.lower()}}}\n"


def _rule(rule: Rule) -> Iterator[str]:
    yield f"A {rule.role}, {code(rule.category)}.\n"
    told = {"because": rule.because, "costs": rule.costs, "fix": rule.fix}
    for name, words in told.items():
        if words:
            yield f"{name}\n:   {prose(words)}\n"
    if rule.next:
        yield f"confirm\n:   {code(rule.next)}\n"
    if rule.checks:
        items = "\n".join(f"    {place}. {prose(one)}" for place, one in enumerate(rule.checks, 1))
        yield f"check\n:   the most frequent cause first\n\n{items}\n"
    if rule.links:
        yield "see\n:   " + ", ".join(map(_link, rule.links)) + "\n"
    if rule.positive:
        yield f"such as\n:   {code(rule.positive[0])}\n"


def _link(address: str) -> str:
    """Only addresses of the web become links; characters that would end the link are encoded."""
    if not address.startswith(("https://", "http://")):
        return text(address)
    return f"[{text(address)}](<{quote(address, safe=':/?#=&%+,;@~!$*-._')}>)"
