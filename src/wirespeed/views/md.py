"""GitHub Markdown, for an issue, a pull request or a wiki."""

import re
from collections.abc import Sequence

from wirespeed.records import Finding, Run
from wirespeed.views import figures
from wirespeed.views.figures import series_of
from wirespeed.views.findings import FIELDS, sorted_by_family
from wirespeed.views.folding import of_interest
from wirespeed.views.pairs import matrices, simulation_lines
from wirespeed.views.sections import head_line, next_command
from wirespeed.views.style import MARKS, Style
from wirespeed.views.training import tables as training_tables

__all__ = ["render"]

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")
_WORDS = {"pass": "passed", "warn": "warning", "fail": "failed", "not_checked": "not checked"}
_RATES = ("algbw GB/s", "busbw GB/s")
_COLUMNS = ("size", "place", "time", "95 %", "n", *_RATES, "wrong")


def render(run: Run, style: Style) -> str:
    plain = Style(ascii=style.ascii, verbose=style.verbose)
    blocks = [
        [f"## {run.verdict}", "", _escape(head_line(run, plain), plain)],
        _findings(run, plain),
        *(_details(finding, plain) for finding in sorted_by_family(run.findings)),
        *_training(run, plain),
        *_measurements(run, plain),
        *_pairs(run, plain),
        _choices(run, plain) if style.verbose else [],
        _closing(run, plain),
    ]
    return plain_text("\n\n".join("\n".join(block) for block in blocks if block), style) + "\n"


def plain_text(text: str, style: Style) -> str:
    """The line ends stay, everything else is made safe for the character set."""
    return "\n".join(style.text(line) for line in text.split("\n"))


def _escape(text: str, style: Style) -> str:
    """Text that Markdown and HTML leave as it is, also within a table."""
    return _SPECIAL.sub(r"\\\1", style.text(text)).replace("&", "&amp;")


def _code(text: str, style: Style) -> str:
    """A code span; within a table a pipe must be escaped even there."""
    clean = style.text(text)
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", clean)), default=0))
    pad = " " if "`" in clean else ""
    return f"{fence}{pad}{clean}{pad}{fence}".replace("|", "\\|")


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> list[str]:
    rule = ["---:" if title in right else "---" for title in titles]
    return [f"| {' | '.join(row)} |" for row in (titles, rule, *rows)]


def _findings(run: Run, style: Style) -> list[str]:
    rows = []
    for finding in sorted_by_family(of_interest(run.findings, run)):
        sign, ascii_sign, _ = MARKS[finding.status]
        status = f"{ascii_sign if style.ascii else sign} {_WORDS[finding.status]}"
        title = finding.title
        if finding.status == "not_checked" and finding.because:
            title += f": {finding.because}"
        cells = (title, finding.subject.name)
        rows.append([status, finding.id, *(_escape(cell, style) for cell in cells)])
    return _table(("", "id", "finding", "about"), rows, ()) if rows else []


def _details(finding: Finding, style: Style) -> list[str]:
    if finding.status not in ("fail", "warn"):
        return []
    lines = [f"### {_escape(finding.id, style)}: {_escape(finding.title, style)}", ""]
    for name in FIELDS:
        if value := getattr(finding, name):
            shown = _code(value, style) if name == "next" else _escape(value, style)
            lines.append(f"- **{name}** {shown}")
    lines += [f"- evidence: {_code(text, style)}" for text in finding.evidence]
    return lines


def _pairs(run: Run, style: Style) -> list[list[str]]:
    """The matrices of `locate` as tables, and what was simulated."""
    blocks = []
    for title, grid in matrices(run.located) if run.located and run.located.pairs else ():
        titles = [_escape(column.title, style) for column in grid.columns]
        rows = [[_escape(cell, style) for cell in row] for row in grid.rows]
        blocks.append([f"### {_escape(title, style)}", "", *_table(titles, rows, titles[1:])])
    if run.simulation:
        blocks.append(["```", *simulation_lines(run, style), "```"])
    return blocks


def _training(run: Run, style: Style) -> list[list[str]]:
    """The tables of `train`: step and communication time by strategy, scaling, memory."""
    blocks = []
    for title, grid in training_tables(run):
        shown = [i for i, _ in enumerate(grid.columns) if any(row[i] for row in grid.rows)]
        titles = [_escape(grid.columns[i].title, style) for i in shown]
        rows = [[_escape(row[i], style) for i in shown] for row in grid.rows]
        right = [_escape(grid.columns[i].title, style) for i in shown if not grid.columns[i].left]
        blocks.append([f"### {_escape(title, style)}", "", *_table(titles, rows, right)])
    return blocks


def _measurements(run: Run, style: Style) -> list[list[str]]:
    blocks = []
    for series in series_of(run.measurements):
        title = f"### {_escape(series.first.op, style)}"
        rows = [
            [
                figures.size(m),
                figures.place(m),
                figures.duration(m.time.median),
                figures.interval(m) or "–",
                str(m.iterations),
                figures.gigabytes(m.algbw),
                figures.gigabytes(m.busbw),
                f"**{m.wrong}**" if m.wrong else figures.wrong(m),
            ]
            for m in series.rows
        ]
        right = [column for column in _COLUMNS if column != "place"]
        blocks.append([title, "", _escape(series.title, style), "", *_table(_COLUMNS, rows, right)])
    return blocks


def _choices(run: Run, style: Style) -> list[str]:
    rows = [
        [_escape(text, style) for text in (choice.name, choice.value, choice.reason)]
        for choice in run.choices
    ]
    return _table(("choice", "value", "why"), rows, ()) if rows else []


def _closing(run: Run, style: Style) -> list[str]:
    parts = [f"**{run.verdict}**", figures.counts(run)]
    parts += [figures.duration(run.seconds)] if run.seconds > 0 else []
    lines = [" · ".join([*parts, f"exit {run.exit_code}", f"run {_code(run.id, style)}"])]
    command = next_command(run)
    return [*lines, "", f"next: {_code(command, style)}"] if command else lines
