"""Start the pieces of a job, hear what their ranks say, and end everything within a bound.

What the end of a job means, as findings: who failed first, who was lost, who never came.
"""

import contextlib
import os
import selectors
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from wirespeed.launchers.base import Piece
from wirespeed.launchers.children import Child, Children, JobLogs, Keepalive
from wirespeed.launchers.texts import make_finding
from wirespeed.model.records import Finding, Subject
from wirespeed.process import frames, returncode_text, shell_code, signal_of
from wirespeed.process.lookup import NOT_EXECUTABLE, NOT_FOUND, LookupProblem
from wirespeed.watchdog.findings import exit_hint

LOOK_S = 0.05
FAREWELL_S = 10.0
"""How long an engine may take to end by itself once all its ranks have."""
ORDERLY_S = 8.0
"""How long it may take to end once it was asked to, before SIGKILL."""
_AFTER_GRACE_S = 3.0
"""Beyond the time that ranks have between SIGTERM and SIGKILL."""
_READ = 1 << 16
_LONGEST = 1 << 16
"""Bytes of a line that an engine may keep us waiting for the end of."""

WATCHED = "watch"
"""The stream of what a watched rank tells of itself."""

Reason = Literal["finished", "concluded", "failed", "lost", "not_started", "interrupted"]
"""All ranks ended with 0; who listens has heard enough; a rank failed; a connection or an engine
ended before its ranks had; not all ranks have started within the bound; Ctrl-C."""


class Listener(Protocol):
    """Told what happens, in the order in which it is heard, by the thread that supervises."""

    def started(self, rank: int, node: str) -> None: ...

    def output(self, rank: int, node: str, stream: str, text: str, *, whole: bool) -> None:
        """A line (without its end) of `stdout`, `stderr` or `WATCHED`; not `whole`: a part."""
        ...

    def ended(self, rank: int, node: str, code: int) -> None: ...

    def said(self, piece: str, text: str) -> None:
        """A line that is no rank's: the engine's own words."""
        ...

    def ending(self, reason: Reason) -> None:
        """The job is over before its time: the rest is being ended."""
        ...


@dataclass(frozen=True, slots=True)
class Bounds:
    startup_s: float = 120.0
    """For every rank to start."""
    grace_s: float = 5.0
    """What the others have left once a rank has failed, or a connection is lost."""
    orderly_s: float = ORDERLY_S


@dataclass(slots=True)
class JobEnd:
    """How a job ended."""

    reason: Reason = "finished"
    codes: dict[int, int] = field(default_factory=dict)
    """Return code by rank (negative: a signal), of those that told it."""
    nodes: dict[int, str] = field(default_factory=dict)
    """Node by rank, of those that started."""
    first: int | None = None
    """The rank that failed first."""
    pieces: dict[str, int] = field(default_factory=dict)
    """Return code by piece."""
    lost: tuple[str, ...] = ()
    """Pieces that ended before their ranks had."""
    outlived: tuple[str, ...] = ()
    """Pieces that had not ended `FAREWELL_S` after all ranks had, so that we ended them."""
    silent: tuple[int, ...] = ()
    """Ranks that started and never told their end, though nobody had asked them to end."""
    absent: tuple[int, ...] = ()
    """Ranks that never started."""
    without_command: frozenset[int] = frozenset()
    """Ranks whose wrapper could not start the command: it is not there, or cannot be run."""
    asked: frozenset[int] = frozenset()
    """Ranks that had been told to end before they did."""
    missing_frames: int = 0
    """Pieces of output that were sent and not received."""


