"""From logs to findings: read, gather, reason, tell."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from wirespeed.diagnose.disagreements import disagreements
from wirespeed.diagnose.evidence import Evidence
from wirespeed.diagnose.fabric import Fabric
from wirespeed.diagnose.fabric_findings import fabric_findings
from wirespeed.diagnose.flight import Dump, compare, is_dump, read_dump, unread
from wirespeed.diagnose.nccl_lines import ANCHORS
from wirespeed.diagnose.reason import Diagnosis, reason
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.rules import all_rules
from wirespeed.diagnose.scan import Scanner, Watcher
from wirespeed.diagnose.sources import Source
from wirespeed.diagnose.suspects import ANCHORS as WORDS
from wirespeed.diagnose.suspects import Suspects
from wirespeed.diagnose.telling import findings_of
from wirespeed.errors import InputError
from wirespeed.records import Finding

__all__ = ["Reading", "diagnose"]

Progress = Callable[[str, int], None]
"""(log, its number among all): called before each one is read."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of reading logs."""

    diagnosis: Diagnosis
    findings: tuple[Finding, ...]
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
    fabric, evidence, suspects = Fabric(), Evidence(), Suspects()
    watchers = (
        Watcher("fabric", ANCHORS, fabric.see),
        Watcher("suspects", WORDS, suspects.see),
    )
    scanner = Scanner(known, watchers)
    suspects.around = scanner.around
    dumps: list[Dump] = []
    damaged: list[Finding] = []
    for number, source in enumerate(sources, 1):
        progress(source.name, number)
        if is_dump(source):
            try:
                dumps.append(read_dump(source, len(dumps)))
            except InputError as error:
                if len(sources) == 1:
                    raise
                damaged.append(unread(error))
        else:
            evidence.add(scanner.read(source))
    evidence.ranks, evidence.hosts = scanner.ranks, scanner.hosts
    evidence.settle(known, scanner.counts)
    found = reason(evidence)
    recorded = [*(compare(dumps) if dumps else []), *damaged]
    logged = findings_of(found, lines=scanner.lines) if len(dumps) < len(sources) else []
    differ = disagreements(found.facts)
    # A host that says that it uses another network is told once.
    named = "network" if any("same network" in one.title for one in differ) else ""
    logged += [*differ, *fabric_findings(fabric, told=named)]
    if not any(one.status == "fail" for one in (*logged, *recorded)):
        symptom = found.answers[0].first.start.line if found.answers else None
        if shown := suspects.findings(known, symptom):
            logged = [*(one for one in logged if one.status != "not_checked"), *shown]
    findings = _merged(logged, recorded)
    return Reading(found, findings, len(sources), scanner.lines, scanner.bytes)


def _merged(logged: Sequence[Finding], recorded: Sequence[Finding]) -> tuple[Finding, ...]:
    """A cause of the logs first, then what the recorder proves, then what is only a symptom."""
    if recorded:
        logged = [one for one in logged if one.status != "not_checked"]
    order = {"fail": 0, "warn": 1, "not_checked": 2, "pass": 3}
    return tuple(sorted([*logged, *recorded], key=lambda one: order[one.status]))
