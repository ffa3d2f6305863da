"""Run a plan on ranks that an engine starts elsewhere; their records come back, and are judged here."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from wirespeed.console.book import Book
from wirespeed.console.holding import STOPPING, held, lost_findings
from wirespeed.console.relay import outcome_from_json, read_line
from wirespeed.console.relayed import VARIABLE, order
from wirespeed.console.scratch import new_scratch
from wirespeed.console.session import Session
from wirespeed.console.signals import interrupted_by_signals
from wirespeed.errors import Interrupted
from wirespeed.launchers.base import Engine, Held, Job, Piece, Prepared, Sharing
from wirespeed.launchers.endings import end_findings, rank_name
from wirespeed.launchers.frames import VARIABLE as FRAMES
from wirespeed.launchers.joblogs import JobLogs
from wirespeed.launchers.supervise import Bounds, JobEnd, Reason, Supervisor
from wirespeed.plan import Plan
from wirespeed.records import Finding, Run, Subject
from wirespeed.world.secret import VARIABLE as SECRET
from wirespeed.world.secret import new_secret
from wirespeed.world.watch import Outcome
from wirespeed.world.watch.ends import exit_hint
from wirespeed.world.watch.phrases import returncode_text

__all__ = ["COMMAND", "interrupted_before", "note_nodes", "ordered", "ran_remote", "run_remote"]

COMMAND = ("-P", "-m", "wirespeed.console.relayed")
"""What each rank runs, after its Python."""
_CONSOLE_FIRST_S = 10.0
"""Ranks that do not come are named by the console on the nodes, if there is one, before us."""

_AFTER_OUTCOME_S = 6.0
"""How long ranks have to end by themselves once their console has told how the run ended."""


def ordered(
    job: Job,
    plan: Plan,
    backend: str,
    python: str,
    settings: Mapping[str, str | None] | None = None,
) -> Job:
    """The prepared job with the ranks' command and what they must know.

    settings: variables that the ranks shall have, or (None) shall not have, unless the engine or
    --interface has chosen a value.
    """
    told = {k: v for k, v in (settings or {}).items() if v is not None or k not in job.environment}
    given = {k: v for k, v in told.items() if v is not None}
    environment = {**job.environment, **given, VARIABLE: order(plan, backend, told)}
    if not job.written:  # each world has its own, which no script shows
        environment[SECRET] = new_secret()
    return replace(job, command=(job.python or python, *COMMAND), environment=environment)


def run_remote(session: Session, engine: Engine, job: Job, plan: Plan) -> Run:
    """Start, listen, judge. A signal ends the ranks and gives a run with exit code 130."""
    nodes: Held | None = None
    try:
        with held(engine, job, session.phase) as nodes:
            note_nodes(session, nodes.prepared)
            if any(one.status in STOPPING for one in nodes.prepared.findings):
                outcome = Outcome(kind="never_joined")
            else:
                if plan.command == "check" and not plan.facts_only and isinstance(engine, Sharing):
                    session.note(engine.shared(nodes.prepared.job, session.phase))
                outcome = ran_remote(session, engine, nodes, nodes.prepared.job, plan)
    except Interrupted as error:
        outcome = Outcome(kind="interrupted", findings=(interrupted_before(error),))
    if nodes is not None:
        session.note(nodes.after)
    return session.close(outcome)


def note_nodes(session: Session, prepared: Prepared) -> None:
    """What was found and chosen once the nodes were there."""
    session.note(prepared.findings)
    told = [{"name": c.name, "value": c.value, "reason": c.reason} for c in prepared.choices]
    if told:
        session.on_record(0, "choices", {"choices": told})


def ran_remote(book: Book, engine: Engine, nodes: Held, job: Job, plan: Plan) -> Outcome:
    """Start, listen and stop one world of ranks on the held nodes; its records go to `book`."""
    scratch = new_scratch()
    listener = _Listener(book, job.size)
    pieces: Sequence[Piece] = ()
    try:
        pieces = engine.pieces(job, scratch)
        token = job.environment[FRAMES].partition(",")[0]
        bounds = Bounds(startup_s=plan.startup_timeout_s + _CONSOLE_FIRST_S, grace_s=job.grace_s)
        supervisor = Supervisor(job.size, token, listener, bounds)
        listener.conclude = supervisor.conclude
        book.phase(f"starting {job.size} ranks by {engine.name}")
        with interrupted_by_signals(lambda _: supervisor.interrupt()):
            end = supervisor.run(pieces)
    finally:
        listener.logs.close()
        shutil.rmtree(scratch, ignore_errors=True)
    outcome = _outcome(end, listener, pieces)
    return replace(outcome, findings=(*lost_findings(end, pieces, nodes), *outcome.findings))


def interrupted_before(error: Interrupted) -> Finding:
    return Finding(
        id="INT-001",
        status="not_checked",
        title="the job was interrupted before a rank was started",
        saw=error.saw,
        expected="to run to the end",
        because="it was asked to stop",
        next="run the same command again",
    )


class _Listener:
    """Rank 0's records go to the session, all else to the logs."""

    def __init__(self, book: Book, size: int) -> None:
        self._book = book
        self._size = size
        self.logs = JobLogs(book.logs)
        self.outcome: Outcome | None = None
        self.conclude: Callable[[float], None] = lambda seconds: None
        self._parts = ""
        self._started = 0

    def started(self, rank: int, node: str) -> None:
        self._started += 1
        self._book.phase(f"{self._started} of {self._size} ranks started")

    def output(self, rank: int, node: str, stream: str, text: str, *, whole: bool) -> None:
        if rank == 0 and stream == "stdout":
            self._parts += text
            if whole:
                line, self._parts = self._parts, ""
                if not self._record(line):
                    self.logs.rank(0, line, whole=True)
            return
        self.logs.rank(rank, text, whole=whole)

    def ended(self, rank: int, node: str, code: int) -> None:
        pass

    def said(self, piece: str, text: str) -> None:
        self.logs.engine(piece, text)

    def ending(self, reason: Reason) -> None:
        self._book.phase("ending the ranks")

    def _record(self, line: str) -> bool:
        found = read_line(line)
        if found is None:
            return False
        kind, data = found
        if kind == "outcome":
            self.outcome = outcome_from_json(data)
            self.conclude(_AFTER_OUTCOME_S)
        elif kind == "phase":
            self._book.phase(data["text"])
        else:
            self._book.on_record(0, kind, data)
        return True


