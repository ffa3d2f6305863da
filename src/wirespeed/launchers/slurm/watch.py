"""What our two drivers of Slurm have in common: who tells them to end, who has started, what is said."""

import argparse
import os
import secrets
import select
import signal
import stat
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from wirespeed.launchers.frames import EXIT, HELLO, VARIABLE, parse
from wirespeed.launchers.slurm.queue import Entry

__all__ = [
    "COULD_NOT",
    "Bounds",
    "Orders",
    "Pending",
    "Starts",
    "parser",
    "pass_on",
    "say",
    "told_apart",
]

COULD_NOT = 3
"""Exit code of a driver whose job never began, or was lost."""
_ORDERLY_S = 6.0
"""The supervisor kills us 8 s after it told us to end: Slurm must have been told by then."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a driver is told, in seconds."""

    name: str
    """Of the job or step, in squeue."""
    size: int
    startup_s: float
    """For all ranks to start, once the job has its nodes."""
    wait_s: float
    """For the job to get them."""
    grace_s: float
    """Between SIGTERM to the ranks and the end of the job."""
    jobid: str = ""
    """The allocation that is ours already."""

    @classmethod
    def of(cls, told: argparse.Namespace) -> "Bounds":
        return cls(told.name, told.size, told.startup, told.wait, told.grace, told.jobid)

    @property
    def orderly_s(self) -> float:
        return min(self.grace_s + 0.5, _ORDERLY_S)


def parser() -> argparse.ArgumentParser:
    """Of `--name=… --size=… -- COMMAND`, for `Bounds.of`."""
    made = argparse.ArgumentParser(allow_abbrev=False)
    made.add_argument("--name", required=True)
    made.add_argument("--size", type=int, required=True)
    made.add_argument("--startup", type=float, default=120.0)
    made.add_argument("--wait", type=float, default=86400.0)
    made.add_argument("--grace", type=float, default=5.0)
    made.add_argument("--jobid", default="")
    made.add_argument("command", nargs="+")
    return made


def say(text: str) -> None:
    """A line of our own, among Slurm's words."""
    with suppress(OSError):
        sys.stderr.write(f"wirespeed: {text}\n")
        sys.stderr.flush()


def pass_on(data: bytes) -> bool:
    """Write all of it to stdout; False when nobody reads that any more."""
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        return False
    return True


class Orders:
    """Whether we shall end: a signal, or the end of stdin, where that is a pipe.

    Whoever started us holds the other end of that pipe, so its death is heard too.
    """

    def __init__(self) -> None:
        self.told = ""
        """Why; empty: go on."""
        self._pipe = stat.S_ISFIFO(os.fstat(0).st_mode)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._signalled)

    def _signalled(self, number: int, _: object) -> None:
        self.told = self.told or signal.Signals(number).name

    def nobody_listens(self) -> None:
        self.told = self.told or "nobody reads our output"

    def look(self, seconds: float, *also: int) -> list[int]:
        """Wait so long for news of stdin or of the files `also`; those of them with news."""
        watched = [*also, *([0] if self._pipe else [])]
        ready = select.select(watched, [], [], seconds)[0]
        if 0 in ready and not os.read(0, 4096):
            self._pipe = False
            self.told = self.told or "stdin was closed"
        return [handle for handle in ready if handle]


class Starts:
    """Counts the ranks that have said hello; without frames the first output is all that is known."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._token = os.environ.get(VARIABLE, "").partition(",")[0]
        self._ranks: set[int] = set()
        self._rest = b""
        self.any = False

    @property
    def count(self) -> int:
        return len(self._ranks)

    @property
    def all(self) -> bool:
        return self.count >= self._size or (not self._token and self.any)

    def late(self, seconds: float) -> str:
        """What to say when they are not all there so long after the job began."""
        return (
            f"{self.count} of {self._size} ranks have started {seconds:.0f} s after the job began"
        )

    def take(self, data: bytes) -> None:
        self.any = self.any or bool(data)
        if self.all or not data:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            frame = parse(line.decode("utf-8", "replace"), self._token)
            if frame is not None and frame.kind in (HELLO, EXIT):
                self._ranks.add(frame.rank)


def told_apart(name: str, command: Sequence[str]) -> tuple[str, list[str]]:
    """That name and srun's words, made unlike any other's where the job was written down once.

    Two runs of one script must not cancel each other; framed jobs have a name of their own.
    """
    if VARIABLE in os.environ:
        return name, list(command)
    own = f"{name}-{secrets.token_hex(3)}"
    asked = f"--job-name={name}"
    return own, [f"--job-name={own}" if word == asked else word for word in command]


class Pending:
    """Tells that a job is pending, and why, each time the reason changes; and bounds the wait."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._began = time.monotonic()
        self._reason = ""
        self._next = self._began

    @property
    def is_due(self) -> bool:
        """Whether to ask again: at once often, later every 15 s, as a controller can bear."""
        return time.monotonic() >= self._next

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def heard(self, entry: Entry | None) -> bool:
        """Take what squeue said; False when the wait is over."""
        self._next = time.monotonic() + min(max(self.seconds / 10, 0.5), 15.0)
        late = self.seconds > self._wait_s
        if entry is None or not entry.waits:
            return not late
        if late:
            say(f"job {entry.job} still pending after {self.seconds:.0f} s: {entry.reason}")
            return False
        if entry.reason not in (self._reason, "None"):
            self._reason = entry.reason
            say(f"job {entry.job} is pending: {entry.reason}")
        return True
