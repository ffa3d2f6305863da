"""Run a plan on ranks that an engine starts elsewhere; their records come back, and are judged here."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace

from wirespeed.launchers.base import Held, Job, Piece, Prepared
from wirespeed.launchers.children import JobLogs
from wirespeed.launchers.supervise import JobEnd, Reason, Supervisor, end_findings, rank_name
from wirespeed.model.records import Finding, Subject
from wirespeed.node.secret import VARIABLE as SECRET
from wirespeed.node.secret import new_secret
from wirespeed.plan import Plan
from wirespeed.process import returncode_text
from wirespeed.session.backends import Backend, StartWorld, Variables
from wirespeed.session.findings import make_finding
from wirespeed.session.held_nodes import STOPPING, held, lost_findings, supervised
from wirespeed.session.record_stream import VARIABLE, order, outcome_from_json, read_line
from wirespeed.session.recording import Recorder, Session
from wirespeed.watchdog import Outcome
from wirespeed.watchdog.findings import exit_hint

COMMAND = ("-P", "-m", "wirespeed.session.rank_program")
"""What each rank runs, after its Python."""
_SESSION_FIRST_S = 10.0
"""Ranks that do not come are named by the session on the nodes, if there is one, before us."""

_AFTER_OUTCOME_S = 6.0
"""How long ranks have to end by themselves once their session has told how the run ended."""


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


def remote_backend(engine: str, asked: Prepared, plan: Plan, backend: str) -> Backend:
    """Ranks that the engine starts, on nodes that are held until the last world has ended."""

    @contextmanager
    def opened(session: Session) -> Iterator[StartWorld | None]:
        first = ordered(asked.job, plan, backend, sys.executable)
        with held(replace(asked, job=first), session.phase) as nodes:
            prepared = nodes.prepared
            _note_nodes(session, prepared)

            def start(recorder: Recorder, plan: Plan, variables: Variables) -> Outcome:
                one = ordered(prepared.job, plan, backend, sys.executable, variables)
                return _run(recorder, engine, nodes, replace(prepared, job=one), plan)

            if any(one.status in STOPPING for one in prepared.findings):
                yield None
            else:
                if plan.command == "check" and not plan.facts_only:
                    session.note(prepared.shared(session.phase))
                yield start
        session.note(nodes.after)

    return opened


def _note_nodes(session: Session, prepared: Prepared) -> None:
    """What was found and chosen once the nodes were there."""
    session.note(prepared.findings)
    if prepared.choices:
        session.on_record(0, "choices", {"choices": [asdict(one) for one in prepared.choices]})


def _run(recorder: Recorder, engine: str, nodes: Held, world: Prepared, plan: Plan) -> Outcome:
    """Start, listen and stop one world of ranks on the held nodes; its records go to `recorder`."""
    listener = _Listener(recorder, world.job.size)
    recorder.phase(f"starting {world.job.size} ranks by {engine}")
    startup_s = plan.startup_timeout_s + _SESSION_FIRST_S
    end, pieces = supervised(world, listener.logs, listener, startup_s, listener.begun)
    outcome = _outcome(end, listener, pieces)
    return replace(outcome, findings=(*lost_findings(end, pieces, nodes), *outcome.findings))


class _Listener:
    """Rank 0's records go to the session, all else to the logs."""

    def __init__(self, recorder: Recorder, size: int) -> None:
        self._recorder, self._size = recorder, size
        self.logs = JobLogs(recorder.logs)
        self.outcome: Outcome | None = None
        self._conclude: Callable[[float], None] = lambda seconds: None
        self._parts = ""
        self._started = 0

    def begun(self, supervisor: Supervisor) -> None:
        self._conclude = supervisor.conclude

    def started(self, rank: int, node: str) -> None:
        self._started += 1
        self._recorder.phase(f"{self._started} of {self._size} ranks started")

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
        self._recorder.phase("ending the ranks")

    def _record(self, line: str) -> bool:
        found = read_line(line)
        if found is None:
            return False
        kind, data = found
        if kind == "outcome":
            self.outcome = outcome_from_json(data)
            self._conclude(_AFTER_OUTCOME_S)
        elif kind == "phase":
            self._recorder.phase(data["text"])
        else:
            self._recorder.on_record(0, kind, data)
        return True


def _outcome(end: JobEnd, listener: _Listener, pieces: Sequence[Piece]) -> Outcome:
    """The session's on the nodes, if it could speak, and what only we can know."""
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
        make_finding(
            "odd_end",
            name=rank_name(rank, end.nodes),
            how=returncode_text(code),
            subject=Subject("rank", f"rank {rank}"),
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
    """DIED-001 with the signal or code, which the session cannot know of other nodes."""
    for rank, code in end.codes.items():
        if finding.id == "DIED-001" and finding.subject.name == f"rank {rank}" and code:
            how = returncode_text(code)
            because = exit_hint(code) or finding.because
            title = f"{rank_name(rank, end.nodes)} died: {how}"
            return replace(finding, title=title, saw=f"{how}; {finding.saw}", because=because)
    return finding
