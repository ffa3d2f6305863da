"""From the findings about a watched job to its verdict: what could not be seen is never a pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from wirespeed.checks.registry import EXPLAINED, OF_LOGS
from wirespeed.model.records import Finding, Status
from wirespeed.model.verdicts import Verdict

_HANGS: tuple[tuple[Literal["hung", "broken"], Verdict], ...] = (
    ("hung", "HUNG"),
    ("broken", "JOB FAILED"),
)

_CHECKS = EXPLAINED | OF_LOGS


@dataclass(frozen=True, slots=True)
class WatchGrade:
    """What a watch comes to."""

    verdict: Verdict
    exit_code: int
    """Of a command that does nothing but judge; the exit code of `launch` is its job's."""
    subject: str = ""
    """What SLOW or HUNG is about: a rank, a node, or what takes the time."""


def watch_grade(findings: Sequence[Finding], *, job_failed: bool = False) -> WatchGrade:
    """Return the verdict on a watched job.

    A hang comes first, since it is why such a job fails or is interrupted; then the job's own failure,
    then what makes it slow. job_failed: whether the job ended with an error that no signal to us caused.
    """
    for role, word in _HANGS:
        if failed := _with_role(findings, role, "fail"):
            return WatchGrade(word, 1, _subject(failed[0]))
    if job_failed:
        return WatchGrade("JOB FAILED", 1)
    if slow := _with_role(findings, "slow", "fail"):
        return WatchGrade("SLOW", 1, _subject(slow[0]))
    if any(finding.status == "fail" for finding in findings):
        return WatchGrade("JOB FAILED", 1)
    if not findings or any(finding.status == "not_checked" for finding in findings):
        return WatchGrade("NOT ENOUGH SEEN", 3)
    if slow := _with_role(findings, "slow", "warn"):
        return WatchGrade("SLOW", 0, _subject(slow[0]))
    return WatchGrade("NO FINDINGS", 0)


def _with_role(findings: Sequence[Finding], role: str, status: Status) -> list[Finding]:
    return [
        finding
        for finding in findings
        if finding.status == status and finding.id in _CHECKS and _CHECKS[finding.id].role == role
    ]


def _subject(finding: Finding) -> str:
    """Return who the finding is about, else the part of a step that it names."""
    if finding.subject.kind != "job":
        return finding.subject.name
    return _CHECKS[finding.id].part
