"""One owner at a time for a folder, on a local disk as on a network's: a lock that names who has it.

    FOLDER/.wirespeed-lock.N    JSON: who, where, since when; made with O_EXCL, touched while it is held

The highest N counts. Who finds its owner dead makes N + 1, which only one can, and removes the rest.
An owner is dead where this machine can tell: no such process any more (its start time guards against a
pid that was given again, the pid namespace against another container's), or nobody holds its flock. Of
another machine, or one started again, it is not known: its lock is watched, and dead if nobody touches
it for `BOUND_S`. No clock is compared with another: only whether the file's own time changes.
"""

import errno
import fcntl
import json
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import msgspec

from wirespeed.errors import CannotMeasure, StorageError
from wirespeed.node.reading import opened
from wirespeed.process import boot_id, pid_space, started

BOUND_S = 30.0
"""A lock that nobody has touched for so long has lost its owner."""
_TOUCH_S = 2.0
_POLL_S = 0.1
_ATTEMPTS = 50
_PREFIX = ".wirespeed-lock."
_MOST_BYTES = 4096
_MOST_TEXT = 80
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who holds a lock."""

    token: str
    command: str
    host: str
    pid: int
    started: int
    """Of the process, in clock ticks since the machine's start; 0: not known."""
    boot: str
    """The kernel's boot id: another one is another machine, or this one started again."""
    space: int
    """Inode of the pid namespace that `pid` counts in."""
    since: str
    flock: bool
    """Whether the lock is also flocked, which ends with its process wherever that runs."""

    @classmethod
    def me(cls, command: str, *, flock: bool) -> Self:
        return cls(
            token=secrets.token_hex(8),
            command=command,
            host=socket.gethostname(),
            pid=os.getpid(),
            started=started(os.getpid()) or 0,
            boot=boot_id(),
            space=pid_space(),
            since=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            flock=flock,
        )

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host} ({self.command}, since {self.since})"


