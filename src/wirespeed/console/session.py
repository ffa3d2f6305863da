"""The console's book: takes the ranks' records as they come, and closes with a verdict.

There is one console a run: the `wirespeed` process that started the local ranks, or global rank 0's
process inside somebody else's launcher. It alone writes the run folder and prints.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from wirespeed.checks.causes import cause_first
from wirespeed.checks.judge import judge, verdict_of
from wirespeed.checks.locating import culprit_findings
from wirespeed.checks.training import proof_findings, trouble_finding
from wirespeed.console.book import Ledger, ProgressView
from wirespeed.console.nodebook import NodeBook
from wirespeed.console.ranklogs import log_findings
from wirespeed.plan import Plan
from wirespeed.records import (
    Choice,
    Finding,
    Located,
    Measurement,
    PairFigures,
    Run,
    Subject,
    Verification,
    World,
)
from wirespeed.records_json import (
    finding_to_json,
    located_from_json,
    measurement_from_json,
    pair_from_json,
    verification_from_json,
    world_to_json,
)
from wirespeed.records_lasting import Goodput
from wirespeed.records_lasting_json import goodput_to_json
from wirespeed.records_settings import Setting
from wirespeed.records_training import LoadFigures, Training
from wirespeed.records_training_json import load_from_json, training_from_json
from wirespeed.reference import Reference
from wirespeed.runs.folder import RunFolder
from wirespeed.units import format_size
from wirespeed.world.redact import allowed_environment
from wirespeed.world.seats import distinct_names
from wirespeed.world.watch import Outcome

__all__ = ["Session"]


_STORED = ("measurement", "verification", "pairs", "located", "training", "under_load")
"""Kinds of records that the run folder keeps as they come."""


class Session:
    """Accumulates one run. `on_record` is called in the monitor's thread, the rest by the owner."""

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        progress: ProgressView,
        *,
        launcher: str,
        world_size: int,
        config: Mapping[str, Any],
        choices: tuple[Choice, ...],
        reference: Reference,
        only: frozenset[str] = frozenset(),
        ledger: Ledger | None = None,
    ) -> None:
        self.folder = folder
        self.ledger = ledger
        self._plan = plan
        self._progress = progress
        self._launcher = launcher
        self._world_size = world_size
        self._config = dict(config)
        self._choices = list(choices)
        self._reference = reference
        self._only = only
        self._begin = time.monotonic()
        self._backend = "unknown"
        self._nodes = NodeBook()
        self._seats: dict[int, tuple[str, int]] = {}
        self._versions: dict[str, str] = {}
        self._measurements: list[Measurement] = []
        self._verifications: list[Verification] = []
        self._located: Located | None = None
        self._pairs: list[PairFigures] = []
        self._training: dict[tuple[object, ...], Training] = {}
        self._load: list[LoadFigures] = []
        self._settings: tuple[Setting, ...] = ()
        self._goodput: Goodput | None = None
        self._proofs: list[Mapping[str, Any]] = []
        self._trace: list[str] = []
        self._notes: list[Finding] = []
        self._refusal: Mapping[str, Any] | None = None
        self._take: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "progress": self._on_progress,
            "joined": self._on_joined,
            "node": self._on_node,
            "seat": self._on_seat,
            "peers": self._on_peers,
            "choices": self._on_choices,
            "versions": self._on_versions,
            "measurement": self._on_measurement,
            "verification": self._on_verification,
            "memory": self._on_memory,
            "located": self._on_located,
            "pairs": self._on_pairs,
            "culprits": self._on_culprits,
            "training": self._on_training,
            "under_load": self._on_load,
            "proof": self._proofs.append,
            "trouble": self._on_trouble,
            "trace": self._on_trace,
            "refusal": self._on_refusal,
            "environment": self._on_environment,
            "identity": self._on_identity,
        }
        self._environment = allowed_environment(os.environ)
        folder.append("environment", self._environment)
        self._store_choices()

    def on_record(self, _: int, kind: str, data: dict[str, Any]) -> None:
        """Take one record of a rank; unknown kinds come only from another version and are kept."""
        take = self._take.get(kind)
        if take is not None:
            take(data)
        elif self.ledger is not None and kind.startswith("soak"):
            self.ledger.take(kind, data)
        if kind in _STORED:
            self.folder.append(kind, data)

    def note(self, findings: Iterable[Finding]) -> None:
        """What was found before the ranks started."""
        self._notes += findings

    def settle(self, settings: Iterable[Setting], measurements: Iterable[Measurement]) -> None:
        """What the rounds of all settings come to, in place of each round's own measurements."""
        self._settings = tuple(settings)
        self._measurements = list(measurements)

    def keep_goodput(self, goodput: Goodput) -> None:
        """What training that lasted made of its time."""
        self._goodput = goodput

    def store_goodput(self, goodput: Goodput) -> None:
        """The same as known by now, in case that this process is killed."""
        self.folder.append("goodput", goodput_to_json(goodput))

    @property
    def logs(self) -> Path:
        """The folder of the ranks' logs."""
        return self.folder.log_path(0).parent

    def phase(self, text: str) -> None:
        self._progress.phase(text)

    def close(self, outcome: Outcome) -> Run:
        """Judge what came in, write `run.json`, and give the run."""
        self._progress.close()
        outcome = _to_resume(outcome, self._way_on())
        world = self._world()
        trained = self._goodput is not None and self._goodput.steps > 0
        measured = int(trained) + len(self._pairs) + len(self._measurements) + len(self._training)
        measured += sum(verification.wrong is not None for verification in self._verifications)
        findings = [
            *self._findings(world, outcome),
            *proof_findings(self._proofs),
            *self._notes,
        ]
        soak = self.ledger.soak() if self.ledger else None
        if self.ledger and soak:
            findings += self.ledger.findings()
            measured += soak.calls
        if not outcome.ok and outcome.kind != "interrupted":
            findings += log_findings(self.logs)
        if compared := self._reference.choices():
            self._choices += compared
            self._store_choices()
        for finding in findings:
            self.folder.append("finding", finding_to_json(finding))
        if self._plan.command == "topo":
            measured += len(world.nodes)
        elif self._needs_only_a_world:
            measured += sum(self._tells(finding) for finding in findings)
        verdict, code = verdict_of(findings, measured)
        if outcome.kind == "interrupted":
            verdict, code = "UNKNOWN", 130
        elif self._refusal:
            verdict, code = "UNKNOWN", self._refusal["exit_code"]
        run = Run(
            id=self.folder.id,
            command=self._plan.command,
            verdict=verdict,
            exit_code=code,
            started=self.folder.started,
            seconds=self._seconds(),
            world=world,
            versions=self._versions,
            environment=self._environment,
            config=self._config,
            choices=tuple(self._choices),
            findings=tuple(findings),
            measurements=tuple(self._measurements),
            verifications=tuple(self._verifications),
            located=self._located and replace(self._located, pairs=tuple(self._pairs)),
            training=tuple(self._training.values()),
            under_load=tuple(self._load),
            settings=self._settings,
            soak=soak,
            goodput=self._goodput,
        )
        if self._trace:
            self.folder.keep("trace.json", "".join(self._trace))
        self.folder.finish(run)
        return run

    def _way_on(self) -> str:
        """How an interrupted run is gone on with; empty where it begins anew."""
        if self.ledger is not None:
            return f"wirespeed check --resume {self.folder.id}"
        if self._goodput is not None and self._goodput.checkpoints:
            return f"the same command with --checkpoint-dir {self._goodput.folder} --resume"
        return ""

    def _seconds(self) -> float:
        """Of this run, with what consoles before this one have soaked."""
        before = self.ledger.seconds_before if self.ledger else 0.0
        return before + time.monotonic() - self._begin

    def _findings(self, world: World, outcome: Outcome) -> list[Finding]:
        """The watchdog's first; after a failure only what the records already prove."""
        if self._refusal:
            return [_refused(self._refusal)]
        if self._plan.command == "topo":
            return list(outcome.findings)
        judged = judge(
            self._plan.command,
            world,
            self._measurements,
            [one for one in self._verifications if not one.setting],
            self._reference,
            self._only,
        )
        if outcome.ok:
            return [*judged, *outcome.findings]
        joined = "" if self._nodes.joined else "WORLD-001"
        proven = [f for f in judged if f.id != joined and f.status != "not_checked"]
        return cause_first(outcome.findings, proven, joined=self._nodes.joined)

    def _tells(self, finding: Finding) -> bool:
        """Whether a finding says something where nothing is measured; joining alone does not."""
        asked = finding.id != "WORLD-001" or finding.id in self._only
        return asked and finding.status != "not_checked"

    @property
    def _needs_only_a_world(self) -> bool:
        plan = self._plan
        return not (plan.steps or plan.pairs or plan.training or plan.soak)

    def _world(self) -> World:
        return World(
            size=self._world_size,
            nodes=self._nodes.nodes(),
            backend=self._backend,
            launcher=self._launcher,
        )

    def _store_world(self) -> None:
        self.folder.append("world", world_to_json(self._world()))

    def _on_progress(self, data: Mapping[str, Any]) -> None:
        self._progress.step(data["index"], data["of"], data["label"])

    def _on_joined(self, data: Mapping[str, Any]) -> None:
        self._backend = data["backend"]
        self._nodes.seat(data["hosts"])
        self._store_world()

    def _on_node(self, data: Mapping[str, Any]) -> None:
        self._nodes.tell(data)
        self._store_world()

    def _on_seat(self, data: Mapping[str, Any]) -> None:
        """Where a rank is that opens no process group; with the last of them the world is joined."""
        self._seats[data["rank"]] = data["host"], data["space"]
        if len(self._seats) == self._world_size:
            self._backend = ""
            ranks = range(self._world_size)
            self._nodes.seat(distinct_names([self._seats[rank] for rank in ranks]))
            self._store_world()

    def _on_peers(self, data: Mapping[str, Any]) -> None:
        self._nodes.peers(data)
        self._store_world()

    def _on_choices(self, data: Mapping[str, Any]) -> None:
        self._choices += [Choice(**choice) for choice in data["choices"]]
        self._store_choices()

    def _store_choices(self) -> None:
        told = [{"name": c.name, "value": c.value, "reason": c.reason} for c in self._choices]
        self.folder.append("choices", told)

    def _on_versions(self, data: Mapping[str, Any]) -> None:
        self._versions = dict(data)
        self.folder.append("versions", self._versions)

    def _on_environment(self, data: Mapping[str, Any]) -> None:
        """Of rank 0's node, where that is not this one."""
        self._environment = dict(data)
        self.folder.append("environment", self._environment)

    def _on_identity(self, data: Mapping[str, Any]) -> None:
        """Why rank 0 believes in its place, where an engine has started it elsewhere."""
        self._choices.append(Choice("launcher", self._launcher, data["reason"]))
        self._store_choices()

    def _on_measurement(self, data: Mapping[str, Any]) -> None:
        self._measurements.append(measurement_from_json(data))

    def _on_verification(self, data: Mapping[str, Any]) -> None:
        self._verifications.append(verification_from_json(data))

    def _on_located(self, data: Mapping[str, Any]) -> None:
        self._located = located_from_json(data)

    def _on_pairs(self, data: Mapping[str, Any]) -> None:
        self._pairs += map(pair_from_json, data["pairs"])

    def _on_culprits(self, data: Mapping[str, Any]) -> None:
        if self._located is not None:
            measured = replace(self._located, pairs=tuple(self._pairs))
            self._notes += culprit_findings(measured, data["culprits"])

    def _on_training(self, data: Mapping[str, Any]) -> None:
        """What was known after a round gives way to what is known after the next."""
        one = training_from_json(data)
        self._training[one.key] = one

    def _on_load(self, data: Mapping[str, Any]) -> None:
        self._load.append(load_from_json(data))

    def _on_trouble(self, data: Mapping[str, Any]) -> None:
        self._notes.append(trouble_finding(data))

    def _on_trace(self, data: Mapping[str, Any]) -> None:
        self._trace.append(data["text"])

    def _on_refusal(self, data: Mapping[str, Any]) -> None:
        """A rank cannot do what was asked: the first to say so is shown, and it is no failure."""
        self._refusal = self._refusal or data

    def _on_memory(self, data: Mapping[str, Any]) -> None:
        size = format_size(data["size_bytes"]) if data["size_bytes"] else "any size"
        self._notes.append(
            Finding(
                id="MEM-001",
                status="warn",
                title=f"{data['label']} does not fit in memory; the larger sizes were left out",
                saw=f"{size} and its copy do not fit beside the other ranks' buffers",
                expected="free memory for input and output on every rank",
                fix="fewer local ranks, or a smaller -e",
            )
        )


def _to_resume(outcome: Outcome, way_on: str) -> Outcome:
    """What was interrupted can be gone on with."""
    told = tuple(
        replace(one, next=way_on) if way_on and one.id == "INT-001" else one
        for one in outcome.findings
    )
    return replace(outcome, findings=told)


def _refused(refusal: Mapping[str, Any]) -> Finding:
    return Finding(
        id="WORLD-002",
        status="not_checked",
        title="this world cannot be measured as asked",
        subject=Subject("rank", f"rank {refusal['rank']}"),
        saw=refusal["saw"],
        expected=refusal["expected"],
        because=refusal["saw"],
        next=refusal["next"],
    )
