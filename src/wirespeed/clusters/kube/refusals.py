"""What kubectl's refusals mean: from its words to a finding."""

import re
from collections.abc import Iterable

from wirespeed.clusters.kube.kubectl import Answer, Refused
from wirespeed.clusters.kube.meanings import SILENT, TABLE, UNKNOWN, Meaning
from wirespeed.records import Finding
from wirespeed.world.redact import redact_value

__all__ = ["finding_of", "findings_of", "is_about", "may_pass", "meaning_of", "said"]

_NOISE = re.compile(r"[EWIF]\d{4} \d\d:\d\d:\d\d\.\d+ .*|Warning: .*|")
"""klog's lines (client-go tells each try of its own), warnings, and empty lines."""
_CONTINUED = re.compile(r"\s*\n\* ")
"""What is wrong with an object, where it is more than one thing, stands in lines of its own."""
_BEGINS = re.compile(
    r"error: |Error from server|Error |The \w+ \"|Unable to connect|The connection to"
)
"""A call for several objects tells an error each; these words begin one."""
_MOST_LINES, _MOST_ERRORS, _MOST_LETTERS = 8, 100, 1000


def said(answer: Answer, *, most: int = _MOST_LINES) -> tuple[str, ...]:
    """kubectl's own words, without its logging; secrets of addresses are hidden."""
    text = answer.err if answer.err.strip() else answer.out
    text = _CONTINUED.sub(" ", text)
    lines = [line.rstrip() for line in text.splitlines()]
    told = [line for line in lines if not _NOISE.fullmatch(line)]
    kept = dict.fromkeys(told or [line for line in lines if line])
    short = (line[: 4 * _MOST_LETTERS] for line in list(kept)[:most])
    return tuple(redact_value(line)[:_MOST_LETTERS] for line in short)


def meaning_of(lines: Iterable[str]) -> tuple[Meaning, str, re.Match[str]]:
    """The row that fits best, the line that it fits, and the match."""
    told = list(lines)
    for row in TABLE:
        for line in told:
            if match := row.pattern.search(line):
                return row, line, match
    text = told[0] if told else "it gave no reason"
    match = UNKNOWN.pattern.match(text)
    if match is None:
        raise ValueError("the last row fits everything")
    return UNKNOWN, text, match


def may_pass(answer: Answer) -> bool:
    """Whether the same call may succeed a little later: the API server was away or busy."""
    if answer.code is None:
        return True
    return answer.code != 0 and meaning_of(said(answer))[0].passing


def finding_of(refused: Refused | Answer, *, doing: str = "", next: str = "") -> Finding:
    """The finding of a refusal. doing: what could not be done; next: where the row has no better."""
    answer = refused.answer if isinstance(refused, Refused) else refused
    if answer.code is None:
        silent = SILENT.pattern.match("")
        return _told(SILENT, silent, said(answer), doing, next)
    lines = said(answer)
    row, line, match = meaning_of(lines)
    rest = tuple(other for other in lines if other != line)
    return _told(row, match, (line, *rest), doing, next)


def findings_of(answer: Answer) -> tuple[Finding, ...]:
    """One for each error that a call for several objects gave, without repetitions."""
    parts: list[list[str]] = []
    for line in said(answer, most=_MOST_ERRORS):
        if _BEGINS.match(line) or not parts:
            parts.append([])
        parts[-1].append(line)
    if answer.code is None or not parts:
        return (finding_of(answer),)
    found = (finding_of(Answer(answer.words, answer.code, "", "\n".join(one))) for one in parts)
    return tuple({(one.id, one.title): one for one in found}.values())


def is_about(finding: Finding, *idents: str) -> bool:
    """Whether its id is one of these numbers: `is_about(finding, "006")`."""
    return finding.id.removeprefix("CLUSTER-") in idents


def _told(
    row: Meaning, match: re.Match[str] | None, lines: tuple[str, ...], doing: str, next: str
) -> Finding:
    groups = _groups(match)
    title = _fill(row.title, groups)
    return Finding(
        id=row.id,
        status="fail",
        title=f"{doing}: {title}" if doing else title,
        saw=lines[0] if lines else "no answer",
        expected=_fill(row.expected, groups),
        because=_fill(row.because, groups),
        fix=_fill(row.fix, groups),
        next=_fill(row.next, groups) or next,
        evidence=lines[1:],
    )


def _groups(match: re.Match[str] | None) -> dict[str, str]:
    """By name; `why2` and `why3` are further ways to say `why`."""
    found: dict[str, str] = {}
    for key, value in (match.groupdict() if match else {}).items():
        if value:
            found.setdefault(key.rstrip("0123456789"), value.strip(" :."))
    return found


def _fill(template: str, groups: dict[str, str]) -> str:
    """Only `{name}` of known groups is replaced: what the cluster said is never a template itself."""
    return re.sub(r"\{(\w+)\}", lambda one: groups.get(one[1], ""), template).strip(" :")
