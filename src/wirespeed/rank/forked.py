"""The process that imports torch once, and from which all local ranks are forked.

A fork copies the thread that forks and nothing of an accelerator's state. So each rank is a program of
its own, started anew, where ranks may use a GPU, where an import has left a thread behind, and where an
import failed: then the rank itself tells how.
"""

import faulthandler
import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from wirespeed.node.limits import count_gpus
from wirespeed.process.guard import die_with_parent, end_groups
from wirespeed.rank.own_log import VARIABLE as LOG
from wirespeed.rank.own_log import print_to
from wirespeed.rank.program import import_for, leave_at_once, run_local_rank

GRACE_S = 3.0
"""How long ranks have to end by themselves before SIGKILL."""
_REAP_S = 5.0
"""After SIGKILL a process ends at once, unless the kernel holds it."""
_AWAITED = {signal.SIGCHLD, signal.SIGTERM}


def fork_ranks(parts: Collection[str]) -> int:
    """Import for those parts of a plan, then start all ranks of the world, until all have ended.

    The world's variables come as a JSON object on stdin. Each rank's start and end is told on stdout by
    a line, `RANK PID` or `RANK PID CODE` (negative: a signal). SIGTERM ends the ranks. Returns the exit
    code, 0 but after that.
    """
    die_with_parent()
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    reports = os.dup(1)
    os.dup2(2, 1)  # what imports print is no report
    ready = not parts or _imported(parts, os.environ["WIRESPEED_BACKEND"])
    variables = sys.stdin.buffer.read()
    if not variables:  # the command has found that it cannot go on
        return 1
    os.environ |= json.loads(variables)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    print_to(f"{os.environ['WIRESPEED_LOGS']}/rank-0.log")
    return _Ranks(reports).run(int(os.environ["WORLD_SIZE"]), start_anew=not ready)


def _imported(parts: Collection[str], backend: str) -> bool:
    """Whether this process is now what a rank is before it joins, and may be forked."""
    if backend != "gloo" and (count_gpus() or Path("/dev/kfd").exists()):
        return False
    gc.disable()
    try:
        with suppress(ImportError):
            # Its OpenBLAS keeps threads where OMP_NUM_THREADS is not 1, and ends them before a fork.
            import numpy as np  # noqa: F401
        known = _threads()
        import_for(parts)
    except Exception:
        return False
    gc.freeze()  # what is never looked at again stays shared
    gc.enable()
    torch = sys.modules.get("torch")
    return _threads() <= known and not (torch and torch.cuda.is_initialized())


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


class _Ranks:
    """The ranks, which are children of this process, by pid; for its main thread."""

    def __init__(self, reports: int) -> None:
        self._reports = reports
        self._running: dict[int, int] = {}
        self._groups: list[int] = []

    def run(self, size: int, *, start_anew: bool) -> int:
        code = self._ran(size, start_anew=start_anew)
        end_groups(self._groups, GRACE_S)  # what ranks have started removes what it has written
        return code

    def _ran(self, size: int, *, start_anew: bool) -> int:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, their ends would be lost
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        for rank in range(size):
            self._start(rank, before, start_anew=start_anew)
        while self._running:
            if signal.sigwait(_AWAITED) == signal.SIGTERM:
                self._stop()
                return 128 + signal.SIGTERM
            self._reap()
        return 0

    def _start(self, rank: int, mask: set[int | signal.Signals], *, start_anew: bool) -> None:
        here = os.getpid()
        pid = os.fork()
        if pid == 0:
            _be(rank, here, mask, start_anew=start_anew)
        self._running[pid] = rank
        self._groups.append(pid)
        self._report(f"{rank} {pid}")

    def _reap(self) -> None:
        """Report all that have ended."""
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if (rank := self._running.pop(pid, None)) is not None:
                self._report(f"{rank} {pid} {os.waitstatus_to_exitcode(status)}")

    def _report(self, text: str) -> None:
        """Where nobody is left to hear it, this process ends, and with it the ranks."""
        os.write(self._reports, f"{text}\n".encode())

    def _stop(self) -> None:
        """SIGTERM to each and what it has started, then SIGKILL after `GRACE_S`."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        self._reap_for(GRACE_S)
        self._signal(signal.SIGKILL)
        self._reap_for(_REAP_S)

    def _reap_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._running and (left := deadline - time.monotonic()) > 0:
            signal.sigtimedwait({signal.SIGCHLD}, left)
            self._reap()

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._running:
            with suppress(ProcessLookupError):
                os.killpg(pid, number)


def _be(rank: int, parent: int, mask: set[int | signal.Signals], *, start_anew: bool) -> NoReturn:
    """What the forked process does from here to its end."""
    code = 1
    try:
        os.setsid()
        die_with_parent(parent=parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        faulthandler.unregister(signal.SIGUSR1)
        environ = os.environ
        environ["RANK"] = environ["LOCAL_RANK"] = str(rank)
        environ["WIRESPEED_STACK"] += f"-{rank}"
        environ[LOG] = f"{environ.pop('WIRESPEED_LOGS')}/rank-{rank}.log"
        print_to(environ[LOG])
        if start_anew:
            os.execv(sys.executable, [sys.executable, "-P", "-m", "wirespeed.rank"])
        run_local_rank()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    leave_at_once(code)
