"""The ranks of one node, started by a process that somebody else's launcher put there.

For launchers that give a node one process and no ranks (a task of Metaflow's `@parallel`): each rank
is `rank_wrapper`, and what it says goes on to this process's stdout, in whole lines.
"""

import json
import math
import os
import selectors
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from subprocess import Popen
from types import FrameType

from wirespeed.errors import WorldError
from wirespeed.launchers.children import Child, Children
from wirespeed.launchers.rank_wrapper import GRACE, GRACE_S, rank_variables, wrapped
from wirespeed.process import shell_code
from wirespeed.process.frames import EXIT, MARK, VARIABLE, Lines, Writer, write_all

LOOK_S = 0.05
PUSHER_BYTES = 4096
"""PIPE_BUF: the longest line that two nodes can write into one pipe without mixing them up; and
what Python up to 3.13 reads from a pipe at once."""
_READ = 1 << 16
_PUSHER = "t"
"""A kind of frame that tells nothing: `supervise` passes over it."""


class NodeOutput:
    """Whole lines, as soon as they come, from any number of processes."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._token = environ.get(VARIABLE, "").partition(",")[0]
        self._pusher = _pusher(self._token) if self._token else []
        self._pipes = selectors.DefaultSelector()
        self._lines: dict[int, Lines] = {}
        self._to_push = False
        self._pushed_at = 0.0
        self.muted = False
        """Pass nothing on any more."""

    def add(self, process: "Popen[bytes]") -> None:
        if process.stdout is None or process.stderr is None:
            raise WorldError("a rank has no pipes", expected="stdout and stderr")
        self._pipes.register(process.stdout, selectors.EVENT_READ, 1)
        self._pipes.register(process.stderr, selectors.EVENT_READ, 2)

    def open(self) -> bool:
        """Whether anything may still come."""
        return bool(self._pipes.get_map())

    def tell_end(self, rank: int, code: int) -> None:
        """In the place of a wrapper that was killed and cannot."""
        if self._token and not self.muted:
            write_all(1, Writer(self._token, rank, os.uname().nodename).frame(EXIT, str(code)))
            self._to_push = True

    def relay(self) -> None:
        """Pass on what there is; wait a moment for it."""
        if not self.open():
            time.sleep(LOOK_S)
        ready = self._pipes.select(LOOK_S) if self.open() else []
        for key, _ in ready:
            self._read(key)
        if not ready or time.monotonic() > self._pushed_at + 4 * LOOK_S:
            self.push()

    def _read(self, key: selectors.SelectorKey) -> None:
        data = os.read(key.fd, _READ)
        if not data:
            self._pipes.unregister(key.fileobj)
        lines = self._lines.setdefault(key.fd, Lines()).feed(data)
        if not self.muted:
            for line in lines:
                write_all(key.data, line + b"\n")
            self._to_push = self._to_push or bool(lines)

    def push(self) -> None:
        """Make whoever reads our lines one by one look up until the last.

        Metaflow's runtime (2.19.39, `Worker.read_logline`) reads one line each time that the pipe
        has something, through a buffer: of lines that came together it shows the first, and the
        others wait in the buffer until something else comes. A line as long as that buffer does.
        """
        if self._to_push:
            for line in self._pusher:
                write_all(1, line)
        self._to_push, self._pushed_at = False, time.monotonic()

    def close(self) -> None:
        """A process that outlived its wrapper may hold the pipes: they are read no longer."""
        for key in list(self._pipes.get_map().values()):
            self._pipes.unregister(key.fileobj)
        self._pipes.close()


def _pusher(token: str) -> Sequence[bytes]:
    """Lines of `PUSHER_BYTES` that are together as long as a reader's buffer.

    Python 3.14 reads from a pipe all that it can hold, 64 KiB.
    """
    line = f"{MARK}{token} -1 - {_PUSHER} 0 {json.dumps('')}".ljust(PUSHER_BYTES - 1) + "\n"
    buffer = PUSHER_BYTES if sys.version_info < (3, 14) else 1 << 16
    return [line.encode()] * math.ceil(buffer / PUSHER_BYTES)


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
        own = rank_variables(
            rank=self.rank(local),
            size=self.nodes * self.ranks,
            local=local,
            local_size=self.ranks,
            node=self.node,
        )
        return {**own, "MASTER_ADDR": self.master}


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
            while self._children.running() or self._output.open():
                self._output.relay()
                self._look()
                if self._asked and time.monotonic() > self._end_at:
                    break
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

    def _look(self) -> None:
        """Notice who has ended; end the rest when it is time."""
        for rank, code in self._children.ended().items():
            self._codes[rank] = shell_code(code)
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
        self._children.signal(signal.SIGTERM)

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
            write_all(2, f"wirespeed: {why}; this node's ranks are ended\n".encode())
            self._output.muted = True
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
