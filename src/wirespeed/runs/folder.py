"""The run folder: what a run writes while it runs, so that a crash loses nothing.

    $WIRESPEED_HOME/runs/20261103-101112-91ae33fe/
        run.json         the run, whole (schema run/1); until it ends, a header marked `unfinished`
        records.jsonl    one record a line, written as it comes: {"kind", "at", "data"}
        logs/rank-N.log  what rank N printed
        trace.json       the timeline that `train --trace` asked for
        live.json        of a watched job, while it runs: what a person sees of it (`views/live.py`)

Each write is one system call, so records survive the death of the writer; `run.json` is replaced
in one step at the end. What cannot be written is a StorageError with the place, the cause and the
next command.
"""

import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from wirespeed import __version__
from wirespeed.errors import StorageError, refused_as
from wirespeed.model.codec import from_json, to_json
from wirespeed.model.lasting_records import Soak
from wirespeed.model.records import Finding, Run, World
from wirespeed.model.verdicts import Verdict
from wirespeed.node.lock import Lock
from wirespeed.node.redact import allowed_environment
from wirespeed.runs import jsontext, unsent
from wirespeed.runs.place import ELSEWHERE, private_folder, runs_home

_STAMP = "%Y%m%d-%H%M%S"
_OURS = os.O_NOFOLLOW | os.O_CLOEXEC
_ATTEMPTS = 16
_T = TypeVar("_T")


def new_id() -> str:
    """Eight hexadecimal digits at random."""
    return secrets.token_hex(4)


