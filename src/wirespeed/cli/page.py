"""A run as it was asked for: printed, and the files beside that.

`--html` is one offline page of the run, `--trace` its timeline.
"""

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wirespeed.errors import StorageError, UsageError, refused_as
from wirespeed.model.units import format_size

if TYPE_CHECKING:
    from wirespeed.cli.options import Output
    from wirespeed.model.records import Run
    from wirespeed.runs.folder import PatientFolder
    from wirespeed.views.text import Style


T = TypeVar("T")

_TRACE = "trace.json"
"""In the run's folder."""
_LARGEST_TRACE = 256 * 2**20


def show(run: "Run", output: "Output", folder: "PatientFolder | None" = None) -> int:
    """Print the run in the asked form, then store it in `folder`, and write its page if one is asked
    for; its exit code."""
    try:
        shown(run, output)
    finally:
        if folder is not None:
            folder.finish(run)
    return exported(run, output)


def shown(run: "Run", output: "Output") -> None:
    """Print the run in the asked form."""
    from wirespeed.views import render

    try:
        print_styled(render, run, output.format, output.color, verbose=output.verbose)
    except BrokenPipeError:  # the reader has left; the verdict stands
        from wirespeed.cli import forget_stdout

        forget_stdout()


def print_styled(
    render: "Callable[[T, str, Style], str]",
    what: T,
    format: str,
    color: str,
    *,
    verbose: bool = False,
) -> None:
    """What a view makes of it, on stdout, in color where that is wanted."""
    from wirespeed.views.text import style_for

    style = style_for(sys.stdout, color=color, verbose=verbose)
    click.echo(render(what, format, style), color=style.color, nl=False)


def table_lines(
    titles: Sequence[str], rows: Iterable[Sequence[object]], right: Collection[str] = ()
) -> list[str]:
    """For stdout; right: titles whose columns are figures."""
    from wirespeed.views.text import Column, Grid, style_for

    grid = Grid(tuple(Column(title, left=title not in right) for title in titles))
    for row in rows:
        grid.add(*map(str, row))
    return grid.lines(style_for(sys.stdout))


def exported(run: "Run", output: "Output") -> int:
    """Write the page and the timeline of a stored run, where asked for; its exit code."""
    try:
        _write_files(run, output)
    except StorageError as error:  # the verdict stands, and so does its exit code
        click.echo(f"wirespeed: warning: {error}", err=True)
    return run.exit_code


def _write_files(run: "Run", output: "Output") -> None:
    """The page and the timeline, where they were asked for."""
    if output.html is not None:
        from wirespeed.runs.store import find

        write_page(run, output.html, find(run.id) if run.training or run.watched else None)
    if output.trace is not None:
        write_trace(run, output.trace)


def refuse_bad_target(file: str, option: str = "--html") -> None:
    """UsageError before minutes of measuring, where FILE could not be written at their end."""
    path, expected = Path(file), f"{option} FILE, a file in a folder that is there"
    if not file or path.is_dir():
        raise UsageError(f"{option} {file!r} is no file", expected=expected)
    if not path.parent.is_dir():
        raise UsageError(f"{option} {file}: there is no folder {path.parent}", expected=expected)
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{option} {file}: {path.parent} cannot be written", expected=expected)


def write_page(run: "Run", file: str, folder: Path | None = None) -> None:
    """Write the page whole or not at all, and say so on stderr. StorageError where it cannot.

    folder: of the run, for its timeline; None: it has none.
    """
    from wirespeed.views.html.page import page

    trace = timeline_of(folder) if folder is not None else None
    write_whole(file, page(run, trace).encode(), next=f"wirespeed runs show {run.id} --html FILE")


def write_trace(run: "Run", file: str) -> None:
    """The timeline that the run has stored, as a Chrome trace, and as a picture beside that.

    A line on stderr where it has none. StorageError where a file cannot be written.
    """
    from wirespeed.runs.store import find
    from wirespeed.views.html.timeline import timeline_svg

    folder = find(run.id)
    picture = timeline_svg(timeline_of(folder) or {})
    if not picture:
        compared = any(one.study == "compare" for one in run.training)
        why = (
            ""
            if compared or not run.training
            else " (of a comparison there is one, not of --scaling)"
        )
        click.echo(f"wirespeed: no timeline was recorded{why}, so {file} was not written", err=True)
        return
    from wirespeed.node.reading import read_whole  # not for a table of runs

    stored = folder / _TRACE
    write_whole(file, read_whole(stored, _LARGEST_TRACE, links=False), next=f"cp {stored} FILE")
    click.echo("open it in https://ui.perfetto.dev or chrome://tracing", err=True)
    if (beside := _picture_of(Path(file))) is not None:
        write_whole(str(beside), picture.encode(), next=f"cp {stored} FILE")


def _picture_of(trace: Path) -> Path | None:
    """`step.svg` beside `step.json`; None where the trace goes into no file, as /dev/stdout."""
    if not trace.is_file():
        return None
    picture = trace.with_suffix(".svg")
    return picture if picture != trace else trace.with_name(f"{trace.name}.svg")


def timeline_of(folder: Path) -> Mapping[str, Any] | None:
    """The run's stored trace; None where there is none, and a line on stderr where it is damaged."""
    from wirespeed.node.reading import read_whole

    stored = folder / _TRACE
    if not stored.is_file():
        return None
    try:
        found = json.loads(read_whole(stored, _LARGEST_TRACE, links=False))
    except (OSError, ValueError, RecursionError) as error:
        click.echo(f"wirespeed: the timeline in {stored} cannot be read: {error}", err=True)
        return None
    return found if isinstance(found, dict) else None


def write_whole(file: str, data: bytes, *, next: str = "", quiet: bool = False) -> None:
    """Write a file whole or not at all, and say so on stderr. StorageError where it cannot."""
    path = Path(file)
    with refused_as(StorageError, f"cannot write {path}", next=next):
        _replace(path, data)
    if not quiet:
        click.echo(f"wrote {path} ({format_size(len(data))})", err=True)


def _replace(path: Path, data: bytes) -> None:
    """In one step, so that nobody ever reads half a page."""
    if path.exists() and not path.is_file():  # /dev/stdout, a pipe: these cannot be replaced
        path.write_bytes(data)
        return
    target = path.resolve()
    new = target.with_name(f".{target.name[:200]}.{os.getpid()}.new")
    try:
        with new.open("xb") as stream:
            stream.write(data)
        new.replace(target)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
