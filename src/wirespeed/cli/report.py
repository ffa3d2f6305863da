"""`wirespeed report`: stored runs as one offline page, Markdown, JUnit, Prometheus text or CSV."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.options import PLAIN, argument, command, flag, option, store_option
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.model.derived_records import Comparison
    from wirespeed.model.records import Run


FORMATS = ("html", "md", "junit", "prometheus", "csv")
_BY_ENDING = {
    ".html": "html",
    ".htm": "html",
    ".md": "md",
    ".xml": "junit",
    ".prom": "prometheus",
    ".csv": "csv",
}
_MOST_RUNS = 20


@command(context_settings={**PLAIN, "auto_envvar_prefix": "WIRESPEED"})
@argument("refs RUN…", nargs=-1, required=True)
@option(
    "-o --output", "How to write it.  [default: by the ending of --to FILE, else html]", FORMATS
)
@option("--to file FILE", "Write FILE, whole or not at all.")
@flag("--serve", hidden=True)
@flag("-v --verbose", "In Markdown, also automatic choices.")
@flag("-q --quiet", "No messages on stderr.")
@store_option
def report(refs: tuple[str, ...], **options: Any) -> None:
    """A report of stored runs, to hand over.

    RUN is a run's id, the start of one, `last`, or the path of a run folder or of a run's JSON.
    Several runs are compared with the first (wirespeed compare), then each is told whole. Of runs of
    the same command Prometheus is told the newest only: its series have no label for a run.

    \f
    Examples:
      wirespeed report last --to report.html
      wirespeed report 7f3c 91ae --to compared.html       two runs, with a verdict on each figure
      wirespeed report last -o md >> "$GITHUB_STEP_SUMMARY"
      wirespeed report last --to junit.xml
      wirespeed report last --to /var/lib/node_exporter/textfile_collector/wirespeed.prom
    """
    if options["serve"]:
        raise UsageError("report --serve has become a command of its own", next="wirespeed serve")
    format = _format(options["output"], options["file"])
    if options["file"] is not None:
        _write(refs, format, options)
    elif format == "html" and sys.stdout.isatty():
        raise UsageError(
            "a page is not for a terminal",
            expected="a file, or -o md",
            next=f"wirespeed report {' '.join(refs)} --to report.html",
        )
    else:
        click.echo(_text(refs, format, verbose=options["verbose"]), nl=False)


def _format(output: str | None, file: str | None) -> str:
    if output is not None:
        return output
    if file is None:
        return "html"
    ending = Path(file).suffix.lower()
    if ending not in _BY_ENDING:
        raise UsageError(
            f"--to {file}: its ending does not tell the format",
            expected=f"-o {'|'.join(FORMATS)}, or an ending of {' '.join(_BY_ENDING)}",
        )
    return _BY_ENDING[ending]


def _write(refs: Sequence[str], format: str, options: dict[str, Any]) -> None:
    from wirespeed.cli.page import refuse_bad_target, write_whole

    file: str = options["file"]
    refuse_bad_target(file, "--to")
    text = _text(refs, format, verbose=options["verbose"])
    again = f"wirespeed report {' '.join(refs)} --to FILE"
    write_whole(file, text.encode(), next=again, quiet=options["quiet"])


def _text(refs: Sequence[str], format: str, *, verbose: bool = False) -> str:
    """The runs in that format, as they are stored now."""
    from importlib import import_module

    from wirespeed.views.text import Style

    paths = _paths(refs)
    runs = _loaded(paths)
    if format == "html":
        from wirespeed.cli.page import timeline_of
        from wirespeed.views.html import page

        traces = [timeline_of(path) if path.is_dir() else None for path in paths]
        return page.report(runs, traces, _compared(runs))
    if format == "md":
        from wirespeed.views.md import render_all

        return render_all(runs, Style(verbose=verbose), _compared(runs))
    module = import_module(f"wirespeed.views.{'data' if format == 'csv' else format}")
    render: Callable[[Sequence[Run], Style], str] = module.render_all
    return render(runs, Style())


def _paths(refs: Sequence[str]) -> list[Path]:
    """Each run once, in the order in which they were named."""
    from wirespeed.runs.store import find

    paths = list(dict.fromkeys(find(ref) for ref in refs))
    if len(paths) > _MOST_RUNS:
        raise UsageError(f"{len(paths)} runs in one report", expected=f"at most {_MOST_RUNS}")
    return paths


def _loaded(paths: Sequence[Path]) -> "list[Run]":
    from wirespeed.runs.store import load

    return [load(path) for path in paths]


def _compared(runs: "Sequence[Run]") -> "Comparison | None":
    """Each run against the first; None of a single one."""
    if len(runs) == 1:
        return None
    from wirespeed.compare.compare import SideRuns, compare

    return compare([SideRuns((run,)) for run in runs])
