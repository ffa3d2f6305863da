"""The ranks of one node, started by a process that somebody else's launcher put there.

For launchers that give a node one process and no ranks (a task of Metaflow's `@parallel`): each rank
is `rank_wrapper`, and what it says goes on to this process's stdout, in whole lines.
"""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType

from wirespeed.launchers.children import Child, Children
from wirespeed.launchers.node.output import NodeOutput
from wirespeed.launchers.rank_wrapper import GRACE, GRACE_S, wrapped

__all__ = ["Place", "run_ranks"]

KILL_S = 1.0
"""After the wrappers' own grace."""
_LOST = 1
"""Exit code of a node whose ranks were ended since another node was lost."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node among the others."""

    node: int
    nodes: int
    ranks: int
    """On each node."""
    master: str
    """Address of node 0."""

    def rank(self, local: int) -> int:
        return self.node * self.ranks + local

    def environment(self, local: int) -> dict[str, str]:
        """What tells local rank `local` of this node its rank."""
        numbers = {
            "RANK": self.rank(local),
            "WORLD_SIZE": self.nodes * self.ranks,
            "LOCAL_RANK": local,
            "LOCAL_WORLD_SIZE": self.ranks,
            "NODE_RANK": self.node,
            "GROUP_RANK": self.node,
        }
        return {**{k: str(v) for k, v in numbers.items()}, "MASTER_ADDR": self.master}


def run_ranks(
    command: Sequence[str],
    place: Place,
    environ: Mapping[str, str],
    *,
    python: str = "",
    peers: Sequence[int] = (),
) -> dict[int, int]:
    """Run the node's ranks to their end; exit code by rank (128 + n for signal n).

    Once one has failed the others have `WIRESPEED_GRACE` seconds. SIGTERM and SIGINT end them all,
    and so does the loss of this process's parent, or of one of `peers` (children of this process
    that are other nodes). WorldError where a rank cannot be started. For the main thread.
    """
    words = wrapped(python or sys.executable, command)
    ranks = [
        Child(place.rank(local), f"rank {local}", words, {**environ, **place.environment(local)})
        for local in range(place.ranks)
    ]
    return _Node(environ, peers).run(ranks)


class _Node:
    """The wrappers of this node."""

    def __init__(self, environ: Mapping[str, str], peers: Sequence[int]) -> None:
        self._grace = float(environ.get(GRACE, GRACE_S))
        self._parent = os.getppid()
        self._peers = peers
        self._children = Children()
        self._output = NodeOutput(environ)
        self._codes: dict[int, int] = {}
        self._end_at = float("inf")
        """When the wrappers are asked to end; then, when they are killed."""
        self._asked = False
        self._lost = False

    def run(self, ranks: Sequence[Child]) -> dict[int, int]:
        before = {n: signal.signal(n, self._told_to_end) for n in (signal.SIGTERM, signal.SIGINT)}
        try:
            self._children.start(ranks)
            for rank in self._children.running():
                self._output.add(self._children.process(rank))
            while self._children.running() or (self._output.open() and not self._over()):
                self._output.relay()
                self._look()
            self._output.push()
        finally:
            self._children.stop(0.0)
            self._output.close()
            self._children.close()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._codes if not self._lost else {rank.number: _LOST for rank in ranks}

    def _told_to_end(self, number: int, frame: FrameType | None) -> None:
        if not self._asked:
            self._end_at = 0.0

    def _over(self) -> bool:
        return self._asked and time.monotonic() > self._end_at

    def _look(self) -> None:
        """Notice who has ended; end the rest when it is time."""
        for rank, code in self._children.ended().items():
            self._codes[rank] = code if code >= 0 else 128 - code
            if code < 0:
                self._output.tell_end(rank, code)
            if code:
                self._end_within(self._grace)
        self._look_at_others()
        if time.monotonic() < self._end_at:
            return
        if self._asked:
            self._children.stop(0.0)
            return
        self._asked, self._end_at = True, time.monotonic() + self._grace + KILL_S
        for rank in self._children.running():
            with suppress(ProcessLookupError):
                os.killpg(self._children.process(rank).pid, signal.SIGTERM)

    def _end_within(self, seconds: float) -> None:
        if not self._asked:
            self._end_at = min(self._end_at, time.monotonic() + seconds)

    def _look_at_others(self) -> None:
        """Once another node is lost, how ours end from now on is no news: nobody shall hear it."""
        if self._lost:
            return
        why = next(filter(None, map(_how_lost, self._peers)), "")
        if os.getppid() != self._parent:
            why = "the process that had started this node ended"
        if why:
            self._output.say(f"wirespeed: {why}; this node's ranks are ended")
            self._output.mute()
            self._lost = True
            self._end_within(0.0)


def _how_lost(peer: int) -> str:
    """How that child of ours was killed; empty where it runs, or has ended by itself.

    Its end is left to be learnt by whoever waits for it.
    """
    with suppress(ChildProcessError):
        how = os.waitid(os.P_PID, peer, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if how is not None and how.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
            name = signal.Signals(how.si_status).name
            return f"the process of another node (pid {peer}) was ended by {name}"
    return ""
