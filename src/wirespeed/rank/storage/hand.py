"""A rank's worker as the rank sees it: orders with a bound, and what held it where none is answered."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from wirespeed.process import descendants, read_processes
from wirespeed.process.frames import Lines, write_all
from wirespeed.rank.storage.answer import Answer

_MOST_S = 60.0
"""An order that goes on is given up so much later than one that does not."""
_END_S = 12.0
"""For the worker to remove its files."""
_KILLED_S = 2.0
"""After SIGKILL a process ends at once, unless the kernel holds it."""
_LOOK_S = 0.25
_IDLE = {"hrtimer_nanosleep", "futex_do_wait", "futex_wait_queue", "do_wait", "do_poll"}
_IDLE |= {"do_select", "pipe_read", "anon_pipe_read", "poll_schedule_timeout"}
"""Where those wait that wait for others of their own."""


def _threads(pid: int) -> Iterator[tuple[str, str, str]]:
    """Of each thread its name, the letter of its state, and the kernel's function that it waits in."""
    with suppress(OSError):
        for folder in Path(f"/proc/{pid}/task").iterdir():
            name, _, after = (folder / "stat").read_text(errors="replace").rpartition(")")
            waits = (folder / "wchan").read_text().strip("0\n").partition(".")[0]
            yield name.partition("(")[2], after.split()[0], waits


def _short(value: Any) -> Any:
    """Six digits: what all ranks tell each other at once shall fit into one small message each."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


class Hand:
    """One worker, until `close`."""

    def __init__(self, tick: Callable[[], None]) -> None:
        """tick: called while the worker tells of progress."""
        self._tick = tick
        self._lines = Lines()
        self._hung: Answer | None = None
        words = [sys.executable, "-P", "-m", "wirespeed.rank.storage.worker", str(os.getpid())]
        # What it prints has no reader: a launcher would wait for the end of its pipe.
        self._process = subprocess.Popen(
            words,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )

    @property
    def gone(self) -> bool:
        """Whether the worker was given up, or has ended."""
        return self._hung is not None

    def ask(self, do: str, quiet_s: float, **told: Any) -> Answer:
        """Have it done; after so many seconds without progress the worker is given up, for good.

        So it is where it goes on for a minute longer than that: each call of many may come in time.
        """
        if self._hung is not None:
            return self._hung
        pipe = self._process.stdin
        if pipe is None or not write_all(
            pipe.fileno(), json.dumps({"do": do, **told}).encode() + b"\n"
        ):
            return self._gone()
        begun = heard = now = time.monotonic()
        while (left := min(heard, begun + _MOST_S) + quiet_s - now) > 0:
            for line in self._heard(min(_LOOK_S, left)):
                heard = time.monotonic()
                self._tick()
                if line is None:
                    return self._gone()
                if "answer" in line:
                    return Answer(**{name: _short(one) for name, one in line["answer"].items()})
            now = time.monotonic()
        waited = time.monotonic() - begun
        self._hung = Answer(
            kind="hung", waited=waited, where=self._where(), text=f"no answer to {do}"
        )
        self._kill()
        return self._hung

    def _heard(self, seconds: float) -> list[dict[str, Any] | None]:
        """What it has said by then; None where its pipe has ended."""
        pipe = self._process.stdout
        if pipe is None or not select.select([pipe], [], [], max(0.0, seconds))[0]:
            return []
        data = os.read(pipe.fileno(), 1 << 16)
        return [json.loads(line) for line in self._lines.feed(data)] if data else [None]

    def _gone(self) -> Answer:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILLED_S)
        code = self._process.returncode
        how = f"signal {-code}" if code and code < 0 else f"exit code {code}"
        self._hung = Answer(kind="error", text=f"the process that does the work has ended ({how})")
        return self._hung

    def _where(self) -> str:
        """State of the worker, or of the program that it runs, and where in the kernel it waits."""
        processes = read_processes()
        below = [one.pid for one in descendants(self._process.pid, processes)]
        found = [one for pid in (self._process.pid, *below) for one in _threads(pid)]
        # Who waits in state D first, then who waits for no thread or process of its own.
        found.sort(key=lambda one: (one[1] != "D", one[2] in _IDLE, one[2] == ""))
        if not found:
            return ""
        name, state, waits = found[0]
        return f"{name}: state {state}" + (f" in {waits}" if waits else "")

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILLED_S)

    def close(self) -> None:
        """Let it remove what is left and end; bounded."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_S if self._hung is None else 0.0)
        except subprocess.TimeoutExpired:
            self._kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
