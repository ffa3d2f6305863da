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

__all__ = ["refuse_bad_target", "write_page"]

_EXPECTED = "--html FILE, a file in a folder that is there"


def refuse_bad_target(file: str) -> None:
    """UsageError before minutes of measuring, where FILE could not be written at their end."""
    path = Path(file)
    if not file or path.is_dir():
        raise UsageError(f"--html {file!r} is no file", expected=_EXPECTED)
    if not path.parent.is_dir():
        raise UsageError(f"--html {file}: there is no folder {path.parent}", expected=_EXPECTED)
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"--html {file}: {path.parent} cannot be written", expected=_EXPECTED)


def write_page(run: "Run", file: str) -> None:
    """Write the page whole or not at all, and say so on stderr. StorageError where it cannot."""
    from wirespeed.views.html import page

    path = Path(file)
    data = page(run).encode()
    try:
        _replace(path, data)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}",
            next=f"wirespeed runs show {run.id} --html FILE",
        ) from error
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
