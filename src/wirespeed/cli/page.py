"""`--html FILE`: the run as one offline HTML file, beside what is printed."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirespeed.errors import StorageError, UsageError
from wirespeed.units import format_size

if TYPE_CHECKING:
    from wirespeed.records import Run

__all__ = ["refuse_bad_target", "write_page", "write_trace"]


def refuse_bad_target(file: str, option: str = "--html") -> None:
    """UsageError before minutes of measuring, where FILE could not be written at their end."""
    path, expected = Path(file), f"{option} FILE, a file in a folder that is there"
    if not file or path.is_dir():
        raise UsageError(f"{option} {file!r} is no file", expected=expected)
    if not path.parent.is_dir():
        raise UsageError(f"{option} {file}: there is no folder {path.parent}", expected=expected)
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{option} {file}: {path.parent} cannot be written", expected=expected)


def write_page(run: "Run", file: str) -> None:
    """Write the page whole or not at all, and say so on stderr. StorageError where it cannot."""
    from wirespeed.views.html import page

    _write_whole(file, page(run).encode(), next=f"wirespeed runs show {run.id} --html FILE")


def write_trace(run: "Run", file: str) -> None:
    """The timeline that the run has stored, as a Chrome trace; a line on stderr where it has none."""
    from wirespeed.runs.store import find

    stored = find(run.id) / "trace.json"
    if not stored.is_file():
        click.echo(f"wirespeed: no timeline was recorded, so {file} was not written", err=True)
        return
    _write_whole(file, stored.read_bytes(), next=f"cp {stored} FILE")
    click.echo("open it in https://ui.perfetto.dev or chrome://tracing", err=True)


def _write_whole(file: str, data: bytes, *, next: str = "") -> None:
    """Write a file whole or not at all, and say so on stderr. StorageError where it cannot."""
    path = Path(file)
    try:
        _replace(path, data)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}", next=next) from error
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
