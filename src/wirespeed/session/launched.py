"""`wirespeed launch`: show the ranks' output as it comes, keep it, and say how the job ended."""

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

from wirespeed.errors import CannotMeasure, Interrupted, harmless
from wirespeed.launchers.base import Held, Prepared
from wirespeed.launchers.children import JobLogs
from wirespeed.launchers.supervise import (
    WATCHED,
    JobEnd,
    Reason,
    end_findings,
    rank_name,
    worst_code,
)
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, Run, World
from wirespeed.model.watch_records import Watched
from wirespeed.node.redact import redact_words
from wirespeed.process import returncode_text
from wirespeed.process.lookup import NOT_EXECUTABLE, NOT_FOUND
from wirespeed.runs.folder import PatientFolder
from wirespeed.session.folders import patient_folder
from wirespeed.session.held_nodes import STOPPING, held, lost_findings, supervised
from wirespeed.session.recording import log_findings
from wirespeed.session.status_line import LivePage, StatusLine, tell_run
from wirespeed.watch.verdict import WatchGrade, watch_grade

if TYPE_CHECKING:
    from wirespeed.session.watching import JobWatch

_LONGEST = 8192
"""Characters of an unfinished line that wait for its end before they are shown."""


Watching = Literal["no", "line", "page"]


class Launched:
    """One job of any command; `watch`: whether it is watched from inside, and how that is shown."""

    def __init__(self, engine: str, prepared: Prepared, *, watch: Watching = "no") -> None:
        job = prepared.job
        config: dict[str, Any] = {
            "command": redact_words(job.command),
            "engine": engine,
            "ranks": job.size,
        }
        self._engine, self._prepared, self._job = engine, prepared, job
        self._findings = prepared.findings
        self._choices = prepared.choices
        self._config = config
        self._folder = patient_folder("launch", config)
        self._watch: Watching = watch
        self._watched: Watched | None = None

    def refuse(self) -> int:
        """Some nodes cannot be used: nothing is started."""
        run = self._run({}, list(self._findings), 3, WatchGrade("UNKNOWN", 3))
        tell_run(run)
        _tell(f"nothing was started; exit code 3; run {run.id}")
        self._folder.finish(run)
        return 3

    def run(self, *, quiet: bool, prefix: bool) -> int:
        """Start, show, and end; the exit code of the job."""
        say: Callable[[str], None] = (lambda text: None) if quiet else _tell
        try:
            with held(self._prepared, say) as nodes:
                self._job = nodes.prepared.job
                self._choices += nodes.prepared.choices
                self._findings += nodes.prepared.findings
                stop = any(one.status in STOPPING for one in nodes.prepared.findings)
                ended = None if stop else self._ran(nodes, quiet=quiet, prefix=prefix)
        except Interrupted as error:
            run = self._run({}, [*self._findings], 130, WatchGrade("INTERRUPTED", 130))
            _tell(f"{error.saw}; no rank was started; exit code 130; run {run.id}")
            self._folder.finish(run)
            return 130
        self._findings += tuple(nodes.after)
        return self.refuse() if ended is None else self._close(*ended, quiet=quiet)

    def _ran(self, nodes: Held, *, quiet: bool, prefix: bool) -> tuple[JobEnd, list[Finding]]:
        logs = JobLogs(self._folder.log_path(0).parent)
        live = _Live(logs, quiet=quiet, prefix=prefix)
        if self._watch != "no":
            live.watch_with(self._folder, self._job.size, page=self._watch == "page")
        try:
            end, pieces = supervised(nodes.prepared, logs, live, self._job.startup_s)
        finally:
            live.flush()
            found, self._watched = live.close()
        own = end_findings(end, pieces, logs, self._config["command"][0])
        if end.first in end.without_command:
            found = []  # nothing ran that a watch could have seen
        return end, [*lost_findings(end, pieces, nodes), *own, *found]

    def _close(self, end: JobEnd, findings: list[Finding], *, quiet: bool) -> int:
        code = worst_code(end)
        if code not in (0, 130) and end.first not in end.without_command:
            said = log_findings(self._folder.log_path(0).parent)
            # Where no rank started, the engine's own words are the cause, and its end follows. What a
            # watch warns of has not ended the job.
            first = [one for one in findings if one.status == "fail" and end.nodes]
            findings = [*first, *said, *(one for one in findings if one not in first)]
        grade = self._grade(end, code, findings)
        run = self._run(end.nodes, [*self._findings, *findings], code, grade)
        if run.findings or run.watched:
            tell_run(run)
        if not quiet or code:
            summary = _summary(end, self._job.size, run.seconds)
            _tell(f"{run.verdict_text}: {summary}; exit code {code}; run {run.id}")
        self._folder.finish(run)
        return code

    def _grade(self, end: JobEnd, code: int, findings: list[Finding]) -> WatchGrade:
        """Return what is said of the job; the exit code stays the job's own."""
        interrupted = end.reason == "interrupted"
        # 3 without a rank that failed: a node or its connection was lost, or ranks never started.
        lost = code == CannotMeasure.exit_code and end.first is None
        failed = code != 0 and not interrupted and not lost
        if self._watch != "no":
            seen = watch_grade(findings, job_failed=failed)
            ended = not interrupted and not lost
            if ended or seen.verdict in ("HUNG", "SLOW", "JOB FAILED"):
                return seen
        if interrupted or lost:
            return WatchGrade("INTERRUPTED" if interrupted else "UNKNOWN", code)
        return WatchGrade("JOB FAILED" if failed else "ENDED WELL", code)

    def _run(
        self, nodes: dict[int, str], findings: list[Finding], code: int, grade: WatchGrade
    ) -> Run:
        size, engine = self._job.size, self._engine
        world = World(size=size, nodes=nodes_of(nodes), backend="", launcher=engine)
        return self._folder.ended(
            grade.verdict,
            code,
            findings,
            world=world,
            choices=self._choices,
            watched=self._watched,
            verdict_subject=grade.subject,
        )


