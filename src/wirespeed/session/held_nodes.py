"""What a job runs on, held while it runs; a signal in between lets go of it in order."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from wirespeed.errors import Interrupted
from wirespeed.launchers.base import Held, Piece, Prepared
from wirespeed.launchers.supervise import JobEnd
from wirespeed.model.records import Finding
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


def lost_findings(end: JobEnd, pieces: Sequence[Piece], nodes: Held) -> tuple[Finding, ...]:
    """Why nodes were lost, by those who manage them; none after a good or an asked end."""
    if end.reason in ("finished", "interrupted"):
        return ()
    odd = [piece for piece in pieces if piece.name in end.lost or end.pieces.get(piece.name)]
    return tuple(nodes.lost([name for piece in odd for name in piece.nodes]))
