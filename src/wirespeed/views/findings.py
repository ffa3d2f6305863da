"""Findings as text: one line each, and for what is not passed the lines that explain it."""

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.records import UNJUDGED, Finding, Measurement, Run
from wirespeed.model.units import format_bandwidth, format_duration
from wirespeed.views.text import STATUSES, Style, counted, shortened

FIELDS = ("saw", "expected", "because", "costs", "fix", "next")
"""The lines under a finding, in their order; `evidence` follows them."""

_FAMILIES = {
    "": "n/a",
    "BW": "bandwidth",
    "CAP": "correctness",
    "COL": "correctness",
    "COMP": "compute",
    "COUNT": "counters",
    "DIAG": "logs",
    "DIED": "watchdog",
    "ENV": "settings",
    "EXIT": "watchdog",
    "GATE": "gate",
    "HANG": "watchdog",
    "IMP": "import",
    "INT": "watchdog",
    "JOIN": "watchdog",
    "LAT": "latency",
    "LAUNCH": "hosts",
    "LOC": "culprit",
    "MEM": "memory",
    "NET": "network",
    "NODE": "nodes",
    "PLACE": "placement",
    "RAISED": "watchdog",
    "RUN": "run",
    "SKEW": "stragglers",
    "SLURM": "hosts",
    "STOR": "storage",
}
_LABEL = 10
_EVIDENCE_SHOWN = 5
_EVIDENCE_LONG = 170
"""Characters, two lines."""


def family(finding: Finding) -> str:
    """The word for the family, from the id's letters: `network` for `NET-003`."""
    letters = finding.id.partition("-")[0]
    return _FAMILIES.get(letters, letters.lower())


