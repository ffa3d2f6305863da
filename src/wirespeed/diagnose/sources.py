"""Logs as streams of blocks: files, folders, standard input; plain, gzip or zstd. Memory is bounded.

A block ends with a whole line. What of a line lies beyond `LONGEST` bytes is dropped, so that one
without end costs no memory.
"""

import gzip
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from wirespeed.diagnose.flight_pickle import MAGIC, looks_recorded
from wirespeed.errors import InputError

__all__ = ["BLOCK", "LONGEST", "Source", "blocks", "find_sources"]

BLOCK = 1 << 20
LONGEST = 1 << 16
_PICKLES = (".pkl", ".pickle", ".pt", ".pth")
_NEVER = (*_PICKLES, ".so", ".pyc", ".png", ".safetensors", ".npy", ".npz", ".bin")


class Stream(Protocol):
    """What is read of a log."""

    def read1(self, size: int, /) -> bytes: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """One log."""

    name: str
    """As a person would name it: the path given, or `stdin`."""
    path: Path | None
    """None: standard input."""

    def open(self) -> Stream:
        """Unpacked, whatever it is packed with. Raises InputError where it cannot be read."""
        if self.path is None:
            return cast(Stream, sys.stdin.buffer)
        try:
            with self.path.open("rb") as raw:
                magic = raw.read(4)
            if magic[:2] == b"\x1f\x8b":
                return _gzip(self.path)
            if magic == b"\x28\xb5\x2f\xfd":
                return _zstd(self.path)
            if magic[:2] in MAGIC:
                raise _pickle(self.name)
            return self.path.open("rb")
        except OSError as error:
            raise InputError(
                f"{self.name} cannot be read: {error.strerror or error}",
                expected="a log, or a folder of logs",
            ) from error


class _Unpacked:
    """A packed log; where it is damaged or cut off it ends, and what was read counts."""

    def __init__(self, stream: Any, damage: tuple[type[Exception], ...]) -> None:
        self._stream = stream
        self._damage = damage

    def read1(self, size: int) -> bytes:
        try:
            data: bytes = self._stream.read1(size)
        except self._damage:
            return b""
        return data

    def close(self) -> None:
        self._stream.close()


def _gzip(path: Path) -> _Unpacked:
    return _Unpacked(gzip.open(path, "rb"), (EOFError, zlib.error, gzip.BadGzipFile))


def _zstd(path: Path) -> _Unpacked:
    import zstandard

    return _Unpacked(zstandard.open(path, "rb"), (zstandard.ZstdError, EOFError))


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
    files = sorted(Path(base) / name for base, _, names in os.walk(folder) for name in names)
    # A dump of the flight recorder may have any name; of other pickles only a named one is refused.
    return [Source(str(path), path) for path in files if path.is_file() and _is_read(path)]


def _is_read(path: Path) -> bool:
    try:
        with path.open("rb") as raw:
            head = raw.read(4096)
    except OSError:
        return not path.name.endswith(_NEVER)
    return looks_recorded(head) or not (path.name.endswith(_NEVER) or head[:2] in MAGIC)


def blocks(stream: Stream, size: int = BLOCK) -> Iterator[bytes]:
    """Pieces that end with a whole line (but for the last)."""
    read = stream.read1  # a pipe gives what it has
    rest = b""
    while data := read(size):
        rest += data
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
        if len(rest) > LONGEST:
            # A line that is too long: its beginning is kept, the rest is read over.
            yield rest[:LONGEST] + b"\n"
            rest = _after_newline(read, size)
    if rest:
        yield rest


def _after_newline(read: Callable[[int], bytes], size: int) -> bytes:
    while data := read(size):
        cut = data.find(b"\n") + 1
        if cut:
            return data[cut:]
    return b""
