"""Frames on stdin and stdout, files below the target folder, and the state kept there.

Frames on stdin and stdout: one byte for the kind, four for the length, then the payload.

Files below one folder, reached without ever following a link.

What former calls brought to this target, kept in `.wirespeed-sync/state.json` there.
"""

from __future__ import annotations  # Python below 3.10 does not know X | None

import contextlib
import errno
import json
import os
import signal
import stat
import struct
import time
from typing import Any, BinaryIO

HEAD = struct.Struct(">cI")
CHUNK = 1 << 18
"""Bytes of a file that go into one frame."""
MOST = 1 << 26
"""Bytes of the longest frame that is taken."""
_SILENCE_S = 45
"""Who says nothing for so long is gone: not every runtime closes stdin when kubectl is killed."""
_TICK_S = 1.0


class Trouble(Exception):
    """Told to the other side, and the end of this one. Its kind is a word that both sides know."""

    def __init__(self, kind: str, text: str, **more: Any) -> None:
        super().__init__(text)
        self.told = {"kind": kind, "text": text, **more}


class Gone(Exception):
    """The other side is not there any more."""


class Pipe:
    """Frames, and a sign of life while nothing else is said."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source, self._sink = source, sink
        self._said = 0.0

    def read(self) -> tuple[bytes, bytes]:
        """The next frame: its kind and its payload."""
        kind, size = HEAD.unpack(self._exactly(HEAD.size))
        if size > MOST:
            raise Trouble("protocol", f"a frame of {size} bytes")
        return kind, self._exactly(size)

    def write(self, kind: bytes, told: Any) -> None:
        data = json.dumps(told).encode()
        signal.alarm(_SILENCE_S)
        try:
            self._sink.write(HEAD.pack(kind, len(data)) + data)
            self._sink.flush()
        except BrokenPipeError:
            raise Gone from None
        signal.alarm(0)
        self._said = time.monotonic()

    def tick(self, text: str = "") -> None:
        """Still alive; said once a second at most."""
        if time.monotonic() - self._said > _TICK_S:
            self.write(b"T", text)

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            signal.alarm(_SILENCE_S)
            part = self._source.read1(size)  # type: ignore[attr-defined]
            if not part:
                raise Gone
            parts.append(part)
            size -= len(part)
        signal.alarm(0)
        return b"".join(parts)


OWN = ".wirespeed-sync"
"""Our folder below the target: the lock, the state, and what is being received."""
PART = ".wirespeed-sync.part"
"""Beside a file that lies on another file system than the target: what is being copied there."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Root:
    """What lies below one open folder. A link or a file on the way is NotADirectoryError."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._open: list[tuple[str, int]] = []

    def parent(self, path: str) -> tuple[int, str]:
        """(the open folder that `path` lies in, the last part of its name)"""
        *folders, name = path.split("/")
        same = 0
        while same < min(len(folders), len(self._open)) and self._open[same][0] == folders[same]:
            same += 1
        self._close(same)
        for folder in folders[same:]:
            self._open.append((folder, open_folder(folder, self._deepest())))
        return self._deepest(), name

    def look(self, path: str) -> os.stat_result | None:
        """What lies there itself (a link, not what it names); None: nothing."""
        try:
            fd, name = self.parent(path)
            return os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def target(self, path: str) -> str:
        """Of the link at `path`."""
        fd, name = self.parent(path)
        return os.readlink(name, dir_fd=fd)

    def forget(self) -> None:
        """Folders were removed: what is open need not be what bears the name any more."""
        self._close(0)

    def _deepest(self) -> int:
        return self._open[-1][1] if self._open else self.fd

    def _close(self, keep: int) -> None:
        while len(self._open) > keep:
            os.close(self._open.pop()[1])


def open_folder(name: str, fd: int) -> int:
    """The folder of that name in the folder `fd`; NotADirectoryError for a link, too."""
    try:
        return os.open(name, _FOLDER, dir_fd=fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotADirectoryError(errno.ENOTDIR, "a link", name) from error
        raise


def make(name: str, fd: int) -> int:
    """The folder of that name in the folder `fd`, made where it is not there; open."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=fd)
    return open_folder(name, fd)


def safe(path: object) -> bool:
    """Whether it stays below the target, and out of our own folder."""
    if not isinstance(path, str) or "\0" in path:
        return False
    parts = path.split("/")
    return parts[0] != OWN and not any(part in ("", ".", "..", PART) for part in parts)


def above(path: str) -> list[str]:
    """The path and all folders that it lies in."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def look_of(seen: os.stat_result) -> list[int]:
    """What changes when somebody writes to the file: size, times and inode."""
    return [seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino]


def set_mode(fd: int, mode: int) -> None:
    """Permission bits; never setuid, setgid or sticky. Storage without modes keeps its own."""
    with contextlib.suppress(PermissionError):
        os.fchmod(fd, stat.S_IMODE(mode) & 0o777)


class State:
    """By path [kind, hash or link's target, the one before, look, ours].

    `look` is the file's size, times and inode just after it was put in its place: as long as they are
    the same, its content is known without reading it. `ours`: a former call brought it; what was there
    with the same content already is only remembered.
    """

    def __init__(self, own: int | None) -> None:
        """own: our open folder; None where there is none yet."""
        self._own = own
        try:
            self.paths = self._load()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self.paths = {}  # none, or damaged: nothing is known to be ours, all is read again

    def ours(self, path: str) -> list[Any] | None:
        known = self.paths.get(path)
        return known if known and known[4] else None

    def save(self) -> None:
        text = json.dumps({"version": 1, "paths": self.paths}).encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open("state.new", flags, 0o644, dir_fd=self._own), "wb") as file:
            file.write(text)
        os.rename("state.new", "state.json", src_dir_fd=self._own, dst_dir_fd=self._own)

    def _load(self) -> dict[str, list[Any]]:
        if self._own is None:
            return {}
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open("state.json", flags, dir_fd=self._own), "rb") as file:
            told = json.load(file)
        paths: dict[str, list[Any]] = told["paths"] if told["version"] == 1 else {}
        good = all(safe(path) and len(known) == 5 for path, known in paths.items())
        return paths if good else {}