def nodes_of(nodes: Mapping[int, str]) -> tuple[NodeFacts, ...]:
    hosts = dict.fromkeys(nodes[rank] for rank in sorted(nodes))
    return tuple(
        NodeFacts(
            host=host, ranks=tuple(r for r in sorted(nodes) if nodes[r] == host), facts=Facts()
        )
        for host in hosts
    )


class _Live:
    """Whole lines of every rank as they come: a line is never mixed with another's."""

    def __init__(self, logs: JobLogs, *, quiet: bool, prefix: bool) -> None:
        self._logs, self._quiet, self._prefix = logs, quiet, prefix
        self._parts: dict[tuple[int, str, str], str] = {}
        self._watch: JobWatch | None = None
        self._line: StatusLine | LivePage | None = None
        self._started: set[int] = set()
        self._is_explained = False
        """Whether what engines say now is known and only long: torchrun's traceback."""

    def watch_with(self, folder: PatientFolder, size: int, *, page: bool) -> None:
        """From now on what the ranks tell of themselves is taken and shown."""
        from wirespeed.session.watching import JobWatch

        line = self._line = (
            LivePage(sys.stderr) if page else StatusLine(sys.stderr, quiet=self._quiet)
        )
        self._watch = JobWatch(size, folder, line.show, line.say)

    def close(self) -> tuple[list[Finding], Watched | None]:
        """What the watch came to, if there was one."""
        found = self._watch.close() if self._watch else ([], None)
        if self._line is not None:  # last: until now it was written to
            self._line.close()
        return found

    def started(self, rank: int, node: str) -> None:
        self._started.add(rank)

    def output(self, rank: int, node: str, stream: str, text: str, *, whole: bool) -> None:
        if stream == WATCHED:
            if self._watch is not None:
                self._watch.take(rank, text, whole=whole)
            return
        self._logs.rank(rank, text, whole=whole)
        key = rank, node, stream
        line = self._parts.pop(key, "") + text
        if whole or len(line) > _LONGEST:
            self._show(key, line)
        else:
            self._parts[key] = line

    def ended(self, rank: int, node: str, code: int) -> None:
        for key in [key for key in self._parts if key[0] == rank]:
            self._show(key, self._parts.pop(key))
        if rank not in self._started and code in (NOT_FOUND, NOT_EXECUTABLE):
            self._is_explained = True
        if self._watch is not None:
            self._watch.ended(rank, code)
        if code and not self._quiet:
            _tell(f"{rank_name(rank, {rank: node})} {returncode_text(code)}")

    def said(self, piece: str, text: str) -> None:
        self._logs.engine(piece, text)
        if not self._quiet and not self._is_explained:
            sys.stderr.write(f"{piece}: {harmless(text)}\n")

    def ending(self, reason: Reason) -> None:
        if reason != "finished" and not self._quiet:
            _tell(_ENDING[reason])

    def flush(self) -> None:
        for key in list(self._parts):
            self._show(key, self._parts.pop(key))

    def _show(self, key: tuple[int, str, str], line: str) -> None:
        rank, node, stream = key
        head = f"{node}/rank-{rank}: " if self._prefix else ""
        out = sys.stdout if stream == "stdout" else sys.stderr
        with self._line.away() if self._line else nullcontext():
            out.write(f"{head}{line}\n")
            out.flush()


_ENDING: dict[Reason, str] = {
    "failed": "a rank has failed: ending the others",
    "lost": "an engine or a connection has ended before its ranks: ending the rest",
    "not_started": "not all ranks have started in time: ending the others",
    "interrupted": "interrupted: ending all ranks",
}


def _tell(text: str) -> None:
    sys.stderr.write(f"wirespeed: {harmless(text)}\n")
    sys.stderr.flush()


def _summary(end: JobEnd, size: int, seconds: float) -> str:
    good = sum(code == 0 for code in end.codes.values())
    nodes = len(set(end.nodes.values()))
    where = f" on {nodes} node{'s' if nodes > 1 else ''}" if nodes else ""
    return f"{good} of {size} ranks{where} ended with 0, after {seconds:.1f} s"
