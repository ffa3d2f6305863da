"""Logs as streams of blocks: files, folders, standard input; plain, gzip or zstd. Memory is bounded.

A block ends with a whole line; a line of more than `LONGEST` bytes comes in several pieces, so that
one without end costs no memory.
"""

import gzip
import io
import os
import select
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from wirespeed.errors import InputError, refused_as

# Bytes of a log from wherever they come: unpacked, opened once where they can be read only once.
#
# Pipes, FIFOs and standard input cannot be opened again: whoever asks later gets the first bytes once
# more. A stream that breaks off tells so in `broke_off`.

WRITER_S = 30.0
"""Seconds that a FIFO may be without anybody who writes."""
_KEPT = 1 << 20
"""Bytes of a stream that can be read again."""
_HEAD = 6
_PACKED = 1024
"""Packed bytes that are unpacked at once: a frame of zeros makes at most 32 MB of them."""
_NULL = os.makedev(1, 3)
_TERMINALS = (4, 5, *range(136, 144))
"""Major numbers of Linux's terminals: sessions, /dev/tty, and those of windows and ssh."""
_CUT = "it breaks off: its end is missing"


class Raw(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes: ...
    def read1(self, size: int, /) -> bytes: ...
    def close(self) -> None: ...


class Stream(Protocol):
    """What is read of a log."""

    @property
    def broke_off(self) -> str: ...
    def read1(self, size: int, /) -> bytes: ...
    def close(self) -> None: ...


class Kept:
    """A stream that is opened once; each reader begins at its beginning, as long as that is kept."""

    def __init__(self) -> None:
        self._raw: Raw | None = None
        self._head = bytearray()
        self._gone = False

    def reader(self, connect: Callable[[], Raw], name: str) -> "_Again":
        """From the beginning. Raises InputError where more than the beginning was read already."""
        if self._gone:
            raise InputError(f"{name} can be read only once", expected="a file, to read it again")
        if self._raw is None:
            self._raw = connect()
        return _Again(self)

    def at(self, place: int, size: int) -> bytes:
        """Up to `size` bytes from there on; only one reader may go on beyond what is kept."""
        if place < len(self._head) and not self._gone:
            return bytes(self._head[place : place + size])
        data = self._raw.read1(size) if self._raw is not None else b""
        if not data and isinstance(self._raw, _Plain):  # not standard input, which others may want
            self._raw.close()
            self._raw = _Plain(io.BytesIO(), b"")
        if not self._gone and len(self._head) + len(data) <= _KEPT:
            self._head += data
        elif data:
            self._gone = True
            self._head.clear()
        return data


class _Again:
    """One reader of a `Kept`."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._place = 0

    def read1(self, size: int) -> bytes:
        data = self._kept.at(self._place, size)
        self._place += len(data)
        return data

    def read(self, size: int) -> bytes:
        parts, left = [], size
        while left > 0 and (data := self.read1(left)):
            parts.append(data)
            left -= len(data)
        return b"".join(parts)

    def close(self) -> None:
        """What is kept may be read again."""


class _Plain:
    """Text as it is."""

    broke_off = ""

    def __init__(self, raw: Raw, head: bytes) -> None:
        self._raw = raw
        self._head = head

    def read1(self, size: int) -> bytes:
        head, self._head = self._head[:size], self._head[size:]
        return head + self._raw.read1(size - len(head)) if len(head) < size else head

    def read(self, size: int) -> bytes:
        head, self._head = self._head[:size], self._head[size:]
        return head + self._raw.read(size - len(head)) if len(head) < size else head

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self._raw.close()


class _Packed:
    """A packed log; where it is damaged or cut off it ends, and what was read counts."""

    def __init__(self, raw: _Plain, stream: Any, damage: tuple[type[Exception], ...]) -> None:
        self._raw = raw
        self._stream = stream
        self._damage = damage
        self.broke_off = ""

    def read1(self, size: int) -> bytes:
        try:
            data: bytes = self._stream.read1(size)
        except EOFError:
            self.broke_off = _CUT
        except self._damage as error:
            self.broke_off = f"it is damaged and cannot be unpacked to its end ({error})"
        else:
            return data
        return b""

    def close(self) -> None:
        self._raw.close()


def _gzip(raw: _Plain) -> _Packed:
    stream = gzip.GzipFile(fileobj=raw, mode="rb")  # type: ignore[call-overload]
    return _Packed(raw, stream, (zlib.error, gzip.BadGzipFile))


def _bzip2(raw: _Plain) -> _Packed:
    import bz2

    return _Packed(raw, bz2.BZ2File(raw), (OSError, ValueError))  # type: ignore[call-overload]


def _xz(raw: _Plain) -> _Packed:
    import lzma

    return _Packed(raw, lzma.LZMAFile(raw), (lzma.LZMAError,))  # type: ignore[arg-type]


class _Zstd:
    """As `_Packed`, of one frame or several: the library tells no cut one from a whole one."""

    def __init__(self, raw: _Plain) -> None:
        import zstandard

        self._raw = raw
        self._new = zstandard.ZstdDecompressor().decompressobj
        self._error = zstandard.ZstdError
        self._frame = self._new()
        self._left = b""
        self.broke_off = ""

    def read1(self, size: int) -> bytes:
        parts, length = [], 0
        while length < size and not self.broke_off and (data := self._packed()):
            try:
                part = self._frame.decompress(data)
            except self._error as error:
                self.broke_off = f"it is damaged and cannot be unpacked to its end ({error})"
                break
            if self._frame.eof:
                self._left = self._frame.unused_data
                self._frame = self._new() if self._packed_left() else self._frame
            parts.append(part)
            length += len(part)
        if not parts and not self._frame.eof:
            self.broke_off = self.broke_off or _CUT
        return b"".join(parts)

    def _packed(self) -> bytes:
        left, self._left = self._left, b""
        return left or self._raw.read1(_PACKED)

    def _packed_left(self) -> bool:
        self._left = self._packed()
        return bool(self._left)

    def close(self) -> None:
        self._raw.close()


def unpacked(raw: Raw, refused: Callable[[bytes], None]) -> Stream:
    """The log in it, whatever it is packed with; `refused` may raise for its first bytes."""
    try:
        head = raw.read(_HEAD)
        refused(head)
    except (OSError, InputError):
        raw.close()
        raise
    plain = _Plain(raw, head)
    for magic, packed in _MAGIC.items():
        if head.startswith(magic):
            return packed(plain)
    return plain


_MAGIC: dict[bytes, Callable[[_Plain], Stream]] = {
    b"\x1f\x8b": _gzip,
    b"\x28\xb5\x2f\xfd": _Zstd,
    b"BZh": _bzip2,
    b"\xfd7zXZ\x00": _xz,
}


def refuse_device(mode: int, device: int, name: str) -> None:
    """Raises InputError for what has no end, such as /dev/zero; a terminal and /dev/null have one."""
    endless = stat.S_ISCHR(mode) and device != _NULL and os.major(device) not in _TERMINALS
    if endless or stat.S_ISBLK(mode):
        raise InputError(
            f"{name} is a device, not a log",
            expected="a file, a folder, a pipe, or - for standard input",
            next="dmesg | wirespeed diagnose - for what the kernel said",
        )


def connect(path: Path | None, name: str) -> Raw:
    """Standard input, or a FIFO with somebody who writes. Raises InputError where nobody comes."""
    if path is None:
        return cast(Raw, sys.stdin.buffer)
    end = time.monotonic() + WRITER_S
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    while (head := _first_bytes(number)) is None:
        if time.monotonic() > end:
            os.close(number)
            raise InputError(
                f"nobody wrote to {name} within {WRITER_S:g} s",
                expected="a FIFO that a program has opened for writing",
            )
    os.set_blocking(number, True)
    return _Plain(os.fdopen(number, "rb"), head)


def _first_bytes(number: int) -> bytes | None:
    """What is there; None as long as nobody has opened the FIFO for writing. Waits a moment."""
    waiting = select.poll()
    waiting.register(number, select.POLLIN | select.POLLHUP)
    if waiting.poll(50):
        return b""
    try:
        return os.read(number, 1 << 16) or None
    except BlockingIOError:  # somebody is there, who has written nothing yet
        return b""


BLOCK = 1 << 20
LONGEST = 1 << 16
MAGIC = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""First bytes of a pickle."""
_KEYS = (b"pg_config", b"pg_status", b"entries", b"profiling_name", b"nccl_version")
"""Texts of which one stands at the beginning of every dump of torch's flight recorder."""
_JSON_KEYS = (b'"entries"', b'"pg_config"', b'"pg_status"')
_START = 4096
_PICKLES = (".pkl", ".pickle", ".pt", ".pth")
_NEVER = (*_PICKLES, ".so", ".pyc", ".png", ".safetensors", ".npy", ".npz", ".bin")
_ZIP_MAGIC = b"PK\x03\x04"


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
        expected = "a log, or a folder of logs"
        with refused_as(InputError, f"{self.name} cannot be read", expected=expected):
            return unpacked(self._raw(), self._refuse)

    def parts(self, size: int) -> Iterator[bytes]:
        """Its first `size` bytes in pieces; of a pickle, which `open` refuses, too."""
        if self.path is not None and self.path.is_file() and _is_pickle(self.path):
            with self.path.open("rb") as raw:
                yield raw.read(size)
            return
        with closing(self.open()) as stream:
            while size > 0 and (part := stream.read1(min(size, 1 << 20))):
                size -= len(part)
                yield part

    def kind(self) -> Literal["log", "dump", "ras", "inspector"]:
        """What its first bytes show: a log, a flight recorder's dump, RAS's or the Inspector's JSON."""
        if self.path is None:
            with closing(self.open()) as stream:
                head = stream.read1(_START)
        else:
            head = b"".join(self.parts(_START))[:_START]
        if self.path is not None and _looks_recorded(head):
            return "dump"
        if head.lstrip()[:1] != b"{":
            return "log"
        if self.path is not None and any(key in head for key in _JSON_KEYS):
            return "dump"
        if b'"communicators_count"' in head and b'"nccl_version"' in head:
            return "ras"
        performance = b'"coll_perf"' in head or b'"p2p_perf"' in head
        return "inspector" if b'"header"' in head and performance else "log"

    def _raw(self) -> Raw:
        if self.path is None:
            _refuse_stdin()
        elif not stat.S_ISFIFO((about := self.path.stat()).st_mode):
            refuse_device(about.st_mode, about.st_rdev, self.name)
            return self.path.open("rb")
        return self._kept.reader(lambda: connect(self.path, self.name), self.name)

    def _refuse(self, head: bytes) -> None:
        if head[:2] in MAGIC:
            raise InputError(
                f"{self.name} is a Python pickle, which can run any program when it is read",
                expected="a log, or a dump of torch's flight recorder, whose pickles hold plain data",
            )
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


def _is_pickle(path: Path) -> bool:
    try:
        with path.open("rb") as raw:
            return raw.read(2) in MAGIC
    except OSError:
        return False


def _looks_recorded(head: bytes) -> bool:
    """Whether these first bytes of a file are a pickle's, and a dump's."""
    return head[:2] in MAGIC and any(key in head for key in _KEYS)


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
            head = raw.read(_START)
    except OSError:
        return not path.name.endswith(_NEVER)
    return _looks_recorded(head) or not (path.name.endswith(_NEVER) or head[:2] in MAGIC)


def blocks(stream: Raw | Stream, size: int = BLOCK) -> Iterator[bytes]:
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