def sorted_by_family(findings: Iterable[Finding]) -> list[Finding]:
    """Families in the order of their first finding; within one the order stays."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(family(finding), []).append(finding)
    return [finding for group in groups.values() for finding in group]


def finding_lines(findings: Iterable[Finding], style: Style, *, brief: bool = False) -> list[str]:
    """All findings, grouped by family, the families' words in one column.

    brief: long evidence, such as a library's message, is cut.
    """
    ordered = sorted_by_family(findings)
    width = max((len(family(finding)) for finding in ordered), default=0)
    lines: list[str] = []
    for finding in ordered:
        lines += _headline(finding, width, style)
        told = finding.saw or finding.evidence
        if finding.status in ("fail", "warn") or (style.verbose and told):
            lines += _details(finding, style, brief)
    return lines


def _headline(finding: Finding, width: int, style: Style) -> list[str]:
    """Mark, family, title and, at the right edge, the id."""
    indent = style.mark_width + 1 + width + 2
    ident = style.text(finding.id)
    title = _title(finding, style)
    room = max(20, style.width - indent - len(ident) - 2)
    first, *more = textwrap.wrap(title, room, break_on_hyphens=False) or [""]
    color = {"fail": "red", "warn": "yellow"}.get(finding.status, "")
    shown = f"{first:<{room}}"
    shown = style.paint(shown, color) if color else shown
    name = f"{style.text(family(finding)):<{width}}"
    line = f"{style.mark(finding.status)} {name}  {shown}  {style.paint(ident, 'dim')}"
    lines = [line if ident else line.rstrip()]
    return lines + [" " * indent + (style.paint(line, color) if color else line) for line in more]


def _title(finding: Finding, style: Style) -> str:
    title = finding.title
    if finding.status in UNJUDGED and finding.because:
        title = f"{_unjudged_title(finding)}: {finding.because}"
    about = finding.subject
    if about.kind != "job" and about.name not in title:
        title = f"{about.name}: {title}"
    return style.text(title)


_SAYS_SO = ("not checked", "not compared", "not applicable", "not judged")


def _unjudged_title(finding: Finding) -> str:
    """Return the title with the word for what was not done, unless title or reason has it already."""
    if finding.status == "measured" or any(
        words in finding.title + finding.because for words in _SAYS_SO
    ):
        return finding.title
    return (
        f"{'not checked' if finding.status == 'not_checked' else 'not applicable'}: {finding.title}"
    )


def _details(finding: Finding, style: Style, brief: bool) -> list[str]:
    lines: list[str] = []
    for name in FIELDS:
        lines += _field(name, getattr(finding, name), style)
    shown = finding.evidence if style.verbose else finding.evidence[:_EVIDENCE_SHOWN]
    for index, text in enumerate(shown):
        lines += _field(
            "evidence" if index == 0 else "",
            shortened(text, _EVIDENCE_LONG) if brief else text,
            style,
        )
    if len(shown) < len(finding.evidence):
        lines += _field("", f"{len(finding.evidence) - len(shown)} more with -v", style)
    return lines


def _field(name: str, value: str, style: Style) -> list[str]:
    """`    saw       …`, wrapped under itself; a command stays on one line, to be copied."""
    if not value:
        return []
    start = "    " + style.paint(f"{name:<{_LABEL}}", "dim")
    lines = [line for part in value.splitlines() if (line := style.text(part).rstrip())]
    if name != "next":
        room = max(30, style.width - 4 - _LABEL)
        lines = [piece for line in lines for piece in _wrap(line, room)]
    elif lines:
        lines[0] = style.paint(lines[0], "cyan")
    return [start + lines[0], *[" " * (4 + _LABEL) + line for line in lines[1:]]] if lines else []


def _wrap(line: str, room: int) -> list[str]:
    """Long words (paths, figures) are kept whole; leading blanks (of a stack) too."""
    return textwrap.wrap(
        line,
        room,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        subsequent_indent=" " * (len(line) - len(line.lstrip())),
    )


_ASIDE = ("nodes", "gpu", "world", "stragglers")
"""Families that `bench` shows only when they warn, fail or ended the run: it is about figures."""
_TIMED = ("latency", "bandwidth")
_MOST_SUBJECTS = 60
"""Columns; a longer list of what was not checked is left to -v."""
_MOST_IDS = 13
_UNIT = re.compile(r"(%|°C|[KMG]?Hz|W|[nµm]?s|min|h|d|[KMGT]?i?B(/s)?|[KMG]?bit/s)[,;:.)]*")
"""What stands behind a number, and says nothing without it."""


def folded(run: Run) -> list[Finding]:
    """The findings as the default table shows them: not records any more, only for showing."""
    groups: dict[str, list[Finding]] = {}
    outside: list[Finding] = []
    for finding in sorted_by_family(run.findings):
        if _aside(finding, run):
            continue
        if finding.status == "not_applicable" and not run.checks_listed:
            outside.append(finding)
        else:
            groups.setdefault(family(finding), []).append(finding)
    shown = []
    for name, members in groups.items():
        for part in _alike(members):
            shown += _folded(name, part, run)
    return [*_with_one_hint(shown), *_outside_line(outside)]


_MOST_REASONS = 3


def _outside_line(outside: Sequence[Finding]) -> list[Finding]:
    """Return one line for all checks that cannot apply here, with the most frequent reasons."""
    if not outside:
        return []
    reasons = Counter(finding.because for finding in outside).most_common()
    shown = [reason for reason, _ in reasons[:_MOST_REASONS]]
    more = "; …" if len(reasons) > _MOST_REASONS else ""
    title = f"{counted(len(outside), 'check')} cannot apply here ({'; '.join(shown)}{more})"
    return [Finding(id="", status="not_applicable", title=f"{title}; -v lists them")]


def of_interest(findings: Sequence[Finding], run: Run) -> Sequence[Finding]:
    """Where strategies are compared, what of the nodes was not checked is counted below, not listed;
    but where nothing came out of it, the reason is among these."""
    if run.command != "train" or run.verdict == "UNKNOWN":
        return findings
    return [
        one
        for one in findings
        if one.status not in UNJUDGED or one.id.startswith(("TRAIN", "TIME"))
    ]


def _aside(finding: Finding, run: Run) -> bool:
    healthy = finding.status == "pass" or (finding.status in UNJUDGED and not finding.next)
    return run.command == "bench" and healthy and family(finding) in _ASIDE


def _alike(members: Sequence[Finding]) -> list[list[Finding]]:
    """Findings that may share a line: passed ones, and other ones of the same cause."""
    kinds: dict[object, list[Finding]] = {}
    for finding in members:
        kinds.setdefault(_kind(finding), []).append(finding)
    return sorted(kinds.values(), key=lambda part: STATUSES.index(part[0].status))


def _kind(finding: Finding) -> object:
    if finding.status == "pass":
        return "pass"
    if finding.status in UNJUDGED:
        return finding.status, finding.because, finding.next if finding.saw == "" else ""
    if not (finding.because or finding.fix):
        return id(finding)
    # One rank may do the same harm in many ways; of several nodes only the very same may be folded.
    about = finding.saw if finding.subject.kind == "node" else finding.subject
    return finding.status, finding.because, finding.fix, about


def _folded(name: str, part: Sequence[Finding], run: Run) -> list[Finding]:
    first = part[0]
    if first.status in ("measured", "not_checked") and name in _TIMED:
        return [_measured_line(name, part, run)]
    if len(part) == 1:
        return list(part)
    if first.status == "pass":
        tell = _PASSED.get(name, _passed)
        return [Finding(id=short_ids(part), status="pass", title=tell(part, run))]
    return [_unchecked(part)] if first.status in UNJUDGED else _repeated(part)


def _repeated(part: Sequence[Finding]) -> list[Finding]:
    """The first whole; the others in one line, or in one each where their titles differ."""
    first, others = part[0], part[1:]
    subjects, common = _split(part)
    if not common:
        return [first, *map(_bare, others)]
    title = f"the same in {len(others)} more: {', '.join(subjects[1:])} (-v shows each)"
    return [first, Finding(id=short_ids(others), status=first.status, title=title)]


def _bare(finding: Finding) -> Finding:
    return Finding(
        id=finding.id, status=finding.status, title=finding.title, subject=finding.subject
    )


def _unchecked(part: Sequence[Finding]) -> Finding:
    subjects, common = _split(part)
    listed = ", ".join(subjects)
    if not common:
        common, listed = "not checked", "; ".join(finding.title for finding in part)
    title = f"{listed} {common}" if len(listed) <= _MOST_SUBJECTS else common
    return replace(part[0], id=short_ids(part), title=title, evidence=())


def _measured_line(name: str, part: Sequence[Finding], run: Run) -> Finding:
    """Return the line for figures that were not judged, with their range and the reason."""
    title = (_latencies if name == "latency" else _bandwidths)(part, run)
    if part[0].fix:  # something about these operations can be changed, so they are named
        title = f"{title} ({', '.join(map(_operation, part))})"
    return Finding(
        id=short_ids(part),
        status=part[0].status,
        title=f"{title}, not judged",
        because=part[0].because,
        fix=part[0].fix,
    )


def _with_one_hint(shown: Sequence[Finding]) -> list[Finding]:
    """What makes figures certain, said once, after the last of those that are not."""
    at = [n for n, f in enumerate(shown) if f.status in UNJUDGED and family(f) in _TIMED and f.fix]
    hinted = list(shown)
    if at and shown[at[-1]].fix:
        last = shown[at[-1]]
        hinted[at[-1]] = replace(last, because=f"{last.because} ({last.fix})")
    return hinted


# Words.


def _split(part: Sequence[Finding]) -> tuple[list[str], str]:
    """(what each title begins with, the words that all of them end with); common words or "".

    `all_reduce delivers wrong data` and `gather delivers wrong data` give two operations and
    `delivers wrong data`.
    """
    titles = [finding.title.split() for finding in part]
    most = min(map(len, titles)) - 1
    same = 0
    while same < most and len({words[-1 - same] for words in titles}) == 1:
        same += 1
    while same and any(_is_cut(words[: len(words) - same], titles[0][-same]) for words in titles):
        same -= 1  # a unit stays with its number
    cut = [" ".join(words[: len(words) - same]) for words in titles]
    return cut, " ".join(titles[0][len(titles[0]) - same :]) if same > 1 else ""


def _is_cut(words: Sequence[str], following: str) -> bool:
    """Whether the cut goes within a list or between a figure and its unit: `… 12` and `% full`."""
    if words and words[-1][-1:] in ":,;":
        return True
    return bool(words) and words[-1][-1:].isdigit() and bool(_UNIT.fullmatch(following))


def _operation(finding: Finding) -> str:
    """`all_reduce` of `all_reduce 1 KiB: 61.2 µs`; the whole title where it names none."""
    match = re.match(r"\w+(?=[ :])", finding.title)
    return match[0] if match else finding.title


def short_ids(part: Iterable[Finding]) -> str:
    """`COL-001…012`, `LAT-001, 003`; with more gaps `LAT-002 +7`: that one and 7 more."""
    ids = list(dict.fromkeys(finding.id for finding in part))
    runs: list[list[str]] = []
    for id in ids:
        runs[-1].append(id) if runs and _follows(runs[-1][-1], id) else runs.append([id])
    parts, letters = [], ""
    for run in runs:
        first, last = run[0], run[-1].rpartition("-")[2]
        shown = first.removeprefix(letters)
        joint = "…" if len(run) > 2 else ", "
        parts.append(shown if len(run) == 1 else f"{shown}{joint}{last}")
        letters = first.rpartition("-")[0] + "-"
    text = ", ".join(parts)
    return text if len(text) <= _MOST_IDS else f"{ids[0]} +{len(ids) - 1}"


def _follows(one: str, other: str) -> bool:
    (letters, _, number), (others, _, next_number) = one.rpartition("-"), other.rpartition("-")
    if letters != others or not (number.isdigit() and next_number.isdigit()):
        return False
    return int(number) + 1 == int(next_number)


# What passed.

Tell = Callable[[Sequence[Finding], Run], str]


def _passed(part: Sequence[Finding], _: Run) -> str:
    subjects, common = _split(part)
    listed = ", ".join(subjects)
    return f"{listed} {common}" if common else "; ".join(finding.title for finding in part)


def _exact(part: Sequence[Finding], run: Run) -> str:
    ops = {_operation(finding) for finding in part}
    without = sorted(op for op in ops if op in CATALOGUE and not CATALOGUE[op].has_data)
    ops.difference_update(without)
    checked = sum(v.op in ops and v.wrong == 0 for v in run.verifications)
    exact = len(ops)
    told = f"{exact} operation{'s deliver' if exact != 1 else ' delivers'} exact data"
    told += f" in {counted(checked, 'configuration')}" if checked else ""
    return told + "".join(f"; {op} holds" for op in without)


def _latencies(part: Sequence[Finding], run: Run) -> str:
    times = [one.time.median for one in _measured(part, run, largest=False)]
    told = counted(len(part), "operation")
    if times:
        told += f", {_span(format_duration(min(times)), format_duration(max(times)))}"
    return told + _reference(part)


def _span(least: str, most: str) -> str:
    return most if least == most else f"{least} to {most}"


def _bandwidths(part: Sequence[Finding], run: Run) -> str:
    rates = [one.busbw for one in _measured(part, run, largest=True)]
    told = counted(len(part), "operation")
    if rates:
        least, most = format_bandwidth(min(rates)), format_bandwidth(max(rates))
        told += f", {_span(least, most).replace(' GB/s to', ' to')} busbw"
    return told + _reference(part)


def _measured(part: Sequence[Finding], run: Run, *, largest: bool) -> list[Measurement]:
    """Of each operation the measurement that was judged; none at all if one cannot be found."""
    pick = max if largest else min
    found = []
    for op in map(_operation, part):
        of_op = [m for m in run.measurements if m.op == op]
        if not of_op:
            return []
        found.append(pick(of_op, key=lambda m: m.size_bytes))
    return found


def _reference(part: Sequence[Finding]) -> str:
    """What they were held against, where that is the same for all."""
    told = {finding.expected.partition(";")[0] for finding in part}
    return f"; {told.pop()}" if len(told) == 1 and "" not in told else ""


_PASSED: dict[str, Tell] = {"correctness": _exact, "latency": _latencies, "bandwidth": _bandwidths}
