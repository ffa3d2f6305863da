"""A job of an engine: what it runs on is held while it runs, and a signal ends it in order."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from wirespeed.errors import Interrupted
from wirespeed.launchers.base import Held, Piece, Prepared
from wirespeed.launchers.children import JobLogs
from wirespeed.launchers.supervise import Bounds, JobEnd, Listener, Supervisor
from wirespeed.model.records import Finding
from wirespeed.process.frames import VARIABLE as FRAMES
from wirespeed.session.folders import new_scratch
from wirespeed.session.signals import interrupted_by_signals

STOPPING = ("fail", "not_checked")
"""Of what was found before the start: nothing is started on these nodes."""


@contextmanager
def held(prepared: Prepared, say: Callable[[str], None]) -> Iterator[Held]:
    """The nodes, as long as the job needs them; `say`: where it is.

    Most engines hold nothing. Raises Interrupted where a signal comes while they are brought up;
    while they are let go of, signals do not hurry it: it is bounded.
    """
    with ExitStack() as stack:
        with interrupted_by_signals(_Once()):
            one = stack.enter_context(prepared.hold(say))
        try:
            yield one
        finally:
            with interrupted_by_signals(lambda _: None):
                stack.close()


class _Once:
    """The first signal ends what is going on, and further ones do not disturb the end."""

    def __init__(self) -> None:
        self._done = False

    def __call__(self, word: str) -> None:
        if not self._done:
            self._done = True
            raise Interrupted(f"interrupted by {word}")


def supervised(
    prepared: Prepared,
    logs: JobLogs,
    listener: Listener,
    startup_s: float,
    begun: Callable[[Supervisor], None] = lambda supervisor: None,
) -> tuple[JobEnd, Sequence[Piece]]:
    """Run the job's pieces to their end; how that was, and the pieces.

    startup_s: for every rank to start. begun: gets who supervises, before anything is started.
    """
    job, scratch = prepared.job, new_scratch()
    try:
        pieces = prepared.pieces(scratch)
        token = job.environment[FRAMES].partition(",")[0]
        bounds = Bounds(startup_s=startup_s, grace_s=job.grace_s)
        supervisor = Supervisor(job.size, token, listener, bounds)
        begun(supervisor)
        with interrupted_by_signals(lambda _: supervisor.interrupt()):
            return supervisor.run(pieces), pieces
    finally:
        logs.close()
        shutil.rmtree(scratch, ignore_errors=True)


def lost_findings(end: JobEnd, pieces: Sequence[Piece], nodes: Held) -> tuple[Finding, ...]:
    """Why nodes were lost, by those who manage them; none after a good or an asked end."""
    if end.reason in ("finished", "interrupted"):
        return ()
    odd = [piece for piece in pieces if piece.name in end.lost or end.pieces.get(piece.name)]
    return tuple(nodes.lost([name for piece in odd for name in piece.nodes]))
