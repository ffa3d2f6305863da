"""What lies in the local folder, and which of it is synced (patterns as in .gitignore)."""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from wirespeed.clusters.sync.remote.storage import CHUNK, OWN, PART, look_of
from wirespeed.errors import InputError, UsageError

IGNORE_FILE = ".wirespeedignore"
DEFAULTS = (".git", "__pycache__", "*.pyc", ".venv", "node_modules")
"""Left out unless a later pattern, such as `!.git`, takes it in again."""
_NEVER = frozenset((OWN, PART))


class Ignore:
    """The last pattern that fits decides; what lies in a folder that is left out is left out, too."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines if (rule := _rule(line)) is not None]

    def leaves_out(self, path: str, *, folder: bool) -> bool:
        """path: relative, with `/`; the folders above it are known not to be left out."""
        if path.rpartition("/")[2] in _NEVER:
            return True
        out = False
        for pattern, only_folders, takes_in in self._rules:
            if (folder or not only_folders) and out == takes_in and pattern.fullmatch(path):
                out = not takes_in
        return out


def _rule(line: str) -> tuple[re.Pattern[str], bool, bool] | None:
    """(pattern for the whole path, only for folders, takes in what others leave out)"""
    line = re.sub(r"(?<!\\) +$", "", line.rstrip("\r\n"))
    if not line or line.startswith("#"):
        return None
    takes_in = line.startswith("!")
    line = line[1:] if takes_in else line
    only_folders = line.endswith("/")
    line = line.rstrip("/") if only_folders else line
    if not line:
        return None
    anywhere = "" if "/" in line else "(?:.*/)?"
    return re.compile(anywhere + _regex(line.lstrip("/")), re.DOTALL), only_folders, takes_in


def _regex(pattern: str) -> str:
    """`**` stands for any folders where it is a whole part of the path, `*` and `?` for no `/`."""
    parts = pattern.split("/")
    told = ""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            told += ".+" if last else "(?:.*/)?"
        else:
            told += _part(part) + ("" if last else "/")
    return told


def _part(part: str) -> str:
    told, at = "", 0
    while at < len(part):
        sign = part[at]
        if sign == "[":
            inside, at = _class(part, at + 1)
            told += inside
            continue
        if sign == "\\" and at + 1 < len(part):
            at += 1
            told += re.escape(part[at])
        else:
            told += {"*": "[^/]*", "?": "[^/]"}.get(sign, re.escape(sign))
        at += 1
    return re.sub(r"(?:\[\^/\]\*)+", "[^/]*", told)


def _class(part: str, at: int) -> tuple[str, int]:
    """(regex of `[abc]`, `[a-z]`, `[!a]`, where it ends); one that never ends fits nothing."""
    start = at
    negated = part[at : at + 1] in ("!", "^") and at < len(part)
    at += negated
    signs: list[str] = []
    while at < len(part) and (part[at] != "]" or not signs):
        at += part[at] == "\\" and at + 1 < len(part)
        signs.append("-" if part[at] == "-" else re.escape(part[at]))
        at += 1
    if at >= len(part):
        return "(?!)", max(at, start)
    inside = _ranges(signs)
    return f"(?!/)[{'^' if negated else ''}{inside}]" if inside else "(?!)", at + 1


def _ranges(signs: Sequence[str]) -> str:
    """`-` between two signs makes a range, elsewhere it is itself; a range that runs down is empty."""
    told, at = "", 0
    while at < len(signs):
        if at + 2 < len(signs) and signs[at + 1] == "-":
            low, high = signs[at], signs[at + 2]
            low, high = ("\\-" if one == "-" else one for one in (low, high))
            told += f"{low}-{high}" if low[-1] <= high[-1] else ""
            at += 3
        else:
            told += "\\-" if signs[at] == "-" else signs[at]
            at += 1
    return told


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
            # A Path would change ./a//b.
            return Entry(path, "link", 0, 0, os.readlink(found.path), ())  # noqa: PTH115
    except FileNotFoundError:
        return None  # it went while we looked
    if stat.S_ISDIR(seen.st_mode):
        return Entry(path, "dir", mode, 0, "", ())
    if stat.S_ISREG(seen.st_mode):
        return Entry(path, "file", mode, seen.st_size, "", tuple(look_of(seen)))
    refused.append((path, _KINDS.get(stat.S_IFMT(seen.st_mode), "neither file nor folder")))
    return None


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
