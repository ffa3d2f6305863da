"""A file of rules: what it says, and what is wrong with it, with line and key.

about: Storage of our cluster.
defaults:               keys that each rule below has, unless it says otherwise
  role: cause
rules:
  - id: MINE-001
    category: storage
    anchors: [stale file handle]
    pattern: '(?P<path>/\\S+): stale file handle'
    sentence: the NFS server no longer knows {path}
    fix: mount it again on that node
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import msgspec

from wirespeed.diagnose.derived import DERIVED
from wirespeed.diagnose.prefix import strip
from wirespeed.diagnose.rule import Fault, Rule
from wirespeed.errors import InputError
from wirespeed.model.field_types import field_docs
from wirespeed.yaml_tree import Key, Problem, Tree, dotted, from_tree, parse, shown, shown_path

# Rules as files say them, also by many message texts that mean one thing.

_LEAST = 6
_GAP = ".{0,200}?"
_REST = 120
"""Characters that are told of what follows a text."""
_FILLED = "x1"
_COMMON = re.compile(r"\b(?:failed|with|error|has|is|not|a|file|device|rank|the|to)\b|[^a-z]")
"""What many lines hold, and finds none."""


class Entry(Rule, frozen=True, kw_only=True):
    """A rule as its file says it: `texts` may stand for pattern, anchors and examples.

    A text that begins with `^` begins its line. In the rule's own words `{what}` is the message to its
    line's end.
    """

    texts: tuple[str, ...] = ()
    """Message texts, in which `*` stands for what a program fills in."""
    starts: str = ""
    """Regular expression that must stand before each text."""
    said: str = ""
    """An example of what stands before each text."""

    def rule(self) -> Rule:
        """Raises ValueError for a text that no anchor can be made of."""
        own = {name: getattr(self, name) for name in Rule.__struct_fields__}
        return Rule(**own | self._made()) if self.texts else Rule(**own)

    def _made(self) -> dict[str, Any]:
        """What follows from the texts, where the entry does not say it."""
        ends = "|".join(sorted((_pattern(text) for text in self.texts), key=len, reverse=True))
        lines = (self.said + text.removeprefix("^").replace("*", _FILLED) for text in self.texts)
        return {
            "anchors": self.anchors or _anchors(self.texts),
            "pattern": f"{self.starts}(?P<what>(?:{ends}).{{0,{_REST}}})",
            "positive": self.positive or tuple(lines),
        }


def _pattern(text: str) -> str:
    begins = "^" if text.startswith("^") else ""
    parts = (re.escape(part) for part in text.removeprefix("^").split("*"))
    return begins + _GAP.join(parts)


def _says(part: str) -> int:
    return len(_COMMON.sub("", part))


def _anchors(texts: Iterable[str]) -> tuple[str, ...]:
    """The plain part of each that says most; of two that lie in each other the shorter does for both."""
    longest = {max(text.removeprefix("^").lower().split("*"), key=_says) for text in texts}
    short = [one for one in longest if len(one) < _LEAST]
    if short:
        raise ValueError(f"texts without a plain part of {_LEAST} characters: {sorted(short)}")
    whole = (one for one in longest if not any(other in one for other in longest - {one}))
    return tuple(sorted(whole))


_KEYS = Entry.__struct_fields__
_MOST_TOLD = 20


class RuleFileError(InputError):
    """A file of rules is wrong; what is wrong with it, in the order of lines."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        self.problems = tuple(sorted(problems))
        name = shown_path(source)
        told = [f"{name}:{one.line}: {one}" for one in self.problems[:_MOST_TOLD]]
        if len(self.problems) > _MOST_TOLD:
            told.append(f"… and {len(self.problems) - _MOST_TOLD} more problems")
        super().__init__("\n".join(told))


@dataclass(frozen=True, slots=True)
class Found:
    """A rule, and where it stands."""

    rule: Rule
    number: int
    tree: Tree

    def problem(self, fault: Fault) -> Problem:
        """That fault, with the line of its key."""
        return _problem(self.tree, ("rules", self.number, fault.key), fault.saw, fault.expected)


