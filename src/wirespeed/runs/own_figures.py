"""The user's own expected figures: one file a set, beside the runs.

    $WIRESPEED_HOME/reference/NAME.csv    the columns of `wirespeed.reference.figures`

A file is replaced in one step, so that two who add at once never mix.
"""

from collections.abc import Sequence
from pathlib import Path

from wirespeed.errors import UsageError
from wirespeed.reference.figures import Figure, figures_from_csv, figures_to_csv
from wirespeed.runs.named_files import NamedFiles

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


# The user's own rules for logs: files of `wirespeed diagnose`, beside the runs.
#
# $WIRESPEED_HOME/rules/NAME.yaml

_RULE_FILES = NamedFiles(
    folder="rules",
    suffix=".yaml",
    what="rules",
    missing=lambda name, others: UsageError(f"no rules are called {name!r}"),
    again="wirespeed diagnose --list",
    largest=1_000_000,
)


def own_rule_files() -> dict[Path, str]:
    """Texts by path, sorted; InputError or StorageError for one that cannot be read."""
    return {_RULE_FILES.path(name): _RULE_FILES.read(name) for name in _RULE_FILES.names()}
