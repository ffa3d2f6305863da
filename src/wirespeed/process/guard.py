"""Processes that do not outlive who started them: when to end, and how all that was started is ended.

`StopRequest` says when this process shall end. `end_groups` ends process groups, `end_descendants`
all below this process, SIGTERM before SIGKILL. `see_to_end` is a guard's life: wait for one program,
and end it when it is time. `death_signal` makes the kernel end a child whose guard was killed.
Linux: prctl(2), proc(5).
"""

import ctypes
import os
import select
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import Literal

from wirespeed.process import Process, descendants, read_processes, shell_code, started

HUNG_UP = 128 + signal.SIGHUP
"""Exit code of a process whose starter is gone."""
LOOK_S = 0.05
_REAP_S = 5.0
"""After SIGKILL a process ends at once, unless the kernel holds it; then it is left to init."""
_SET_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
"""Options of prctl(2)."""

Reason = Literal["", "signal", "stdin", "parent", "silence", "deaf"]


class StopRequest:
    """Whether this process shall end: the guard of others asks it while it waits.

    A signal (SIGTERM, SIGINT, SIGHUP) always asks; the end of stdin (`stdin`), the death of the parent
    (`parent`) and `silence_s` seconds without a byte from stdin where they are to be minded.
    stdin `always`; `pipe`: where it is one; `held`: if anything came from there before, so that a
    script may run the guard with `< /dev/null`.
    """

    def __init__(
        self,
        *,
        stdin: Literal["", "always", "pipe", "held"] = "",
        parent: bool = False,
        silence_s: float = 0.0,
    ) -> None:
        self.reason: Reason = ""
        """Empty: go on."""
        self.code = HUNG_UP
        """What to end with: 128 + n after signal n."""
        self._stdin = bool(stdin) and (stdin != "pipe" or stat.S_ISFIFO(os.fstat(0).st_mode))
        self._held = stdin != "held"
        self._parent = os.getppid() if parent else 0
        self._silence_s = silence_s
        self._heard_at = time.monotonic()
        self.listen()

    def listen(self) -> None:
        """Take the signals; again, after somebody else has."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._signalled)

    def ask(self, reason: Reason) -> None:
        self.reason = self.reason or reason

    def wait(self, seconds: float, *handles: int) -> list[int]:
        """Wait so long at most for news; those of the file descriptors `handles` that have some."""
        ready = select.select([*handles, *([0] if self._stdin else [])], [], [], seconds)[0]
        if 0 in ready:
            self._hear()
        if self._parent and os.getppid() != self._parent:
            self.ask("parent")
        if self._silence_s and time.monotonic() - self._heard_at > self._silence_s:
            self.ask("silence")
        return [handle for handle in ready if handle]

    def _hear(self) -> None:
        if os.read(0, 1 << 16):
            self._held, self._heard_at = True, time.monotonic()
            return
        self._stdin = False
        if self._held:
            self.ask("stdin")

    def _signalled(self, number: int, _: FrameType | None) -> None:
        if not self.reason:
            self.reason, self.code = "signal", 128 + number


def on_end_of_stdin(over: Callable[[], None], *, held: bool = False) -> None:
    """Call `over` in a thread when stdin ends; `held`: only if anything came from there before.

    For programs whose main thread is inside calls that cannot be polled.
    """

    def read() -> None:
        heard = not held
        with suppress(OSError):
            while os.read(0, 4096):
                heard = True
            if heard:
                over()

    threading.Thread(target=read, name="stdin", daemon=True).start()


# With the parent.


def die_with_parent(number: int = signal.SIGKILL, parent: int | None = None) -> None:
    """From now on the kernel sends this process that signal when its parent has gone.

    With `parent`, a pid, it ends at once where that one had ended before.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, number, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), number)


def death_signal(number: int = signal.SIGKILL) -> Callable[[], None]:
    """`preexec_fn` of a child that gets that signal when this process is gone, however that went."""
    parent, prctl = os.getpid(), ctypes.CDLL(None).prctl  # loaded before the fork

    def before_exec() -> None:
        prctl(_SET_DEATH_SIGNAL, number, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(HUNG_UP)

    return before_exec


def adopt_orphans() -> None:
    """Processes below this one become its children when they lose their parent."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


# Ending.


def see_to_end(
    poll: Callable[[], int | None],
    send: Callable[[int], object],
    stop: StopRequest,
    grace_s: float = float("inf"),
) -> int:
    """Wait until `poll` gives a return code, and give it as a shell does (128 + n for signal n).

    When `stop` asks, `send` gets SIGTERM, once, and SIGKILL after `grace_s`, until it has ended.
    """
    kill_at = float("inf")
    told = False
    while (code := poll()) is None:
        stop.wait(LOOK_S)
        if stop.reason and not told:
            told, kill_at = True, time.monotonic() + grace_s
            send(signal.SIGTERM)
        if time.monotonic() > kill_at:
            send(signal.SIGKILL)
    return shell_code(code)


def signal_group(group: int, *numbers: int) -> bool:
    """Send them to a process group; whether there was anybody to get them."""
    with suppress(ProcessLookupError, PermissionError):
        for number in numbers:
            os.killpg(group, number)
        return True
    return False


def end_groups(groups: Iterable[int], grace_s: float) -> None:
    """What is left of groups whose leaders have ended: SIGTERM, then SIGKILL.

    One that has a leader is another's, whose process got that pid since.
    """
    until = time.monotonic() + grace_s
    while groups := [
        one for one in groups if not started(one) and signal_group(one, signal.SIGTERM)
    ]:
        if time.monotonic() > until:
            break
        time.sleep(LOOK_S)
    for one in groups:
        signal_group(one, signal.SIGKILL)


def end_descendants(grace_s: float) -> None:
    """End all below this process, which must adopt orphans: also what has left its group or session.

    SIGTERM once to each that is or becomes its child; SIGKILL to all that is left after `grace_s`.
    """
    told: set[int] = set()
    until = time.monotonic() + grace_s
    while (left := _living()) and time.monotonic() < until:
        for pid in {one.pid for one in left if one.ppid == os.getpid()} - told:
            _kill(pid, signal.SIGTERM, signal.SIGCONT)
            told.add(pid)
        time.sleep(LOOK_S / 2)
        reap()
    until = time.monotonic() + _REAP_S
    while (left := _living()) and time.monotonic() < until:
        for one in left:
            _kill(one.pid, signal.SIGKILL)
        time.sleep(LOOK_S / 2)
        reap()


def reap() -> dict[int, int]:
    """Return codes by pid (negative: a signal) of all children that have ended, adopted ones too."""
    ended = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = os.waitstatus_to_exitcode(found[1])
    return ended


def _living() -> list[Process]:
    """Every process below this one that has not ended."""
    return [one for one in descendants(os.getpid(), read_processes()) if one.state != "Z"]


def _kill(pid: int, *numbers: signal.Signals) -> None:
    for number in numbers:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
