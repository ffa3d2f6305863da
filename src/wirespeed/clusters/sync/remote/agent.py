"""One call, from the header to the summary.

in:  H header, M entries…, E end of them, then for each file that is wanted F number, D data…, and
     O its hash (or R once more from its start, or S leave it); C put all in its place
out: T alive, P plan…, Q end of the plan, Z summary; X trouble, and the end
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

from wirespeed.clusters.sync.remote.changes import Commit, Plan
from wirespeed.clusters.sync.remote.storage import (
    OWN,
    Gone,
    Pipe,
    Root,
    State,
    Trouble,
    make,
    open_folder,
    safe,
    set_mode,
)

BUSY_S = 60.0
"""How long another sync of the same target is waited for: longer than one without a sender lives."""
_LISTED = 200
"""Paths that are named in an answer; more are counted."""
_PLANNED = 5000
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_RIGHT = (errno.EROFS, errno.EACCES, errno.EPERM)


def main() -> None:
    """Exit code 0 also where trouble was told; 1 where nobody is there to hear it."""
    signal.signal(signal.SIGALRM, _alarmed)
    pipe = Pipe(sys.stdin.buffer, sys.stdout.buffer)
    try:
        try:
            Sync(pipe, json.loads(pipe.read()[1])).run()
        except OSError as error:
            raise _trouble(error) from error
    except Trouble as trouble:
        pipe.write(b"X", trouble.told)
    except Gone:
        sys.exit(1)


def _alarmed(*_: object) -> None:
    raise Gone


def _trouble(error: OSError) -> Trouble:
    kinds = {**dict.fromkeys(_NO_ROOM, "space"), **dict.fromkeys(_NO_RIGHT, "readonly")}
    kind = kinds.get(error.errno or 0, "other")
    return Trouble(kind, f"{error.filename or 'the target'}: {error.strerror}")


class Sync:
    """The header says `target` (an absolute path), `delete` and `dry` (only the plan)."""

    def __init__(self, pipe: Pipe, header: dict[str, Any]) -> None:
        self._pipe = pipe
        self._target: str = header["target"]
        self._delete: bool = header["delete"]
        self._dry: bool = header["dry"]
        self._new = -1

    def run(self) -> None:
        root = self._root()
        own = self._own(root) if root else None
        state = State(own)
        plan = Plan(self._entries(), root, state, self._delete, self._pipe)
        if root is not None and not self._dry:
            self._refuse_without_room(root, plan)
        self._tell(plan)
        if root is not None and not self._dry:
            commit = Commit(plan, root, state, self._new, self._pipe)
            commit.run(self._received(plan))
            self._clear()
            self._pipe.write(b"Z", {**_lists(plan), **_cut("deleted", commit.deleted)})

    # Before anything is sent.

    def _root(self) -> Root | None:
        try:
            if not self._dry:
                Path(self._target).mkdir(parents=True, exist_ok=True)
            return Root(os.open(self._target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except FileNotFoundError:
            return None

    def _own(self, root: Root) -> int | None:
        """Our own folder: locked, and without what an earlier call left; a dry run only looks."""
        if self._dry:
            try:
                return open_folder(OWN, root.fd)
            except FileNotFoundError:
                return None
        own = make(OWN, root.fd)
        self._lock(own)
        self._new = make("new", own)
        self._clear()
        return own

    def _lock(self, own: int) -> None:
        """Held until this process ends."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open("lock", flags, 0o666, dir_fd=own)
        until = time.monotonic() + BUSY_S
        while True:
            try:
                return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Trouble("busy", "another sync is at work") from None
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    return None  # a file system without locks
                raise
            self._pipe.tick("waiting for another sync to end")
            time.sleep(0.1)

    def _clear(self) -> None:
        with os.scandir(self._new) as found:
            for one in list(found):
                os.unlink(one.name, dir_fd=self._new)

    def _entries(self) -> list[list[Any]]:
        entries: list[list[Any]] = []
        while True:
            kind, data = self._pipe.read()
            if kind == b"E":
                return entries
            if kind != b"M":
                raise Trouble("protocol", "M or E expected")
            more = json.loads(data)
            if not all(safe(entry[0]) for entry in more):
                raise Trouble("protocol", "a path that leads elsewhere")
            entries += more

    def _refuse_without_room(self, root: Root, plan: Plan) -> None:
        """Before a byte is sent: all that is new lies beside the old for a moment."""
        needed = sum(plan.entries[index][3] for index in plan.files())
        told = os.fstatvfs(root.fd)
        free = told.f_bavail * told.f_frsize
        if needed > free:
            raise Trouble("space", "too little room", needed=needed, free=free)

    def _tell(self, plan: Plan) -> None:
        todo = list(plan.todo.items())
        for start in range(0, len(todo), _PLANNED):
            self._pipe.write(b"P", todo[start : start + _PLANNED])
        self._pipe.write(b"Q", {**_lists(plan), **_cut("deleted", plan.gone)})

    # Receiving.

    def _received(self, plan: Plan) -> dict[int, str]:
        """Hash by number of what now lies in `new`; what the sender gave up is planned no more."""
        waiting = set(plan.files())
        hashes: dict[int, str] = {}
        while True:
            kind, data = self._pipe.read()
            if kind == b"C":
                return hashes
            index = json.loads(data) if kind == b"F" else -1
            if index not in waiting:
                raise Trouble("protocol", "F with a file that is wanted, or C, expected")
            waiting.remove(index)
            got = self._file(index, plan.entries[index][2])
            if got is None:
                del plan.todo[index]
            else:
                hashes[index] = got

    def _file(self, index: int, mode: int) -> str | None:
        """Its hash; None where the sender gave it up."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(str(index), flags, 0o600, dir_fd=self._new), "wb") as file:
            got = self._content(file)
            file.flush()
            set_mode(file.fileno(), mode)
        if got is None:
            os.unlink(str(index), dir_fd=self._new)
        return got

    def _content(self, file: BinaryIO) -> str | None:
        sha = hashlib.sha256()
        while True:
            kind, data = self._pipe.read()
            if kind == b"D":
                sha.update(data)
                file.write(data)
                self._pipe.tick()
            elif kind == b"R":
                sha = hashlib.sha256()
                file.seek(0)
                file.truncate()
            elif kind == b"S":
                return None
            elif kind == b"O" and json.loads(data) == sha.hexdigest():
                return sha.hexdigest()
            else:
                raise Trouble("protocol", "what came is not what was sent")


def _lists(plan: Plan) -> dict[str, Any]:
    return {**_cut("replaced", plan.replaced), **_cut("way", plan.way), **_cut("kept", plan.kept)}


def _cut(name: str, paths: list[str]) -> dict[str, Any]:
    return {name: paths[:_LISTED], name + "_count": len(paths)}