def now_text() -> str:
    """ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def begun(command: str, config: Mapping[str, Any], id: str = "") -> Run:
    """A run that begins now, of which nothing else is known."""
    return Run(
        id=id,
        command=command,
        verdict="UNKNOWN",
        exit_code=3,
        started=now_text(),
        seconds=0.0,
        world=World(size=0, nodes=(), backend="", launcher=""),
        config=dict(config),
    )


def ended(
    run: Run, verdict: Verdict, exit_code: int, findings: Iterable[Finding] = (), **told: Any
) -> Run:
    """What was begun, whole; told: what else it holds, by field."""
    usual: dict[str, Any] = {
        "versions": {"wirespeed": __version__},
        "environment": allowed_environment(os.environ),
    }
    known = {"verdict": verdict, "exit_code": exit_code, "findings": tuple(findings)}
    return replace(run, **usual | known | told)


class RunFolder:
    """One run on disk, from its start to `finish`."""

    def __init__(self, path: Path, header: Run) -> None:
        self.path = path
        self.header = header
        """What is known so far."""
        self._start = time.monotonic()

    @classmethod
    def create(cls, command: str, config: Mapping[str, Any], *, run_id: str | None = None) -> Self:
        """Make the folder with `logs/`, the header and an empty record file.

        Two runs that start in the same second get folders of their own.
        """
        header = begun(command, config)
        stamp = datetime.fromisoformat(header.started).strftime(_STAMP)
        path = _new_folder(stamp, run_id, command)
        folder = cls(path, replace(header, id=path.name.rpartition("-")[2]))
        folder._write_header()
        return folder

    @property
    def id(self) -> str:
        return self.header.id

    @property
    def started(self) -> str:
        """ISO 8601 in UTC."""
        return self.header.started

    def ended(
        self, verdict: Verdict, exit_code: int, findings: Iterable[Finding] = (), **told: Any
    ) -> Run:
        """As the function of that name, with the seconds since the folder was made."""
        seconds = time.monotonic() - self._start
        return ended(self.header, verdict, exit_code, findings, **{"seconds": seconds, **told})

    def log_path(self, rank: int) -> Path:
        return self.path / "logs" / f"rank-{rank}.log"

    def append(self, kind: str, data: Mapping[str, Any] | list[Any]) -> None:
        """Write one record, whole or not at all, so that it survives the end of this process."""
        self.append_line(self._line(kind, data))

    def _line(self, kind: str, data: Mapping[str, Any] | list[Any]) -> str:
        at = round(time.monotonic() - self._start, 6)
        return jsontext.dump({"kind": kind, "at": at, "data": data}) + "\n"

    def append_line(self, line: str) -> None:
        """Write one record as it is, with its line end."""
        path = self.path / "records.jsonl"
        self._guard(path, lambda: _append(path, line.encode()))

    def keep(self, name: str, text: str) -> None:
        """Write a file of that name beside the records, in one step."""
        path = self.path / name
        self._guard(path, lambda: write_whole(path, text.encode()))

    def finish(self, run: Run) -> None:
        """Put the whole run in place of the header, in one step."""
        self._replace(jsontext.dump(to_json(run), indent=2) + "\n")
        unsent.put(self.path)

    def _write_header(self) -> None:
        data = to_json(self.header)
        header = to_json(replace(self.header, unfinished=True))
        self._replace(jsontext.dump(header, indent=2) + "\n")
        # Again as a record: should run.json be lost, the records alone tell the whole run.
        self.append("run", data)

    def _replace(self, text: str) -> None:
        path = self.path / "run.json"
        self._guard(path, lambda: write_whole(path, text.encode()))

    def _guard(self, path: Path, write: Callable[[], None]) -> None:
        _guard(path, self.header.command, write)


def _guard(path: Path, command: str, action: Callable[[], _T]) -> _T:
    expected = "a folder that can be written, with room for the run"
    again = f"{ELSEWHERE} wirespeed {command}"
    with refused_as(StorageError, f"cannot write {path}", expected=expected, next=again):
        return action()


def _new_folder(stamp: str, run_id: str | None, command: str) -> Path:
    runs = runs_home()
    _guard(runs, command, lambda: private_folder(runs.name))
    names = [run_id] if run_id else [new_id() for _ in range(_ATTEMPTS)]
    for name in names:
        path = runs / f"{stamp}-{name}"
        if _guard(path, command, partial(_make, path)):
            return path
    raise StorageError(f"{runs} already holds a run {stamp}-{names[-1]}", expected="another id")


def _make(path: Path) -> bool:
    """Make the folder; False when somebody else has it."""
    try:
        path.mkdir(0o700)
    except FileExistsError:
        return False
    (path / "logs").mkdir(0o700)
    return True


def _append(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _OURS, 0o600)
    try:
        size = os.fstat(handle).st_size
        try:
            _write_all(handle, data)
        except OSError:
            # Half a line would spoil the next record once there is room again.
            with suppress(OSError):
                os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)


def write_whole(path: Path, data: bytes) -> None:
    """Put a file for its owner alone in place in one step, durably.

    OSError leaves the old one and no other.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _OURS, 0o600)
        try:
            _write_all(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def _sync_folder(path: Path) -> None:
    """Make the rename itself durable; a file system that refuses this needs none."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# A run folder that a full disk does not stop: what cannot be written waits for room.

MOST_WAITING_BYTES = 16 << 20
"""Records in memory while there is no room; beyond that the oldest are given up."""


class PatientFolder(RunFolder):
    """Only its making raises StorageError. `run.json` holds what is known so far, all the time.

    It is locked from its making to `finish`: who wants to go on with it meanwhile is refused.
    """

    def __init__(self, path: Path, header: Run) -> None:
        super().__init__(path, header)
        self._waiting: deque[str] = deque()
        self._bytes = 0
        self.given_up = 0
        """Records that were dropped, as too many waited."""
        self.full = ""
        """Why nothing can be written now; empty while it can."""
        self.on_change: Callable[[str], None] = lambda why: None
        """Called with the reason when the disk is full, and with nothing when there is room again."""
        self.on_unstored: Callable[[str], None] = lambda why: None
        """Called with the reason where `finish` could not write the run."""
        self.lock: Lock | None = None

    @classmethod
    def create(cls, command: str, config: Mapping[str, Any], *, run_id: str | None = None) -> Self:
        folder = super().create(command, config, run_id=run_id)
        folder.lock = Lock.take(folder.path, f"wirespeed {command}")
        unsent.put(folder.path)  # should this process be killed, what there is of it is sent later
        return folder

    @classmethod
    def reopen(cls, path: Path, run: Run, lock: Lock | None = None) -> "PatientFolder":
        """Go on with a run whose session has gone; its records stay. lock: of that folder."""
        plain = replace(run, verdict="UNKNOWN", exit_code=3, findings=())
        folder = cls(path, plain)
        folder.lock = lock
        folder._start = time.monotonic() - run.seconds
        folder._write_unfinished()
        return folder

    def append(self, kind: str, data: Mapping[str, Any] | list[Any]) -> None:
        """Write a record, after those that wait; kept in memory where there is no room."""
        known = _hosts(self.header)
        self._remember(kind, data)
        if _hosts(self.header) != known:  # by its header others list a run that goes on
            self._renew_header()
        line = self._line(kind, data)
        self._waiting.append(line)
        self._bytes += len(line)
        while self._bytes > MOST_WAITING_BYTES and len(self._waiting) > 1:
            self._bytes -= len(self._waiting.popleft())
            self.given_up += 1
        self.retry()

    def retry(self) -> None:
        """Write what waits, as far as there is room."""
        while self._waiting:
            try:
                self.append_line(self._waiting[0])
            except StorageError as error:
                self._changed(error.saw)
                return
            self._bytes -= len(self._waiting.popleft())
        self._changed("")

    def keep(self, name: str, text: str) -> None:
        try:
            super().keep(name, text)
        except StorageError as error:
            self._changed(error.saw)

    def checkpoint(self, soak: Soak) -> None:
        """Put what is known so far into run.json, in one step; later, where there is no room."""
        seconds = time.monotonic() - self._start
        self.header = replace(self.header, soak=soak, seconds=seconds)
        self._renew_header()

    def finish(self, run: Run) -> None:
        self.retry()
        try:
            super().finish(run)
        except StorageError as error:
            self.on_unstored(error.saw)
        if self.lock is not None:
            self.lock.release()

    def _renew_header(self) -> None:
        try:
            self._write_unfinished()
        except StorageError as error:
            self._changed(error.saw)

    def _write_unfinished(self) -> None:
        header = replace(self.header, unfinished=True)
        self._replace(jsontext.dump(to_json(header)) + "\n")

    def _guard(self, path: Path, write: Callable[[], None]) -> None:
        if self.lock is not None and not self.lock.held:
            raise StorageError(f"cannot write {path}: another process has taken this run over")
        super()._guard(path, write)

    def _remember(self, kind: str, data: Mapping[str, Any] | list[Any]) -> None:
        """For run.json, should the records be renamed or cut by somebody meanwhile."""
        if kind in ("world", "versions", "environment") and isinstance(data, Mapping):
            told: Any = from_json(World, data) if kind == "world" else dict(data)
            self.header = replace(self.header, **{kind: told})

    def _changed(self, why: str) -> None:
        before, self.full = self.full, why  # first: who is told writes a record
        if bool(why) != bool(before):
            self.on_change(why)


def _hosts(run: Run) -> list[str]:
    return [node.host for node in run.world.nodes]
