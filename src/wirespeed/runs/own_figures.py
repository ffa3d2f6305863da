"""The user's own expected figures: one file a set, beside the runs.

    $WIRESPEED_HOME/reference/NAME.csv    the columns of `wirespeed.reference.figures`

A file is replaced in one step, so that two who add at once never mix.
"""

from collections.abc import Sequence
from pathlib import Path

from wirespeed.errors import UsageError
from wirespeed.reference.figures import Figure, figures_from_csv, figures_to_csv
from wirespeed.runs.named_files import NamedFiles

__all__ = ["load_own", "own_home", "own_sets", "remove_own", "save_own"]

_LIST = "wirespeed reference list --own"


def _missing(name: str, others: list[str]) -> UsageError:
    return UsageError(
        f"no figures are called {name!r}",
        expected=f"one of those that are kept: {', '.join(others) or 'none'}",
        next=_LIST,
    )


_FILES = NamedFiles(
    folder="reference",
    suffix=".csv",
    what="figures",
    missing=_missing,
    again="wirespeed reference add last",
    largest=16 * 2**20,
)


def own_home() -> Path:
    """Where the sets lie."""
    return _FILES.home


def own_sets() -> list[str]:
    """Their names, sorted."""
    return _FILES.names()


def load_own() -> tuple[Figure, ...]:
    """Every figure of every set, by name; InputError names the file and line that is damaged."""
    return tuple(figure for name in own_sets() for figure in _read(name))


def save_own(name: str, figures: Sequence[Figure]) -> Path:
    """Keep the figures as the set `name`, in place of what was there."""
    return _FILES.write(name, figures_to_csv(figures))


def remove_own(name: str) -> Path:
    """Forget a set; the file that is gone."""
    return _FILES.remove(name)


def _read(name: str) -> tuple[Figure, ...]:
    return figures_from_csv(_FILES.read(name), source=str(_FILES.path(name)), name=name)
