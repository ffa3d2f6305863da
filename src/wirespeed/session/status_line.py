"""The line, or page, at the bottom of a terminal that says how a watched job goes.

Where stderr is no terminal it is written now and then, as a line like others.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TextIO

from wirespeed.model.records import Run
from wirespeed.views.live import LiveJob, live_line, live_page
from wirespeed.views.text import style_for

_EVERY_S = 30.0
"""Between two lines where each one stays."""
_CLEAR = "\r\x1b[K"


class StatusLine:
    """Written by two threads: one shows, the other lets the ranks' output pass."""

    def __init__(self, stream: TextIO, *, quiet: bool) -> None:
        self._stream, self._quiet = stream, quiet
        self._terminal = stream.isatty()
        self._style = style_for(stream)
        self._lock = threading.Lock()
        self._text = ""
        self._written_at = time.monotonic()

    def show(self, job: LiveJob) -> None:
        if self._quiet:
            return
        with self._lock:
            self._text = live_line(job.now, self._style)
            if self._terminal:
                self._write(f"{_CLEAR}{self._text}")
            elif job.now.step >= 0 and time.monotonic() - self._written_at >= _EVERY_S:
                self._written_at = time.monotonic()
                self._write(f"wirespeed: {self._text}\n")

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self._quiet:
            with self.away():
                self._write(f"wirespeed: {text}\n")

    @contextmanager
    def away(self) -> Iterator[None]:
        """While others write to the terminal."""
        with self._lock:
            if self._terminal and self._text:
                self._write(_CLEAR)
            yield
            if self._terminal and self._text:
                self._write(self._text)

    def close(self) -> None:
        with self._lock:
            if self._terminal and self._text:
                self._write(_CLEAR)
            self._text = ""

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class LivePage:
    """The same as a page at the bottom of the terminal: ranks as a grid, steps as a strip."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console, self._style = Console(file=stream), style_for(stream)
        # What others write to stdout and stderr meanwhile goes above it.
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, job: LiveJob) -> None:
        width, height = self._console.size
        page = live_page(job, self._style, width=width, height=max(8, height // 2))
        self._live.update(page, refresh=True)

    def say(self, text: str) -> None:
        self._console.print(f"wirespeed: {text}", markup=False, highlight=False)

    def away(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        self._live.stop()


def tell_run(run: Run) -> None:
    """On stderr: what was found, and of a watched job what its steps are made of."""
    from wirespeed.views.findings import finding_lines
    from wirespeed.views.watched import watched_lines

    style = style_for(sys.stderr, color="auto", verbose=False)
    lines = [
        "",
        *finding_lines(run.findings, style, brief=True),
        "",
        *watched_lines(run, style),
        "",
    ]
    sys.stderr.write("\n".join(lines))
    sys.stderr.flush()
