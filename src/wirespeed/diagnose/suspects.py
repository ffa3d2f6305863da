"""The first lines that look wrong, of anything, for logs whose cause no rule knows.

No answer is empty where something looks wrong: which line, whose it is, and what came just before. Lines
are judged by words alone, so what healthy jobs print (`0 errors`, `error=0.12`, names of settings) must
not count, and what some rule knows is that rule's matter.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from wirespeed.diagnose.findings import JOB, cut, make_finding
from wirespeed.diagnose.prefix import Prefix, rank_in_name, strip
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.scan import Line
from wirespeed.model.records import Finding, Subject

_WORDS = (
    "error|fatal|traceback|exception|failed|failure|abort|panic|terminate called|critical|cannot "
    "|can't |could not|couldn't |unable to|refused|denied|forbidden|unauthorized|killed|timed out"
    "|core dumped|undefined symbol|not found|no such|not permitted|assertion"
)
ANCHORS = tuple(_WORDS.split("|"))
_KEPT = 6
"""Lines kept of a log that are surely trouble, and as many that may be."""
_LOGS = 4_096
_BEFORE = 3
_STACK_LINES = 200
_LONG = 300
_SURE = re.compile(
    r"^\S{0,80}\s?\b(?:traceback \(most recent call last\)|terminate called after"
    r"|fatal(?: error)?\b[:!]|panic: |critical\b:?|\[?(?:error|fatal|critical|err)\]?\s*[:|\]-])"
    r"|\b(?:traceback \(most recent call last\)|fatal error|core dumped|undefined symbol"
    r"|segmentation fault|assertion\b.{0,200}\bfailed|what\(\):)"
    r"|^[\w.]*(?:error|exception)(?:: |$)|\s(?:ERROR|FATAL|CRITICAL|PANIC)\s",
    re.IGNORECASE,
)
_LEVEL = re.compile(r"\s(?:ERROR|FATAL|CRITICAL|PANIC)\s")
_WEAK = re.compile(
    r"^errors?\b|\berrors?\s*[:!,(\[]"
    r"|\berrors? (?:while|when|in|occurred|during|code|loading|reading|opening|from|at|connecting|\d)"
    r"|\b(?:an|with|got|internal|unexpected|unknown|i/o|system|runtime|cuda|hip|protocol|network|link"
    r"|device|hardware) error\b|\b\w+_(?:err|error)\b"
    r"|\bfail(?:ed|ure)\b|\babort(?:ed|ing)\b|\bpanic\b|\bexception\b"
    r"|\b(?:cannot|can't|could not|couldn't|unable to)\b|\b(?:connection|permission|access) "
    r"(?:refused|denied)|\bforbidden\b|\bunauthorized\b"
    r"|\b(?:job|was|been|process) killed\b|\btimed out|\bnot found\b|\bno such\b|\bnot permitted\b",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    # Counts and figures: `0 errors`, `errors: none`, `validation error = 0.0312`.
    r"\b(?:0|no|zero|without(?: any)?) (?:\w+ )?(?:errors?|failures?|exceptions?|failed)\b"
    r"|\b(?:errors?|err|failures?|failed|fails|exceptions?|aborted)\b[\"']?\s*[=:]\s*[\"'\[({]*"
    r"(?:0+(?:\.0+)?(?:e[-+]?\d+)?%?|none|null|nil|no|false|n/a|\[\]|-?\d+\.\d+(?:e[-+]?\d+)?%?"
    r"|\d+e[-+]\d+)(?![\w.])"
    r"|\b(?:error|exception)[ _-](?:handling|rate|bars?|feedback|correct\w*|bound|margin|norm|log|file"
    r"|checking|codes?:? 0)\b"
    r"|\b(?:mean|abs\w*|squared?|relative|max\w*|rms|quantization|reconstruction|validation|train\w*"
    r"|test|word|wer|prediction) (?:abs\w* |squared? |pct )?errors?\b"
    # What went on nevertheless, or only tells of a setting.
    r"|\b(?:ignor|retry|re-?try|falling back|fall back|fallback|will try|trying again|recovered|handled"
    r"|from scratch|instead\b|using (?:the )?default|will (?:proceed|use|be|continue)|above exception"
    r"|optional|skipp|harmless|expected|disabl|not (?:be )?fatal|non-?fatal|deprecat|continu"
    r"|you can (?:set|safely|ignore))"
    r"|direct cause of|exception raised from|^frame #|^last error:|busbw|^errors?:?\s*$|\.py failed$"
    r"|\b(?:on|if|upon|in case of|for|of|any|raise|handle|log|ecc|as) (?:an? |any |of )?"
    r"(?:error|failure|exception)s?\b"
    r"|\bfail(?:ed|ure)s?[ _-](?:over|count|rate|domain|detection|threshold|polic\w+)\b"
    r"|(?:async|blocking|on|if)_error|error_polic|error_handling|error_file|debug|stderr",
    re.IGNORECASE,
)
_QUIET = re.compile(
    r"\b(?:INFO|DEBUG|TRACE|NOTICE)\b|\b(?:\w*Warning|warn|warning)\b\s?[:\]]"
    r"|(?<![NR]CCL )\bWARN(?:ING)?\b"
    r"|^\s*(?:#|export |set -|\$ |\+ |-{2,}\w|\"?\w+\"?\s*[:=] *(?:true|false|\d+)\b)"
)
"""Levels below an error, comments and listings of settings: weak words there are no suspects."""
_GLOG = re.compile(rb"(?:^|[\[ ])([IWEF])\d{4} \d\d:\d\d:\d\d")
"""The level that glog writes before the time, which is taken off with it."""
_PROGRAM = re.compile(r"(?!https?:|error:|fatal:)\[?([A-Za-z][\w.+-]{1,40})(?:\[\d+\])?\]?: ")
_FILE = re.compile(r"\b([\w/.+-]*\w\.(?:py|cc|cpp|cxx|cu|c|h|hpp|go|rs|sh|pl)):(\d+)\b")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_DIGITS = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Suspect:
    log: str
    number: int
    line: Prefix
    rank: int | None
    before: tuple[str, ...]
    last: str = ""
    """Of a traceback, or an exception of C++: its last line, where it is in sight."""
    frame: str = ""
    """Of a traceback: `file:line` of its innermost frame."""

    @property
    def said(self) -> str:
        return self.last or self.line.text

    @property
    def whose(self) -> str:
        who = [f"rank {self.rank}"] if self.rank is not None else []
        if self.line.host:
            who.append(self.line.host)
        if program := self.frame or _program(self.line.text):
            who.append(program)
        return ", ".join(who)


class Suspects:
    """Watches lines with words of trouble and keeps the first few of each log."""

    def __init__(self) -> None:
        self._logs: dict[str, dict[bool, list[_Suspect]]] = {}
        """By log: those that are surely trouble, and those that may be."""
        self.around: Callable[[], tuple[bytes, bytes]] = lambda: (b"", b"")
        """What was read just before the line that is seen now, and from its beginning on."""

    def see(self, raw: bytes, log: str, number: int) -> None:
        """One line that holds an anchor."""
        if log not in self._logs and len(self._logs) >= _LOGS:
            return
        kept = self._logs.setdefault(log, {True: [], False: []})
        if all(len(some) >= _KEPT for some in kept.values()):
            return
        line = strip(raw[:2000].decode("utf-8", "replace"))
        sure = looks_wrong(line.text)
        if sure is not None and (level := _GLOG.search(raw[:200])) is not None:
            sure = None if level[1] in b"IW" else True
        if sure is not None and len(kept[sure]) < _KEPT:
            kept[sure].append(self._suspect(raw, log, number, line))

    def _suspect(self, raw: bytes, log: str, number: int, line: Prefix) -> _Suspect:
        before, after = self.around()
        said, frame = "", ""
        if b"Traceback (most" in raw:
            said, frame = _traceback(raw, after)
        elif b"terminate called after" in raw:
            said = _what(after)
        rank = rank_in_name(log) if line.rank is None else line.rank
        return _Suspect(log, number, line, rank, _last_lines(before), said, frame)

    def findings(self, rules: Iterable[Rule], told: Line | None = None) -> list[Finding]:
        """LOG-001 or LOG-002 of the first suspect that no rule knows; surely wrong ones before others.

        told: the first line of a symptom that is told; only what came before it may be behind it.
        """
        anchored = [rule for rule in rules if rule.anchors]
        for sure in (True, False):
            found = [
                one
                for kept in self._logs.values()
                for one in kept[sure]
                if _may_cause(one, told) and not _is_known(one, anchored)
            ]
            if found:
                return [_finding(_first(found), found)]
        return []


def looks_wrong(text: str) -> bool | None:
    """True: surely; False: perhaps; None: no."""
    if _HARMLESS.search(text):
        return None
    if _SURE.search(text) and (not _QUIET.search(text) or _LEVEL.search(text)):
        return True
    return False if _WEAK.search(text) and not _QUIET.search(text) else None


def _may_cause(one: _Suspect, told: Line | None) -> bool:
    if told is None:
        return True
    if one.log == told.source:
        return one.number < told.number
    known = one.line.time is not None and told.time is not None and one.line.clock == told.clock
    return known and (one.line.time or 0.0) < (told.time or 0.0)


def _is_known(one: _Suspect, rules: Sequence[Rule]) -> bool:
    """Whether a rule knows it, also one that found that it ended well or needs others."""
    texts = {text: text.lower() for text in (one.line.text, one.said)}
    return any(
        any(anchor.lower() in low for anchor in rule.anchors) and rule.match(text) is not None
        for text, low in texts.items()
        for rule in rules
    )


def _first(found: Sequence[_Suspect]) -> _Suspect:
    """The earliest by one clock, else the first one read."""
    timed = [one for one in found if one.line.time is not None]
    alike = len(timed) == len(found) and len({one.line.clock for one in found}) == 1
    return min(timed, key=lambda one: one.line.time or 0.0) if alike else found[0]


def _traceback(raw: bytes, after: bytes) -> tuple[str, str]:
    """The exception that ends a Python stack, and its innermost frame."""
    column = raw.index(b"Traceback (most")
    lines = after.split(b"\n", _STACK_LINES + 1)[1 : _STACK_LINES + 1]
    frame = ""
    for line in lines:
        text = line[column:].decode("utf-8", "replace")
        if (place := _FRAME.search(text)) is not None:
            frame = f"{place[1]}:{place[2]}"
        elif text.strip() and not text[0].isspace():
            return text.rstrip()[:_LONG], frame
    return "", frame


def _what(after: bytes) -> str:
    """What an exception of C++ that nothing caught says: `what():  …` on the next line."""
    line = after.split(b"\n", 2)[1:2]
    text = strip(line[0].decode("utf-8", "replace")).text if line else ""
    return text[:_LONG] if "what()" in text else ""


def _last_lines(before: bytes) -> tuple[str, ...]:
    lines = [line for line in before.decode("utf-8", "replace").splitlines() if line.strip()]
    return tuple(cut(strip(line).text or line) for line in lines[-_BEFORE:])


def _program(text: str) -> str:
    """Who says it, as far as the line tells: `slurmstepd`, `pair.cc:129`."""
    if (file := _FILE.search(text)) is not None:
        return f"{file[1]}:{file[2]}"
    named = _PROGRAM.match(text)
    return named[1] if named and not re.fullmatch(r"\w*(?:error|exception)", named[1], re.I) else ""


def _finding(first: _Suspect, found: Sequence[_Suspect]) -> Finding:
    alike = [one for one in found if _shape(one) == _shape(first)]
    evidence = [f"{first.log}:{first.number}: {cut(first.line.text)}"]
    evidence += [f"its last line: {cut(first.last)}"] if first.last else []
    evidence += [f"just before: {line}" for line in first.before]
    others = [f"{one.log}:{one.number}: {cut(one.said)}" for one in found if one not in alike]
    more = f", and {len(alike) - 1} more like it" if len(alike) > 1 else ""
    near = f"sed -n '{max(1, first.number - 20)},{first.number + 20}p' {first.log}"
    again = "run it again with NCCL_DEBUG=INFO and keep the logs of all ranks"
    return make_finding(
        "unknown_exception" if first.last else "looks_wrong",
        subject=_subject(alike),
        evidence=evidence + others[:_BEFORE],
        saw=f"{first.log}:{first.number}{more}",
        said=cut(first.said, 160),
        whose=f" ({first.whose})" if first.whose else "",
        frame=f", in {first.frame}" if first.frame else "",
        next=again if first.log == "stdin" else near,
    )


def _shape(one: _Suspect) -> str:
    return _DIGITS.sub("#", one.said)


def _subject(alike: Sequence[_Suspect]) -> Subject:
    ranks = {one.rank for one in alike}
    hosts = {one.line.host for one in alike}
    if len(ranks) == 1 and (rank := ranks.pop()) is not None:
        return Subject("rank", f"rank {rank}")
    if len(hosts) == 1 and (host := hosts.pop()):
        return Subject("node", host)
    return JOB
