"""From logs to findings: read, gather, reason, tell; and how the logs end."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wirespeed.diagnose.derived import DERIVED, Evidence, Seen, host_of, rank_of
from wirespeed.diagnose.findings import JOB, make_finding
from wirespeed.diagnose.nccl_fabric import ANCHORS, Fabric
from wirespeed.diagnose.prefix import rank_in_name
from wirespeed.diagnose.rendering import Diagnosis, filled, findings_of, followers_of, reason
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.rules import all_rules
from wirespeed.diagnose.scan import Hit, Scanner, Watcher
from wirespeed.diagnose.sources import Source
from wirespeed.diagnose.suspects import ANCHORS as WORDS
from wirespeed.diagnose.suspects import Suspects
from wirespeed.errors import InputError
from wirespeed.model.records import Finding, Subject
from wirespeed.model.units import counted, listed
from wirespeed.model.verdicts import Verdict

if TYPE_CHECKING:
    from wirespeed.diagnose.flight_read import Dump
    from wirespeed.diagnose.reports import Inspector

Progress = Callable[[str, int], None]
"""(log, its number among all): called before each one is read."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of reading logs."""

    diagnosis: Diagnosis
    findings: tuple[Finding, ...]
    verdict: Verdict
    exit_code: int
    logs: int
    lines: int
    bytes: int


def diagnose(
    sources: Sequence[Source],
    rules: Iterable[Rule] | None = None,
    progress: Progress = lambda name, number: None,
    proofs: Sequence[str] = (),
) -> Reading:
    """Read every log once, as a stream, and say the cause. Raises InputError for one that cannot be.

    proofs: what else is known to tell that the job ended well, such as the run's own exit code.
    """
    known = all_rules() if rules is None else tuple(rules)
    fabric, evidence, suspects = Fabric(), Evidence(), Suspects()
    watchers = (
        Watcher("fabric", ANCHORS, fabric.see),
        Watcher("suspects", WORDS, suspects.see),
    )
    scanner = Scanner(known, watchers)
    suspects.around, suspects.order, suspects.whose = scanner.around, scanner.order, scanner.whose
    recorded = _Recorded()
    for number, source in enumerate(sources, 1):
        progress(source.name, number)
        kind = "log"
        try:
            kind = source.kind()
            if kind == "log":
                evidence.add(scanner.read(source))
            else:
                recorded.read(source, kind)
        except InputError as error:
            if len(sources) == 1:
                raise
            recorded.lacks(error, kind)
    evidence.ranks, evidence.hosts = scanner.ranks, scanner.hosts
    evidence.trains = any(map(_trains, scanner.tails.values()))
    evidence.raised = any(b"Traceback (most recent" in tail for tail in scanner.tails.values())
    evidence.exceptions = list(suspects.exceptions(known))
    evidence.settle(known, scanner.counts, DERIVED)
    found = reason(evidence)
    told = recorded.findings()
    logged = findings_of(found)
    differ = disagreements(found.facts)
    logged += [*differ, *_of_fabric(fabric, differ)]
    logged += [_broken_off(log, how) for log, how in scanner.broken.items()]
    logged = _with_exceptions(logged, found, suspects, known)
    if not any(one.status == "fail" for one in (*logged, *told)):
        logged = _with_root_line(logged, found, suspects, known)
    findings = _merged(logged, told)
    if scanner.ends and not any(one.status in ("fail", "warn") for one in findings):
        ended = proofs or _told_end(_good_end(evidence, scanner.ends, scanner.tails))
        ended = () if recorded.damaged else ended
        recognised = bool(found.facts or scanner.counts)
        closing = _closing(scanner.lines, ended, recognised, scanner.unended)
        if not ended and _all_ended(evidence):
            closing = make_finding(
                "programs_ended", saw=closing.saw, lines=counted(scanner.lines, "line")
            )
        findings = (closing, *findings)
    verdict, code = _verdict_of(findings)
    return Reading(found, findings, verdict, code, len(sources), scanner.lines, scanner.bytes)


def _with_exceptions(
    logged: list[Finding], found: Diagnosis, suspects: Suspects, rules: Sequence[Rule]
) -> list[Finding]:
    """Return the findings, those of exceptions that no rule knows with their messages and places.

    The first findings are of the answers, in their order.
    """
    shown = list(logged)
    for index, answer in enumerate(found.answers):
        if answer.kind == "unknown":
            root = suspects.exception_at(answer.first.start.line, rules)
            if root is not None:
                evidence = (*root.evidence, *followers_of(answer))
                shown[index] = replace(root, evidence=evidence)
    return shown


