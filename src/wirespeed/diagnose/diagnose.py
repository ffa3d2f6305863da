"""From logs to findings: read, gather, reason, tell."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from wirespeed.diagnose.derived import DERIVED, Evidence
from wirespeed.diagnose.endings import (
    broken_off,
    closing,
    disagreements,
    good_end,
    told_end,
    trains,
    verdict_of,
)
from wirespeed.diagnose.fabric_findings import fabric_findings
from wirespeed.diagnose.findings import make_finding
from wirespeed.diagnose.flight import compare
from wirespeed.diagnose.flight_read import Dump, is_dump, read_dump
from wirespeed.diagnose.nccl_fabric import ANCHORS, Fabric
from wirespeed.diagnose.rendering import Diagnosis, findings_of, reason
from wirespeed.diagnose.reports import Reports
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.rules import all_rules
from wirespeed.diagnose.scan import Scanner, Watcher
from wirespeed.diagnose.sources import Source
from wirespeed.diagnose.suspects import ANCHORS as WORDS
from wirespeed.diagnose.suspects import Suspects
from wirespeed.errors import InputError
from wirespeed.model.records import Finding, LogVerdict

Progress = Callable[[str, int], None]
"""(log, its number among all): called before each one is read."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of reading logs."""

    diagnosis: Diagnosis
    findings: tuple[Finding, ...]
    verdict: LogVerdict
    exit_code: int
    logs: int
    lines: int
    bytes: int


def diagnose(
    sources: Sequence[Source],
    rules: Iterable[Rule] | None = None,
    progress: Progress = lambda name, number: None,
    proofs: Sequence[str] = (),
) -> Reading:
    """Read every log once, as a stream, and say the cause. Raises InputError for one that cannot be.

    proofs: what else is known to tell that the job ended well, such as the run's own exit code.
    """
    known = all_rules() if rules is None else tuple(rules)
    fabric, evidence, suspects = Fabric(), Evidence(), Suspects()
    watchers = (
        Watcher("fabric", ANCHORS, fabric.see),
        Watcher("suspects", WORDS, suspects.see),
    )
    scanner = Scanner(known, watchers)
    suspects.around = scanner.around
    dumps: list[Dump] = []
    reports = Reports()
    damaged: list[Finding] = []
    for number, source in enumerate(sources, 1):
        progress(source.name, number)
        dump = False
        try:
            dump = is_dump(source)
            if dump:
                dumps.append(read_dump(source, len(dumps)))
            elif not reports.take(source):
                evidence.add(scanner.read(source))
        except InputError as error:
            if len(sources) == 1:
                raise
            damaged.append(_unread(error, dump))
    evidence.ranks, evidence.hosts = scanner.ranks, scanner.hosts
    evidence.trains = any(map(trains, scanner.tails.values()))
    evidence.settle(known, scanner.counts, DERIVED)
    found = reason(evidence)
    recorded = [*(compare(dumps, len(damaged)) if dumps else []), *reports.findings(), *damaged]
    logged = findings_of(found)
    differ = disagreements(found.facts)
    # A host that says that it uses another network is told once.
    named = "network" if any("same network" in one.title for one in differ) else ""
    logged += [*differ, *fabric_findings(fabric, told=named)]
    logged += [broken_off(log, how) for log, how in scanner.broken.items()]
    if not any(one.status == "fail" for one in (*logged, *recorded)):
        symptom = found.answers[0].first.start.line if found.answers else None
        if shown := suspects.findings(known, symptom):
            logged = [*(one for one in logged if one.status != "not_checked"), *shown]
    findings = _merged(logged, recorded)
    if scanner.ends and not any(one.status in ("fail", "warn") for one in findings):
        told = proofs or told_end(good_end(evidence, scanner.ends, scanner.tails))
        told = () if damaged else told
        findings = (closing(scanner.lines, told, bool(found.facts), scanner.unended), *findings)
    verdict, code = verdict_of(findings)
    return Reading(found, findings, verdict, code, len(sources), scanner.lines, scanner.bytes)


def _merged(logged: Sequence[Finding], recorded: Sequence[Finding]) -> tuple[Finding, ...]:
    """A cause of the logs first, then what the recorder proves, then what is only a symptom."""
    order = {"fail": 0, "warn": 1, "not_checked": 2, "pass": 3}
    return tuple(sorted([*logged, *recorded], key=lambda one: order[one.status]))


def _unread(error: InputError, dump: bool) -> Finding:
    """One of several logs or dumps that cannot be read."""
    if dump:
        return make_finding("dump_unread", error=error)
    return make_finding("log_not_whole", what=error.saw, how="")
