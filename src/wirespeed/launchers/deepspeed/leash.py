"""`python -m wirespeed.launchers.deepspeed.leash -- WORDS`: DeepSpeed's runner, on a leash.

The runner itself must not be asked to end: on SIGTERM and SIGINT it logs in to every host and runs
`pkill -f` there, which also ends other jobs of the same Python (deepspeed/launcher/runner.py); when
it is killed, pdsh and its ssh go on. So this process adopts whatever the runner leaves behind, and
ends exactly that: when told to, or when the other end of its stdin is gone. It holds on to stdin
only if a first line comes from there, so that a script may run it with `< /dev/null`.

pdsh goes on as long as one host does. When a host is lost, or ended with an error, the rest is
ended after a grace.
"""

import ctypes
import os
import re
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from wirespeed.errors import UsageError, WirespeedError
from wirespeed.launchers.deepspeed.delivery import bring, forget
from wirespeed.launchers.deepspeed.environment import CARRIED, PYTHON_PATH, bare, carried, pack
from wirespeed.launchers.deepspeed.orders import Orders, read_orders

__all__ = ["HOLD", "leashed", "main"]

HOLD = "hold\n"
"""First line on stdin: from now on, end when stdin ends."""
ORDERLY_S = 5.0
"""From SIGTERM to SIGKILL, below the 8 s that `supervise` waits for us."""
LOOK_S = 0.1
_READ = 1 << 16
_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36
"""PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER of prctl(2)."""
AS_IS = "as-is"
"""In place of orders: the ranks' environment is ours."""
_PATH = "WIRESPEED_PATH"
_RUN = (
    "import os, runpy, sys; sys.path[:0] = os.environ.pop('WIRESPEED_PATH').split(os.pathsep); "
    "del sys.argv[0]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
"""A module with PYTHONPATH's folders, which DeepSpeed does not see as PYTHONPATH and export."""
_HOST_ENDED = re.compile(rb"^pdsh@\S+: (\S+): ssh exited with exit code (\d+)")


def leashed(python: str, words: Sequence[str], grace_s: float, *, orders: str = "") -> list[str]:
    """The words that run `words` on a leash; `orders`: the file of `orders`, for ranks elsewhere."""
    module = "wirespeed.launchers.deepspeed.leash"
    return [python, "-P", "-m", module, f"{grace_s:g}", orders or AS_IS, "--", *words]


def main(arguments: Sequence[str]) -> int:
    """Run it; its exit code (128 + n for signal n)."""
    try:
        if len(arguments) < 4 or arguments[2] != "--":
            expected = f"SECONDS ORDERS|{AS_IS} -- WORDS"
            raise UsageError(f"no command: {shlex.join(arguments)}", expected=expected)
        words, grace_s = arguments[3:], float(arguments[0])
        if arguments[1] == AS_IS:
            return _Leash(words, dict(os.environ), grace_s).run()
        return _carrying(words, read_orders(arguments[1]), grace_s)
    except WirespeedError as error:
        sys.stderr.write(f"wirespeed: {error}\n")
        return error.exit_code


def _carrying(words: Sequence[str], orders: Orders, grace_s: float) -> int:
    """With the ranks' environment carried around DeepSpeed."""
    told = pack(carried(os.environ, orders.names))
    environment, words = _for_runner(words)
    if not orders.nodes:
        # First: Hydra loses the last of its variables.
        return _Leash(words, {CARRIED: told, **environment}, grace_s).run()
    leash = _Leash(words, environment, grace_s)
    bring(orders.nodes, orders.folder, told)
    code = leash.run()
    if code:
        forget(orders.nodes, orders.folder)
    return code


def _for_runner(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """DeepSpeed's own environment, and its words, which do not need PYTHONPATH to find it."""
    environment = {**bare(os.environ), "DS_ENV_FILE": os.devnull}
    path = os.environ.get(PYTHON_PATH, "")
    if not path or list(words[1:3]) != ["-P", "-m"]:
        return environment, list(words)
    return {**environment, _PATH: path}, [words[0], "-P", "-c", _RUN, *words[3:]]


class _Leash:
    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], grace_s: float
    ) -> None:
        self._words = list(words)
        self._environment = environment
        self._grace_s = grace_s
        self._asked = False
        self._held = False
        self._end_at = float("inf")
        self._line = b""

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._ask)
        _prctl(_SET_SUBREAPER, 1)
        process, below = self._start()
        with selectors.PollSelector() as pipes:
            pipes.register(0, selectors.EVENT_READ, self._hear_above)
            pipes.register(below, selectors.EVENT_READ, self._hear_below)
            while process.poll() is None and not self._over():
                for key, _ in pipes.select(LOOK_S):
                    if not key.data(key.fd):
                        pipes.unregister(key.fileobj)
            code = process.poll()
            _end(process)
            while self._hear_below(below, wait=False):
                pass
        os.close(below)
        return 128 + signal.SIGTERM if code is None else code if code >= 0 else 128 - code

    def _ask(self, number: int, frame: object) -> None:
        self._asked = True

    def _over(self) -> bool:
        return self._asked or time.monotonic() > self._end_at

    def _start(self) -> tuple[subprocess.Popen[bytes], int]:
        """The runner, and where its stderr is read."""
        words = _from_anywhere(self._words)
        os.chdir("/")  # DeepSpeed writes its folder, unquoted, on the far shells' command lines
        below, above = os.pipe()
        os.set_blocking(below, False)
        try:
            process = subprocess.Popen(
                words,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stderr=above,
                start_new_session=True,
                preexec_fn=_death_signal(),
            )
        except OSError as error:
            raise UsageError(f"{self._words[0]} cannot be started: {error.strerror}") from error
        finally:
            os.close(above)
        return process, below

    def _hear_above(self, stdin: int) -> bool:
        """From stdin; False when there is no more."""
        if os.read(stdin, _READ):
            self._held = True
            return True
        self._asked = self._asked or self._held
        return False

    def _hear_below(self, pipe: int, *, wait: bool = True) -> bool:
        """Pass on what the runner and the hosts say on stderr; False when there is no more."""
        try:
            data = os.read(pipe, _READ)
        except BlockingIOError:
            return wait
        with suppress(OSError):  # nobody listens: then stdin ends too
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()
        *lines, self._line = (self._line + data).split(b"\n")
        if any(_HOST_ENDED.match(line) for line in lines):
            self._end_at = min(self._end_at, time.monotonic() + self._grace_s)
        return bool(data)


