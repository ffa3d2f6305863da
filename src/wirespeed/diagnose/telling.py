"""Answers as findings: the sentence, who it is about, the lines that prove it, what follows from it."""

import re
from collections.abc import Iterable, Sequence

from wirespeed.diagnose.evidence import Seen
from wirespeed.diagnose.reason import Answer, Diagnosis
from wirespeed.diagnose.scan import Hit
from wirespeed.records import Finding, Subject

__all__ = ["filled", "findings_of"]

_LINES = 4
"""Evidence lines shown of one rule."""
_FOLLOWERS = 12
"""Consequences shown of one answer."""
_LONG = 300
_JUDGED = ("GOOD-", "SAME-", "ADDR-", "RETRY-")
"""Facts that are judged by themselves: endings.py, disagreements.py, the rules of those names."""
_NAMED = 6
_NAMES_RANKS = re.compile(r"\branks? \[?\d")
_FIELD = re.compile(r"\{(\w+)\}")


def findings_of(diagnosis: Diagnosis) -> list[Finding]:
    """The causes as failing findings, most likely first; a warning where only symptoms show.

    Facts are one passing finding a category.
    """
    found = [_answer(answer, diagnosis.silent) for answer in diagnosis.answers]
    return found + _facts(diagnosis.facts)


def _answer(answer: Answer, silent: Sequence[str]) -> Finding:
    rule, hit = answer.first.rule, answer.first.start
    sentence = filled(rule.sentence, hit)
    cause = answer.kind == "cause"
    checks = _unique(check for part in answer.parts for check in part.rule.checks)
    if silent:
        away = f"{_some(silent)}: it wrote no line of the failure, so the others may wait for it"
        checks.insert(0, f"{away} (is its process stopped, busy, or its node gone?)")
    return Finding(
        id=rule.id,
        status="fail" if cause else "warn",
        title=sentence + _who(answer.parts, sentence)
        if cause
        else f"cannot tell why: {sentence}{_ended(answer, sentence)}",
        # Who lost somebody is not the one that it is about.
        subject=Subject("job", "job")
        if rule.role == "consequence"
        else _subject(answer.parts, sentence),
        saw=_where(answer.parts),
        expected=""
        if cause
        else "a line that tells the cause: logs of all ranks, from their start",
        because=filled(rule.because, hit) if cause else _only_symptom(rule.because, hit),
        costs=filled(rule.costs, hit),
        fix=filled(rule.fix, hit) if cause else _numbered(checks, hit),
        next=filled(rule.next, hit) if rule.next else "",
        evidence=tuple(_evidence(answer)),
        category=rule.category,
        confidence=rule.confidence if cause else "cannot tell",
    )


def _ended(answer: Answer, sentence: str) -> str:
    """Who ended, where that is what shows; who only waits, or lost somebody, is not to blame."""
    rule = answer.first.rule
    if rule.role != "symptom" or rule.stage in ("network", "wait"):
        return ""
    return _who(answer.parts[:1], sentence)


def _where(parts: Sequence[Seen]) -> str:
    """`rank-3.log:41, and 7 more lines`."""
    count = sum(part.count for part in parts)
    more = f", and {count - 1:,} more line" + ("s" if count > 2 else "") if count > 1 else ""
    return parts[0].start.line.where + more


def _only_symptom(because: str, hit: Hit) -> str:
    said = filled(because, hit)
    return "only a symptom shows" + (
        f": {said}" if said else "; its cause is in none of these lines"
    )


def _numbered(checks: Sequence[str], hit: Hit) -> str:
    if len(checks) < 2:
        return "check " + filled(checks[0], hit) if checks else ""
    told = (f"{number}. {filled(check, hit)}" for number, check in enumerate(checks, 1))
    return "check in this order: " + "; ".join(told)


def _evidence(answer: Answer) -> list[str]:
    lines = [text for part in answer.parts for text in _lines(part)]
    for part in answer.follows[:_FOLLOWERS]:
        lines.append(_follower(part))
    if len(answer.follows) > _FOLLOWERS:
        lines.append(f"consequences of {len(answer.follows) - _FOLLOWERS} more kinds")
    return lines


def _lines(part: Seen) -> list[str]:
    """The earliest line, then the first ones of other writers."""
    first = part.start
    shown = [first, *[hit for hit in part.hits if hit.line.where != first.line.where]][:_LINES]
    lines = _unique(f"{hit.line.where}: {_cut(hit.line.text)}" for hit in shown)
    if part.count > len(shown):
        lines.append(f"{part.count:,} such lines in all" + _who([part]))
    return lines


def _follower(part: Seen) -> str:
    hit = part.start
    times = f", {part.count:,} lines" if part.count > 1 else ""
    why = filled(part.rule.sentence, hit)
    return (
        f"follows from it: {why}{_who([part])}{times}; {hit.line.where}: {_cut(hit.line.text, 120)}"
    )


def _facts(facts: Iterable[Seen]) -> list[Finding]:
    """One passing finding for all that the logs show."""
    groups: dict[str, list[str]] = {}
    seen = [fact for fact in facts if not fact.rule.id.startswith(_JUDGED)]
    for fact in seen:
        told = _unique(filled(fact.rule.sentence, hit) for hit in (fact.start, *fact.hits))
        more = len(told) - _NAMED
        text = ", ".join(told[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        groups.setdefault(fact.rule.category, []).append(text)
    if not groups:
        return []
    ranks = {rank for fact in seen for rank in fact.ranks}
    hosts = {host for fact in seen for host in fact.hosts}
    who = [f"{len(ranks)} ranks" if len(ranks) > 1 else "", f"{len(hosts)} hosts" if hosts else ""]
    about = " on ".join(filter(None, who))
    lines = tuple(f"{category}: {'; '.join(texts)}" for category, texts in groups.items())
    return [
        Finding(
            id="DIAG-001",
            status="pass",
            title="what the logs show"
            + (f" of {about}" if about else "")
            + ": "
            + " · ".join(lines),
            evidence=lines,
        )
    ]


def _who(parts: Sequence[Seen], said: str = "") -> str:
    """` (ranks 0, 3 on host-1)`, or nothing where it was `said` already."""
    if _NAMES_RANKS.search(said):
        return ""
    ranks = sorted({rank for part in parts for rank in part.ranks})
    hosts = sorted({host for part in parts for host in part.hosts})
    told = []
    if ranks:
        told.append(("rank " if len(ranks) == 1 else "ranks ") + _some(ranks))
    if hosts:
        told.append(_some(hosts))
    return f" ({' on '.join(told)})" if told and not all(one in said for one in told) else ""


def _some(values: Sequence[object]) -> str:
    more = len(values) - _NAMED
    return ", ".join(map(str, values[:_NAMED])) + (f" and {more} more" if more > 0 else "")


def _subject(parts: Sequence[Seen], said: str) -> Subject:
    """The one rank or host that it is about, else the job; several ranks are the job's."""
    if re.search(r"\branks \[?\d+[,-]", said):
        return Subject("job", "job")
    ranks = {rank for part in parts for rank in part.ranks}
    hosts = {host for part in parts for host in part.hosts}
    if len(ranks) == 1:
        return Subject("rank", f"rank {ranks.pop()}")
    if len(hosts) == 1:
        return Subject("node", hosts.pop())
    return Subject("job", "job")


def filled(text: str, hit: Hit) -> str:
    """`{name}` from the line; what it does not tell is `?`."""
    return _FIELD.sub(lambda field: hit.groups.get(field[1], "?"), text)


def _cut(text: str, most: int = _LONG) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
