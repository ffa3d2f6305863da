"""Findings as text: one line each, and for what is not passed the lines that explain it."""

import textwrap
from collections.abc import Iterable

from wirespeed.records import Finding
from wirespeed.views.style import Style

__all__ = ["FIELDS", "family", "finding_lines", "sorted_by_family"]

FIELDS = ("saw", "expected", "because", "costs", "fix", "next")
"""The lines under a finding, in their order; `evidence` follows them."""

_FAMILIES = {
    "BW": "bandwidth",
    "CAP": "correctness",
    "COL": "correctness",
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
    lines = [f"{style.mark(finding.status)} {name}  {shown}  {style.paint(ident, 'dim')}"]
    return lines + [" " * indent + (style.paint(line, color) if color else line) for line in more]


def _title(finding: Finding, style: Style) -> str:
    title = finding.title
    if finding.status == "not_checked" and finding.because:
        because = finding.because
        said = any(words in title + because for words in ("not checked", "not compared"))
        title = f"{title}: {because}" if said else f"not checked: {title}: {because}"
    about = finding.subject
    if about.kind != "job" and about.name not in title:
        title = f"{about.name}: {title}"
    return style.text(title)


def _details(finding: Finding, style: Style, brief: bool) -> list[str]:
    lines: list[str] = []
    for name in FIELDS:
        lines += _field(name, getattr(finding, name), style)
    shown = finding.evidence if style.verbose else finding.evidence[:_EVIDENCE_SHOWN]
    for index, text in enumerate(shown):
        lines += _field("evidence" if index == 0 else "", _cut(text) if brief else text, style)
    if len(shown) < len(finding.evidence):
        lines += _field("", f"{len(finding.evidence) - len(shown)} more with -v", style)
    return lines


def _cut(text: str) -> str:
    return text if len(text) <= _EVIDENCE_LONG else f"{text[: _EVIDENCE_LONG - 1].rstrip()}…"


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
