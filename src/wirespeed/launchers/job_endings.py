"""What the end of a job means, as findings: who failed first, who was lost, who never came."""

import shlex
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from wirespeed.launchers.base import Piece
from wirespeed.launchers.children import JobLogs
from wirespeed.launchers.supervise import FAREWELL_S, JobEnd
from wirespeed.launchers.texts import make_finding
from wirespeed.model.records import Finding, Subject
from wirespeed.process import returncode_text, signal_of
from wirespeed.watchdog.findings import exit_hint

_WORDS = 6
"""Last lines of an engine's own output that are shown as evidence."""


def rank_name(rank: int, nodes: Mapping[int, str]) -> str:
    """`rank 5 on node-1`, where the node is known."""
    return f"rank {rank} on {nodes[rank]}" if rank in nodes else f"rank {rank}"


def end_findings(end: JobEnd, pieces: Sequence[Piece], logs: JobLogs) -> tuple[Finding, ...]:
    """Findings of a job that did not end well, the cause first; none where all ranks ended with 0."""
    words = logs.words
    if end.reason == "interrupted":
        return (make_finding("interrupted", saw=f"{len(end.codes)} ranks had ended by themselves"),)
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
