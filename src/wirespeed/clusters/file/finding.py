"""Which file a name on the command line means: clusters/NAME.yaml of this folder, or a path."""

import re
import stat
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from wirespeed.clusters.file.yaml_tree import MOST_BYTES
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.clusters.file.model import ClusterFile

__all__ = ["FOLDER", "find_file", "is_path", "known_files", "read_file", "read_named", "stem"]

FOLDER = "clusters"
"""In the working directory."""
_ENDINGS = (".yaml", ".yml")
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,126}[A-Za-z0-9_-])?")


def is_path(name_or_path: str) -> bool:
    """Whether it is a path rather than a name."""
    return "/" in name_or_path or name_or_path.endswith(_ENDINGS)


def stem(path: Path) -> str:
    """What means this file on the command line: its name, where it has one, or its path."""
    named = path.parent == Path(FOLDER) and _NAME.fullmatch(path.stem) and ".." not in path.stem
    return path.stem if named else str(path)


def known_files() -> list[Path]:
    """The cluster files of this folder, sorted by name."""
    folder = Path(FOLDER)
    if not folder.is_dir():
        return []
    found = (path for ending in _ENDINGS for path in folder.glob(f"*{ending}"))
    return sorted(path for path in found if path.is_file() and not path.name.startswith("."))


def find_file(name_or_path: str) -> Path:
    """The file that the words mean. UsageError where there is none, or two."""
    if is_path(name_or_path):
        return _existing(name_or_path)
    if not _NAME.fullmatch(name_or_path) or ".." in name_or_path:
        raise UsageError(
            f"{name_or_path[:80]!r} cannot be a cluster file's name",
            expected="letters, digits, - _ and ., or a path with / or .yaml in it",
            next="wirespeed cluster list",
        )
    paths = [Path(FOLDER) / f"{name_or_path}{ending}" for ending in _ENDINGS]
    there = [path for path in paths if path.is_file()]
    if len(there) > 1:
        raise UsageError(
            f"{name_or_path} may be {there[0]} or {there[1]}", expected="one of the two paths"
        )
    return there[0] if there else _missing(name_or_path)


def _existing(text: str) -> Path:
    path = Path(text)
    try:
        there = path.exists()
    except (OSError, ValueError):  # a name too long for the system, a NUL
        there = False
    if not there:
        raise UsageError(
            f"there is no file {text if text.isprintable() else repr(text)}",
            expected=_known() or "the path of a cluster file",
            next="wirespeed cluster list",
        )
    return path


def _missing(name: str) -> Path:
    names = [path.stem for path in known_files()]
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(
        f"there is no {FOLDER}/{name}.yaml in this folder{hint}",
        expected=_known() or "a cluster file",
        next=f"wirespeed cluster {'validate ' + near[0] if near else 'new ' + name}",
    )


def _known() -> str:
    names = [path.stem for path in known_files() if path.stem.isprintable()]
    return f"one of {', '.join(names)}" if names else ""


def read_file(path: Path) -> str:
    """The text of a cluster file. UsageError where it cannot be read or is none by its size."""
    from wirespeed.clusters.file.problems import ClusterFileError, Problem, shown_path
    from wirespeed.clusters.file.reading import decode

    source = str(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe could wait for ever
            raise UsageError(f"{shown_path(source)} is no file", expected="a cluster file")
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{shown_path(source)} cannot be read: {error.strerror}") from None
    if len(data) > MOST_BYTES:
        large = Problem(line=1, saw="a file larger than 1 MB", expected="a cluster file")
        raise ClusterFileError(source, [large])
    return decode(data, source)


def read_named(name_or_path: str) -> "ClusterFile":
    """The cluster file of that name or path; UsageError, with all problems of a bad one."""
    from wirespeed.clusters.file.reading import read_cluster

    path = find_file(name_or_path)
    return read_cluster(read_file(path), str(path))
