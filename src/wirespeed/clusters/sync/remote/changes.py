"""The plan: each entry of the sender against what lies here; and the commit of what was received."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wirespeed.clusters.sync.remote.storage import (
    CHUNK,
    PART,
    Pipe,
    Root,
    State,
    above,
    look_of,
    make,
    open_folder,
    set_mode,
)


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


if TYPE_CHECKING:
    _Act = tuple[Callable[[int], None], int]

_OTHER_KIND = (errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST)


class Commit:
    """Folders, files, links, modes, and last what is wanted no more."""

    def __init__(self, plan: Plan, root: Root, state: State, new: int, pipe: Pipe) -> None:
        """new: the open folder of what was received, each file named by its entry's number."""
        self._plan, self._root, self._state, self._pipe = plan, root, state, pipe
        self._new = new
        self.deleted: list[str] = []

    def run(self, received: dict[int, str]) -> None:
        """received: hash by number."""
        self._claim(received)
        gone = self._plan.gone
        early = {path for path in gone if self._plan.stands_in_the_way(path)}
        self._remove([path for path in gone if path in early])
        for path in self._plan.cleared:
            self._removed(path)
        for act, index in self._acts(received):
            self._try(act, index)
        self._remove([path for path in gone if path not in early])
        self._state.save()

    def _acts(self, received: dict[int, str]) -> list[_Act]:
        todo, kinds = self._plan.todo, [entry[1] for entry in self._plan.entries]
        acts: list[_Act] = [(self._folder, i) for i in todo if kinds[i] == "dir"]
        acts += [(self._file, i) for i in received]
        acts += [(self._link, i) for i in todo if kinds[i] == "link"]
        return acts + [(self._mode, i) for i in todo if todo[i] == "mode"]

    def _claim(self, received: dict[int, str]) -> None:
        """Say what is ours before the first change, so that an end in between loses nothing."""
        for index, status in self._plan.todo.items():
            path, kind, _, _, what = self._plan.entries[index]
            if status != "mode" and (kind != "file" or index in received):
                before = self._state.paths.get(path, [kind, ""])[1]
                self._state.paths[path] = [kind, received.get(index, what), before, None, True]
        self._state.save()

    def _try(self, act: Callable[[int], None], index: int) -> None:
        path = self._plan.entries[index][0]
        try:
            act(index)
        except OSError as error:
            if error.errno not in _OTHER_KIND:
                raise
            self._plan.way.append(path)
            self._plan.todo.pop(index)
            self._state.paths.pop(path, None)
        self._pipe.tick()

    def _folder(self, index: int) -> None:
        path, _, mode, _, _ = self._plan.entries[index]
        above, name = self._root.parent(path)
        fd = make(name, above)
        set_mode(fd, mode | 0o700)
        os.close(fd)

    def _file(self, index: int) -> None:
        path = self._plan.entries[index][0]
        above, name = self._root.parent(path)
        before = look_of(os.stat(str(index), dir_fd=self._new))
        try:
            os.rename(str(index), name, src_dir_fd=self._new, dst_dir_fd=above)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._across(index, above, name)
            return
        after = look_of(os.stat(name, dir_fd=above, follow_symlinks=False))
        # Renaming changes one time only; anything else was somebody who wrote to it meanwhile.
        if before[:2] + before[3:] == after[:2] + after[3:]:
            self._state.paths[path][3] = after

    def _across(self, index: int, above: int, name: str) -> None:
        """Another file system is mounted there: copied beside the place, then renamed."""
        try:
            self._copy(index, above)
            os.rename(PART, name, src_dir_fd=above, dst_dir_fd=above)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(PART, dir_fd=above)
            raise

    def _copy(self, index: int, above: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(PART, flags, 0o600, dir_fd=above), "wb") as sink:
            with os.fdopen(os.open(str(index), os.O_RDONLY, dir_fd=self._new), "rb", 0) as source:
                for chunk in iter(lambda: source.read(CHUNK), b""):
                    sink.write(chunk)
                    self._pipe.tick()
            sink.flush()
            set_mode(sink.fileno(), self._plan.entries[index][2])

    def _link(self, index: int) -> None:
        path, _, _, _, target = self._plan.entries[index]
        above, name = self._root.parent(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(PART, dir_fd=above)
        os.symlink(target, PART, dir_fd=above)
        try:
            os.rename(PART, name, src_dir_fd=above, dst_dir_fd=above)
        except OSError:
            os.unlink(PART, dir_fd=above)
            raise

    def _mode(self, index: int) -> None:
        path, _, mode, _, _ = self._plan.entries[index]
        above, name = self._root.parent(path)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=above)
        set_mode(fd, mode)
        self._state.paths[path][3] = look_of(os.fstat(fd))
        os.close(fd)

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            if self._removed(path):
                del self._state.paths[path]
                self.deleted.append(path)
            self._pipe.tick()

    def _removed(self, path: str) -> bool:
        try:
            above, name = self._root.parent(path)
            if not stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=above)
                return True
            os.close(open_folder(name, above))
            os.rmdir(name, dir_fd=above)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno in _OTHER_KIND:
                return False  # somebody's files lie in it
            raise
        self._root.forget()
        return True
