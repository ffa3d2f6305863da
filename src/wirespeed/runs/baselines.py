"""Baselines: runs that were called good, kept by a name so that later ones can be compared to them.

    $WIRESPEED_HOME/baselines/NAME.json    {"schema": "wirespeed.baseline/1", "name", "set", "runs"}

The runs stand in it whole, so that `runs rm` takes nothing away. A file is replaced in one step and
only its owner may read it: environments and host names are nobody else's business.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from wirespeed.errors import InputError, UsageError
from wirespeed.model.codec import to_json, validated
from wirespeed.model.records import Run
from wirespeed.runs import jsontext
from wirespeed.runs.jsontext import damage
from wirespeed.runs.named_files import NamedFiles

DEFAULT = "default"
SCHEMA = "wirespeed.baseline/1"
_SET = "wirespeed baseline set last"


def _missing(name: str, others: list[str]) -> UsageError:
    return UsageError(
        f"no baseline {name!r}",
        expected=f"one of those that are set: {', '.join(others) or 'none'}",
        next="wirespeed baseline list" if others else _SET,
    )


_FILES = NamedFiles(
    folder="baselines",
    suffix=".json",
    what="a baseline",
    missing=_missing,
    again=_SET,
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
    return _FILES.home


def set_baseline(runs: Sequence[Run], name: str = DEFAULT) -> Path:
    """Keep the runs under that name, in place of what was there. UsageError for a name that is none."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    data = {"schema": SCHEMA, "name": name, "set": now, "runs": [to_json(run) for run in runs]}
    return _FILES.write(name, jsontext.dump(data, indent=1) + "\n")


def load_baseline(name: str = DEFAULT) -> Baseline:
    """UsageError where there is none of that name, InputError where its file is damaged."""
    path = _FILES.path(name)
    return _parsed(jsontext.parse(_FILES.read(name), source=str(path)), path)


def list_baselines() -> list[str]:
    """The names, sorted."""
    return _FILES.names()


def remove_baseline(name: str) -> Path:
    """Forget it; the runs themselves stay where they are. Returns the file that is gone."""
    return _FILES.remove(name)


def _parsed(data: object, path: Path) -> Baseline:
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not data.get("runs"):
        raise InputError(f"{path} is no baseline", expected=SCHEMA, next=_SET)
    runs = data["runs"]
    if not isinstance(runs, list):
        raise InputError(f"{path}: its runs are no list", expected=SCHEMA, next=_SET)
    with damage(str(path)):
        loaded = tuple(validated(Run, run, source=str(path)) for run in runs)
    return Baseline(str(data.get("name", path.stem)), str(data.get("set", "")), loaded)
