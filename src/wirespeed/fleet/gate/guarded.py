"""The gate's worker within a hard deadline: whatever hangs in it, an answer comes in time.

The first worker has all but the last seconds. Where it hangs or ends without an answer, a second
one goes on with what the first has seen and leaves alone what hung; if that fails as well, this
process answers by the site's rule. It reads and writes nothing but pipes itself, so that no dead
disk can hold it. What a call and its worker tell each other is JSON (`Asked`, `Answer`).
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any

import msgspec
from msgspec import Struct

from wirespeed.fleet.gate.decision import Rules
from wirespeed.process import returncode_text
from wirespeed.process.frames import Lines, write_all
from wirespeed.process.guard import death_signal, signal_group


class Line(Struct, frozen=True, kw_only=True):
    """Of a finding what is printed; the rest is in the stored run."""

    id: str
    status: str
    title: str


class Asked(Struct, frozen=True, kw_only=True):
    """What one call shall do."""

    node: str
    """As the scheduler calls it."""
    rules: Rules
    quiet_s: float
    """For NVML's next answer."""
    seen: dict[str, Any] | None = None
    """The facts, where an earlier worker has read them and then hung."""
    missing: tuple[str, ...] = ()
    """What hung, and is left alone now."""
    recalled: bool = False
    """Its home answered, and may be asked again."""
    blind: bool = False
    """It hung before the facts were known."""


class Answer(Struct, frozen=True, kw_only=True):
    """What came of a call."""

    node: str
    act: str
    health: str
    refuses: bool
    why: str = ""
    problems: tuple[str, ...] = ()
    """What could not be done."""
    findings: tuple[Line, ...] = ()
    run: str = ""
    """Where it is stored; empty where there was nothing new to store, or no place."""


_WORKER = (sys.executable, "-P", "-m", "wirespeed.fleet.gate.worker")
_RESERVE_S, _FIRST_SHARE = 4.0, 0.6
"""What the second worker has: four seconds, or less of a short deadline."""
_QUIET_SHARE = 0.7
"""Of the first worker's time, for NVML."""
_LAST_S = 0.1
"""For our own words."""
_END_S = 0.2


@dataclass(slots=True)
class _Told:
    """What a worker has said so far."""

    doing: str = "starting the gate's worker"
    seen: dict[str, Any] | None = None
    recalled: bool = False
    answer: Answer | None = None
    done: bool = False
    why: str = ""
    """Why it came to no end; empty where it did."""
    errors: list[str] = field(default_factory=list)


def answered(node: str, rules: Rules, within_s: float) -> Answer:
    """What came of the call, within that time whatever happens. Nothing raises."""
    end = time.monotonic() + within_s - _LAST_S
    first_s = max(_FIRST_SHARE * within_s, within_s - _RESERVE_S)
    asked = Asked(node=node, rules=rules, quiet_s=first_s * _QUIET_SHARE)
    first = _worked(asked, end - within_s + first_s, end)
    if first.answer is None:
        missing = (f"{first.doing}: {first.why}",)
        again = msgspec.structs.replace(
            asked,
            seen=first.seen,
            missing=missing,
            recalled=first.recalled,
            blind=first.seen is None,
        )
        second = _worked(again, end, end)
        if second.answer is None:
            return _by_rule(node, rules, [*missing, f"{second.doing}: {second.why}"])
        return _ended(second, second.answer)
    return _ended(first, first.answer)


def _ended(told: _Told, answer: Answer) -> Answer:
    """The answer, with what could not be brought to its end after it was given."""
    if told.done:
        return answer
    return msgspec.structs.replace(answer, problems=(*answer.problems, f"{told.doing}: {told.why}"))


def _by_rule(node: str, rules: Rules, missing: list[str]) -> Answer:
    """Nothing is known, nobody was counted: whatever the rule says, nothing is taken."""
    held = rules.unknown == "fail"
    return Answer(
        node=node,
        act="hold" if held else "pass",
        health="unknown",
        refuses=False,
        why="; ".join(missing),
        problems=("neither stored nor told to anybody",),
    )


def _worked(asked: Asked, until: float, end: float) -> _Told:
    """Ask a worker, and hear it until it is done.

    By the monotonic clock it has `until` for its answer, and `end` for all that follows.
    """
    told, handle = _Told(), _in_memory(msgspec.json.encode(asked))
    try:
        with _interrupted_at(until):
            process = subprocess.Popen(
                _WORKER,
                stdin=handle,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                preexec_fn=death_signal(),
            )
    except TimeoutError:
        told.why = "no end within its time"
        return told
    except OSError as error:
        told.why = f"it cannot be started: {error.strerror}"
        return told
    finally:
        os.close(handle)
    try:
        for line in _lines(process, lambda: end if told.answer else until):
            _take(told, line)
            if told.done:
                break
        if not told.done:
            told.why = _why(process, told, end if told.answer else until)
    finally:
        _end(process)
    return told


@contextmanager
def _interrupted_at(moment: float) -> Iterator[None]:
    """TimeoutError then, by the monotonic clock: a program on a dead disk does not even start."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, max(moment - time.monotonic(), 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _in_memory(data: bytes) -> int:
    """A file to read it from: writing to a pipe waits for a reader that may hang."""
    handle = os.memfd_create("asked")
    write_all(handle, data)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _lines(
    process: subprocess.Popen[bytes], end: Callable[[], float]
) -> Iterator[tuple[bool, bytes]]:
    """(whether it is of stdout, the line), until both are closed or the time is over."""
    waiting = select.poll()
    pipes: dict[int, tuple[bool, Lines]] = {}
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            pipes[stream.fileno()] = (stream is process.stdout, Lines())
            waiting.register(stream, select.POLLIN)
    while pipes and (left := end() - time.monotonic()) > 0:
        for handle, _ in waiting.poll(left * 1000):
            chunk = os.read(handle, 1 << 16)
            told, lines = pipes[handle]
            yield from ((told, one) for one in lines.feed(chunk))
            if not chunk:
                waiting.unregister(handle)
                del pipes[handle]


def _take(told: _Told, line: tuple[bool, bytes]) -> None:
    of_stdout, text = line
    if not of_stdout:
        told.errors = [*told.errors[-3:], text.decode(errors="replace").strip()]
        return
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        said = msgspec.json.decode(text, type=dict[str, Any])
        told.doing = said.get("doing", told.doing)
        told.seen = said.get("seen", told.seen)
        told.recalled = said.get("recalled", told.recalled)
        told.done = said.get("done", told.done)
        if "answer" in said:
            told.answer = msgspec.convert(said["answer"], Answer)


def _why(process: subprocess.Popen[bytes], told: _Told, end: float) -> str:
    if time.monotonic() >= end:
        return "no end within its time"
    with suppress(subprocess.TimeoutExpired):
        ended = returncode_text(process.wait(max(0.0, end - time.monotonic())))
        return f"the worker {ended}: {told.errors[-1]}" if told.errors else f"the worker {ended}"
    return "the worker fell silent"


def _end(process: subprocess.Popen[bytes]) -> None:
    """It and what it started; who hangs in the kernel cannot be killed, and is left behind."""
    signal_group(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    streams: tuple[IO[bytes] | None, ...] = (process.stdout, process.stderr)
    for stream in streams:
        if stream is not None:
            stream.close()
