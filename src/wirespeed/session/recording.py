"""The session's recorder: takes the ranks' records as they come, and closes with a verdict.

There is one session a run: the `wirespeed` process that started the local ranks, or global rank 0's
process inside somebody else's launcher. It alone writes the run folder and prints.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from wirespeed.checks.correctness import proof_findings
from wirespeed.checks.counting import with_counters
from wirespeed.checks.judge import alone_finding, cause_first, count_listed, judge
from wirespeed.checks.strictness import PLAIN, Strictness
from wirespeed.checks.verdicts import Extent, Grade, grade, topo_grade
from wirespeed.errors import CannotMeasure, InputError, NothingRan, UsageError, WirespeedError
from wirespeed.model.bench_records import GridPoint, Setting
from wirespeed.model.codec import to_json
from wirespeed.model.lasting_records import Goodput, Soak
from wirespeed.model.records import (
    UNJUDGED,
    Choice,
    Finding,
    Measurement,
    Run,
    Subject,
    World,
)
from wirespeed.model.storage_records import Storage
from wirespeed.plan import Plan
from wirespeed.reference import Reference
from wirespeed.runs.folder import RunFolder
from wirespeed.session.findings import make_finding
from wirespeed.session.run_builder import ProgressView, RunBuilder
from wirespeed.watchdog import Outcome

OF_THE_WORLD = frozenset(
    ("joined", "node", "seat", "peers", "choices", "versions", "environment", "identity")
)
"""Kinds of records that every world tells, about itself."""
_REFUSALS = tuple(one.exit_code for one in (UsageError, CannotMeasure, NothingRan, WirespeedError))
"""What a rank's word can end a run with: never as a good one."""


class Recorder(Protocol):
    """Where one world of ranks is written down: a whole run's session, or one turn of many."""

    @property
    def logs(self) -> Path:
        """The folder of the ranks' logs."""
        ...

    def on_record(self, rank: int, kind: str, data: dict[str, Any]) -> None: ...

    def phase(self, text: str) -> None: ...


class Ledger(Protocol):
    """The recorder of a soak within a session (`session.soaking`)."""

    @property
    def seconds_before(self) -> float: ...

    def take(self, kind: str, data: Mapping[str, Any]) -> None: ...

    def findings(self) -> list[Finding]: ...

    def soak(self) -> Soak: ...


