"""What the end of a job means, as findings: who failed first, who was lost, who never came."""

import shlex
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from wirespeed.launchers.base import Piece
from wirespeed.launchers.joblogs import JobLogs
from wirespeed.launchers.supervise import FAREWELL_S, JobEnd
from wirespeed.records import Finding, Subject
from wirespeed.world.watch.ends import exit_hint
from wirespeed.world.watch.phrases import returncode_text, signal_of

__all__ = ["end_findings", "rank_name"]

_WORDS = 6
"""Last lines of an engine's own output that are shown as evidence."""


def rank_name(rank: int, nodes: Mapping[int, str]) -> str:
    """`rank 5 on node-1`, where the node is known."""
    return f"rank {rank} on {nodes[rank]}" if rank in nodes else f"rank {rank}"


def end_findings(end: JobEnd, pieces: Sequence[Piece], logs: JobLogs) -> tuple[Finding, ...]:
    """Findings of a job that did not end well, the cause first; none where all ranks ended with 0."""
    words = logs.words
    if end.reason == "interrupted":
        return (_interrupted(end),)
    found = []
    if end.first is not None:
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
        found.append(_missing(end.missing_frames))
    return tuple(found)


def _missing(frames: int) -> Finding:
    return Finding(
        id="LAUNCH-009",
        status="warn",
        title=f"{frames} pieces of the ranks' output were lost on their way",
        saw="each rank numbers what it says, and numbers are missing",
        expected="the engine to hand on all that ranks say",
        because="an engine that drops or cuts output under load",
        costs="logs and what was shown have gaps",
        fix="less output from the ranks, or another engine",
    )


def _interrupted(end: JobEnd) -> Finding:
    return Finding(
        id="INT-001",
        status="not_checked",
        title="the job was interrupted",
        saw=f"{len(end.codes)} ranks had ended by themselves",
        expected="to run to the end",
        because="it was asked to stop",
        next="run the same command again",
    )


def _failed(end: JobEnd, rank: int, log: Path) -> Finding:
    name, how = rank_name(rank, end.nodes), returncode_text(end.codes[rank])
    others = [
        f"{rank_name(other, end.nodes)}: {returncode_text(code)}"
        for other, code in sorted(end.codes.items())
        if code and other != rank
    ]
    killed = signal_of(end.codes[rank]) is signal.SIGKILL
    return Finding(
        id="DIED-001",
        status="fail",
        title=f"{name} failed first: {how}",
        subject=Subject("rank", f"rank {rank}"),
        saw=how,
        expected="every rank to end with exit code 0",
        because=exit_hint(end.codes[rank]) or "its last words are in its log",
        costs="the other ranks were ended",
        fix="read the rank's log and end the cause",
        next=f"on {end.nodes[rank]}: dmesg -T | grep -i -E 'killed process|oom'"
        if killed and rank in end.nodes
        else f"tail {shlex.quote(str(log))}",
        evidence=tuple(others[:_WORDS]),
    )


def _lost(end: JobEnd, piece: Piece, logs: JobLogs) -> Finding:
    where = ", ".join(piece.nodes) or piece.name
    how = returncode_text(end.pieces[piece.name])
    missing = [rank for rank in end.nodes if rank not in end.codes]
    saw = f"the process for {where} {how} before its ranks had ended"
    return Finding(
        id="LAUNCH-007",
        status="fail",
        title=f"the connection to {where} was lost"
        if piece.nodes
        else f"{piece.name} ended before its ranks had",
        subject=Subject("node", piece.nodes[0]) if len(piece.nodes) == 1 else Subject("job", "job"),
        saw=saw + (f"; nothing more from {_ranks(missing)}" if missing else ""),
        expected="every rank to tell how it ended",
        costs="the other ranks were ended; what was measured before is kept",
        fix="see below what it said; look whether the node is up and its network works",
        next=piece.look
        or (
            f"ssh {piece.nodes[0]} uptime"
            if piece.nodes
            else f"less {shlex.quote(str(logs.of_piece(piece.name)))}"
        ),
        evidence=tuple(logs.words.get(piece.name, ())[-_WORDS:]),
    )


def _absent(end: JobEnd, pieces: Sequence[Piece], words: Mapping[str, Sequence[str]]) -> Finding:
    said = [line for piece in pieces for line in words.get(piece.name, ())]
    return Finding(
        id="JOIN-001",
        status="fail",
        title=f"{_ranks(end.absent)} never started",
        saw=f"{len(end.nodes)} of {len(end.nodes) + len(end.absent)} ranks started",
        expected="every rank to start within the start-up bound",
        because="the engine did not start them; its words are below" if said else "",
        fix="see what the engine said",
        next="the same command with --dry-run shows what it was asked to do",
        evidence=tuple(said[-_WORDS:]),
    )


def _silent(end: JobEnd, log: Path) -> Finding:
    return Finding(
        id="LAUNCH-007",
        status="fail",
        title=f"nobody knows how {_ranks(end.silent)} ended",
        saw="the engine ended without a word of these ranks' ends",
        expected="every rank to tell how it ended",
        because="its process and the one that watches it were killed, or output was lost",
        next=f"tail {shlex.quote(str(log))}",
    )


def _odd(end: JobEnd, name: str, words: Mapping[str, Sequence[str]]) -> Finding:
    how = returncode_text(end.pieces[name])
    if name in end.outlived:
        how = f"still ran {FAREWELL_S:.0f} s after its ranks and had to be ended"
    return Finding(
        id="EXIT-001",
        status="warn",
        title=f"{name} {how}, though every rank ended with 0",
        saw="all ranks told that they ended with exit code 0",
        expected="exit code 0 of the engine, too",
        evidence=tuple(words.get(name, ())[-_WORDS:]),
    )


def _ranks(ranks: Sequence[int]) -> str:
    listed = ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {listed}"
