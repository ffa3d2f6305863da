"""From what was seen to an answer: causes first, and what follows from them beneath."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from typing import Literal, get_args

from wirespeed.diagnose.derived import Evidence, Seen, earlier
from wirespeed.diagnose.findings import JOB, cut, make_finding
from wirespeed.diagnose.rule import Stage
from wirespeed.diagnose.scan import Hit
from wirespeed.model.records import Finding, Subject
from wirespeed.model.units import listed

_STAGES: tuple[str, ...] = get_args(Stage)
_ROOTS = ("machine", "setup", "program")
"""Stages that can begin a failure; the later ones need a beginning, which may not be in the log."""
_CLEARLY_S = 2.0
"""Of two beginnings, the one that is earlier by more than this is the first, whatever its stage."""

_FEW = 8
"""Ranks without a word that are named where others lost one of them."""
_RUNTIME_ERROR = "python-runtime"
_ANY_PROGRAM = ("python-error", _RUNTIME_ERROR)
"""Categories of the rules that take any exception that no other rule knows."""
_SLOW = ("gdr-disabled", "net-socket-fallback", "efa-not-used")
"""Categories that slow a job down and end none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One cause, or a symptom whose cause does not show."""

    kind: Literal["cause", "suggestion", "unknown", "slows", "cannot tell"]
    """`suggestion`: what may be the cause. `unknown`: an exception that no rule knows began it.
    `slows`: beside such an exception, what slows the job down and ended it not."""
    parts: tuple[Seen, ...]
    """The rules that tell it, of one category; the first one speaks."""
    follows: tuple[Seen, ...] = ()
    """What it explains."""
    beside: tuple[Seen, ...] = ()
    """Exceptions that no rule knows: raised in the same logs, because of it or not."""

    @property
    def first(self) -> Seen:
        return self.parts[0]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    answers: tuple[Answer, ...]
    """Most likely first; empty: nothing is wrong in these logs."""
    facts: tuple[Seen, ...]
    """What the logs say besides."""
    silent: tuple[str, ...] = ()
    """Where no cause shows: who wrote lines and none of what went wrong."""


def reason(evidence: Evidence) -> Diagnosis:
    """The answers of a job whose logs are read; pure."""
    facts = tuple(sorted(evidence.of("fact"), key=lambda one: one.rule.id))
    _keep_specific(evidence)
    aftermath = _sorted(evidence.of("consequence"))
    own, behind = _stand_back(evidence.of("cause"), evidence)
    own, reports = _without_reports(own)
    behind += reports
    proven = _without_explained(_sorted(one for one in own if not one.rule.suggests))
    possible = _by_likelihood(one for one in own if one.rule.suggests)
    symptoms = _sorted(_stand_back(evidence.of("symptom"), evidence)[0])
    if proven and symptoms and all(one.rule.category in _SLOW for one in proven):
        # What slows a job down did not end it: the symptoms come first, without a cause.
        lasting = [one for one in symptoms if not any(_explains(slow, one) for slow in proven)]
        if lasting:
            kept = _without_explained(lasting)
            answer = _cannot_tell(kept, [*symptoms, *aftermath])
            slow = tuple(Answer("slows", (one,)) for one in proven)
            return Diagnosis((answer, *slow), facts, _silent(symptoms, evidence))
    if proven:
        rest = [*behind, *symptoms, *aftermath]
        answers = _of_causes(proven, evidence, rest)
        suggestions = _suggestions(possible, answers)
        if _may_begin(suggestions, answers[0]):
            return Diagnosis((*suggestions, *answers), facts)
        return Diagnosis((*answers, *suggestions), facts)
    if possible:
        answers = _suggestions(possible, ())
        follows = tuple(_sorted([*symptoms, *aftermath, *behind]))
        return Diagnosis((replace(answers[0], follows=follows), *answers[1:]), facts)
    if symptoms:
        # The first symptom speaks; the others' checks come after its own.
        kept = _without_explained(symptoms)
        answer = _cannot_tell(kept, [*symptoms, *aftermath])
        return Diagnosis((answer,), facts, _silent(symptoms, evidence))
    # Consequences alone: somebody's end is not in these logs.
    alone = tuple(_cannot_tell([one], aftermath) for one in aftermath[:1])
    return Diagnosis(alone, facts, evidence.silent(aftermath[:1], _FEW))


def _keep_specific(evidence: Evidence) -> None:
    """Leave to the more specific rule what it says of a line.

    A rule that has no line of its own left is dropped: neither its words nor its command is shown.
    """
    for id, seen in list(evidence.seen.items()):
        if seen.start.folded and seen.own is None:
            del evidence.seen[id]
        elif seen.start.folded and seen.own is not None:
            seen.first = seen.own
            seen.hits = [seen.own, *(hit for hit in seen.hits if not hit.folded)]


def _without_reports(own: Sequence[Seen]) -> tuple[list[Seen], list[Seen]]:
    """Split off RuntimeErrors that no rule knows where a beginning is named: they mostly report it."""
    named = any(
        one.rule.stage in _ROOTS
        and not one.rule.suggests
        and one.rule.category not in (*_ANY_PROGRAM, *_SLOW)
        for one in own
    )
    reports = [one for one in own if named and one.rule.category == _RUNTIME_ERROR]
    return [one for one in own if one not in reports], reports


def _may_begin(suggestions: Sequence[Answer], first: Answer) -> bool:
    """Return whether what is possible explains the exception that no rule knows, and came before it."""
    return first.kind == "unknown" and any(
        _explains(one.first, first.first) and earlier(one.first.start.line, first.first.start.line)
        for one in suggestions
    )


_SUGGESTED = 3
"""Suggestions shown at most."""


def _by_likelihood(possible: Iterable[Seen]) -> list[Seen]:
    """Return suggestions by likelihood: proven messages first, then in the order of causes."""
    return sorted(_sorted(possible), key=lambda one: one.rule.unproven)


def _suggestions(possible: Sequence[Seen], answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """Return an answer a category of what may be a cause, without what the answers explain."""
    parts = [part for answer in answers for part in answer.parts]
    groups: dict[str, list[Seen]] = {}
    for one in possible:
        explained = any(_explains(part, one) for part in parts)
        same = any(part.rule.category == one.rule.category for part in parts)
        late = bool(parts) and _STAGES.index(one.rule.stage) > _STAGES.index(parts[0].rule.stage)
        if not (explained or same or late):
            groups.setdefault(one.rule.category, []).append(one)
    shown = list(groups.values())[:_SUGGESTED]
    return tuple(Answer("suggestion", tuple(group)) for group in shown)


def _stand_back(told: Sequence[Seen], evidence: Evidence) -> tuple[list[Seen], list[Seen]]:
    """Those that speak, and general ones that only follow, since another names a cause.

    A general one whose line another rule knows is neither.
    """
    others = [one for one in evidence.seen.values() if not one.rule.general]
    lines = {
        hit.line.where
        for one in others
        if one.rule.role != "fact" and one.rule.category not in _ANY_PROGRAM
        for hit in (one.start, *one.hits)
    }
    speak = [one for one in told if not one.rule.general]
    general = [one for one in told if one.rule.general and one.start.line.where not in lines]
    named = any(
        one.rule.role == "cause"
        and not one.rule.suggests
        and one.rule.category not in (*_ANY_PROGRAM, *_SLOW)
        for one in speak
    )
    return (speak, general) if named else ([*speak, *general], [])


def _silent(symptoms: Sequence[Seen], evidence: Evidence) -> tuple[str, ...]:
    """Who does not complain, where others do that they wait or lost somebody."""
    first = [one for one in symptoms[:1] if one.rule.stage in ("network", "wait")]
    return evidence.silent(first)


def _sorted(seen: Iterable[Seen]) -> list[Seen]:
    return sorted(seen, key=cmp_to_key(_compare))


def _compare(one: Seen, other: Seen) -> int:
    """Beginnings before what needs one; of two beginnings the clearly earlier; then by stage, time."""
    mine, theirs = one.rule.stage, other.rule.stage
    if (mine in _ROOTS) != (theirs in _ROOTS):
        return -1 if mine in _ROOTS else 1
    apart = _apart(one, other)
    if mine in _ROOTS and apart is not None and abs(apart) > _CLEARLY_S:
        return -1 if apart < 0 else 1
    if mine != theirs:
        return _STAGES.index(mine) - _STAGES.index(theirs)
    sure = (one.rule.confidence != "certain") - (other.rule.confidence != "certain")
    if sure:
        return sure
    return -1 if earlier(one.start.line, other.start.line) else 1


def _apart(one: Seen, other: Seen) -> float | None:
    """Seconds from the other's first line to this one's, on one clock."""
    mine, theirs = one.start.line, other.start.line
    if mine.time is None or theirs.time is None or mine.clock != theirs.clock:
        return None
    return mine.time - theirs.time


def _explains(one: Seen, other: Seen) -> bool:
    return one is not other and bool({other.rule.id, other.rule.category} & set(one.rule.explains))


def _is_the_same(one: Seen, other: Seen) -> bool:
    """Return whether both are one trouble in the same lines: neither follows from the other."""
    if one.rule.category != other.rule.category:
        return False
    lines = {hit.line.where for hit in (one.start, *one.hits)}
    return any(hit.line.where in lines for hit in (other.start, *other.hits))


def _without_explained(causes: Sequence[Seen]) -> list[Seen]:
    """Causes that no other explains; where two explain each other, the first stays."""
    kept: list[Seen] = []
    for index, one in enumerate(causes):
        later = [other for other in causes[index + 1 :] if not _explains(one, other)]
        if not any(_explains(other, one) for other in (*kept, *later)):
            kept.append(one)
    return kept


def _of_causes(
    causes: Sequence[Seen], evidence: Evidence, rest: Sequence[Seen]
) -> tuple[Answer, ...]:
    """One answer a category; those that are late in causality follow from the beginnings."""
    begins = _begins(causes)
    late = [one for one in causes if one not in begins]
    # What was so before anything failed, such as a slow transport, follows from nothing.
    before = [
        one
        for one in late
        if one.rule.stage == "network"
        and all(earlier(one.start.line, begin.start.line) for begin in begins)
    ]
    late = [one for one in late if one not in before]
    known = (*causes, *rest)
    explained = [
        one
        for one in evidence.of("cause")
        if one not in known and not one.rule.general and _may_follow(one, causes)
    ]
    groups: dict[str, list[Seen]] = {}
    for one in [*begins, *before]:
        category = one.rule.category
        groups.setdefault("" if category in _ANY_PROGRAM else category, []).append(one)
    first, *others = groups.values()
    begun = [part for parts in groups.values() for part in parts]
    follows = [
        one
        for one in _sorted([*late, *explained, *rest])
        if not any(_is_the_same(part, one) for part in begun)
    ]
    later = []
    beside: list[Seen] = []
    for parts in others:
        own = tuple(one for one in follows if any(_explains(part, one) for part in parts))
        kind = _kind_of(parts)
        if kind == "cause" and _kind_of(first) == "unknown" and parts[0].rule.category in _SLOW:
            kind = "slows"
        if kind == "unknown":
            beside += parts
        else:
            later.append(Answer(kind, tuple(parts), own))
    taken = [one for answer in later for one in answer.follows]
    main = tuple(one for one in follows if one not in taken)
    return Answer(_kind_of(first), tuple(first), main, tuple(beside)), *later


def _may_follow(one: Seen, causes: Sequence[Seen]) -> bool:
    """Return whether it may be said to follow: of what is only possible, if a cause explains it."""
    return not one.rule.suggests or any(_explains(cause, one) for cause in causes)


def _kind_of(parts: Sequence[Seen]) -> Literal["cause", "unknown", "slows"]:
    return "unknown" if parts[0].rule.category in _ANY_PROGRAM else "cause"


def _begins(causes: Sequence[Seen]) -> list[Seen]:
    """Where it began: causes of the first stages, else the first of all.

    A program's error that comes clearly after a cause in the network is what the program made of it,
    such as an exception while it cleans up.
    """
    roots = [one for one in causes if one.rule.stage in _ROOTS]
    if any(one.rule.stage != "program" for one in roots):
        return roots
    network = [
        one for one in causes if one.rule.stage == "network" and one.rule.category not in _SLOW
    ]
    left = [
        one
        for one in roots
        if one.rule.confidence == "certain" or not any(_clearly_before(x, one) for x in network)
    ]
    return left or network[:1] or list(causes[:1])


def _clearly_before(one: Seen, other: Seen) -> bool:
    """By more than 2 s on one clock; where there are no times, in the order of one log."""
    apart = _apart(one, other)
    if apart is not None:
        return apart < -_CLEARLY_S
    mine, theirs = one.start.line, other.start.line
    return mine.source == theirs.source and mine.order < theirs.order


def _cannot_tell(parts: Sequence[Seen], follows: Sequence[Seen]) -> Answer:
    return Answer("cannot tell", tuple(parts), tuple(one for one in follows if one not in parts))


_LINES = 4
"""Evidence lines shown of one rule."""
_FOLLOWERS = 12
"""Consequences shown of one answer."""
_JUDGED = ("GOOD-", "SAME-", "ADDR-", "RETRY-")
"""Facts that are judged by themselves: how logs end, who says otherwise, the rules of those names."""
_NAMED = 6
_NAMES_RANKS = re.compile(r"\branks? \[?\d")
_FIELD = re.compile(r"\{(\w+)\}")


def findings_of(diagnosis: Diagnosis) -> list[Finding]:
    """The causes as failing findings, most likely first; warnings of what is only possible or a symptom.

    Facts are one passing finding a category.
    """
    found = [_answer(answer, diagnosis.silent) for answer in diagnosis.answers]
    return found + _facts(diagnosis.facts)


def _answer(answer: Answer, silent: Sequence[str]) -> Finding:
    if answer.kind == "suggestion":
        return _suggestion(answer)
    rule, hit = answer.first.rule, answer.first.start
    sentence = filled(rule.sentence, hit)
    cause = answer.kind in ("cause", "slows")
    checks = _unique(check for part in answer.parts for check in part.rule.checks)
    if silent:
        away = "it wrote no line of the failure, so the others may wait for it"
        gone = "is its process stopped, busy, or its node gone?"
        checks.insert(0, f"{listed(silent, _NAMED)}: {away} ({gone})")
    return Finding(
        id=rule.id,
        status="fail" if answer.kind == "cause" else "warn",
        title=sentence + _who(answer.parts, sentence)
        if cause
        else f"cannot tell why: {sentence}{_ended(answer, sentence)}",
        # Who lost somebody is not the one that it is about.
        subject=JOB if rule.role == "consequence" else _subject(answer.parts, sentence),
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


def _suggestion(answer: Answer) -> Finding:
    """Return the warning of a cause that may be it, with what would confirm it."""
    rule, hit = answer.first.rule, answer.first.start
    sentence = filled(rule.sentence, hit)
    confirm = filled(rule.next, hit)
    doubt = (
        "no cited log or source proves yet that this line means it"
        if rule.unproven
        else "this line alone does not prove it"
    )
    because = filled(rule.because, hit)
    return Finding(
        id=rule.id,
        status="warn",
        title=f"possible cause: {sentence}{_who(answer.parts, sentence)}",
        subject=_subject(answer.parts, sentence),
        saw=_where(answer.parts),
        expected=f"confirmation by: {confirm}"
        if confirm
        else "confirmation by the logs of all ranks",
        because=f"{because}; {doubt}" if because else doubt,
        costs=filled(rule.costs, hit),
        fix=f"if it is confirmed: {filled(rule.fix, hit)}",
        next=confirm,
        evidence=tuple(_evidence(answer)),
        category=rule.category,
        confidence="possible",
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
    return f"only a symptom shows{f': {said}' if said else '; its cause is in none of these lines'}"


def _numbered(checks: Sequence[str], hit: Hit) -> str:
    if len(checks) < 2:
        return "check " + filled(checks[0], hit) if checks else ""
    told = (f"{number}. {filled(check, hit)}" for number, check in enumerate(checks, 1))
    return "check in this order: " + "; ".join(told)


def _evidence(answer: Answer) -> list[str]:
    lines = [text for part in answer.parts for text in _lines(part)]
    raised = [_follower(part, "raised too, because of it or not") for part in answer.beside]
    return lines + raised + followers_of(answer)


def followers_of(answer: Answer) -> list[str]:
    """Return a line of evidence for each thing that the answer explains."""
    lines: list[str] = []
    for part in answer.follows[:_FOLLOWERS]:
        begins = "would follow from it" if answer.kind == "suggestion" else "follows from it"
        lines.append(_follower(part, begins))
    if len(answer.follows) > _FOLLOWERS:
        lines.append(f"consequences of {len(answer.follows) - _FOLLOWERS} more kinds")
    return lines


def _lines(part: Seen) -> list[str]:
    """The earliest line, then the first ones of other writers."""
    first = part.start
    shown = [first, *[hit for hit in part.hits if hit.line.where != first.line.where]][:_LINES]
    lines = _unique(f"{hit.line.where}: {cut(hit.line.text)}" for hit in shown)
    if part.count > len(shown):
        lines.append(f"{part.count:,} such lines in all" + _who([part]))
    return lines


def _follower(part: Seen, begins: str) -> str:
    hit = part.start
    times = f", {part.count:,} lines" if part.count > 1 else ""
    why = f"{begins}: {filled(part.rule.sentence, hit)}{_who([part])}{times}"
    return f"{why}; {hit.line.where}: {cut(hit.line.text, 120)}"


def _facts(facts: Iterable[Seen]) -> list[Finding]:
    """One passing finding for all that the logs show."""
    groups: dict[str, list[str]] = {}
    seen = [fact for fact in facts if not fact.rule.id.startswith(_JUDGED)]
    for fact in seen:
        told = _unique(filled(fact.rule.sentence, hit) for hit in (fact.start, *fact.hits))
        groups.setdefault(fact.rule.category, []).append(listed(told, _NAMED))
    if not groups:
        return []
    ranks = {rank for fact in seen for rank in fact.ranks}
    hosts = {host for fact in seen for host in fact.hosts}
    who = [f"{len(ranks)} ranks" if len(ranks) > 1 else "", f"{len(hosts)} hosts" if hosts else ""]
    about = " on ".join(filter(None, who))
    lines = [f"{category}: {'; '.join(texts)}" for category, texts in groups.items()]
    about = f" of {about}" if about else ""
    return [make_finding("what_logs_show", evidence=lines, about=about, facts=" · ".join(lines))]


def _who(parts: Sequence[Seen], said: str = "") -> str:
    """` (ranks 0, 3 on host-1)`, or nothing where it was `said` already."""
    if _NAMES_RANKS.search(said):
        return ""
    ranks = sorted({rank for part in parts for rank in part.ranks})
    hosts = sorted({host for part in parts for host in part.hosts})
    told = []
    if ranks:
        told.append(("rank " if len(ranks) == 1 else "ranks ") + listed(ranks, _NAMED))
    if hosts:
        told.append(listed(hosts, _NAMED))
    return f" ({' on '.join(told)})" if told and not all(one in said for one in told) else ""


def _subject(parts: Sequence[Seen], said: str) -> Subject:
    """The one rank or host that it is about, else the job; several ranks are the job's."""
    if re.search(r"\branks \[?\d+[,-]", said):
        return JOB
    ranks = {rank for part in parts for rank in part.ranks}
    hosts = {host for part in parts for host in part.hosts}
    if len(ranks) == 1:
        return Subject("rank", f"rank {ranks.pop()}")
    if len(hosts) == 1:
        return Subject("node", hosts.pop())
    return JOB


def filled(text: str, hit: Hit) -> str:
    """`{name}` from the line; what it does not tell is `?`."""
    return _FIELD.sub(lambda field: hit.groups.get(field[1], "?"), text)


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