def _from_anywhere(words: Sequence[str]) -> list[str]:
    """With the hostfile's whole path, which may be relative in a script written for later."""
    pairs = zip(["", *words], words, strict=False)
    return [
        str(Path(word).absolute()) if before == "--hostfile" else word for before, word in pairs
    ]


def _end(runner: subprocess.Popen[bytes]) -> None:
    """First the runner, which then logs in nowhere; the rest in order, then by force.

    Each that has lost its parent becomes our child: pdsh after the runner, ssh after pdsh.
    """
    runner.kill()
    runner.wait()
    asked: set[int] = set()
    until = time.monotonic() + ORDERLY_S
    own = psutil.Process()
    while (children := own.children()) and time.monotonic() < until:
        for child in children:
            if child.pid not in asked:
                asked.add(child.pid)
                _send(child, signal.SIGTERM)
        _reap()
        time.sleep(LOOK_S / 4)
    for child in own.children(recursive=True):
        _send(child, signal.SIGKILL)
    _reap()


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        process.send_signal(number)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _prctl(what: int, value: int) -> None:
    ctypes.CDLL(None).prctl(what, value, 0, 0, 0)


def _death_signal() -> Callable[[], None]:
    """Run in the child before its program: the kernel kills the runner when the leash is killed."""
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_SET_DEATH_SIGNAL, signal.SIGKILL) and None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
