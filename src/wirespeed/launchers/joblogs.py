"""Logs of a job: `rank-N.log` with all that a rank printed, `ENGINE.log` with the engine's words."""

import os
import re
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

__all__ = ["JobLogs", "private"]

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
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(file.fileno())
    return (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino)