def read_rules(data: bytes, source: str) -> list[Found]:
    """The rules of a file, not proven yet. RuleFileError with all that is wrong.

    source: what messages call it, such as its path.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        saw = f"the byte 0x{data[error.start]:02x}, which is not UTF-8"
        raise RuleFileError(source, [Problem(line=line, saw=saw, expected="UTF-8")]) from None
    tree = parse(text)
    problems = from_tree(tree)
    found = [] if problems else list(_entries(tree))
    problems += [one for one in found if isinstance(one, Problem)]
    if problems:
        raise RuleFileError(source, problems)
    return [one for one in found if isinstance(one, Found)]


def _entries(tree: Tree) -> Iterator[Found | Problem]:
    """Each rule, or what is wrong with it."""
    data = tree.data if isinstance(tree.data, dict) else {}
    for key in data.keys() - {"about", "defaults", "rules"}:
        yield _problem(tree, (key,), "an unknown key", "about, defaults or rules")
    defaults, entries = data.get("defaults") or {}, data.get("rules")
    if not isinstance(defaults, dict):
        yield _problem(tree, ("defaults",), shown(defaults), "keys of a rule with their values")
        return
    if not isinstance(entries, list):
        yield _problem(tree, ("rules",), _value(data, ("rules",)), "a list of rules")
        return
    unknown = defaults.keys() - set(_KEYS)
    for key in unknown:
        yield _unknown(tree, ("defaults", key))
    given = {key: value for key, value in defaults.items() if key not in unknown}
    for number, entry in enumerate(entries):
        yield _entry(tree, number, given, entry)


def _entry(tree: Tree, number: int, defaults: Mapping[str, Any], entry: Any) -> Found | Problem:
    where: Key = ("rules", number)
    if not isinstance(entry, dict):
        return _problem(tree, where, shown(entry), "keys of a rule with their values")
    unknown = next((key for key in entry if key not in _KEYS), None)
    if unknown is not None:
        return _unknown(tree, (*where, unknown))
    try:
        rule = msgspec.convert({**defaults, **entry}, Entry, strict=False).rule()
    except msgspec.ValidationError as error:
        expected, key = _told(str(error))
        given = key and key[0] in defaults.keys() - entry.keys()
        at = ("defaults", *key) if given else (*where, *key)
        return _problem(tree, at, _value(tree.data, at), expected)
    except ValueError as error:
        return _problem(tree, (*where, "texts"), str(error), "texts with some rare words in a row")
    return Found(rule, number, tree)


_AT = re.compile(r"^(?P<told>.*?)(?: - at `\$(?P<at>.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>\w+)|\[(?P<index>\d+|\.\.\.)\]")
_WORDS = {
    "Expected `str` matching regex ": "text that matches ",
    "Expected `array`": "a list",
    "Expected `str`": "text",
    "Expected `bool`": "true or false",
    "Expected `int`": "a whole number",
}


def _told(message: str) -> tuple[str, Key]:
    """What msgspec expected, and where."""
    found = _AT.match(message)
    told, at = (found["told"], found["at"] or "") if found else (message, "")
    if missing := re.match(r"Object missing required field `(\w+)`", told):
        return "a value", (missing[1],)
    key = tuple(
        step["name"] or int(step["index"]) for step in _STEP.finditer(at) if step["index"] != "..."
    )
    if told.startswith("Invalid enum value") and key:
        _, parts = msgspec.json.schema_components([Entry])
        return f"one of {', '.join(parts['Entry']['properties'][key[0]]['enum'])}", key
    start = next((start for start in _WORDS if told.startswith(start)), "")
    rest = told.removeprefix(start) if start.endswith(" ") else ""
    return (_WORDS[start] + rest if start else told), key


def _value(data: Any, key: Key) -> str:
    for part in key:
        try:
            data = data[part]
        except (LookupError, TypeError):
            return "nothing"
    return "nothing" if data is None else shown(data)


def _unknown(tree: Tree, key: Key) -> Problem:
    near = get_close_matches(str(key[-1])[:80], _KEYS, n=1)
    return _problem(tree, key, "an unknown key", f"one of {', '.join(_KEYS)}", "".join(near))


def _problem(tree: Tree, key: Key, saw: str, expected: str, meant: str = "") -> Problem:
    at = tree.mark(key)
    return Problem(
        line=at.line, column=at.column, key=dotted(key), saw=saw, expected=expected, meant=meant
    )


# Rules that prove themselves, and those of the user beside ours.

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
            expected = "lines that an anchor, the pattern and no `unless` know"
            yield Fault("positive", repr(line), expected)
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
    if not (rule.anchors or rule.needs or rule.derive):
        yield Fault("anchors", "nothing", "anchors with a pattern, texts, or ids that it needs")
    for key, other in (("anchors", "pattern"), ("pattern", "anchors"), ("anchors", "positive")):
        if getattr(rule, key) and not getattr(rule, other):
            yield Fault(other, "nothing", f"a value, since there is one of {key}")
    for anchor in rule.anchors:
        if len(anchor) < _SHORTEST:
            yield Fault("anchors", repr(anchor), f"{_SHORTEST} characters or more, rare ones")
    if rule.unproven and rule.confidence == "certain":
        yield Fault("confidence", "certain", "likely or possible, of a rule that is unproven")
    if rule.unproven and rule.proof:
        yield Fault("unproven", "true", "false, since the rule cites a proof")
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
    groups = {"recorder", "dumps", *(rule.compiled.groupindex if rule.compiled else ())}
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


def with_own(texts: Mapping[str, str | bytes], ours: Iterable[Rule]) -> tuple[Rule, ...]:
    """Our rules and those of the files, in the order of their ids.

    texts: what each file says, by its path. Raises RuleFileError for the first file of which a rule
    is wrong, does not prove itself, has an id that is taken, or names a rule that is not there.
    """
    known = {rule.id: rule for rule in ours}
    owned: dict[str, list[Found]] = {}
    for source, text in texts.items():
        data = text if isinstance(text, bytes) else text.encode()
        owned[source] = [
            replace(one, rule=msgspec.structs.replace(one.rule, of_site=True))
            for one in read_rules(data, source)
        ]
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


# The JSON Schema of rule files, for editors: made of the types, and of what their docstrings say.

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def rule_schema() -> dict[str, Any]:
    """As plain data."""
    _, parts = msgspec.json.schema_components([Entry])
    keys: dict[str, Any] = parts["Entry"]["properties"]
    about = field_docs(Entry)
    for name, key in keys.items():
        key.pop("default", None)
        if name in about:
            key["description"] = about[name]
    entry = {"type": "object", "additionalProperties": False, "properties": keys}
    return {
        "$schema": _DIALECT,
        "title": "Rules of wirespeed diagnose",
        "type": "object",
        "additionalProperties": False,
        "required": ["rules"],
        "properties": {
            "about": {"type": "string", "description": "What the rules are of, in a sentence."},
            "defaults": {
                **entry,
                "description": "Keys that each rule has, unless it says otherwise.",
            },
            "rules": {"type": "array", "items": {**entry, "required": ["id"]}},
        },
    }