def _with_root_line(
    logged: list[Finding], found: Diagnosis, suspects: Suspects, rules: Sequence[Rule]
) -> list[Finding]:
    """Return the findings with the first error that no rule knows, where no exception is shown yet.

    It comes first where the first answer only announces what another tool printed, and stands in place
    of what was not checked.
    """
    if any(answer.kind == "unknown" for answer in found.answers):
        return logged
    first = found.answers[0].first if found.answers else None
    header = first is not None and first.rule.header
    symptom = first.start.line if first is not None else None
    root = suspects.root_line(rules, symptom, after=header)
    if root is None:
        return logged
    others = [one for one in logged if one.status != "not_checked"]
    return [root, *others] if header else [*others, root]


class _Recorded:
    """What is no log, or could not be read; what reads it is imported where there is some."""

    def __init__(self) -> None:
        self._dumps: list[Dump] = []
        self._reported: list[Finding] = []
        self._inspector: Inspector | None = None
        self.damaged: list[Finding] = []

    def read(self, source: Source, kind: str) -> None:
        """Raises InputError where that is not possible."""
        if kind == "dump":
            from wirespeed.diagnose.flight_read import read_dump

            self._dumps.append(read_dump(source, len(self._dumps)))
            return
        from wirespeed.diagnose.reports import Inspector, ras_findings

        if kind == "ras":
            self._reported += ras_findings(source)
        else:
            self._inspector = self._inspector or Inspector()
            self._inspector.read(source)

    def lacks(self, error: InputError, kind: str) -> None:
        """One of several that cannot be read."""
        if kind == "dump":
            self.damaged.append(make_finding("dump_unread", error=error))
        else:
            self.damaged.append(make_finding("log_not_whole", what=error.saw, how=""))

    def findings(self) -> list[Finding]:
        found: list[Finding] = []
        if self._dumps:
            from wirespeed.diagnose.flight import compare

            found += compare(self._dumps, len(self.damaged))
        inspected = self._inspector.findings() if self._inspector else []
        return [*found, *self._reported, *inspected, *self.damaged]


def _of_fabric(fabric: Fabric, differ: Sequence[Finding]) -> list[Finding]:
    """A host that says that it uses another network is told once."""
    if not fabric.comms:
        return []
    from wirespeed.diagnose.fabric_findings import fabric_findings

    named = any("same network" in one.title for one in differ)
    return fabric_findings(fabric, told="network" if named else "")


def _merged(logged: Sequence[Finding], recorded: Sequence[Finding]) -> tuple[Finding, ...]:
    """A cause of the logs first, then what the recorder proves, then what is only a symptom."""
    order = {"fail": 0, "warn": 1, "not_checked": 2}
    return tuple(sorted([*logged, *recorded], key=lambda one: order.get(one.status, 3)))


# Whether the logs show a good end, and what a verdict on logs is.
#
# Strict: a line that proves it stands at the end of each log of the job, or for all of them; no log
# begins anew after it, breaks off or was not read; and nothing is wrong.

_AFTER = 1_000
"""Lines that may follow an end: of many ranks that say goodbye."""
_BEGINS = ("NT-001", "FACT-033")
"""Rules that tell that a job, or a part of one, begins."""
_FOR_ALL = ("GOOD-001", "GOOD-003", "GOOD-004")
"""Ends that one process tells for all ranks."""
_WRONG = re.compile(
    rb"(?i)\b(?:errors?|fail(?:s|ed|ure)?|exception|traceback|killed|abort(?:ed|ing)?|fatal|panic|segfault"
    rb"|core dumped|timed? ?out|cancell?ed|terminated|non-?zero"
    rb"|(?:exit|return)(?:ed)?(?: with)?(?: code| status)?[ :=]*-?[1-9]\d*)\b"
)
_HARMLESS = re.compile(
    rb"(?i)\b(?:no|0|without|zero) (?:errors?|fail|exception)|abort complete|errors?[ :=]+0\b"
)
_STEP = re.compile(
    rb"(?i)\bloss\b|\b(?:it/s|s/it|tokens?/s|samples?/s)|\b(?:iter|iteration|epoch|step)s?\b\W{0,4}\d"
)
_TRIED = (b"retry", b"failed to connect", b"trying again", b"reconnecting")
_NEAR = 20
"""Lines between the two closing lines of nccl-tests."""
_SHOWN = 4


