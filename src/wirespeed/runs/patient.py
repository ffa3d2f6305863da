"""A run folder that a full disk does not stop: what cannot be written waits for room."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from wirespeed.errors import StorageError
from wirespeed.model.codec import from_json, to_json
from wirespeed.model.lasting_records import Soak
from wirespeed.model.records import Run, World
from wirespeed.node.lock import Lock
from wirespeed.runs import jsontext
from wirespeed.runs.folder import RunFolder

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
        self._remember(kind, data)
        at = round(time.monotonic() - self._start, 6)
        self._wait_for(jsontext.dump({"kind": kind, "at": at, "data": data}) + "\n")
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
        self._header = replace(self._header, soak=soak, seconds=seconds)
        try:
            self._write_unfinished()
        except StorageError as error:
            self._changed(error.saw)

    def finish(self, run: Run) -> None:
        self.retry()
        try:
            super().finish(run)
        except StorageError as error:
            self.on_unstored(error.saw)
        if self.lock is not None:
            self.lock.release()

    def _write_unfinished(self) -> None:
        header = replace(self._header, unfinished=True)
        self._replace(jsontext.dump(to_json(header)) + "\n")

    def _guard(self, path: Path, write: Callable[[], None]) -> None:
        if self.lock is not None and not self.lock.held:
            raise StorageError(f"cannot write {path}: another process has taken this run over")
        super()._guard(path, write)

    def _remember(self, kind: str, data: Mapping[str, Any] | list[Any]) -> None:
        """For run.json, should the records be renamed or cut by somebody meanwhile."""
        if kind == "world" and isinstance(data, Mapping):
            self._header = replace(self._header, world=from_json(World, data))
        elif kind == "versions" and isinstance(data, Mapping):
            self._header = replace(self._header, versions=dict(data))
        elif kind == "environment" and isinstance(data, Mapping):
            self._header = replace(self._header, environment=dict(data))

    def _wait_for(self, line: str) -> None:
        self._waiting.append(line)
        self._bytes += len(line)
        while self._bytes > MOST_WAITING_BYTES and len(self._waiting) > 1:
            self._bytes -= len(self._waiting.popleft())
            self.given_up += 1

    def _changed(self, why: str) -> None:
        before, self.full = self.full, why  # first: who is told writes a record
        if bool(why) != bool(before):
            self.on_change(why)
