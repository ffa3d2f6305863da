"""Files that are kept by a name below $WIRESPEED_HOME, one a name, replaced in one step: baselines, and
the user's own figures and rules."""

import errno
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from wirespeed.errors import InputError, StorageError, UsageError, refused_as
from wirespeed.model.codec import to_json, validated
from wirespeed.model.records import Run
from wirespeed.node.reading import read_whole
from wirespeed.runs import jsontext
from wirespeed.runs.folder import write_whole
from wirespeed.runs.jsontext import damage
from wirespeed.runs.place import ELSEWHERE, LARGEST, home, own_folder, private_folder

if TYPE_CHECKING:
    from wirespeed.reference.figures import Figure

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFiles:
    """All files of one kind. Errors say what they are and which command helps."""

    folder: str
    """Below `$WIRESPEED_HOME`."""
    suffix: str
    what: str
    """`a baseline`, for `'x' is no name for a baseline`."""
    missing: Callable[[str, list[str]], UsageError]
    """The error for a name that is not there, given the names that are."""
    again: str
    """The command that writes one, tried elsewhere where a folder cannot be written."""
    largest: int = LARGEST
    """Bytes beyond which a file is refused."""

    @property
    def home(self) -> Path:
        """Where they lie."""
        return own_folder(home() / self.folder)

    def path(self, name: str) -> Path:
        """UsageError for what is no name."""
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name[:80]!r} is no name for {self.what}",
                expected="up to 64 letters, digits, points, dashes and underscores",
            )
        return self.home / f"{name}{self.suffix}"

    def names(self) -> list[str]:
        """Sorted; files that nobody can have written here are left out."""
        with refused_as(StorageError, f"cannot read {self.home}"):
            found = sorted(self.home.glob(f"*{self.suffix}"))
        return [path.stem for path in found if _NAME.fullmatch(path.stem)]

    def write(self, name: str, text: str) -> Path:
        """Put it in place of what was there, whole or not at all."""
        path = self.path(name)
        expected = "a folder that can be written, with room for the file"
        again = f"{ELSEWHERE} {self.again}"
        with refused_as(StorageError, f"cannot write {path}", expected=expected, next=again):
            private_folder(self.folder)
            write_whole(path, text.encode())
        return path

    def read(self, name: str) -> str:
        """UsageError where it is not there, InputError where it is no text, no file or too large."""
        path = self.path(name)
        try:
            return read_whole(path, self.largest, links=False).decode()
        except FileNotFoundError as error:
            raise self.missing(name, self.names()) from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not text", expected=self.what, next=self.again) from error
        except OSError as error:
            unlike = error.errno in (errno.EFBIG, errno.EINVAL, errno.ELOOP)
            raise (InputError if unlike else StorageError)(
                f"cannot read {path}: {error.strerror or error}",
                expected=self.what,
                next=self.again,
            ) from error

    def remove(self, name: str) -> Path:
        """The file that is gone."""
        path = self.path(name)
        try:
            path.unlink()
        except FileNotFoundError as error:
            raise self.missing(name, self.names()) from error
        except OSError as error:
            raise StorageError(f"cannot remove {path}: {error.strerror or error}") from error
        return path


# Baselines: runs that were called good, kept by a name so that later ones can be compared to them.
#
# $WIRESPEED_HOME/baselines/NAME.json: {"schema": "wirespeed.baseline/1", "name", "set", "runs"}. The
# runs stand in it whole, so that `runs rm` takes nothing away. Only its owner may read it: environments
# and host names are nobody else's business.

DEFAULT = "default"
SCHEMA = "wirespeed.baseline/1"
_SET = "wirespeed baseline set last"


def _no_baseline(name: str, others: list[str]) -> UsageError:
    return UsageError(
        f"no baseline {name!r}",
        expected=f"one of those that are set: {', '.join(others) or 'none'}",
        next="wirespeed baseline list" if others else _SET,
    )


_BASELINES = NamedFiles(
    folder="baselines", suffix=".json", what="a baseline", missing=_no_baseline, again=_SET
)


@dataclass(frozen=True, slots=True)
class Baseline:
    name: str
    set: str
    """When, ISO 8601 in UTC."""
    runs: tuple[Run, ...]
    """Repeats of the same; at least one."""


def baselines_home() -> Path:
    """Where the baselines lie."""
    return _BASELINES.home


def set_baseline(runs: Sequence[Run], name: str = DEFAULT) -> Path:
    """Keep the runs under that name, in place of what was there. UsageError for a name that is none."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    data = {"schema": SCHEMA, "name": name, "set": now, "runs": [to_json(run) for run in runs]}
    return _BASELINES.write(name, jsontext.dump(data, indent=1) + "\n")


def load_baseline(name: str = DEFAULT) -> Baseline:
    """UsageError where there is none of that name, InputError where its file is damaged."""
    path = _BASELINES.path(name)
    return _parsed(jsontext.parse(_BASELINES.read(name), source=str(path)), path)


def list_baselines() -> list[str]:
    """The names, sorted."""
    return _BASELINES.names()


def remove_baseline(name: str) -> Path:
    """Forget it; the runs themselves stay where they are. Returns the file that is gone."""
    return _BASELINES.remove(name)


def _parsed(data: object, path: Path) -> Baseline:
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not data.get("runs"):
        raise InputError(f"{path} is no baseline", expected=SCHEMA, next=_SET)
    runs = data["runs"]
    if not isinstance(runs, list):
        raise InputError(f"{path}: its runs are no list", expected=SCHEMA, next=_SET)
    with damage(str(path)):
        loaded = tuple(validated(Run, run, source=str(path)) for run in runs)
    return Baseline(str(data.get("name", path.stem)), str(data.get("set", "")), loaded)


# The user's own expected figures: one file a set, $WIRESPEED_HOME/reference/NAME.csv, with the columns
# of `wirespeed.reference.figures`.

_LIST_FIGURES = "wirespeed reference list --own"


def _no_figures(name: str, others: list[str]) -> UsageError:
    return UsageError(
        f"no figures are called {name!r}",
        expected=f"one of those that are kept: {', '.join(others) or 'none'}",
        next=_LIST_FIGURES,
    )


_FIGURES = NamedFiles(
    folder="reference",
    suffix=".csv",
    what="figures",
    missing=_no_figures,
    again="wirespeed reference add last",
    largest=16 * 2**20,
)


def own_sets() -> list[str]:
    """Their names, sorted."""
    return _FIGURES.names()


def load_own() -> tuple["Figure", ...]:
    """Every figure of every set, by name; InputError names the file and line that is damaged."""
    return tuple(figure for name in own_sets() for figure in _figures_of(name))


def save_own(name: str, figures: "Sequence[Figure]") -> Path:
    """Keep the figures as the set `name`, in place of what was there."""
    from wirespeed.reference.figures import figures_to_csv

    return _FIGURES.write(name, figures_to_csv(figures))


def remove_own(name: str) -> Path:
    """Forget a set; the file that is gone."""
    return _FIGURES.remove(name)


def _figures_of(name: str) -> tuple["Figure", ...]:
    from wirespeed.reference.figures import figures_from_csv

    return figures_from_csv(_FIGURES.read(name), source=str(_FIGURES.path(name)), name=name)


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
