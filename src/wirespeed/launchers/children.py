"""Child processes of this one, each with what it starts itself: started, watched and ended.

Logs of a job: `rank-N.log` with all that a rank printed, `ENGINE.log` with the engine's words.

Signs of life for the far side: an empty line to the stdin of pieces that ask for it.

A thread of its own sends them, so that they go on while this process waits for whoever reads its
output (a pager, a terminal that was stopped with Ctrl-S).
"""

import os
import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import IO

from wirespeed.errors import WorldError
from wirespeed.process.guard import signal_group

_KEPT = 200
"""Last lines of each piece's own words that stay in memory."""
_SAFE = re.compile(r"[^\w.-]")


class JobLogs:
    """Appends to the files of one folder; each line is there as soon as it is heard."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, FileIO] = {}
        self._words: dict[str, deque[str]] = {}

    def rank(self, rank: int, text: str, *, whole: bool) -> None:
        self._write(self.of_rank(rank), text + ("\n" if whole else ""))

    def engine(self, piece: str, text: str) -> None:
        self._words.setdefault(piece, deque(maxlen=_KEPT)).append(text)
        self._write(self.of_piece(piece), text + "\n")

    def of_rank(self, rank: int) -> Path:
        return self._folder / f"rank-{rank}.log"

    def of_piece(self, piece: str) -> Path:
        return self._folder / f"{_SAFE.sub('_', piece)}.log"

    @property
    def words(self) -> dict[str, Sequence[str]]:
        """The last lines of each piece."""
        return {piece: list(lines) for piece, lines in self._words.items()}

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _write(self, path: Path, text: str) -> None:
        # A disk that is full takes no line, and that is no reason to end a job that runs.
        with suppress(OSError):
            self._open(path).write(text.encode("utf-8", "replace"))

    def _open(self, path: Path) -> FileIO:
        """The file of that name, also after somebody has renamed the one that had it."""
        file = self._files.get(path)
        if file is None or not _is_named(file, path):
            if file is not None:
                file.close()
            file = self._files[path] = FileIO(path, "a", opener=private)
        return file


def private(path: str, flags: int) -> int:
    """An opener of files that are our user's alone, and no links."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _is_named(file: FileIO, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    return False


_LOOK_S = 0.1


class Keepalive:
    """Starts its thread with the first `add`; `stop` ends it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: dict[int, tuple[float, float]] = {}
        """When, and every how many seconds, by file descriptor."""
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, stdin: IO[bytes], every_s: float) -> None:
        """From now on; the pipe is made non-blocking, since a piece may have stopped to read."""
        os.set_blocking(stdin.fileno(), False)
        with self._lock:
            self._due[stdin.fileno()] = (time.monotonic() + every_s, every_s)
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)
            self._thread.start()

    def forget(self, stdin: IO[bytes]) -> None:
        """Before it is closed: its descriptor may be another file's a moment later."""
        with self._lock:
            self._due.pop(stdin.fileno(), None)

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _beat(self) -> None:
        while not self._over.wait(_LOOK_S):
            with self._lock:
                now = time.monotonic()
                for handle, (due, every_s) in self._due.items():
                    if now >= due:
                        self._due[handle] = (now + every_s, every_s)
                        # Full or closed: the piece itself will tell.
                        with suppress(OSError):
                            os.write(handle, b"\n")


_REAP_S = 5.0
"""After SIGKILL a process ends at once, unless the kernel holds it; then it is left to init."""


@dataclass(frozen=True, slots=True)
class Child:
    """One process to start."""

    number: int
    """Its rank, or its place among the others."""
    name: str
    """What messages call it: `rank 3`, `mpirun`."""
    command: Sequence[str]
    environment: Mapping[str, str]
    """The whole environment of the process."""
    log: Path | None = None
    """Where its stdout and stderr go, from the first byte on; None: pipes for all three streams."""


class Children:
    """Each child is the leader of a session of its own, so that Ctrl-C reaches only the parent."""

    def __init__(self) -> None:
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._started: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, children: Iterable[Child]) -> None:
        """Start each; WorldError names the one that could not be started, and none is left."""
        for child in children:
            try:
                self._running[child.number] = _spawn(child)
            except OSError as error:
                self.stop(0.0)
                raise WorldError(
                    f"{child.name} could not be started: {child.command[0]}: {error.strerror}",
                    expected=f"{child.command[0]} to run"
                    + (f" with its output in {child.log}" if child.log else ""),
                ) from error
            self._started[child.number] = self._running[child.number]

    def pids(self) -> dict[int, int]:
        """Process ids by number."""
        return {number: process.pid for number, process in self._started.items()}

    def process(self, number: int) -> subprocess.Popen[bytes]:
        """The process itself, as long as it has not been told by `ended`."""
        return self._running[number]

    def ended(self) -> dict[int, int]:
        """Return codes of those that ended since the last call (negative: a signal)."""
        codes = {number: process.poll() for number, process in self._running.items()}
        over = {number: code for number, code in codes.items() if code is not None}
        for number in over:
            del self._running[number]
        return over

    def running(self) -> list[int]:
        """Numbers of those whose end `ended` has not told."""
        return list(self._running)

    def close(self) -> None:
        """Close what is left of their pipes; when all have ended."""
        for process in self._started.values():
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()

    def stop(self, grace_s: float) -> None:
        """End all that still run: SIGTERM, then SIGKILL after `grace_s`. Bounded."""
        self.signal(signal.SIGTERM, signal.SIGCONT)
        self._wait(grace_s)
        self.signal(signal.SIGKILL)
        self._wait(_REAP_S)

    def signal(self, *numbers: int, only: int | None = None) -> None:
        """To the whole session of each (`only`: of that one): a child's own children get it too."""
        for number in self.running() if only is None else [only]:
            signal_group(self._running[number].pid, *numbers)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._running and time.monotonic() < deadline:
            self.ended()
            time.sleep(0.01)


def _spawn(child: Child) -> subprocess.Popen[bytes]:
    with ExitStack() as files:
        stdin = stdout = stderr = subprocess.PIPE
        if child.log is not None:
            log = files.enter_context(FileIO(child.log, "a", opener=private))
            stdin, stdout, stderr = subprocess.DEVNULL, log.fileno(), subprocess.STDOUT
        return subprocess.Popen(
            list(child.command),
            env=dict(child.environment),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
