"""From logs to findings: read, gather, reason, tell."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from wirespeed.diagnose.disagreements import disagreements
from wirespeed.diagnose.endings import broken_off, closing, good_end, not_read, verdict_of
from wirespeed.diagnose.evidence import Evidence
from wirespeed.diagnose.fabric import Fabric
from wirespeed.diagnose.fabric_findings import fabric_findings
from wirespeed.diagnose.flight import Dump, compare, is_dump, read_dump, unread
from wirespeed.diagnose.nccl_lines import ANCHORS
from wirespeed.diagnose.reason import Diagnosis, reason
from wirespeed.diagnose.reports import Reports
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.rules import all_rules
from wirespeed.diagnose.scan import Scanner, Watcher
from wirespeed.diagnose.sources import Source
from wirespeed.diagnose.telling import findings_of
from wirespeed.errors import InputError
from wirespeed.records import Finding, LogVerdict

__all__ = ["Reading", "diagnose"]

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
) -> Reading:
    """Read every log once, as a stream, and say the cause. Raises InputError for one that cannot be."""
    known = all_rules() if rules is None else tuple(rules)
    fabric, evidence = Fabric(), Evidence()
    scanner = Scanner(known, [Watcher("fabric", ANCHORS, fabric.see)])
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
            damaged.append(unread(error) if dump else not_read(error))
    evidence.ranks, evidence.hosts = scanner.ranks, scanner.hosts
    evidence.settle(known, scanner.counts)
    found = reason(evidence)
    recorded = [*(compare(dumps, len(damaged)) if dumps else []), *reports.findings(), *damaged]
    logged = findings_of(found)
    differ = disagreements(found.facts)
    # A host that says that it uses another network is told once.
    named = "network" if any("same network" in one.title for one in differ) else ""
    logged += [*differ, *fabric_findings(fabric, told=named)]
    logged += [broken_off(log, how) for log, how in scanner.broken.items()]
    findings = _merged(logged, recorded)
    if scanner.ends and not any(one.status in ("fail", "warn") for one in findings):
        ends = [] if damaged else good_end(evidence, scanner.ends)
        findings = (closing(scanner.lines, ends, known=bool(found.facts)), *findings)
    verdict, code = verdict_of(findings)
    return Reading(found, findings, verdict, code, len(sources), scanner.lines, scanner.bytes)


def _merged(logged: Sequence[Finding], recorded: Sequence[Finding]) -> tuple[Finding, ...]:
    """A cause of the logs first, then what the recorder proves, then what is only a symptom."""
    order = {"fail": 0, "warn": 1, "not_checked": 2, "pass": 3}
    return tuple(sorted([*logged, *recorded], key=lambda one: order[one.status]))
