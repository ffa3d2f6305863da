"""What Slurm's controller is asked of our jobs, and told: each call bounded, none through a shell."""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "OVER",
    "Entry",
    "ask",
    "cancel",
    "ended_with",
    "entry_named",
    "entry_of",
    "is_forgotten",
    "steps_named",
]

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


def ask(*words: str) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands; code 1 with its reason in stderr where it cannot be."""
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"{words[0]}: no answer in {CALL_S:g} s")
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