@dataclass(eq=False)
class Session:
    """Accumulates one run. `on_record` is called in the monitor's thread, the rest by the owner."""

    plan: Plan
    folder: RunFolder
    progress: ProgressView
    _: KW_ONLY
    launcher: InitVar[str]
    world_size: InitVar[int]
    choices: InitVar[tuple[Choice, ...]]
    config: Mapping[str, Any]
    reference: Reference
    only: frozenset[str] = frozenset()
    ledger: Ledger | None = None
    again: Callable[[str], str] = str
    """Completes the command that a finding proposes, so that it can be typed."""
    strictness: Strictness = PLAIN
    show: Callable[[Run], None] = lambda run: None
    """Tells the run to its user, before it is stored."""

    def __post_init__(self, launcher: str, world_size: int, choices: tuple[Choice, ...]) -> None:
        self._begin = time.monotonic()
        self._settings: tuple[Setting, ...] = ()
        self._goodput: Goodput | None = None
        self._grid: tuple[GridPoint, ...] = ()
        self._facts_of = 0
        self._heard = RunBuilder(
            self.folder, self.progress, launcher=launcher, world_size=world_size, choices=choices
        )

    def on_record(self, _: int, kind: str, data: dict[str, Any]) -> None:
        """Take one record of a rank; unknown kinds come only from another version and are left alone."""
        known = self._heard.take(kind, data)
        if not known and self.ledger is not None and kind.startswith("soak"):
            self.ledger.take(kind, data)

    def note(self, findings: Iterable[Finding]) -> None:
        """What was found before the ranks started."""
        self._heard.notes += findings

    def settle(self, settings: Iterable[Setting], measurements: Iterable[Measurement]) -> None:
        """What the rounds of all settings come to, in place of each round's own measurements."""
        self._settings = tuple(settings)
        self._heard.measurements = list(measurements)

    def keep_goodput(self, goodput: Goodput) -> None:
        """What training that lasted made of its time."""
        self._goodput = goodput

    def keep_grid(self, points: Iterable[GridPoint]) -> None:
        """What the worlds of a grid came to."""
        self._grid = tuple(points)

    @property
    def joined(self) -> bool:
        """Whether some world of this run has joined."""
        return self._heard.nodes.joined

    def has_facts(self, kind: str, world: int) -> bool:
        """Whether such a record of that world (a number) is known: of several, the first that joined."""
        if kind in OF_THE_WORLD and not self.joined:
            self._facts_of = world
        return kind in OF_THE_WORLD and self._facts_of != world

    def stands_for(self, ranks: int) -> None:
        """The run's world has so many ranks; before it has joined."""
        self._heard.world_size = ranks

    def store_goodput(self, goodput: Goodput) -> None:
        """The same as known by now, in case that this process is killed."""
        self.folder.append("goodput", to_json(goodput))

    @property
    def logs(self) -> Path:
        """The folder of the ranks' logs."""
        return self.folder.log_path(0).parent

    def phase(self, text: str) -> None:
        self.progress.phase(text)

    def close(self, outcome: Outcome) -> Run:
        """Judge what came in, write `run.json`, and give the run."""
        self.progress.close()
        way_on = self._way_on()
        told = [
            replace(one, next=way_on) if way_on and one.id == "INT-001" else one
            for one in outcome.findings
        ]
        outcome = replace(outcome, findings=tuple(told))
        heard, world = self._heard, self._heard.world()
        trained = self._goodput is not None and self._goodput.steps > 0
        measured = int(trained) + heard.measured
        findings = [
            *self._findings(world, outcome),
            *proof_findings(heard.proofs),
            *heard.notes,
        ]
        findings = with_counters(findings, world)
        soak = self.ledger.soak() if self.ledger else None
        if self.ledger and soak:
            findings += self.ledger.findings()
            measured += soak.calls
            if world.size == 1 and not self.only:
                findings.append(alone_finding(world))
        if not outcome.ok and outcome.kind != "interrupted":
            findings += log_findings(self.logs)
        if compared := self.reference.choices():
            heard.choices += compared
            heard.store_choices()
        if outcome.ok:  # what ended a run before its time is not to be allowed
            findings = self.strictness.allowed(findings)
        grade = self._grade(world, outcome, findings, measured)
        findings, grade = self.strictness.judged(findings, grade)
        if any(one.fix or one.next or one.status == "not_checked" for one in findings):
            from wirespeed.checks.wording import fitted

            findings = fitted(findings, world, heard.choices)
        findings = [replace(one, next=self.again(one.next)) for one in findings]
        run = replace(
            self._told(world),
            verdict=grade.verdict,
            exit_code=grade.exit_code,
            speed_judged=grade.speed_judged,
            verdict_subject=grade.subject,
            checks_listed=grade.checks_listed,
            findings=tuple(findings),
            soak=soak,
        )
        try:
            self.show(run)
        finally:
            self._store(run)
        return run

    def _grade(
        self, world: World, outcome: Outcome, findings: list[Finding], measured: int
    ) -> Grade:
        refusal = self._heard.refusal
        code = refusal["exit_code"] if refusal else None
        if refusal and code not in _REFUSALS:
            code = CannotMeasure.exit_code
        interrupted = outcome.kind == "interrupted"
        if self.plan.command == "topo":
            seen = bool(world.nodes) and code is None and not interrupted
            return topo_grade(findings, seen=seen, refusal=code, interrupted=interrupted)
        extent = Extent(
            only=bool(self.only),
            checks_listed=count_listed(world) if self.only else 0,
            soak=self.plan.soak is not None,
            measured=measured,
            interrupted=interrupted,
            refusal=code,
        )
        return grade(self.plan.command, findings, extent)

    def _store(self, run: Run) -> None:
        for finding in run.findings:
            self.folder.append("finding", to_json(finding))
        if self._heard.trace:
            self.folder.keep("trace.json", "".join(self._heard.trace))
        self.folder.finish(run)

    def _told(self, world: World) -> Run:
        """The run as it was heard, without a judgement."""
        heard = self._heard
        return Run(
            id=self.folder.id,
            command=self.plan.command,
            verdict="UNKNOWN",
            exit_code=3,
            started=self.folder.started,
            seconds=self._seconds(),
            world=world,
            versions=heard.versions,
            environment=heard.environment,
            config=dict(self.config),
            choices=tuple(heard.choices),
            measurements=tuple(heard.measurements),
            verifications=tuple(heard.verifications),
            located=heard.located and replace(heard.located, pairs=tuple(heard.pairs)),
            training=tuple(heard.training.values()),
            under_load=tuple(heard.load),
            replay=heard.replay,
            shape=heard.shape,
            compute=heard.compute,
            storage=heard.storage,
            settings=self._settings,
            goodput=self._goodput,
            grid=self._grid,
        )

    def _way_on(self) -> str:
        """How an interrupted run is gone on with; empty where it begins anew."""
        if self.ledger is not None:
            return f"wirespeed check --resume {self.folder.id}"
        if self._goodput is not None and self._goodput.checkpoints:
            from wirespeed.typed_command import TYPED

            return f"{TYPED:--checkpoint-dir {self._goodput.folder} --resume}"
        return ""

    def _seconds(self) -> float:
        """Of this run, with what sessions before this one have soaked."""
        before = self.ledger.seconds_before if self.ledger else 0.0
        return before + time.monotonic() - self._begin

    def _findings(self, world: World, outcome: Outcome) -> list[Finding]:
        """The watchdog's first; after a failure only what the records already prove."""
        if self._heard.refusal:
            return [_refused(self._heard.refusal)]
        if self.plan.command == "topo":
            return list(outcome.findings)
        judged = judge(
            self.plan.command,
            world,
            self._heard.measurements,
            [one for one in self._heard.verifications if not one.setting],
            self.reference,
            self.only,
            compute=self._heard.compute,
            past=_past_of(self.plan, self._heard.versions),
            storage=self._heard.storage or self._unseen_storage(),
            training=tuple(self._heard.training.values()),
        )
        if outcome.ok:
            return [*judged, *outcome.findings]
        joined = "" if self._heard.nodes.joined else "WORLD-001"
        proven = [f for f in judged if f.id != joined and f.status not in UNJUDGED]
        return cause_first(outcome.findings, proven, joined=self._heard.nodes.joined)

    def _unseen_storage(self) -> Storage | None:
        """Of a check that looks at all there is, and was given no folder."""
        whole = self.plan.command == "check" and self.config.get("level") == "long"
        return Storage(folder="", sample=0) if whole else None


