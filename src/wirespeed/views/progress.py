"""Progress on stderr: one line that rewrites itself on a terminal, else one line a step."""

import sys
import time
from typing import TextIO

from wirespeed.units import format_duration

__all__ = ["Progress", "open_progress"]


class Progress:
    """What is running, of how many, and about how long it still takes."""

    def __init__(self, stream: TextIO | None, *, terminal: bool, width: int = 79) -> None:
        self._stream = stream
        self._terminal = terminal
        self._width = width
        self._begin = time.monotonic()
        self._first_step: tuple[int, float] | None = None

    def phase(self, text: str) -> None:
        """What happens before the first step."""
        self._write(text)

    def step(self, index: int, of: int, label: str) -> None:
        """Step `index` (from 0) of `of` begins."""
        self._write(f"[{index + 1}/{of}] {label}{self._left(index, of)}")

    def close(self) -> None:
        if self._terminal and self._stream:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _left(self, index: int, of: int) -> str:
        now = time.monotonic()
        if self._first_step is None:
            self._first_step = index, now
        done = index - self._first_step[0]
        if done < 3:
            return ""
        each = (now - self._first_step[1]) / done
        return f"  about {format_duration(each * (of - index))} left"

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        if self._terminal:
            self._stream.write(f"\r\x1b[K{text[: self._width]}")
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()


def open_progress(*, quiet: bool) -> Progress:
    """Progress on this process's stderr; silent when quiet."""
    terminal = sys.stderr.isatty()
    width = 79
    if terminal:
        import shutil

        width = shutil.get_terminal_size().columns - 1
    return Progress(None if quiet else sys.stderr, terminal=terminal, width=width)