def _verdict_of(findings: Iterable[Finding]) -> tuple[Verdict, int]:
    """Return the verdict on logs and the exit code."""
    told = list(findings)
    if any(one.status == "fail" for one in told):
        return "CAUSE NAMED", 1
    if any(one.status == "warn" for one in told):
        return "SYMPTOMS ONLY", 3
    if any(one.id == "DIAG-009" for one in told):
        return "ENDED WELL", 0
    return "NOTHING KNOWN", 3


def _good_end(
    evidence: Evidence, lines: Mapping[str, int], tails: Mapping[str, bytes]
) -> list[Hit]:
    """The lines that prove it; none where a log lacks its end.

    lines: of each log, how many; less than 0: who ended in that archive cannot be told.
    tails: the last bytes of each log.
    """
    ends: dict[str, list[Hit]] = {}
    if any(count < 0 for count in lines.values()):
        return []
    known: dict[str, dict[str, Hit]] = {source: {} for source in lines}
    for (id, source), hit in evidence.last.items():
        known.setdefault(source, {})[id] = hit
    for source, count in lines.items():
        if hits := _end_of(known[source], count):
            if _goes_wrong(tails.get(source, b""), count - hits[-1].line.number):
                return []
            ends[source] = hits
        elif "NT-001" in known[source]:
            return []
    for_all = any(hit.rule.id in _FOR_ALL for hits in ends.values() for hit in hits)
    for source in lines:
        # Who writes no line of a job, such as the kernel, ends with none.
        of_job = rank_in_name(source) is not None or known[source]
        if source not in ends and of_job and not for_all:
            return []
    return [hit for hits in ends.values() for hit in hits]


def _trains(tail: bytes) -> bool:
    """Whether steps of a training follow what failed or was tried again, if anything did."""
    steps = [found.end() for found in _STEP.finditer(tail)]
    text = tail.lower()
    return bool(steps) and steps[-1] > max(text.rfind(word) for word in _TRIED)


def _goes_wrong(tail: bytes, after: int) -> bool:
    """Whether one of the last `after` lines looks wrong, also where no rule knows it."""
    lines = tail.rstrip(b"\n").split(b"\n")[-after:] if after else []
    return any(_WRONG.search(line) and not _HARMLESS.search(line) for line in lines)


def _end_of(last: Mapping[str, Hit], lines: int) -> list[Hit]:
    """How one log ends, by the last line of each rule in it."""
    ends = [
        hit for hit in last.values() if hit.rule.category == "good-end" and _is_whole(hit, last)
    ]
    begun = max((last[id].line.number for id in _BEGINS if id in last), default=0)
    late = [hit for hit in ends if hit.line.number > max(begun, lines - _AFTER)]
    average = last.get("NT-005")
    told = [*late, average] if average and any(hit.rule.id == "GOOD-001" for hit in late) else late
    return sorted(told, key=lambda hit: hit.line.number)


def _is_whole(hit: Hit, last: Mapping[str, Hit]) -> bool:
    """nccl-tests ends with two lines; the first alone may be all that a cut log kept."""
    if hit.rule.id != "GOOD-001":
        return True
    average = last.get("NT-005")
    return average is not None and 0 < average.line.number - hit.line.number <= _NEAR


def _told_end(ends: Sequence[Hit]) -> list[str]:
    """What the lines say, and where they stand."""
    said = [f"{hit.line.where}: {hit.line.text.strip()[:120]}" for hit in ends]
    return [f"{ends[0].rule.sentence}: {said[0]}", *said[1:]] if ends else []


def _closing(lines: int, told: Sequence[str], known: bool, unended: Mapping[str, str]) -> Finding:
    """The finding where nothing is wrong: a good end, or that none shows.

    told: what proves a good end. known: whether some rule knows a line. unended: logs whose last line
    has no end, and that line.
    """
    if told:
        more = f"; and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
        return make_finding("good_end", evidence=told[:256], ends="; ".join(told[:_SHOWN]) + more)
    count = counted(lines, "line")
    # Many programs write no newline last: that alone proves nothing.
    cut = [f"{log} may break off in its last line: {text}" for log, text in unended.items()]
    return make_finding(
        "nothing_wrong" if known else "nothing_recognised",
        saw="; ".join([count, *cut[:_SHOWN]]),
        lines=count,
    )


