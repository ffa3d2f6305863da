"""`python -m wirespeed.launchers.slurm.batch … -- SCRIPT`: a batch job, as if it ran here.

Checked (`sbatch --test-only`), submitted, waited for with the reason why it is pending; its output is
followed live from its file, which the nodes must share, and passed to our stdout. The job is
cancelled when we are told to end (a signal; stdin ends). The exit code is the job's.
"""

import os
import re
import secrets
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from wirespeed.launchers import slurm
from wirespeed.launchers.slurm.command_line import sbatch_words
from wirespeed.process.frames import write_all
from wirespeed.process.guard import StopRequest

LOOK_S = 0.25
_ASK_S = 5.0
"""Between two looks at a job that runs; its own last words tell its end sooner."""
_FORGET_S = 30.0
"""A controller that does not show the job is asked so long; one that does not answer, for ever."""
_LATE_OUTPUT_S = 5.0
"""For output of a job that is over to arrive through a network file system."""
_CANCEL_S = 2.0
_ALIASES = {
    "time": ("TIMELIMIT",),
    "mem": ("MEM_PER_NODE",),
    "switches": ("REQ_SWITCH", "WAIT4SWITCH"),
    "no-requeue": ("REQUEUE", "NO_REQUEUE"),
}


class _BatchBounds(slurm.Bounds):
    output: str
    keep: bool


def main(words: Sequence[str]) -> int:
    """Run the job to its end."""
    own = slurm.parser()
    own.add_argument("--output", default="")
    own.add_argument("--keep", action="store_true")
    bounds = own.parse_args(list(words), namespace=_BatchBounds())
    script = Path(bounds.command[0])
    stop = StopRequest(stdin="pipe")
    folder = Path(bounds.output or Path.home())
    output = folder / f"{bounds.name}-{secrets.token_hex(4)}.out"
    for name in set(os.environ) & set(overruling(script.read_text())):
        del os.environ[name]
    try:
        output.touch(mode=0o600, exist_ok=False)
    except OSError as error:
        slurm.say(
            f"{output} cannot be written: {error.strerror}; name a shared folder: --with output=…"
        )
        return slurm.COULD_NOT
    try:
        job = _submitted(script, output)
        return _Batch(job, output, bounds, stop).run() if job else slurm.COULD_NOT
    finally:
        if not bounds.keep:
            with suppress(OSError):
                output.unlink()


def overruling(script: str) -> list[str]:
    """Variables that sbatch would believe rather than the script's own `#SBATCH` lines."""
    keys = [
        line.removeprefix("#SBATCH --").partition("=")[0]
        for line in script.splitlines()
        if line.startswith("#SBATCH --")
    ]
    names = [name for key in keys for name in _ALIASES.get(key, (key.upper().replace("-", "_"),))]
    return [f"SBATCH_{name}" for name in names]


def _submitted(script: Path, output: Path) -> str:
    """The job's number; empty where Slurm refuses it, which it has said then."""
    for words in (sbatch_words(script), sbatch_words(script, output)):
        done = slurm.ask(*words)
        if done.returncode:
            for line in done.stderr.splitlines():
                sys.stderr.write(f"{line}\n")
            return ""
    job = done.stdout.strip().partition(";")[0]
    slurm.say(f"submitted job {job}")
    return job


