"""Baselines: runs that were called good, kept by a name so that later ones can be compared to them.

    $WIRESPEED_HOME/baselines/NAME.json    {"schema": "wirespeed.baseline/1", "name", "set", "runs"}

The runs stand in it whole, so that `runs rm` takes nothing away. A file is replaced in one step and
only its owner may read it: environments and host names are nobody else's business.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from wirespeed.errors import InputError, StorageError, UsageError
from wirespeed.records import Run
from wirespeed.records_json import run_from_json, run_to_json
from wirespeed.runs import jsontext
from wirespeed.runs.folder import home
from wirespeed.runs.schema import prune, validate

__all__ = [
    "DEFAULT",
    "Baseline",
    "baselines_home",
    "list_baselines",
    "load_baseline",
    "remove_baseline",
    "set_baseline",
]

DEFAULT = "default"
SCHEMA = "wirespeed.baseline/1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SET = "wirespeed baseline set last"
_LIST = "wirespeed baseline list"


@dataclass(frozen=True, slots=True)
class Baseline:
    name: str
    set: str
    """When, ISO 8601 in UTC."""
    runs: tuple[Run, ...]
    """Repeats of the same; at least one."""


def baselines_home() -> Path:
    """Where the baselines lie."""
    return home() / "baselines"


def set_baseline(runs: Sequence[Run], name: str = DEFAULT) -> Path:
    """Keep the runs under that name, in place of what was there. UsageError for a name that is none."""
    path = _path(name)
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    data = {"schema": SCHEMA, "name": name, "set": now, "runs": [run_to_json(run) for run in runs]}
    text = jsontext.dump(data, indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _replace(path, text.encode())
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}",
            expected="a folder that can be written, with room for the runs",
            next="WIRESPEED_HOME=/tmp/wirespeed wirespeed baseline set last",
        ) from error
    return path


def load_baseline(name: str = DEFAULT) -> Baseline:
    """UsageError where there is none of that name, InputError where its file is damaged."""
    path = _path(name)
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError as error:
        others = ", ".join(list_baselines()) or "none"
        raise UsageError(
            f"no baseline {name!r}", expected=f"one of those that are set: {others}", next=_SET
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text", expected="a baseline", next=_SET) from error
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    return _parsed(jsontext.parse(text, source=str(path)), path)


def list_baselines() -> list[str]:
    """The names, sorted."""
    try:
        found = sorted(baselines_home().glob("*.json"))
    except OSError as error:
        raise StorageError(f"cannot read {baselines_home()}: {error.strerror or error}") from error
    return [path.stem for path in found if _NAME.fullmatch(path.stem)]


def remove_baseline(name: str) -> Path:
    """Forget it; the runs themselves stay where they are. Returns the file that is gone."""
    path = _path(name)
    try:
        path.unlink()
    except FileNotFoundError as error:
        raise UsageError(f"no baseline {name!r}", next=_LIST) from error
    except OSError as error:
        raise StorageError(f"cannot remove {path}: {error.strerror or error}") from error
    return path


def _path(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a baseline",
            expected="up to 64 letters, digits, points, dashes and underscores",
        )
    return baselines_home() / f"{name}.json"


def _parsed(data: object, path: Path) -> Baseline:
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not data.get("runs"):
        raise InputError(f"{path} is no baseline", expected=SCHEMA, next=_SET)
    runs = data["runs"]
    if not isinstance(runs, list):
        raise InputError(f"{path}: its runs are no list", expected=SCHEMA, next=_SET)
    for run in runs:
        validate(run, source=str(path))
    loaded = tuple(run_from_json(prune(run)) for run in runs)
    return Baseline(str(data.get("name", path.stem)), str(data.get("set", "")), loaded)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