class Supervisor:
    """One job. `run` blocks; `interrupt` may be called from a signal handler."""

    def __init__(self, size: int, token: str, listener: Listener, bounds: Bounds) -> None:
        self._size = size
        self._token = token
        self._listener = listener
        self._bounds = bounds
        self._children = Children()
        self._pieces: Sequence[Piece] = ()
        self._pipes = selectors.DefaultSelector()
        self._pulse = Keepalive()
        self._lines: dict[int, frames.Lines] = {}
        self._numbers: dict[int, int] = {}
        self._came_by: dict[int, int] = {}
        """Piece by rank."""
        self._end = JobEnd()
        self._interrupted = False
        self._first_was_asked = False
        """Whether the first to fail had been told to end, and not by us: it is not the cause."""
        self._over_at = float("inf")
        """When the job is ended whoever still runs."""

    def interrupt(self) -> None:
        self._interrupted = True

    def conclude(self, seconds: float) -> None:
        """Called by the listener: no more is to be expected; who still runs then is ended."""
        if self._end.reason == "finished":
            self._end.reason = "concluded"
        self._over_within(seconds)

    def run(self, pieces: Sequence[Piece], environ: Mapping[str, str] | None = None) -> JobEnd:
        """Start them, listen until all have ended or must, and leave none of them running."""
        self._pieces = pieces
        base = os.environ if environ is None else environ
        try:
            for piece in pieces:
                _write_files(piece)
            self._children.start(
                Child(number, piece.name, piece.command, {**base, **piece.environment})
                for number, piece in enumerate(pieces)
            )
            self._feed()
            self._listen()
        finally:
            self._stop()
            self._pulse.stop()
            self._pipes.close()
            self._children.close()
        return self._judged()

    def _feed(self) -> None:
        for number, piece in enumerate(self._pieces):
            process = self._children.process(number)
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    os.set_blocking(pipe.fileno(), False)
                    self._pipes.register(pipe, selectors.EVENT_READ, number)
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(piece.stdin.encode())
                    process.stdin.flush()
                if piece.pulse_s:
                    self._pulse.add(process.stdin, piece.pulse_s)

    def _listen(self) -> None:
        queue_s = max((piece.queue_s for piece in self._pieces), default=0.0)
        start_by = time.monotonic() + queue_s + self._bounds.startup_s
        running = dict(enumerate(self._pieces))
        while running and time.monotonic() < self._over_at and not self._interrupted:
            self._hear(LOOK_S)
            for number, code in self._children.ended().items():
                self._piece_ended(running.pop(number), number, code)
            if len(self._end.codes) >= self._size:
                self._over_within(FAREWELL_S)
            if len(self._end.nodes) < self._size and time.monotonic() > start_by:
                self._ending("not_started")
                return
        if self._interrupted:
            self._ending("interrupted")

    def _piece_ended(self, piece: Piece, number: int, code: int) -> None:
        self._drain(number)
        self._end.pieces[piece.name] = code
        early = len(self._end.codes) < self._size and (code or len(self._pieces) == 1)
        # `kubectl exec` ends with 0 where its stream is cut.
        own = {rank for rank, by in self._came_by.items() if by == number}
        if (early or own - self._end.codes.keys()) and self._end.reason == "finished":
            self._end.lost += (piece.name,)
            self._ending("lost")
            self._over_within(self._bounds.grace_s)

    def _ending(self, reason: Reason) -> None:
        if self._end.reason == "finished":
            self._end.reason = reason
            self._listener.ending(reason)

    def _over_within(self, seconds: float) -> None:
        self._over_at = min(self._over_at, time.monotonic() + seconds)

    # Hearing.

    def _hear(self, seconds: float) -> None:
        if not self._pipes.get_map():
            time.sleep(seconds)
            return
        for key, _ in self._pipes.select(seconds):
            self._read(key)

    def _drain(self, number: int) -> None:
        """What a piece that has ended left in its pipes."""
        for key in list(self._pipes.get_map().values()):
            if key.data == number:
                while self._read(key):
                    pass

    def _read(self, key: selectors.SelectorKey) -> bool:
        """Read once; whether there may be more."""
        try:
            data = os.read(key.fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            self._pipes.unregister(key.fileobj)
        for line in self._lines.setdefault(key.fd, frames.Lines(_LONGEST)).feed(data):
            self._line(key.data, line)
        return bool(data)

    def _line(self, number: int, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r")
        frame = frames.parse(text, self._token)
        if frame is not None and frame.rank < 0:
            return  # it only makes somebody look up (node/output.py)
        # No node makes up more ranks than the job has: each would be a file here.
        if frame is not None and (frame.rank in self._numbers or len(self._numbers) < self._size):
            if frame.kind == frames.HELLO:
                self._came_by[frame.rank] = number
            self._take(frame)
        elif text.strip():
            self._listener.said(self._pieces[number].name, text.rstrip())

    def _take(self, frame: frames.Frame) -> None:
        due = self._numbers.get(frame.rank, 0)
        self._end.missing_frames += max(frame.number - due, 0)
        self._numbers[frame.rank] = frame.number + 1
        if frame.kind == frames.HELLO:
            self._end.nodes[frame.rank] = frame.node
            self._listener.started(frame.rank, frame.node)
        elif frame.kind == frames.EXIT:
            self._rank_ended(frame)
        elif frame.kind in _STREAMS:
            stream, whole = _STREAMS[frame.kind]
            self._listener.output(frame.rank, frame.node, stream, frame.text, whole=whole)

    def _rank_ended(self, frame: frames.Frame) -> None:
        number, _, asked = frame.text.partition(" ")
        code = int(number)
        if frame.rank not in self._end.nodes and code in (NOT_FOUND, NOT_EXECUTABLE):
            self._end.without_command |= {frame.rank}
        self._end.nodes.setdefault(frame.rank, frame.node)
        self._end.codes[frame.rank] = code
        self._listener.ended(frame.rank, frame.node, code)
        if asked:
            self._end.asked |= {frame.rank}
        if code and self._end.reason == "finished":
            self._end.first = frame.rank
            self._first_was_asked = asked == frames.ASKED
            self._ending("failed")
            self._over_within(self._bounds.grace_s)

    # Ending.

    def _stop(self) -> None:
        """In order where a piece can, then SIGTERM, then SIGKILL; what they say is still heard."""
        if self._end.reason == "finished" and len(self._end.codes) >= self._size:
            self._end.outlived = tuple(self._pieces[number].name for number in self._running())
        for number in self._running():
            if self._pieces[number].ends_with_stdin:
                self._hang_up(number)
            else:
                self._children.signal(signal.SIGTERM, only=number)
        self._wait(max(self._bounds.orderly_s, self._bounds.grace_s + _AFTER_GRACE_S))
        self._children.signal(signal.SIGTERM)
        self._wait(1.0)
        self._children.stop(0.0)
        for number, piece in enumerate(self._pieces):
            self._drain(number)
            self._end.pieces.setdefault(piece.name, -signal.SIGKILL)

    def _running(self) -> list[int]:
        for number, code in self._children.ended().items():
            self._drain(number)
            self._end.pieces[self._pieces[number].name] = code
        return self._children.running()

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._running() and time.monotonic() < deadline:
            self._hear(LOOK_S)

    def _hang_up(self, number: int) -> None:
        stdin = self._children.process(number).stdin
        if stdin is not None:
            self._pulse.forget(stdin)
            with contextlib.suppress(BrokenPipeError):
                stdin.close()

    def _judged(self) -> JobEnd:
        end = self._end
        # Ranks may be those of one node of a larger world, with numbers beyond our size.
        absent = () if len(end.nodes) >= self._size else range(self._size)
        end.absent = tuple(rank for rank in absent if rank not in end.nodes)
        told_to_end = end.reason in ("concluded", "failed", "interrupted", "not_started")
        silent = [rank for rank in sorted(end.nodes) if rank not in end.codes]
        if end.reason == "failed" and self._first_was_asked:
            # The engine ended it: because of one that could not tell its own end, or its own end.
            odd = () if silent else tuple(name for name, code in end.pieces.items() if code)
            end.lost = end.lost or odd
            if silent or end.lost:
                end.first, end.reason, told_to_end = None, "lost", False
        end.silent = () if told_to_end else tuple(silent)
        if end.reason == "finished" and (end.absent or end.silent):
            end.reason = "lost"
        return end


_STREAMS = {
    frames.OUT: ("stdout", True),
    frames.OUT_PART: ("stdout", False),
    frames.ERR: ("stderr", True),
    frames.ERR_PART: ("stderr", False),
    frames.WATCH: (WATCHED, True),
    frames.WATCH_PART: (WATCHED, False),
}


def _write_files(piece: Piece) -> None:
    for path, text in piece.files.items():
        handle = os.open(Path(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(text)


def worst_code(end: JobEnd) -> int:
    """The exit code of a job: the worst of its ranks; 130 after Ctrl-C; signal n is 128 + n.

    A rank that was told to end after another had failed does not count, nor does an engine that we had
    to end after all ranks had ended well.
    3 where a connection was lost or ranks never started: that is not a success.
    """
    if end.reason == "interrupted":
        return 130
    if end.first is not None:
        own = [code for rank, code in end.codes.items() if code > 0 and rank not in end.asked]
        return max([shell_code(end.codes[end.first]), *own])
    if end.reason in ("lost", "not_started", "concluded"):
        return 3
    engines = [code for name, code in end.pieces.items() if name not in end.outlived]
    return max(map(shell_code, engines), default=0 if end.outlived else 3)


_NODES = 4
"""Nodes that a title names."""
_WORDS = 6
"""Last lines of an engine's own output that are shown as evidence."""


def rank_name(rank: int, nodes: Mapping[int, str]) -> str:
    """`rank 5 on node-1`, where the node is known."""
    return f"rank {rank} on {nodes[rank]}" if rank in nodes else f"rank {rank}"


def end_findings(
    end: JobEnd, pieces: Sequence[Piece], logs: JobLogs, program: str = "the command"
) -> tuple[Finding, ...]:
    """Findings of a job that did not end well, the cause first; none where all ranks ended with 0.

    program: the first word of the job's command.
    """
    words = logs.words
    if end.reason == "interrupted":
        return (make_finding("interrupted", saw=f"{len(end.codes)} ranks had ended by themselves"),)
    found = []
    if end.first in end.without_command:
        found.append(_without_command(end, program, logs))
    elif end.first is not None:
        found.append(_failed(end, end.first, logs.of_rank(end.first)))
    found += [_lost(end, piece, logs) for piece in pieces if piece.name in end.lost]
    if end.absent and not found:
        found.append(_absent(end, pieces, words))
    if end.silent and not found:
        found.append(_silent(end, logs.of_rank(end.silent[0])))
    failed = (name for name, code in end.pieces.items() if code)
    odd = min(failed, key=lambda name: name in end.outlived, default="")
    if odd and not found and end.reason == "finished":
        found.append(_odd(end, odd, words))
    if end.missing_frames:
        found.append(make_finding("missing", frames=end.missing_frames))
    return tuple(found)


def _failed(end: JobEnd, rank: int, log: Path) -> Finding:
    name, how = rank_name(rank, end.nodes), returncode_text(end.codes[rank])
    others = [
        f"{rank_name(other, end.nodes)}: {returncode_text(code)}"
        for other, code in sorted(end.codes.items())
        if code and other != rank
    ]
    killed = signal_of(end.codes[rank]) is signal.SIGKILL
    return make_finding(
        "failed",
        name=name,
        how=how,
        saw=how,
        because=exit_hint(end.codes[rank]) or "its last words are in its log",
        next=f"on {end.nodes[rank]}: dmesg -T | grep -i -E 'killed process|oom'"
        if killed and rank in end.nodes
        else f"tail {shlex.quote(str(log))}",
        subject=Subject("rank", f"rank {rank}"),
        evidence=tuple(others[:_WORDS]),
    )


def _without_command(end: JobEnd, program: str, logs: JobLogs) -> Finding:
    """Blame the command and no node: which programs a node has is not its hardware."""
    ranks = sorted(end.without_command)
    nodes = list(dict.fromkeys(end.nodes[rank] for rank in ranks))
    place = ", ".join(nodes[:_NODES]) + (" …" if len(nodes) > _NODES else "")
    code = end.codes[ranks[0] if end.first is None else end.first]
    reason = "it is not executable, or the interpreter in its first line is not there"
    return make_finding(
        "command_not_found" if code == NOT_FOUND else "command_not_run",
        title=LookupProblem(program, code, reason).text(place),
        ranks=_ranks(ranks),
        program=program,
        place=place,
        log=shlex.quote(str(logs.of_rank(ranks[0]))),
    )


def _lost(end: JobEnd, piece: Piece, logs: JobLogs) -> Finding:
    where, log = ", ".join(piece.nodes) or piece.name, logs.of_piece(piece.name)
    missing = [rank for rank in end.nodes if rank not in end.codes]
    by_hand = f"ssh {piece.nodes[0]} uptime" if piece.nodes else f"less {shlex.quote(str(log))}"
    return make_finding(
        "connection_lost" if piece.nodes else "lost",
        where=where,
        how=returncode_text(end.pieces[piece.name]),
        more=f"; nothing more from {_ranks(missing)}" if missing else "",
        next=piece.look or by_hand,
        subject=Subject("node", piece.nodes[0]) if len(piece.nodes) == 1 else None,
        evidence=tuple(logs.words.get(piece.name, ())[-_WORDS:]),
    )


def _absent(end: JobEnd, pieces: Sequence[Piece], words: Mapping[str, Sequence[str]]) -> Finding:
    said = [line for piece in pieces for line in words.get(piece.name, ())]
    return make_finding(
        "absent",
        title=f"{_ranks(end.absent)} never started",
        saw=f"{len(end.nodes)} of {len(end.nodes) + len(end.absent)} ranks started",
        because="the engine did not start them; its words are below" if said else "",
        evidence=tuple(said[-_WORDS:]),
    )


def _silent(end: JobEnd, log: Path) -> Finding:
    return make_finding(
        "job_endings_silent",
        title=f"nobody knows how {_ranks(end.silent)} ended",
        next=f"tail {shlex.quote(str(log))}",
    )


def _odd(end: JobEnd, name: str, words: Mapping[str, Sequence[str]]) -> Finding:
    how = returncode_text(end.pieces[name])
    if name in end.outlived:
        how = f"still ran {FAREWELL_S:.0f} s after its ranks and had to be ended"
    return make_finding("odd", name=name, how=how, evidence=tuple(words.get(name, ())[-_WORDS:]))


def _ranks(ranks: Sequence[int]) -> str:
    listed = ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {listed}"