class _Batch:
    def __init__(self, job: str, output: Path, bounds: slurm.Bounds, stop: StopRequest) -> None:
        self._job = job
        self._tail = Tail(output, job)
        self._bounds = bounds
        self._stop = stop
        self._progress = slurm.Progress(bounds)
        self._ask_at = 0.0
        self._seen_at = time.monotonic()
        self._entry: slurm.Entry | None = None

    def run(self) -> int:
        try:
            late = self._follow()
        except BaseException:
            slurm.cancel([self._job])
            raise
        if late:
            slurm.say(late)
        if late or self._stop.reason:
            self._end()
            return slurm.COULD_NOT if late else 128 + 15
        return self._code()

    def _follow(self) -> str:
        """Until the job is over or we shall end; why it takes too long, or nothing."""
        while not self._stop.reason:
            self._stop.wait(0.0 if self._read() else LOOK_S)
            if self._tail.code is not None:
                return ""
            if time.monotonic() < self._ask_at:
                continue
            if self._is_over():
                return ""
            if late := self._late():
                return late
        return ""

    def _read(self) -> bool:
        """Pass on what is new."""
        data = self._tail.read()
        self._progress.take(data)
        if data and not write_all(1, data):
            self._stop.ask("deaf")
        return bool(data)

    def _is_over(self) -> bool:
        """Ask Slurm for the state."""
        entry = slurm.entry_of(self._job)
        now = time.monotonic()
        if entry is None:
            self._ask_at = now + _ASK_S / 5
            return now > self._seen_at + _FORGET_S and slurm.is_forgotten(self._job)
        self._seen_at, self._entry = now, entry
        running_s = now - (self._progress.runs_since or now)
        self._ask_at = now + (0.5 if entry.waits else min(_ASK_S, LOOK_S + running_s))
        return entry.state in slurm.OVER

    def _late(self) -> str:
        entry, progress = self._entry, self._progress
        if entry is None:
            return ""
        if entry.waits:
            progress.runs_since = None
            return progress.pending(entry) if progress.is_due else ""
        progress.runs_since = progress.runs_since or time.monotonic()
        late = progress.late()
        if late and not progress.any:
            return (
                f"job {self._job} runs, and nothing of its output has come to {self._tail.path} "
                f"in {self._bounds.startup_s:.0f} s: is that folder shared with the nodes? "
                "--with output=FOLDER names another"
            )
        return late

    # The end.

    def _code(self) -> int:
        if self._tail.code is None:
            self._rest()
        if self._tail.code is not None:
            return self._tail.code
        entry = slurm.entry_of(self._job) or self._entry
        state, reason = (entry.state, entry.reason) if entry else ("UNKNOWN", "forgotten")
        code = slurm.ended_with(self._job)
        told = "?" if code is None else str(code)
        slurm.say(f"job {self._job} is over: JobState={state} Reason={reason} exit code {told}")
        if state == "COMPLETED" and code == 0:
            return 0
        return code or slurm.COULD_NOT

    def _rest(self) -> None:
        until = time.monotonic() + _LATE_OUTPUT_S
        while self._tail.code is None and not self._stop.reason and time.monotonic() < until:
            if self._read():
                until = time.monotonic() + _LATE_OUTPUT_S
            else:
                self._stop.wait(LOOK_S)

    def _end(self) -> None:
        """SIGTERM to the ranks, their grace, then the end of the job."""
        if self._progress.any:
            slurm.cancel([self._job], signal="TERM")
            until = time.monotonic() + self._bounds.orderly_s
            while self._tail.code is None and time.monotonic() < until:
                if not self._read():
                    time.sleep(LOOK_S)
        slurm.cancel([self._job])
        until = time.monotonic() + _CANCEL_S
        while time.monotonic() < until:
            self._read()
            entry = slurm.entry_of(self._job)
            if entry is None or entry.state in slurm.OVER:
                return
            time.sleep(LOOK_S)


_READ = 1 << 20
_LAST_WORDS = 4096


class Tail:
    """`read` gives what is new; `code` is the script's own exit code, once its last line came."""

    def __init__(self, path: Path, job: str) -> None:
        self.path = path
        self.code: int | None = None
        self._place = 0
        self._recent = b""
        self._end = re.compile(rb"^wirespeed: job %s ended with (\d+)$" % job.encode(), re.M)

    def read(self) -> bytes:
        """Opened anew each time: so a network file system looks whether there is more."""
        with suppress(OSError):
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.pread(handle, _READ, self._place)
            finally:
                os.close(handle)
            self._place += len(data)
            self._recent = (self._recent + data)[-_LAST_WORDS - len(data) :]
            if found := self._end.search(self._recent):
                self.code = int(found[1])
            self._recent = self._recent[-_LAST_WORDS:]
            return data
        return b""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
