"""What was received, put in its place."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING

from wirespeed.clusters.life.syncing.far.pipe import CHUNK, Pipe
from wirespeed.clusters.life.syncing.far.places import (
    PART,
    Root,
    look_of,
    make,
    open_folder,
    set_mode,
)
from wirespeed.clusters.life.syncing.far.plan import Plan
from wirespeed.clusters.life.syncing.far.state import State

__all__ = ["Commit"]

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