class TurnRecorder:
    """The recorder of one world of several: what it takes goes to the run's session."""

    def __init__(self, session: Session, logs: Path) -> None:
        self.session, self.logs = session, logs

    def on_record(self, rank: int, kind: str, data: dict[str, Any]) -> None:
        self.session.on_record(rank, kind, data)

    def phase(self, text: str) -> None:
        self.session.phase(text)


def _past_of(plan: Plan, versions: Mapping[str, str]) -> Callable[[], Iterable[Run]]:
    """Runs that devices may be compared with, read only where there is something to compare.

    Those of the same libraries: others' products have another speed on the same device.
    """
    if plan.command != "check" or plan.compute is None:
        return tuple
    from wirespeed.runs.index import RunFilter
    from wirespeed.runs.store import past_runs

    def alike(run: Run) -> bool:
        return all(run.versions.get(name) == versions.get(name) for name in ("torch", "cuda"))

    return lambda: filter(alike, past_runs(RunFilter(command="check")))


def _refused(refusal: Mapping[str, Any]) -> Finding:
    texts = {name: refusal[name] for name in ("saw", "expected", "next")}
    who = Subject("rank", f"rank {refusal['rank']}")
    return make_finding("refused", subject=who, **texts, because=refusal["saw"])


def log_findings(folder: Path) -> list[Finding]:
    """Return causes that the logs in `folder` show, as warnings: the watchdog has named who failed.

    Where they prove none, what is possible and the exception that began the failure. Nothing where there
    is no log, as under somebody else's launcher, which has them.
    """
    from wirespeed.diagnose.diagnose import diagnose
    from wirespeed.diagnose.sources import find_sources

    if not folder.is_dir():
        return []
    try:
        reading = diagnose(find_sources([str(folder)]))
    except InputError:  # no log was written, or it is gone
        return []
    causes = [one for one in reading.findings if one.status == "fail"]
    possible = [one for one in reading.findings if one.status == "warn" and _may_explain(one)]
    return [
        replace(one, status="warn", title=f"the ranks' logs say: {one.title}")
        for one in causes or possible
    ]


def _may_explain(finding: Finding) -> bool:
    """Return whether a warning of `diagnose` tells more than that ranks waited or ended."""
    return finding.confidence == "possible" or finding.category == "unknown-exception"
