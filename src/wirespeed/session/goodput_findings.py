"""What goes wrong in training that lasts, as incidents and findings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wirespeed.model.lasting_records import Incident
from wirespeed.model.records import Finding, Subject
from wirespeed.model.units import format_duration
from wirespeed.watchdog import Outcome

__all__ = [
    "SHOWN",
    "Failure",
    "checkpoint_finding",
    "failure_findings",
    "failure_of",
    "unwritten_finding",
]

SHOWN = 16
"""Findings of failures that are shown one by one."""


def failure_of(outcome: Outcome) -> Finding:
    """What ended a world before its time: the watchdog's first cause."""
    for finding in outcome.findings:
        if finding.status != "pass":
            return finding
    return Finding(
        id="JOIN-001",
        status="fail",
        title=f"the ranks {outcome.kind.replace('_', ' ')}",
        because="the watchdog knows no more",
    )


@dataclass(slots=True)
class Failure:
    """A world that ended before its time."""

    finding: Finding
    at: str
    """ISO 8601 in UTC."""
    since_s: float
    """When something was last heard of it."""
    world: int
    steps_s: float
    """Of steps that were lost with it."""
    until_s: float
    """When the work went on, or the next failure came, or all ended."""
    resumed: int | None = None
    """The step that the next world went on from; None: none did."""

    def incident(self) -> Incident:
        finding = self.finding
        return Incident(
            at=self.at,
            since_s=self.since_s,
            id=finding.id,
            title=finding.title,
            subject_kind=finding.subject.kind,
            subject=finding.subject.name,
            saw=finding.saw,
            because=finding.because,
            lost_s=self.lost_s,
            world=self.world,
        )

    @property
    def lost_s(self) -> float:
        return self.steps_s + self.until_s - self.since_s


def failure_findings(failures: Sequence[Failure]) -> list[Finding]:
    """One that fails for each, up to `SHOWN`; the rest together."""
    found = [_failed(one) for one in failures[:SHOWN]]
    if rest := failures[SHOWN:]:
        lost = sum(one.lost_s for one in rest)
        title = f"{len(rest)} more failures, which cost {format_duration(lost)}"
        found.append(replace(found[-1], title=title, subject=Subject("job", "job"), costs=""))
    return found


def _failed(failure: Failure) -> Finding:
    cost = format_duration(failure.lost_s)
    if failure.resumed is None:
        costs = f"{cost}; no time was left to start again"
    elif failure.resumed:
        costs = f"{cost}, with steps made again; training went on from step {failure.resumed:,}"
    else:
        costs = f"{cost}, with steps made again; training began anew, as there was no checkpoint"
    when = f"{format_duration(failure.since_s)} after the start, at {failure.at}"
    finding = failure.finding
    return replace(finding, status="fail", costs=costs, evidence=(when, *finding.evidence))


def checkpoint_finding(title: str, because: str, costs: str, fix: str) -> Finding:
    return Finding(
        id="TRAIN-007",
        status="warn",
        title=title,
        saw=because,
        expected="a whole checkpoint of this job",
        costs=costs,
        fix=fix,
    )


def unwritten_finding(title: str, saw: str) -> Finding:
    """The run's records had to wait; told of the first time only."""
    return Finding(
        id="TRAIN-010",
        status="warn",
        title=title,
        saw=saw,
        expected="room for the run's records",
        costs="no training; were this process killed meanwhile, what waited would be lost",
        fix="room under the run folder, or WIRESPEED_HOME on a larger disk",
    )
