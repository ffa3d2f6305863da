"""`python -m wirespeed.launchers.slurm.step … -- srun …`: srun, ended in order.

srun alone answers SIGTERM by killing all ranks at once, and does not notice when whoever started it
is gone. This driver tells why a job is pending, bounds the wait for its nodes and then for its ranks,
gives the ranks SIGTERM and their grace, and leaves no job and no step behind, also after the death
of its parent (stdin ends) or its own (the kernel ends srun, which cancels).
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from wirespeed.launchers import slurm
from wirespeed.process import shell_code
from wirespeed.process.frames import write_all
from wirespeed.process.guard import StopRequest, death_signal

LOOK_S = 0.25
_END_S = 3.0
_READ = 1 << 16


def main(words: Sequence[str]) -> int:
    """Run srun to its end; its exit code, 128 + n where signal n ended it."""
    bounds = slurm.parser().parse_args(list(words), namespace=slurm.Bounds())
    bounds.name, command = slurm.told_apart(bounds.name, bounds.command)
    stop = StopRequest(stdin="pipe")
    try:
        srun = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=death_signal(signal.SIGTERM),
        )
    except OSError as error:
        slurm.say(f"{command[0]}: {error.strerror}")
        return 127
    with srun:
        return _Step(srun, bounds, stop).run()


class _Step:
    def __init__(
        self, srun: subprocess.Popen[bytes], bounds: slurm.Bounds, stop: StopRequest
    ) -> None:
        self._srun = srun
        self._bounds = bounds
        self._stop = stop
        self._progress = slurm.Progress(bounds)
        self._open = True

    def run(self) -> int:
        late = ""
        while self._goes_on() and not self._stop.reason and not late:
            late = self._late()
        if late:
            slurm.say(late)
        if late or self._stop.reason:
            self._end()
        code = self._srun.wait()
        if code < 0 or late or self._stop.reason:
            self._clean()
        if late:
            return slurm.COULD_NOT
        return shell_code(code)

    def _late(self) -> str:
        """Why it takes too long, or nothing."""
        progress = self._progress
        if progress.runs_since is None and progress.is_due and not progress.all:
            entry = slurm.entry_named(self._bounds.name)
            if progress.any or (entry is not None and not entry.waits):
                progress.runs_since = time.monotonic()
            elif late := progress.pending(entry):
                return late
        return progress.late()

    def _goes_on(self) -> bool:
        """Pass on what srun said; False once it has ended and all is said."""
        over = self._srun.poll() is not None
        pipe = self._srun.stdout
        handles = [pipe.fileno()] if pipe is not None and self._open else []
        if not self._stop.wait(0.0 if over else LOOK_S, *handles):
            return not over
        data = os.read(handles[0], _READ)
        self._open = bool(data)
        self._progress.take(data)
        if not write_all(1, data):
            self._stop.ask("deaf")
        return True

    # Ending.

    def _end(self) -> None:
        """SIGTERM to the ranks, their grace, then SIGTERM to srun, which kills them."""
        if self._progress.any:
            slurm.cancel(slurm.steps_named(self._bounds.name), signal="TERM")
            self._until_over(self._bounds.orderly_s)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._srun.poll() is None:
                self._srun.send_signal(number)
                self._until_over(_END_S)

    def _until_over(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._goes_on() and time.monotonic() < deadline:
            pass

    def _clean(self) -> None:
        """Nothing of ours stays with the controller, however srun ended."""
        slurm.cancel(slurm.steps_named(self._bounds.name))
        entry = None if self._bounds.jobid else slurm.entry_named(self._bounds.name)
        if entry is not None:
            slurm.cancel([entry.job])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
