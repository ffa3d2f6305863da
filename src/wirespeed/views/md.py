"""GitHub Markdown, for an issue, a pull request or a wiki."""

from collections.abc import Sequence

from wirespeed.model.derived_records import Comparison
from wirespeed.model.records import UNJUDGED, Finding, Run
from wirespeed.model.units import format_duration
from wirespeed.views import comparison as comparison_view
from wirespeed.views import sections, watched
from wirespeed.views.combinations import grid_tables, settings_tables, winner_lines
from wirespeed.views.findings import FIELDS, of_interest, sorted_by_family
from wirespeed.views.job_traffic import shape_tables
from wirespeed.views.lasting import conclusion, goodput_tables, soak_tables, summary, timeline
from wirespeed.views.pairs import pair_tables, simulation_lines
from wirespeed.views.table import studies
from wirespeed.views.text import MARKS, WORDS, Grid, Style, code, escape, plain_text, table
from wirespeed.views.training import tables as training_tables


def render(run: Run, style: Style) -> str:
    plain = Style(ascii=style.ascii, verbose=style.verbose)
    blocks = [
        [f"## {run.verdict_text}", "", escape(sections.head_line(run, plain), plain)],
        _findings(run, plain),
        *(_details(finding, plain) for finding in sorted_by_family(run.findings)),
        *_watched(run, plain),
        *(_tables(shape_tables(run, run.shape), plain) if run.shape else []),
        *_tables(training_tables(run), plain),
        *_settings(run, plain),
        *(block for tables, _ in studies(run) for block in _tables(tables, plain)),
        *_soak(run, plain),
        *_goodput(run, plain),
        *([] if run.settings or run.replay or run.shape else _measurements(run, plain)),
        [f"- {escape(line, plain)}" for line in sections.rates_above(run)],
        *_references(run, plain),
        *_pairs(run, plain),
        sections.choices_grid(run).markdown(plain, every=True)
        if style.verbose and run.choices
        else [],
        _closing(run, plain),
    ]
    return plain_text("\n\n".join("\n".join(block) for block in blocks if block), style) + "\n"


def _findings(run: Run, style: Style) -> list[str]:
    grid = Grid.of("<|<id|<finding|<about")
    for finding in sorted_by_family(of_interest(run.findings, run)):
        sign, ascii_sign, _ = MARKS[finding.status]
        status = f"{ascii_sign if style.ascii else sign} {WORDS[finding.status]}"
        untested = finding.status in UNJUDGED and finding.because
        title = f"{finding.title}: {finding.because}" if untested else finding.title
        grid.add(status, finding.id, title, finding.subject.name)
    return grid.markdown(style, every=True) if grid.rows else []


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
        blocks.append([f"### {escape(title, style)}", "", *grid.markdown(style, every=True)])
    if run.simulation:
        blocks.append(["```", *simulation_lines(run, style), "```"])
    return blocks


def _settings(run: Run, style: Style) -> list[list[str]]:
    """The tables of `bench --env`, and who wins."""
    if not run.settings:
        return []
    return [
        *_tables(settings_tables(run), style),
        ["```", *map(style.text, winner_lines(run)), "```"],
    ]


def _watched(run: Run, style: Style) -> list[list[str]]:
    """What was seen of the user's own job, and its tables."""
    if run.watched is None:
        return []
    told = [*watched.conclusion(run.watched), *watched.unseen(run.watched)]
    lines = [f"- {escape(line, style)}" for line in told]
    return [lines, *_tables(watched.watched_tables(run.watched), style)]


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
    return [[f"### {escape(title, style)}", "", *grid.markdown(style)] for title, grid in found]


def _measurements(run: Run, style: Style) -> list[list[str]]:
    if run.grid and run.command == "bench":
        return _tables(grid_tables(run), style)
    blocks = []
    for series in sections.series_of(run.measurements):
        title = f"### {escape(series.first.op, style)}"
        rows = [sections.size_cells(m) for m in series.rows]
        for m, row in zip(series.rows, rows, strict=True):
            row[-1] = f"**{m.wrong}**" if m.wrong else row[-1]
        titles = sections.SIZE_COLUMNS.replace("<", "").split("|")
        right = [one for one in titles if one != "place"]
        blocks.append([title, "", escape(series.title, style), "", *table(titles, rows, right)])
    return blocks


def _references(run: Run, style: Style) -> list[list[str]]:
    """What figures were graded against."""
    grid = sections.references_grid(run)
    return _tables([("graded against", grid)], style) if grid else []


def _closing(run: Run, style: Style) -> list[str]:
    parts = [f"**{run.verdict_text}**", sections.counts(run)]
    parts += [format_duration(run.seconds)] if run.seconds > 0 else []
    lines = [" · ".join([*parts, f"exit {run.exit_code}", f"run {code(run.id, style)}"])]
    command = sections.next_command(run)
    return [*lines, "", f"next: {code(command, style)}"] if command else lines


def render_all(runs: Sequence[Run], style: Style, comparison: Comparison | None) -> str:
    """One run as its own view shows it; of several, verdicts first. Text that ends in a line end."""
    if len(runs) == 1:
        return render(runs[0], style)
    plain = Style(ascii=style.ascii, verbose=style.verbose)
    verdicts = [run.verdict for run in runs]
    counted = [f"{verdicts.count(one)} {one}" for one in dict.fromkeys(verdicts)]
    blocks = [
        f"# {len(runs)} runs: {', '.join(counted)}",
        "\n".join(sections.runs_grid(runs).markdown(plain, every=True)),
    ]
    if comparison is not None:
        blocks.append(comparison_view.render(comparison, "md", style).rstrip("\n"))
    blocks += [_folded(run, style, plain) for run in runs]
    return plain_text("\n\n".join(blocks), style) + "\n"


def _folded(run: Run, style: Style, plain: Style) -> str:
    # Within an HTML element Markdown is not read, but what it escapes stays harmless there.
    title = f"run {escape(run.id, plain)}: {escape(run.command, plain)}, {run.verdict_text}"
    whole = render(run, style).rstrip("\n")
    return f"<details><summary>{title}</summary>\n\n{whole}\n\n</details>"