def _all_ended(evidence: Evidence) -> bool:
    """Return whether every rank of the logs says that its program ended without closing its group."""
    said = evidence.seen.get(_GROUP_LEFT)
    return said is not None and bool(evidence.ranks) and evidence.ranks <= set(said.ranks)


_GROUP_LEFT = "END-020"
"""The rule of torch's warning that a process group was not destroyed before its program ended."""


def _broken_off(log: str, how: str) -> Finding:
    """A log that lacks its end. how: `line 41: it breaks off`."""
    test = f": gzip -t {log}" if log.endswith(".gz") else ""
    return make_finding("log_not_whole", what=f"{log} is not whole: {how}", how=test)


_ONE_ONLY = ("number of channels",)
"""What differs by communicator: who says several things is of several, and is not compared."""


def disagreements(facts: Iterable[Seen]) -> list[Finding]:
    """A warning for each fact in which writers differ; pure."""
    groups: dict[str, list[Seen]] = {}
    for fact in facts:
        if fact.rule.alike:
            groups.setdefault(fact.rule.category, []).append(fact)
    return [one for name, group in groups.items() if (one := _of(name, group)) is not None]


def _of(category: str, facts: Iterable[Seen]) -> Finding | None:
    hits = [hit for fact in facts for hit in fact.hits]
    said = _said(hits)
    if category in _ONE_ONLY:
        said = {who: texts for who, texts in said.items() if len(texts) == 1}
    values = Counter(said.values())
    if len(values) < 2:
        return None
    usual, times = values.most_common(1)[0]
    most = 2 * times > len(said)
    odd = [who for who, texts in said.items() if texts != usual]
    sides = {value: [who for who, texts in said.items() if texts == value] for value in values}
    told = [f"{listed(who)}: {_words(value)}" for value, who in sides.items()]
    shown = odd if most else list(said)
    lines = {_name(hit): hit.line for hit in hits}
    lines |= {seat: hit.line for hit in hits if (seat := _seat(hit)) in said}
    return make_finding(
        "disagreement",
        subject=_subject(odd, hits) if most else JOB,
        evidence=(
            f"{lines[who].where}: {lines[who].text[:200]}" for who in shown[:8] if who in lines
        ),
        title=f"{listed(odd)}: not the same {category} as on {times} of {len(said)}"
        if most
        else f"not the same {category} everywhere: {'; '.join(told[:_SHOWN])}",
        saw="; ".join(f"{who}: {_words(said[who])}" for who in shown[:_SHOWN]),
        expected=f"{_words(usual)}, as most say" if most else "the same on every rank",
    )


def _said(hits: Iterable[Hit]) -> dict[str, frozenset[str]]:
    """By host where all of its processes say the same, else by process."""
    seats: dict[tuple[str, str], set[str]] = {}
    for hit in hits:
        seats.setdefault((_name(hit), _seat(hit)), set()).add(filled(hit.rule.sentence, hit))
    within: dict[str, set[frozenset[str]]] = {}
    for (name, _), texts in seats.items():
        within.setdefault(name, set()).add(frozenset(texts))
    told: dict[str, frozenset[str]] = {}
    for (name, seat), texts in seats.items():
        told[seat if len(within[name]) > 1 else name] = frozenset(texts)
    return told


def _name(hit: Hit) -> str:
    """The host, since ranks of one share image and devices; else the rank; else the log."""
    rank = rank_of(hit)
    return host_of(hit) or (hit.line.source if rank is None else f"rank {rank}")


def _seat(hit: Hit) -> str:
    """The process: its rank or its GPU."""
    rank, host = rank_of(hit), host_of(hit)
    if rank is not None:
        return f"rank {rank}"
    return _name(hit) if hit.line.gpu is None else f"{host or hit.line.source} GPU {hit.line.gpu}"


def _words(texts: frozenset[str]) -> str:
    return " and ".join(sorted(texts))


def _subject(odd: list[str], hits: Iterable[Hit]) -> Subject:
    """The one rank or host; a process is told by its host."""
    if len(odd) == 1 and odd[0].startswith("rank "):
        return Subject("rank", odd[0])
    hosts = [host_of(hit) for hit in hits if odd[0] in (_name(hit), _seat(hit))]
    return Subject("node", hosts[0]) if len(odd) == 1 and hosts[0] else JOB
