"""GitHub Markdown, for an issue, a pull request or a wiki."""

from collections.abc import Sequence

from wirespeed.records import Finding, Run
from wirespeed.views import figures
from wirespeed.views.figures import series_of
from wirespeed.views.findings import FIELDS, sorted_by_family
from wirespeed.views.folding import of_interest
from wirespeed.views.goodput import conclusion
from wirespeed.views.goodput import tables as goodput_tables
from wirespeed.views.grid import Grid
from wirespeed.views.grids import grid_tables
from wirespeed.views.markdown import code, escape, plain_text, table
from wirespeed.views.pairs import pair_tables, simulation_lines
from wirespeed.views.references import references_grid
from wirespeed.views.sections import head_line, next_command
from wirespeed.views.settings import tables as settings_tables
from wirespeed.views.settings import winner_lines
from wirespeed.views.soak import summary, timeline
from wirespeed.views.soak import tables as soak_tables
from wirespeed.views.style import MARKS, Style
from wirespeed.views.training import tables as training_tables

__all__ = ["render"]

_WORDS = {"pass": "passed", "warn": "warning", "fail": "failed", "not_checked": "not checked"}
_RATES = ("algbw GB/s", "busbw GB/s")
_COLUMNS = ("size", "place", "time", "95 %", "n", *_RATES, "wrong")


def render(run: Run, style: Style) -> str:
    plain = Style(ascii=style.ascii, verbose=style.verbose)
    blocks = [
        [f"## {run.verdict}", "", escape(head_line(run, plain), plain)],
        _findings(run, plain),
        *(_details(finding, plain) for finding in sorted_by_family(run.findings)),
        *_training(run, plain),
        *_settings(run, plain),
        *_soak(run, plain),
        *_goodput(run, plain),
        *([] if run.settings else _measurements(run, plain)),
        *_references(run, plain),
        *_pairs(run, plain),
        _choices(run, plain) if style.verbose else [],
        _closing(run, plain),
    ]
    return plain_text("\n\n".join("\n".join(block) for block in blocks if block), style) + "\n"


def _findings(run: Run, style: Style) -> list[str]:
    rows = []
    for finding in sorted_by_family(of_interest(run.findings, run)):
        sign, ascii_sign, _ = MARKS[finding.status]
        status = f"{ascii_sign if style.ascii else sign} {_WORDS[finding.status]}"
        title = finding.title
        if finding.status == "not_checked" and finding.because:
            title += f": {finding.because}"
        cells = (title, finding.subject.name)
        rows.append([status, finding.id, *(escape(cell, style) for cell in cells)])
    return table(("", "id", "finding", "about"), rows, ()) if rows else []


def _details(finding: Finding, style: Style) -> list[str]:
    if finding.status not in ("fail", "warn"):
        return []
    lines = [f"### {escape(finding.id, style)}: {escape(finding.title, style)}", ""]
    for name in FIELDS:
        if value := getattr(finding, name):
            shown = code(value, style) if name == "next" else escape(value, style)
            lines.append(f"- **{name}** {shown}")
    lines += [f"- evidence: {code(text, style)}" for text in finding.evidence]
    return lines


def _pairs(run: Run, style: Style) -> list[list[str]]:
    """The pairs of `locate` as tables, and what was simulated."""
    blocks = []
    for title, grid in pair_tables(run.located) if run.located and run.located.pairs else ():
        titles = [escape(column.title, style) for column in grid.columns]
        rows = [[escape(cell, style) for cell in row] for row in grid.rows]
        blocks.append([f"### {escape(title, style)}", "", *table(titles, rows, titles[1:])])
    if run.simulation:
        blocks.append(["```", *simulation_lines(run, style), "```"])
    return blocks


def _training(run: Run, style: Style) -> list[list[str]]:
    """The tables of `train`: step and communication time by strategy, scaling, memory."""
    return _tables(training_tables(run), style)


def _settings(run: Run, style: Style) -> list[list[str]]:
    """The tables of `bench --env`, and who wins."""
    if not run.settings:
        return []
    return [
        *_tables(settings_tables(run), style),
        ["```", *map(style.text, winner_lines(run)), "```"],
    ]


def _goodput(run: Run, style: Style) -> list[list[str]]:
    """The tables of `train --for`, and what they come to."""
    if run.goodput is None:
        return []
    told = [f"- {escape(line, style)}" for line in conclusion(run.goodput)]
    return [*_tables(goodput_tables(run), style), told]


def _soak(run: Run, style: Style) -> list[list[str]]:
    """How long, the timeline, the incidents and the operations of a soak."""
    if run.soak is None:
        return []
    told = [summary(run.soak), timeline(run.soak, ascii=style.ascii)]
    return [["```", *map(style.text, filter(None, told)), "```"], *_tables(soak_tables(run), style)]


def _tables(found: Sequence[tuple[str, Grid]], style: Style) -> list[list[str]]:
    blocks = []
    for title, grid in found:
        shown = [i for i, _ in enumerate(grid.columns) if any(row[i] for row in grid.rows)]
        titles = [escape(grid.columns[i].title, style) for i in shown]
        rows = [[escape(row[i], style) for i in shown] for row in grid.rows]
        right = [escape(grid.columns[i].title, style) for i in shown if not grid.columns[i].left]
        blocks.append([f"### {escape(title, style)}", "", *table(titles, rows, right)])
    return blocks


def _measurements(run: Run, style: Style) -> list[list[str]]:
    if run.grid and run.command == "bench":
        return _tables(grid_tables(run), style)
    blocks = []
    for series in series_of(run.measurements):
        title = f"### {escape(series.first.op, style)}"
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
        blocks.append([title, "", escape(series.title, style), "", *table(_COLUMNS, rows, right)])
    return blocks


def _references(run: Run, style: Style) -> list[list[str]]:
    """What figures were graded against."""
    grid = references_grid(run)
    return _tables([("graded against", grid)], style) if grid else []


def _choices(run: Run, style: Style) -> list[str]:
    rows = [
        [escape(text, style) for text in (choice.name, choice.value, choice.reason)]
        for choice in run.choices
    ]
    return table(("choice", "value", "why"), rows, ()) if rows else []


def _closing(run: Run, style: Style) -> list[str]:
    parts = [f"**{run.verdict}**", figures.counts(run)]
    parts += [figures.duration(run.seconds)] if run.seconds > 0 else []
    lines = [" · ".join([*parts, f"exit {run.exit_code}", f"run {code(run.id, style)}"])]
    command = next_command(run)
    return [*lines, "", f"next: {code(command, style)}"] if command else lines
