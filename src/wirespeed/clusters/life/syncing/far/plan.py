"""What there is to do: each entry of the sender against what lies here."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Any

from wirespeed.clusters.life.syncing.far.pipe import CHUNK, Pipe
from wirespeed.clusters.life.syncing.far.places import Root, above, look_of
from wirespeed.clusters.life.syncing.far.state import State

__all__ = ["Plan"]


class Plan:
    """An entry is [path, kind, mode, size, hash or link's target]; kind is file, dir or link."""

    def __init__(
        self, entries: list[list[Any]], root: Root | None, state: State, delete: bool, pipe: Pipe
    ) -> None:
        """root: None where the target is not there yet."""
        self.entries = entries
        self.todo: dict[int, str] = {}
        """`new`, `changed` or `mode` by the entry's number; what is not here is the same already."""
        self.replaced: list[str] = []
        """Changed ones whose content no former call brought."""
        self.way: list[str] = []
        """Where something of another kind lies that is not ours."""
        self.cleared: list[str] = []
        """Where something of another kind lies that goes."""
        self.gone: list[str] = []
        """What former calls brought and is wanted no more, deepest first; with `delete` only."""
        self.kept: list[str] = []
        """Of those, what was changed here since, and so stays."""
        self._root, self._state, self._delete, self._pipe = root, state, delete, pipe
        self._wanted = {entry[0]: entry[1] for entry in entries}
        self._compare()
        if delete and root is not None:
            self._find_gone(root)

    def files(self) -> list[int]:
        """Numbers of the entries whose content is wanted."""
        todo = self.todo.items()
        return [i for i, what in todo if self.entries[i][1] == "file" and what != "mode"]

    def stands_in_the_way(self, path: str) -> bool:
        """Whether something that goes lies in a folder that shall be a file."""
        return any(self._wanted.get(one, "dir") != "dir" for one in above(path))

    def _compare(self) -> None:
        blocked = ""
        for index, entry in enumerate(self.entries):
            if blocked and entry[0].startswith(blocked):
                continue
            status = self._status(*entry)
            if status == "way":
                self.way.append(entry[0])
                blocked = entry[0] + "/"
            elif status != "same":
                self.todo[index] = status
            self._pipe.tick()

    def _status(self, path: str, kind: str, mode: int, size: int, what: str) -> str:
        try:
            seen = self._root.look(path) if self._root else None
        except NotADirectoryError:
            return "new"  # below something that goes; else it was blocked
        if self._root is None or seen is None:
            return "new"
        folder = stat.S_ISDIR(seen.st_mode)
        if kind == "dir" and folder:
            return "same"
        if kind == "dir" or folder:
            return self._of_another_kind(self._root, path, seen)
        if self._holds(self._root, path, kind, size, what, seen):
            self._remember(path, kind, what, seen)
            return "mode" if kind == "file" and stat.S_IMODE(seen.st_mode) != mode else "same"
        if not self._brought(self._root, path, seen):
            self.replaced.append(path)
        return "changed"

    def _of_another_kind(self, root: Root, path: str, seen: os.stat_result) -> str:
        """It goes if a former call brought it; a folder, if nothing is left in it by then."""
        folder = stat.S_ISDIR(seen.st_mode)
        ours = self._state.ours(path) if folder else self._brought(root, path, seen)
        if not (self._delete and ours):
            return "way"
        self.cleared.append(path)
        return "changed"

    def _holds(
        self, root: Root, path: str, kind: str, size: int, what: str, seen: os.stat_result
    ) -> bool:
        """Whether the file or link there has this very content."""
        if kind == "link":
            return stat.S_ISLNK(seen.st_mode) and root.target(path) == what
        regular = stat.S_ISREG(seen.st_mode) and seen.st_size == size
        return regular and self._hash(root, path, seen) == what

    def _remember(self, path: str, kind: str, what: str, seen: os.stat_result) -> None:
        ours = self._state.ours(path) is not None
        self._state.paths[path] = [kind, what, "", look_of(seen), ours]

    def _brought(self, root: Root, path: str, seen: os.stat_result) -> bool:
        """Whether what lies there is what a former call brought, untouched."""
        known = self._state.ours(path)
        if known is None:
            return False
        if stat.S_ISLNK(seen.st_mode):
            return root.target(path) in known[1:3]
        return stat.S_ISREG(seen.st_mode) and self._hash(root, path, seen) in known[1:3]

    def _hash(self, root: Root, path: str, seen: os.stat_result) -> str:
        known = self._state.paths.get(path)
        if known and known[0] == "file" and known[3] == look_of(seen):
            return str(known[1])
        fd, name = root.parent(path)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            opened = os.open(name, flags, dir_fd=fd)
        except OSError:
            return ""  # it cannot be read: as if it were another content
        sha = hashlib.sha256()
        with os.fdopen(opened, "rb", 0) as file:
            for chunk in iter(lambda: file.read(CHUNK), b""):
                sha.update(chunk)
                self._pipe.tick()
        return sha.hexdigest()

    def _find_gone(self, root: Root) -> None:
        paths = self._state.paths
        for path in sorted(paths, reverse=True):
            if paths[path][4] and path not in self._wanted:
                self._judge_gone(root, path)
            self._pipe.tick()

    def _judge_gone(self, root: Root, path: str) -> None:
        try:
            seen = root.look(path)
        except NotADirectoryError:
            seen = None
        if seen is None:
            del self._state.paths[path]
            return
        folder = stat.S_ISDIR(seen.st_mode) and self._state.paths[path][0] == "dir"
        good = folder or self._brought(root, path, seen)
        (self.gone if good else self.kept).append(path)
