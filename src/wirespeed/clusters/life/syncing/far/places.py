"""Files below one folder, reached without ever following a link."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

__all__ = ["OWN", "PART", "Root", "above", "look_of", "make", "safe", "set_mode"]

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
