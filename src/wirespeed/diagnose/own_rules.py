"""Rules of the user beside ours."""

import re
from collections.abc import Collection, Iterator, Mapping

from wirespeed.diagnose.derived import DERIVED
from wirespeed.diagnose.prefix import strip
from wirespeed.diagnose.rule import Fault, Rule
from wirespeed.diagnose.rule_file import Found, RuleFileError, read_rules
from wirespeed.diagnose.rules import all_rules

_SHORTEST = 3
"""Characters of an anchor: shorter ones are in every line."""


def faults(rule: Rule) -> Iterator[Fault]:
    """What is wrong with a rule by itself."""
    for key in ("pattern", "unless"):
        if text := _no_expression(getattr(rule, key)):
            yield Fault(key, text, "a regular expression of Python's re")
            return
    yield from _incomplete(rule)
    for line in rule.positive:
        if not _hits(rule, line):
            yield Fault(
                "positive", repr(line), "lines that an anchor, the pattern and no `unless` know"
            )
    for line in rule.negative:
        if _hits(rule, line):
            yield Fault("negative", repr(line), "lines that the rule does not know")


def faults_between(rule: Rule, known: Collection[Rule]) -> Iterator[Fault]:
    """What it names and nobody is. known: all rules, this one among them."""
    ids = {one.id for one in known}
    names = ids | {one.category for one in known}
    for key, there in (("needs", ids), ("absent", ids), ("until", ids), ("explains", names)):
        for name in sorted(set(getattr(rule, key)) - there):
            yield Fault(key, name, "ids of rules" + (" or categories" if key == "explains" else ""))


def _no_expression(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return ""


def _incomplete(rule: Rule) -> Iterator[Fault]:
    if not rule.sentence:
        yield Fault("sentence", "nothing", "the cause in one sentence")
    if not (rule.anchors or rule.needs):
        yield Fault("anchors", "nothing", "anchors with a pattern, texts, or ids that it needs")
    for key, other in (("anchors", "pattern"), ("pattern", "anchors"), ("anchors", "positive")):
        if getattr(rule, key) and not getattr(rule, other):
            yield Fault(other, "nothing", f"a value, since there is one of {key}")
    for anchor in rule.anchors:
        if len(anchor) < _SHORTEST:
            yield Fault("anchors", repr(anchor), f"{_SHORTEST} characters or more, rare ones")
    if rule.unproven and rule.confidence == "certain":
        yield Fault("confidence", "certain", "likely, of a rule that no real log has matched")
    if rule.role == "cause" and not rule.fix:
        yield Fault("fix", "nothing", "what to do about the cause")
    if rule.role == "symptom" and not rule.checks:
        yield Fault("checks", "nothing", "what to check, the most frequent cause first")
    yield from _nowhere(rule)


def _nowhere(rule: Rule) -> Iterator[Fault]:
    """What it names that is not there, or cannot be."""
    if rule.derive and rule.derive not in DERIVED:
        yield Fault("derive", rule.derive, f"one of {', '.join(DERIVED)}")
    for link in rule.links:
        if not link.startswith("https://"):
            yield Fault("links", link, "addresses that begin with https://")
    if rule.needs or rule.derive:
        return
    groups = set(rule.compiled.groupindex) if rule.compiled else set()
    for key in ("sentence", "because", "costs", "fix", "next", "checks"):
        for name in sorted(_named(getattr(rule, key)) - groups):
            yield Fault(key, f"{{{name}}}", "names of groups in the pattern")


def _named(text: str | tuple[str, ...]) -> set[str]:
    whole = text if isinstance(text, str) else " ".join(text)
    return set(re.findall(r"\{(\w+)\}", whole))


def _hits(rule: Rule, line: str) -> bool:
    """As logs are read: an anchor, then the pattern on the line without its prefixes."""
    anchored = any(anchor.lower() in line.lower() for anchor in rule.anchors)
    return anchored and rule.match(strip(line).text) is not None


def with_own(texts: Mapping[str, str | bytes]) -> tuple[Rule, ...]:
    """All rules, those of the files among them, in the order of their ids.

    texts: what each file says, by its path. Raises RuleFileError for the first file of which a rule
    is wrong, does not prove itself, has an id that is taken, or names a rule that is not there.
    """
    known = {rule.id: rule for rule in all_rules()}
    owned: dict[str, list[Found]] = {}
    for source, text in texts.items():
        owned[source] = read_rules(text if isinstance(text, bytes) else text.encode(), source)
        taken = [
            (one, Fault("id", one.rule.id, "an id that no other rule has"))
            for one in owned[source]
            if known.setdefault(one.rule.id, one.rule) is not one.rule
        ]
        if taken:
            raise RuleFileError(source, [one.problem(fault) for one, fault in taken])
    for source, found in owned.items():
        wrong = [
            one.problem(fault)
            for one in found
            for fault in (*faults(one.rule), *faults_between(one.rule, known.values()))
        ]
        if wrong:
            raise RuleFileError(source, wrong)
    return tuple(sorted(known.values(), key=lambda rule: rule.id))
