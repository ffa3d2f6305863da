"""Logs of a job: `rank-N.log` with all that a rank printed, `ENGINE.log` with the engine's words."""

import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import IO

__all__ = ["JobLogs"]

_KEPT = 200
"""Last lines of each piece's own words that stay in memory."""
_SAFE = re.compile(r"[^\w.-]")


class JobLogs:
    """Appends to the files of one folder; each line is there as soon as it is heard."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, IO[str]] = {}
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
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = path.open("a", encoding="utf-8")
        file.write(text)
        file.flush()
