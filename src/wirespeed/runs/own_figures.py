"""The user's own expected figures: one file a set, beside the runs.

    $WIRESPEED_HOME/reference/NAME.csv    the columns of `wirespeed.reference.figures`

A file is replaced in one step, so that two who add at once never mix.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from wirespeed.errors import InputError, StorageError, UsageError
from wirespeed.reference.figures import Figure, figures_from_csv, figures_to_csv
from wirespeed.runs.folder import home, write_whole

__all__ = ["load_own", "own_home", "remove_own", "save_own"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LIST = "wirespeed reference list --own"
_LARGEST = 16 * 2**20


def own_home() -> Path:
    """Where the sets lie."""
    return home() / "reference"


def load_own() -> tuple[Figure, ...]:
    """Every figure of every set, by name; InputError names the file and line that is damaged."""
    try:
        paths = sorted(own_home().glob("*.csv"))
    except OSError as error:
        raise StorageError(f"cannot read {own_home()}: {error.strerror or error}") from error
    named = [path for path in paths if _NAME.fullmatch(path.stem)]
    return tuple(figure for path in named for figure in _read(path))


def save_own(name: str, figures: Sequence[Figure]) -> Path:
    """Keep the figures as the set `name`, in place of what was there."""
    path = _path(name)
    text = figures_to_csv(figures)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}",
            expected="a folder that can be written",
            next="WIRESPEED_HOME=/tmp/wirespeed wirespeed reference add last",
        ) from error
    return path


def remove_own(name: str) -> Path:
    """Forget a set; the file that is gone."""
    path = _path(name)
    try:
        path.unlink()
    except FileNotFoundError as error:
        raise UsageError(f"no figures are called {name!r}", next=_LIST) from error
    except OSError as error:
        raise StorageError(f"cannot remove {path}: {error.strerror or error}") from error
    return path


def _path(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]!r} is no name for figures",
            expected="up to 64 letters, digits, points, dashes and underscores",
        )
    return own_home() / f"{name}.csv"


def _read(path: Path) -> tuple[Figure, ...]:
    try:
        if path.stat().st_size > _LARGEST:
            raise InputError(f"{path} is larger than 16 MiB", expected="a table of figures")
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text", expected="CSV", next=_LIST) from error
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    return figures_from_csv(text, source=str(path), name=path.stem)
