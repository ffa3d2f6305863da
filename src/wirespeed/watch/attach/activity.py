"""What each rank did while it was looked at: it works, it waits for others, or it does neither."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from wirespeed.node.python_stacks import Frame
from wirespeed.watch.attach.frames import main_frames, own_frame, waits_in, works_on
from wirespeed.watch.attach.look import RankLook

Kind = Literal["stopped", "ended", "works", "waits", "stands", "unseen"]
"""`stands`: its stack stays, it takes no CPU time, and no collective is in it."""

_BUSY_CORES = 0.1
"""Helpers of a rank that hangs (heartbeats, watchdogs, monitoring) take less."""
_BUSY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Activity:
    kind: Kind
    look: RankLook
    frames: tuple[Frame, ...] = ()
    """Of the last reading, the innermost first."""
    where: str = ""
    """The frame that tells the kind; of what waits the collective's, else the user's own."""
    what: str = ""
    """What it works on, or holds it; empty: nothing is known of that."""

    @property
    def waited(self) -> float:
        """Share of the readings at which it waited for others."""
        frames = [main_frames(threads) for threads in self.look.stacks]
        return sum(waits_in(one) is not None for one in frames) / max(1, len(frames))

    @property
    def rank(self) -> int:
        return self.look.process.rank


def activity_of(look: RankLook) -> Activity:
    states = look.states
    if states[-1] in ("", "Z", "X"):
        return Activity("ended", look)
    frames = [main_frames(threads) for threads in look.stacks]
    last = frames[-1] if frames else ()
    where = _where(last)
    if all(state in ("T", "t") for state in states):
        return Activity("stopped", look, last, where, _held(states[-1]))
    if not last:  # CPU time alone is no progress: who waits in NCCL spins
        return Activity("unseen", look)
    if _moved(frames) or (_is_busy(look) and not look.cuda):
        return Activity("works", look, last, where, _work(frames))
    waits = waits_in(last)
    if waits is not None or (look.cuda and last[0].file.startswith("torch/")):
        return Activity("waits", look, last, _collective(waits or last[0], last))
    if _is_busy(look):
        return Activity("works", look, last, where, works_on(last))
    return Activity("stands", look, last, where, _holds(look) or works_on(last))


def _where(frames: Sequence[Frame]) -> str:
    frame = own_frame(frames) or (frames[0] if frames else None)
    return frame.title if frame else ""


def _collective(waits: Frame, frames: Sequence[Frame]) -> str:
    """`all_reduce at train (job.py:12)`: what it waits in, and the line of the user's that called it."""
    name = "backward" if waits.function == "_engine_run_backward" else waits.function
    own = own_frame(frames)
    return waits.title if own in (None, waits) else f"{name} at {_where(frames)}"


def _held(state: str) -> str:
    return "held by a debugger" if state == "t" else "stopped by a signal (SIGSTOP, SIGTSTP)"


def _moved(frames: Iterable[Sequence[Frame]]) -> bool:
    return len({tuple((one.function, one.file, one.line) for one in each) for each in frames}) > 1


def _is_busy(look: RankLook) -> bool:
    return look.cores >= _BUSY_CORES or look.io_bytes >= _BUSY_BYTES


def _work(frames: Iterable[Sequence[Frame]]) -> str:
    return next((what for one in frames if (what := works_on(one))), "")


def _holds(look: RankLook) -> str:
    if look.stacks and any(thread.holds_gil for thread in look.stacks[-1]):
        return "holds Python's interpreter lock in C code"
    return "waits for a disk or file system" if set(look.states) == {"D"} else ""
