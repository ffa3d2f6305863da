"""Logs as streams of blocks: files, folders, standard input; plain, gzip or zstd. Memory is bounded.

A block ends with a whole line; a line of more than `LONGEST` bytes comes in several pieces, so that
one without end costs no memory.
"""

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from wirespeed.diagnose.flight_pickle import MAGIC, looks_recorded
from wirespeed.diagnose.streams import Kept, Raw, Stream, connect, refuse_device, unpacked
from wirespeed.errors import InputError

__all__ = ["BLOCK", "LONGEST", "Source", "Stream", "blocks", "find_sources"]

BLOCK = 1 << 20
LONGEST = 1 << 16
_PICKLES = (".pkl", ".pickle", ".pt", ".pth")
_NEVER = (*_PICKLES, ".so", ".pyc", ".png", ".safetensors", ".npy", ".npz", ".bin")
_ZIP_MAGIC = b"PK\x03\x04"


class Readable(Protocol):
    """What gives bytes as they come."""

    def read1(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Source:
    """One log."""

    name: str
    """As a person would name it: the path given, or `stdin`."""
    path: Path | None
    """None: standard input."""
    _kept: Kept = field(default_factory=Kept, repr=False, compare=False)

    def open(self) -> Stream:
        """Unpacked, whatever it is packed with. Raises InputError where it cannot be read."""
        try:
            return unpacked(self._raw(), self._refuse)
        except OSError as error:
            raise InputError(
                f"{self.name} cannot be read: {error.strerror or error}",
                expected="a log, or a folder of logs",
            ) from error

    def _raw(self) -> Raw:
        if self.path is None:
            _refuse_stdin()
        elif not stat.S_ISFIFO((about := self.path.stat()).st_mode):
            refuse_device(about.st_mode, about.st_rdev, self.name)
            return self.path.open("rb")
        return self._kept.reader(lambda: connect(self.path, self.name), self.name)

    def _refuse(self, head: bytes) -> None:
        if head[:2] in MAGIC:
            raise _pickle(self.name)
        if head.startswith(_ZIP_MAGIC):
            raise InputError(
                f"{self.name} is a zip archive",
                expected="text, or packed with gzip, zstd, bzip2 or xz",
                next=f"unzip {self.name} -d logs, then wirespeed diagnose logs",
            )


def _refuse_stdin() -> None:
    try:
        about = os.fstat(sys.stdin.fileno())
    except (OSError, ValueError, AttributeError):  # none, or not a real one
        return
    refuse_device(about.st_mode, about.st_rdev, "standard input")


def _pickle(name: str) -> InputError:
    return InputError(
        f"{name} is a Python pickle, which can run any program when it is read",
        expected="a log, or a dump of torch's flight recorder, whose pickles hold plain data",
    )


def find_sources(paths: Iterable[str]) -> list[Source]:
    """The logs of each path, folders with all that is below; `-` is standard input.

    Raises InputError for a path that is not there, and where there is no file at all.
    """
    found: list[Source] = []
    for given in paths:
        if given == "-":
            found.append(Source("stdin", None))
            continue
        path = Path(given)
        if path.is_dir():
            found += _below(path)
        elif path.exists():
            found.append(Source(given, path))
        else:
            raise InputError(
                f"there is no {given}", expected="a file, a folder, a run's id, or - for stdin"
            )
    if not found:
        raise InputError("no log file there", expected="files that can be read below that folder")
    return found


def _below(folder: Path) -> list[Source]:
    away: list[Path] = []

    def note(error: OSError) -> None:
        away.append(Path(error.filename))

    found = os.walk(folder, onerror=note)
    files = sorted(Path(base) / name for base, _, names in found for name in names)
    # A dump of the flight recorder may have any name; of other pickles only a named one is refused.
    read = [path for path in files if path.is_file() and _is_read(path)]
    # A folder that may not be read, and a link to nothing, are said when they are opened.
    away += [path for path in files if path.is_symlink() and not path.exists()]
    return [Source(str(path), path) for path in (*read, *away)]


def _is_read(path: Path) -> bool:
    try:
        with path.open("rb") as raw:
            head = raw.read(4096)
    except OSError:
        return not path.name.endswith(_NEVER)
    return looks_recorded(head) or not (path.name.endswith(_NEVER) or head[:2] in MAGIC)


def blocks(stream: Readable, size: int = BLOCK) -> Iterator[bytes]:
    """Pieces that end with a whole line, but for the last, and those of a line without end."""
    read = stream.read1  # a pipe gives what it has
    rest = b""
    while data := read(size):
        rest += data
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
        while len(rest) > LONGEST:
            cut = _apart(rest)
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


def _apart(line: bytes) -> int:
    """Where a line that is too long is cut: where a progress bar begins anew, else at a space."""
    for mark in (b"\r", b" "):
        if cut := line.rfind(mark, LONGEST // 2, LONGEST) + 1:
            return cut
    return LONGEST
