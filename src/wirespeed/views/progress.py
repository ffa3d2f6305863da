"""Progress on stderr: one line that rewrites itself on a terminal, else one line a step."""

import math
import sys
import time
from typing import TextIO

from wirespeed.views.text import Style

_FIRST_ESTIMATE = 0.1
"""No time is told before this share of the steps is done: the first ones also warm up."""
_TRUST = 0.15
"""Weight of one step's new estimate of the end; less is steadier, more follows faster."""
_MINUTES_FROM_S = 120


class Progress:
    """What is running, of how many, and about how long it still takes."""

    def __init__(self, stream: TextIO | None, *, terminal: bool, width: int = 79) -> None:
        self._stream = stream
        self._terminal = terminal
        self._width = width
        self._first: tuple[int, float] | None = None
        self._end: float | None = None

    def phase(self, text: str) -> None:
        """What happens before the first step."""
        self._write(text)

    def say(self, text: str) -> None:
        """A line that stays, whatever comes after it; foreign text is made safe."""
        if self._stream:
            start = "\r\x1b[K" if self._terminal else ""
            self._stream.write(f"{start}{Style().text(text)}\n")
            self._stream.flush()

    def step(self, index: int, of: int, label: str) -> None:
        """Step `index` (from 0) of `of` begins."""
        number = str(index + 1).rjust(len(str(of)))
        self._write(f"[{number}/{of}] {label}{self._left(index, of)}")

    def close(self) -> None:
        if self._terminal and self._stream:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _left(self, index: int, of: int) -> str:
        """`  about 12 s left`, from the mean of the steps so far; "" while unknown or below a second."""
        now = time.monotonic()
        first, began = self._first = self._first or (index, now)
        done = index - first
        if done < max(3, _FIRST_ESTIMATE * of):
            return ""
        end = now + (now - began) / done * (of - index)
        # Towards the end little is unknown: the estimate before must not hold it back.
        trust = max(_TRUST, done / of)
        self._end = end if self._end is None else self._end + trust * (end - self._end)
        left = math.ceil(self._end - now)
        if left <= 1:
            return ""
        if left < _MINUTES_FROM_S:
            return f"  about {left} s left"
        return f"  about {math.ceil(left / 60)} min left"

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        text = Style().text(text)
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
