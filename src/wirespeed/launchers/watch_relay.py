"""What a watched rank tells, handed on by its wrapper; and how its processes look from outside.

Processes of the job send datagrams to a socket of this node, whose path they find in
`WIRESPEED_WATCH`; they load `watch/inside` because it stands first in their PYTHONPATH. A process that
has said who it is and then falls silent is looked at: its state, and its stack if it can still be
had. Standard library only, as the wrapper.
"""

import json
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from wirespeed.errors import CannotMeasure
from wirespeed.process import owner_record

VARIABLE = "WIRESPEED_WATCH"
"""`yes` for the wrapper; for the command's processes the path of the socket."""
INSIDE = Path(__file__).parents[1] / "watch" / "inside"
_LONGEST = 1 << 16
_SILENT_S = 4.0
"""Four seconds without a word of one that speaks every second."""
_LOOK_S = 3.0
_SPY_S = 5.0
_MOST = 256
"""Processes of one wrapper that are looked after."""
_MOST_PATH = 100
"""Bytes of a socket's path that every kernel takes are 107."""
_STACKS = "PYTHONFAULTHANDLER"
"""Where gloo aborts a rank, its log ends with the line that it was at."""
_STACK_SIGNAL = signal.SIGRTMIN + 7  # as watch/inside/_wirespeed_seen.py


@dataclass(slots=True)
class _Process:
    """One that has told who it is."""

    rank: int
    stack_file: str
    heard_at: float
    looked_at: float = field(default=0.0)


class WatchRelay:
    """The node's end of the socket. OSError where there is no room for it; `close` takes it away."""

    def __init__(self) -> None:
        self._folder = _new_folder()
        self.path = self._folder / "told"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self.socket.setblocking(False)
        self.socket.bind(str(self.path))
        self._processes: dict[int, _Process] = {}

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What the command's processes shall find beside `environ`."""
        before = environ.get("PYTHONPATH", "")
        path = f"{INSIDE}{os.pathsep}{before}" if before else str(INSIDE)
        stacks = {_STACKS: environ.get(_STACKS, "1")}
        return {**recorder(environ), **stacks, "PYTHONPATH": path, VARIABLE: str(self.path)}

    def read(self) -> Iterator[str]:
        """The messages that are there."""
        while True:
            try:
                text = self.socket.recv(_LONGEST).decode("utf-8", "replace")
            except OSError:
                return
            self._note(text)
            yield text

    def _note(self, text: str) -> None:
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            told = json.loads(text)
            rank, now = int(told["r"]), time.monotonic()
            if told["k"] == "hi" and len(self._processes) < _MOST:
                place = str(told.get("sf") or "")
                own = place == str(self._folder / f"stack-{int(told['p'])}")
                self._processes[int(told["p"])] = _Process(rank, place if own else "", now)
            if told["k"] == "bye":
                self._processes.pop(int(told["pid"]), None)
            for one in self._processes.values():
                if one.rank == rank:
                    one.heard_at = now

    def look(self) -> Iterator[str]:
        """Messages about processes that have fallen silent or ended."""
        now = time.monotonic()
        for pid, one in list(self._processes.items()):
            if now - max(one.heard_at, one.looked_at + _LOOK_S - _SILENT_S) < _SILENT_S:
                continue
            one.looked_at = now
            state = _state(pid)
            if not state or state == "Z":
                del self._processes[pid]
            stack = _stack(pid, state, one.stack_file)
            yield json.dumps({"k": "o", "r": one.rank, "pid": pid, "st": state, "stack": stack})

    def close(self) -> None:
        self.socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _new_folder() -> Path:
    """As `session.folders` knows it: the next run takes away what a killed process has left."""
    told = tempfile.gettempdir()
    room = _MOST_PATH - len("/wirespeed-12345678/told")
    folder = Path(tempfile.mkdtemp(prefix="wirespeed-", dir=told if len(told) <= room else "/tmp"))
    with suppress(OSError):
        (folder / "owner").write_text(owner_record(os.getpid()))
    return folder


def recorder(environ: Mapping[str, str]) -> dict[str, str]:
    """What turns torch's flight recorder on, where the job has not set it itself.

    Of 512 calls: a dump of them takes 15 ms, which is done once in twenty seconds.
    """
    names = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
    return {} if any(name in environ for name in names) else {names[0]: "512"}


def _state(pid: int) -> str:
    """R, S, D, T (stopped), t (traced), Z; empty: gone."""
    with suppress(OSError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        return text.rpartition(")")[2].split()[0]
    return ""


def _stack(pid: int, state: str, file: str) -> list[str]:
    """Innermost call first; empty where it cannot be had. A stopped process is never woken."""
    if state in ("", "Z"):
        return []
    return _spied(pid) or (_dumped(pid, file) if file and state not in ("T", "t") else [])


def _spied(pid: int) -> list[str]:
    """By py-spy, where it is installed and may look."""
    from wirespeed.node.python_stacks import python_stacks

    try:
        main = python_stacks(pid, bound_s=_SPY_S)[:1]
    except CannotMeasure:
        return []
    calls = [one for thread in main for one in thread.frames if "_wirespeed_" not in one.path]
    return [f"{one.function} ({one.path}:{one.line})" for one in calls[:16]]


def _dumped(pid: int, file: str) -> list[str]:
    """By the signal for which the process itself has set up `faulthandler`; only if it has."""
    with suppress(OSError, ValueError, IndexError):
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
        mask = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        if not int(mask.split()[1], 16) >> (_STACK_SIGNAL - 1) & 1:
            return []
        before = Path(file).stat().st_size
        os.kill(pid, _STACK_SIGNAL)
        time.sleep(0.1)
        with Path(file).open("rb") as stream:
            stream.seek(before)
            text = stream.read(_LONGEST).decode("utf-8", "replace")
        # The newest thread comes first, and so the main thread last.
        lines = text.rpartition("most recent call first")[2].splitlines()
        return [line.strip() for line in lines if line.strip().startswith("File")][:16]
    return []
