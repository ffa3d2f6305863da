"""Python stacks of processes: our own main thread, and local ranks that no longer answer.

A stopped process (SIGSTOP) cannot answer, but signals stay pending: SIGUSR1, whose handler
`faulthandler` installed in the rank, runs as soon as SIGCONT lets the process go on, before any
of its other code. Only processes that the owner started, given by pid, are ever signalled.
"""

import contextlib
import os
import re
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.02
_SETTLE_S = 0.06
"""A dump is complete when its file has not grown for this long."""
_LONGEST = 16 * 1024
"""Characters of a stack that are kept."""
_THREAD = re.compile(r"^(Current thread|Thread) 0x.*most recent call first", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """A rank's process that the owner itself started on this machine."""

    pid: int
    stack_file: Path | None = None
    """Where the rank's `faulthandler` writes upon SIGUSR1."""


def main_thread_stack() -> str:
    """Stack of this process's main thread, most recent call last; works from any thread."""
    ident = threading.main_thread().ident
    frame = sys._current_frames().get(ident) if ident is not None else None
    if frame is None:
        return "the main thread has ended"
    return "".join(traceback.format_stack(frame))[-_LONGEST:]


def process_state(pid: int) -> str:
    """The letter of /proc/PID/stat: R, S, D, T (stopped), t (traced), Z; `` when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    # The command name in brackets may itself hold spaces and brackets.
    return text.rpartition(")")[2].split()[0]


def stack_of_stopped(pid: int, stack_file: Path, timeout: float) -> str | None:
    """Stack of a silent rank, or None; leaves the process running, so end it afterwards.

    `timeout` bounds the wait in seconds. None when the process is gone or has no handler for
    SIGUSR1 (which would then end it).
    """
    if not _handles(pid, signal.SIGUSR1):
        return None
    before = _size(stack_file)
    try:
        os.kill(pid, signal.SIGUSR1)
        os.kill(pid, signal.SIGCONT)
    except OSError:
        return None
    if not _wait_for_dump(stack_file, before, timeout):
        return None
    return _main_part(_tail(stack_file, before))


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether the process has installed a handler for the signal (SigCgt, a bit mask)."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")]
    return bool(masks) and bool(masks[0] >> (number - 1) & 1)


def _wait_for_dump(stack_file: Path, before: int, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    size, grown_at = before, time.monotonic()
    while time.monotonic() < deadline:
        if (now := _size(stack_file)) != size:
            size, grown_at = now, time.monotonic()
        elif size > before and time.monotonic() - grown_at > _SETTLE_S:
            return True
        time.sleep(_POLL_S)
    return size > before


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def _tail(path: Path, start: int) -> str:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(_LONGEST * 4).decode(errors="replace")


def _main_part(dump: str) -> str:
    """The main thread: `faulthandler` lists the newest thread first, so it comes last.

    The thread that took the signal ("Current thread") may be any when the process was stopped.
    """
    starts = [match.start() for match in _THREAD.finditer(dump)]
    part = dump[starts[-1] :] if starts else dump
    return part.partition("\n\n")[0].strip()[:_LONGEST]