class Held(CannotMeasure):
    """A living owner has the folder."""

    def __init__(self, folder: Path, seen: "_Seen") -> None:
        super().__init__(
            f"{folder} is in use by {seen.who}",
            expected="one job at a time: each would remove what the other writes; another folder, or "
            "the end of that one",
            next=f"ps -fp {seen.owner.pid}" if seen.owner else f"ls -l {seen.path}",
        )
        self.token = seen.owner.token if seen.owner else ""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A lock as it was found."""

    path: Path
    number: int
    owner: Owner | None
    """None: not written yet, or not to be read by us."""
    stamp: tuple[int, int, int]
    """Inode, time of the last touch, size."""
    user: int

    @property
    def who(self) -> str:
        return str(self.owner or f"user {self.user} (see {self.path})")

    def same_as(self, other: "_Seen") -> bool:
        """The same lock of the same owner; a file system gives inodes out again."""
        return (self.stamp[0], self.owner) == (other.stamp[0], other.owner)


class Lock:
    """A folder held by this process until `release`, or its end."""

    def __init__(self, path: Path, handle: int, owner: Owner, before: Owner | None) -> None:
        self._path, self._handle, self._owner = path, handle, owner
        self.token = owner.token
        self.before = before
        """The dead owner whose lock was taken over."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._touch, name="lock", daemon=True)
        self._thread.start()

    @classmethod
    def take(
        cls,
        folder: Path,
        command: str,
        *,
        say: Callable[[str], None] = lambda text: None,
        bound_s: float = BOUND_S,
    ) -> "Lock":
        """Hold the folder, which is made if there is none.

        Held names a living owner; StorageError where no lock can be written. Whether the owner of a
        lock of another machine lives takes up to `bound_s` seconds to see; `say` is told.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritten(folder, error) from error
        before: Owner | None = None
        for _ in range(_ATTEMPTS):
            seen = _newest(folder)
            if seen is not None:
                dead = _is_dead(seen, bound_s, say)
                if dead is False:
                    raise Held(folder, seen)
                if dead is None:  # it has changed hands meanwhile: look again
                    continue
                before = seen.owner or before
            made = _make(folder, command, seen)
            if made is not None:
                return cls(*made, before)
            time.sleep(_POLL_S * random.random())  # else two that are in each other's way stay so
        from wirespeed.typed_command import TYPED

        raise CannotMeasure(
            f"{folder} could not be locked: too many want it at once",
            expected="one job at a time",
            next=f"{TYPED}",
        )

    @property
    def held(self) -> bool:
        """Whether it is still ours: who was stopped for long may have been taken for dead."""
        seen = _newest(self._path.parent)
        return seen is not None and seen.owner is not None and seen.owner.token == self.token

    def release(self) -> None:
        """Let others have it."""
        if self._over.is_set():
            return
        self._over.set()
        self._thread.join()
        with suppress(OSError, StorageError):
            if self.held:
                self._path.unlink()
        os.close(self._handle)

    def _touch(self) -> None:
        while not self._over.wait(_TOUCH_S):
            with suppress(OSError):
                os.utime(self._handle)


def _make(folder: Path, command: str, seen: _Seen | None) -> tuple[Path, int, Owner] | None:
    """The lock after that one; None where somebody else was quicker."""
    path = folder / f"{_PREFIX}{seen.number + 1 if seen else 1}"
    try:
        handle = os.open(path, _MAKE, 0o600)
    except FileExistsError:
        return None
    except OSError as error:
        raise _unwritten(folder, error) from error
    try:
        owner = Owner.me(command, flock=_flock(handle))
        text = json.dumps(asdict(owner)).encode()
        if os.write(handle, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)
        if not _follows(path, seen):
            raise FileExistsError
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        os.close(handle)
        if isinstance(error, FileExistsError):
            return None
        raise _unwritten(folder, error) from error
    for number, lower in _locks(folder):
        if number < _number(path):
            with suppress(OSError):
                lower.unlink()
    return path, handle, owner


def _follows(path: Path, seen: _Seen | None) -> bool:
    """Whether what was there when we decided is there still, and nothing newer than ours."""
    newest, below = _newest(path.parent), _look(seen.path) if seen else None
    if newest is None or newest.path != path:
        return False
    return seen is None or (below is not None and below.same_as(seen))


def _newest(folder: Path) -> _Seen | None:
    """The lock that counts; None where there is none."""
    by_number = sorted(_locks(folder), reverse=True)
    return next((seen for _, path in by_number if (seen := _look(path))), None)


def _locks(folder: Path) -> list[tuple[int, Path]]:
    try:
        found = [path for path in folder.iterdir() if path.name.startswith(_PREFIX)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StorageError(f"cannot read {folder}: {error.strerror or error}") from error
    return [(number, path) for path in found if (number := _number(path))]


def _number(path: Path) -> int:
    word = path.name.removeprefix(_PREFIX)
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 10 else 0


def _look(path: Path) -> _Seen | None:
    """As the file server has it now (NFS asks it when a file is opened); None where it is gone."""
    text = b""
    try:
        with opened(path, links=False) as handle:
            about, text = os.fstat(handle), os.read(handle, _MOST_BYTES)
    except OSError:  # it is gone, or another user's, or no regular file
        try:
            about = os.lstat(path)
        except FileNotFoundError:
            return None
    stamp = about.st_ino, about.st_mtime_ns, about.st_size
    return _Seen(path, _number(path), _owner(text), stamp, about.st_uid)


def _owner(text: bytes) -> Owner | None:
    """None for anything else than an owner; its texts are safe to print."""
    try:
        owner = msgspec.json.decode(text, type=Owner)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    told: dict[str, Any] = asdict(owner)
    plain = {name: _plain(value) for name, value in told.items() if isinstance(value, str)}
    return Owner(**(told | plain))


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:_MOST_TEXT])


def _is_dead(seen: _Seen, bound_s: float, say: Callable[[str], None]) -> bool | None:
    """Whether nobody holds it any more; None where it has changed hands while we looked."""
    owner = seen.owner
    if owner is not None and owner.boot and owner.boot == boot_id():
        if owner.space and owner.space == pid_space() and owner.host == socket.gethostname():
            return not _runs(owner)
        if owner.flock:  # a container beside this one
            return not _flocked(seen.path)
    if owner is not None and owner.flock and _flocked(seen.path):
        return False
    say(f"watching for up to {bound_s:.0f} s whether {seen.who} still lives")
    return _watched(seen, bound_s)


def _watched(seen: _Seen, bound_s: float) -> bool | None:
    end = time.monotonic() + bound_s
    while time.monotonic() < end:
        time.sleep(_POLL_S)
        now = _look(seen.path)
        if now is None or not now.same_as(seen):
            return None
        if now.stamp != seen.stamp:
            return False
    return True


def _runs(owner: Owner) -> bool:
    """Whether that very process lives, of this pid namespace; a zombie does not."""
    try:
        os.kill(owner.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    begun = started(owner.pid)
    return begun is None or begun == owner.started  # not to be seen (hidepid): it may be it


def _flock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # a file system without such locks
        return False
    return True


def _flocked(path: Path) -> bool:
    """Whether somebody holds its flock; not to be opened: no answer, and taken for held."""
    try:
        handle = os.open(path, _READ)
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(handle)
    return False


def _unwritten(folder: Path, error: OSError) -> StorageError:
    return StorageError(
        f"cannot lock {folder}: {error.strerror or error}",
        expected="a folder that can be written, with room for a small file",
        next=f"df -h {folder}",
    )
