"""What our two drivers of Slurm have in common: the controller is asked and told, each call bounded."""

import argparse
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from wirespeed.process.frames import EXIT, HELLO, VARIABLE, Lines, parse
from wirespeed.process.guard import death_signal

CALL_S = 20.0
"""A busy controller takes seconds; one that is gone must not hold us."""
_ENDS = """BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED
TIMEOUT"""
OVER = frozenset(_ENDS.split())
"""States that no job leaves (https://slurm.schedmd.com/squeue.html, JOB STATE CODES)."""
_FORMAT = "%i|%T|%r"


@dataclass(frozen=True, slots=True)
class Entry:
    """A job as squeue shows it."""

    job: str
    state: str
    """`PENDING`, `RUNNING`, …"""
    reason: str
    """Why it is pending, or how it ended: `Resources`, `TimeLimit`, …"""

    @property
    def waits(self) -> bool:
        return self.state in ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")


def ask(*words: str, seconds: float = CALL_S) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands; code 1 with its reason in stderr where it cannot be."""
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            preexec_fn=death_signal(),  # a controller that hangs holds them for minutes
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"{words[0]}: no answer in {seconds:g} s")
    except OSError as error:
        return subprocess.CompletedProcess(words, 1, "", f"{words[0]}: {error.strerror}")


def entry_named(name: str) -> Entry | None:
    """Our job of that name that is not over."""
    return _entry(ask("squeue", "--me", "--noheader", f"--name={name}", f"--format={_FORMAT}"))


def entry_of(job: str) -> Entry | None:
    """That job, over or not; None when the controller has forgotten it, or does not answer."""
    words = ("--noheader", f"--jobs={job}", "--states=all", f"--format={_FORMAT}")
    return _entry(ask("squeue", *words))


def is_forgotten(job: str) -> bool:
    """Whether the controller says that it knows no such job; not so where it does not answer."""
    return "nvalid job id" in ask("squeue", "--noheader", f"--jobs={job}").stderr


def _entry(done: subprocess.CompletedProcess[str]) -> Entry | None:
    for line in done.stdout.splitlines():
        job, _, rest = line.strip().partition("|")
        state, _, reason = rest.partition("|")
        if state:
            return Entry(job, state, reason)
    return None


def steps_named(name: str) -> list[str]:
    """Our running steps of that name, such as `811.0`."""
    lines = ask("squeue", "--me", "--noheader", "--steps", "--format=%i|%j").stdout.splitlines()
    pairs = (line.strip().partition("|") for line in lines)
    return [step for step, _, called in pairs if called == name]


def cancel(targets: Sequence[str], *, signal: str = "") -> None:
    """End jobs or steps, or send their ranks a signal; none is no error."""
    if targets:
        ask("scancel", "--quiet", *([f"--signal={signal}"] if signal else []), *targets)


def ended_with(job: str) -> int | None:
    """Exit code of a job that is over (128 + n for signal n); None where nobody knows it any more."""
    told = ask("scontrol", "--oneliner", "show", "job", job).stdout
    found = re.search(r" ExitCode=(\d+):(\d+)", told)
    if found is None:
        return None
    return 128 + int(found[2]) if int(found[2]) else int(found[1])


COULD_NOT = 3
"""Exit code of a driver whose job never began, or was lost."""
_ORDERLY_S = 6.0
"""The supervisor kills us 8 s after it told us to end: Slurm must have been told by then."""


class Bounds(argparse.Namespace):
    """What a driver is told on its command line, in seconds."""

    name: str
    """Of the job or step, in squeue."""
    size: int
    startup_s: float
    """For all ranks to start, once the job has its nodes."""
    wait_s: float
    """For the job to get them."""
    grace_s: float
    """Between SIGTERM to the ranks and the end of the job."""
    jobid: str
    """The allocation that is ours already; empty: none."""
    command: list[str]

    @property
    def orderly_s(self) -> float:
        return min(self.grace_s + 0.5, _ORDERLY_S)


def parser() -> argparse.ArgumentParser:
    """Of `--name=… --size=… -- COMMAND`, into a `Bounds`."""
    made = argparse.ArgumentParser(allow_abbrev=False)
    made.add_argument("--name", required=True)
    made.add_argument("--size", type=int, required=True)
    made.add_argument("--startup", dest="startup_s", type=float, default=120.0)
    made.add_argument("--wait", dest="wait_s", type=float, default=86400.0)
    made.add_argument("--grace", dest="grace_s", type=float, default=5.0)
    made.add_argument("--jobid", default="")
    made.add_argument("command", nargs="+")
    return made


def say(text: str) -> None:
    """A line of our own, among Slurm's words."""
    with suppress(OSError):
        sys.stderr.write(f"wirespeed: {text}\n")
        sys.stderr.flush()


def told_apart(name: str, command: Sequence[str]) -> tuple[str, list[str]]:
    """That name and srun's words, made unlike any other's where the job was written down once.

    Two runs of one script must not cancel each other; framed jobs have a name of their own.
    """
    if VARIABLE in os.environ:
        return name, list(command)
    own = f"{name}-{secrets.token_hex(3)}"
    asked = f"--job-name={name}"
    return own, [f"--job-name={own}" if word == asked else word for word in command]


class Progress:
    """How far a job is: pending, begun, its ranks started; and whether one of these takes too long."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._token = os.environ.get(VARIABLE, "").partition(",")[0]
        self._ranks: set[int] = set()
        self._lines = Lines()
        self._reason = ""
        self._began = self._ask_at = time.monotonic()
        self.runs_since = self._began if bounds.jobid else None
        """Since the job has its nodes."""
        self.any = False
        """Whether any output has come: without frames that is all that is known of ranks."""

    def take(self, data: bytes) -> None:
        """Count the ranks that say hello."""
        self.any = self.any or bool(data)
        if self.all or not data:
            return
        for line in self._lines.feed(data):
            frame = parse(line.decode("utf-8", "replace"), self._token)
            if frame is not None and frame.kind in (HELLO, EXIT):
                self._ranks.add(frame.rank)

    @property
    def all(self) -> bool:
        """Whether all ranks have started."""
        return len(self._ranks) >= self._bounds.size or (not self._token and self.any)

    @property
    def is_due(self) -> bool:
        """Whether to ask again why it is pending: at once often, later every 15 s, as a controller
        can bear."""
        return time.monotonic() >= self._ask_at

    def pending(self, entry: Entry | None) -> str:
        """Take what squeue says, and tell why it is pending each time the reason changes; what to say
        where that takes too long."""
        now = time.monotonic()
        waited = now - self._began
        self._ask_at = now + min(max(waited / 10, 0.5), 15.0)
        late = waited > self._bounds.wait_s
        if entry is not None and entry.waits and late:
            say(f"job {entry.job} still pending after {waited:.0f} s: {entry.reason}")
        elif entry is not None and entry.waits and entry.reason not in (self._reason, "None"):
            self._reason = entry.reason
            say(f"job {entry.job} is pending: {entry.reason}")
        return f"no nodes within {self._bounds.wait_s:.0f} s: the job is cancelled" if late else ""

    def late(self) -> str:
        """What to say where the ranks take too long to start."""
        seconds = self._bounds.startup_s
        if self.all or self.runs_since is None or time.monotonic() < self.runs_since + seconds:
            return ""
        started = f"{len(self._ranks)} of {self._bounds.size} ranks have started"
        return f"{started} {seconds:.0f} s after the job began"
