"""What takes long to find in the stored runs: found beside the pages, which show what is known."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from wirespeed.errors import WirespeedError
from wirespeed.runs.index import RunFilter
from wirespeed.runs.source import StoredRuns

_FIRST_S, _WAIT_S, _SHARE = 0.3, 0.05, 0.2
_OLDEST_S = 60.0
_T = TypeVar("_T")
Opened = Callable[[], AbstractContextManager[StoredRuns]]


def version_of(index: StoredRuns) -> tuple[object, ...]:
    """Another one when a run has come or ended; when an older one has changed, a minute later."""
    newest = [(row.run, row.finished) for row in index.runs(RunFilter(last=1))]
    return (*newest, int(time.monotonic() / _OLDEST_S))


@dataclass(eq=False, slots=True)
class Beside(Generic[_T]):
    """The newest that is known; another is found in a thread, which pages hardly wait for."""

    find: Callable[[StoredRuns], _T]
    lock: threading.Lock = field(default_factory=threading.Lock)
    version: tuple[object, ...] = ()
    known: _T | None = None
    finding: threading.Thread | None = None
    next_s: float = 0.0
    """When it may be looked for again: that shall take a small share of the time."""
    took_s: float = 0.0
    """What it took the last time."""

    @property
    def is_long(self) -> bool:
        """Whether it is being found, which takes more than a moment."""
        return self.finding is not None and self.took_s > _FIRST_S

    def of(self, index: StoredRuns, opened: Opened, *, here: bool = False) -> _T | None:
        """What is known after a moment; None: nothing yet.

        opened: rows of the stored runs for the thread. here: where nothing is known it is found at once,
        and what reading the runs raises is raised.
        """
        version = version_of(index)
        with self.lock:
            if here and self.known is None:
                self._find(index, version)
            elif version != self.version and not self.finding and time.monotonic() > self.next_s:
                words = (opened, version)
                self.finding = threading.Thread(target=self._beside, args=words, daemon=True)
                self.finding.start()
            finding = self.finding
        if finding is not None:
            finding.join(_WAIT_S if self.known is not None else _FIRST_S)
        return self.known

    def _beside(self, opened: Opened, version: tuple[object, ...]) -> None:
        try:
            with suppress(WirespeedError), opened() as index:
                self._find(index, version)
        finally:
            self.finding = None

    def _find(self, index: StoredRuns, version: tuple[object, ...]) -> None:
        begun = time.monotonic()
        self.known, self.version = self.find(index), version
        self.took_s = time.monotonic() - begun
        self.next_s = time.monotonic() + self.took_s / _SHARE
