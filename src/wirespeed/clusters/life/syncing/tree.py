"""What lies in the folder here: files, folders and links; no link is followed."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from wirespeed.clusters.life.syncing.far.pipe import CHUNK
from wirespeed.clusters.life.syncing.far.places import look_of
from wirespeed.clusters.life.syncing.patterns import DEFAULTS, IGNORE_FILE, Ignore
from wirespeed.errors import InputError, UsageError

__all__ = ["Entry", "Hashes", "Tree", "ignore_for", "read_whole", "scan"]

_LONGEST_IGNORE = 1 << 20
_TRIES = 3
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


@dataclass(frozen=True, slots=True)
class Entry:
    path: str
    """Relative, with `/`."""
    kind: Literal["file", "dir", "link"]
    mode: int
    """Permission bits of a file or folder; 0 for a link."""
    size: int
    """Of a file, in bytes."""
    target: str
    """Of a link, as it is written in it."""
    look: tuple[int, ...]
    """Changes when the file is written to."""


@dataclass(frozen=True, slots=True)
class Tree:
    entries: tuple[Entry, ...]
    """A folder stands before what lies in it."""
    refused: tuple[tuple[str, str], ...]
    """(path, what it is) of what cannot be brought."""
    outside: tuple[str, ...]
    """Links to somewhere outside the folder."""


def ignore_for(folder: Path, excludes: tuple[str, ...]) -> Ignore:
    """The defaults, then the folder's .wirespeedignore, then `excludes`; InputError if unreadable."""
    path = folder / IGNORE_FILE
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST_IGNORE + 1)
    except FileNotFoundError:
        text = b""
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if len(text) > _LONGEST_IGNORE:
        raise InputError(f"{path} is larger than 1 MiB", expected="one pattern a line")
    return Ignore([*DEFAULTS, *os.fsdecode(text).splitlines(), *excludes])


def scan(folder: Path, ignore: Ignore) -> Tree:
    """The whole tree in one order; UsageError where the folder itself cannot be read."""
    entries: list[Entry] = []
    refused: list[tuple[str, str]] = []
    waiting = [""]
    while waiting:
        below = waiting.pop()
        try:
            found = sorted(os.scandir(folder / below), key=lambda one: one.name, reverse=True)
        except OSError as error:
            if not below:
                raise UsageError(f"cannot read {folder}: {error.strerror}") from error
            refused.append((below, error.strerror or "unreadable"))
            continue
        for one in found:
            entry = _entry(one, f"{below}/{one.name}" if below else one.name, ignore, refused)
            if entry is not None:
                entries.append(entry)
                waiting += [entry.path] if entry.kind == "dir" else []
    entries.sort(key=lambda entry: entry.path.split("/"))
    outside = tuple(one.path for one in entries if one.kind == "link" and _leads_outside(one))
    return Tree(tuple(entries), tuple(sorted(refused)), outside)


def _entry(
    found: "os.DirEntry[str]", path: str, ignore: Ignore, refused: list[tuple[str, str]]
) -> Entry | None:
    try:
        if ignore.leaves_out(path, folder=found.is_dir(follow_symlinks=False)):
            return None
        seen = found.stat(follow_symlinks=False)
        mode = stat.S_IMODE(seen.st_mode) & 0o777
        if stat.S_ISLNK(seen.st_mode):
            return Entry(path, "link", 0, 0, _target(found.path), ())
    except FileNotFoundError:
        return None  # it went while we looked
    if stat.S_ISDIR(seen.st_mode):
        return Entry(path, "dir", mode, 0, "", ())
    if stat.S_ISREG(seen.st_mode):
        return Entry(path, "file", mode, seen.st_size, "", tuple(look_of(seen)))
    refused.append((path, _KINDS.get(stat.S_IFMT(seen.st_mode), "neither file nor folder")))
    return None


def _target(path: str) -> str:
    return os.readlink(path)  # noqa: PTH115 - a Path would change ./a//b


def _leads_outside(link: Entry) -> bool:
    if link.target.startswith("/"):
        return True
    depth = link.path.count("/")
    for part in link.target.split("/"):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            return True
    return False


@dataclass(slots=True)
class Hashes:
    """SHA-256 of files; one that looks the same as last time is not read again."""

    folder: Path
    known: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    """(path, reason) of the last call."""

    def of(self, tree: Tree, read: Callable[[int], None]) -> dict[str, str]:
        """By path; what went meanwhile is absent. `read` is told of bytes as they are read."""
        self.unreadable.clear()
        found = {}
        for entry in tree.entries:
            if entry.kind == "file" and (told := self._one(entry, read)):
                self.known[entry.path] = (entry.look, told)
                found[entry.path] = told
        self.known = {path: self.known[path] for path in found}
        return found

    def _one(self, entry: Entry, read: Callable[[int], None]) -> str:
        look, told = self.known.get(entry.path, ((), ""))
        if look == entry.look:
            return told
        sha = hashlib.sha256()
        try:
            for chunk in _chunks(self.folder / entry.path, entry.size):
                sha.update(chunk)
                read(len(chunk))
        except FileNotFoundError:
            return ""
        except OSError as error:
            self.unreadable.append((entry.path, error.strerror or "unreadable"))
            return ""
        return sha.hexdigest()


def read_whole(path: Path, send: Callable[[bytes], None], again: Callable[[], None]) -> str | None:
    """Hand the file's content to `send`, and give its hash: of one moment, or None.

    Where the file changed while it was read, `again` says that all sent so far is void; after three
    times, or where it is gone or cannot be read, it is given up.
    """
    for number in range(_TRIES):
        if number:
            again()
        sha = hashlib.sha256()
        try:
            before = path.lstat()
            for chunk in _chunks(path, before.st_size):
                sha.update(chunk)
                send(chunk)
            after = path.lstat()
        except OSError:
            return None
        if look_of(before) == look_of(after):
            return sha.hexdigest()
    return None


def _chunks(path: Path, most: int) -> Iterator[bytes]:
    """Of a file, until it is more than `most` bytes: it may grow faster than it is read.

    OSError for a link, and for what became something else meanwhile.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb", 0) as file:
        while most >= 0 and (chunk := file.read(CHUNK)):
            most -= len(chunk)
            yield chunk