def _outcome(end: JobEnd, listener: _Listener, pieces: Sequence[Piece]) -> Outcome:
    """The console's on the nodes, if it could speak, and what only we can know."""
    own = end_findings(end, pieces, listener.logs)
    told = listener.outcome
    if end.reason == "interrupted":
        findings = told.findings if told and told.kind == "interrupted" else own
        return Outcome(kind="interrupted", findings=findings)
    if told is None and not end.nodes:
        # Nothing is known of any node: the engine did not start a rank, and its words say why.
        return Outcome(kind="never_joined", findings=tuple(map(_not_started, own)))
    if told is None:
        return Outcome(kind="died", findings=own)
    if told.ok:
        # The results are whole; how processes and connections ended after them is a warning.
        later = [_after_results(one) for one in own]
        return replace(told, findings=(*told.findings, *(later or _odd_ends(end))))
    lost = tuple(one for one in own if one.id == "LAUNCH-007" and end.reason == "lost")
    return replace(told, findings=(*lost, *(_with_code(one, end) for one in told.findings)))


def _after_results(finding: Finding) -> Finding:
    if finding.status == "warn":
        return finding
    return replace(finding, status="warn", id="EXIT-001")


def _odd_ends(end: JobEnd) -> list[Finding]:
    """EXIT-001 for ranks that ended otherwise than they announced, after their results."""
    return [
        Finding(
            id="EXIT-001",
            status="warn",
            title=f"{rank_name(rank, end.nodes)} delivered its results and then "
            f"{returncode_text(code)}",
            subject=Subject("rank", f"rank {rank}"),
            saw=returncode_text(code),
            expected="exit code 0",
        )
        for rank, code in sorted(end.codes.items())
        if code
    ]


def _not_started(finding: Finding) -> Finding:
    return replace(
        finding,
        status="not_checked",
        title="no rank was started",
        because=finding.evidence[-1] if finding.evidence else finding.saw,
    )


def _with_code(finding: Finding, end: JobEnd) -> Finding:
    """DIED-001 with the signal or code, which the console cannot know of other nodes."""
    for rank, code in end.codes.items():
        if finding.id == "DIED-001" and finding.subject.name == f"rank {rank}" and code:
            how = returncode_text(code)
            because = exit_hint(code) or finding.because
            title = f"{rank_name(rank, end.nodes)} died: {how}"
            return replace(finding, title=title, saw=f"{how}; {finding.saw}", because=because)
    return finding
