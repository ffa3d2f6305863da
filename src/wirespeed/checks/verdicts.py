"""From the findings of a run to its verdict: which word, which exit code, and what it is about.

Pure. The words and what they mean are the table of `model/verdicts.py`; a finding that fails decides
before anything else, and outlives an interruption and whatever could not be seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from wirespeed.checks.registry import EXPLAINED
from wirespeed.checks.speed import is_speed_judged
from wirespeed.errors import CannotMeasure, Interrupted
from wirespeed.model.records import Finding
from wirespeed.model.verdicts import BENCH, CHECK, LOCATE, TRAIN, Verdict

SHARED = "WORLD-003"
"""The finding that others measured on these nodes meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """Verdict word, exit code and subject with which a run ends."""

    verdict: Verdict
    exit_code: int
    speed_judged: bool | None = None
    """As in `Run`."""
    subject: str = ""
    """What the word is about."""
    checks_listed: int = 0
    """As in `Run`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Scope of a run: what it was asked for, and how far it came."""

    only: bool = False
    """Whether the user selected some checks."""
    checks_listed: int = 0
    """With a selection: how many checks a full check of this world lists."""
    soak: bool = False
    """Whether the check lasted, and timed calls in place of grading sizes."""
    measured: int = 0
    """Measurements and data checks that gave a result."""
    interrupted: bool = False
    refusal: int | None = None
    """Exit code with which a rank refused what was asked."""


def grade(command: str, findings: Sequence[Finding], extent: Extent) -> Grade:
    """Return the verdict of a run of ours that measures: `check`, `bench`, `train` or `locate`."""
    judged = is_speed_judged(findings) if command in (CHECK, BENCH, TRAIN) else None
    listed = extent.checks_listed if extent.only else 0
    if extent.refusal is not None and not extent.interrupted:
        return Grade(verdict="UNKNOWN", exit_code=extent.refusal, speed_judged=judged)
    if has_failed(findings):
        return Grade(
            verdict=_failed_word(command, findings, extent),
            exit_code=Interrupted.exit_code if extent.interrupted else 1,
            speed_judged=judged,
            subject=_culprit(findings) if command == LOCATE else "",
            checks_listed=listed,
        )
    if extent.interrupted:
        return Grade(verdict="INTERRUPTED", exit_code=Interrupted.exit_code, speed_judged=judged)
    word = _word(command, findings, extent)
    code = CannotMeasure.exit_code if word in ("UNKNOWN", "NOT DECIDED") else 0
    return Grade(verdict=word, exit_code=code, speed_judged=judged, checks_listed=listed)


def topo_grade(
    findings: Sequence[Finding], *, seen: bool, refusal: int | None, interrupted: bool
) -> Grade:
    """Return how a `topo` ends: it judges nothing, so it has no verdict.

    seen: whether any node told what it is made of.
    """
    if has_failed(findings):
        return Grade(verdict="NONE", exit_code=1)
    if interrupted:
        return Grade(verdict="INTERRUPTED", exit_code=Interrupted.exit_code)
    if seen:
        return Grade(verdict="NONE", exit_code=0)
    return Grade(verdict="UNKNOWN", exit_code=refusal or CannotMeasure.exit_code)


def has_failed(findings: Sequence[Finding]) -> bool:
    """Return whether a finding failed; one that was allowed is a warning by now."""
    return any(finding.status == "fail" for finding in findings)


def _failed_word(command: str, findings: Sequence[Finding], extent: Extent) -> Verdict:
    if command == LOCATE:
        return "CULPRIT NAMED" if _culprit(findings) else "NOT DECIDED"
    return "NOT READY" if command == CHECK and not extent.only else "FAILED"


def _culprit(findings: Sequence[Finding]) -> str:
    subjects = [finding.subject for finding in findings if finding.status == "fail"]
    return next((subject.name for subject in subjects if subject.kind != "job"), "")


def _word(command: str, findings: Sequence[Finding], extent: Extent) -> Verdict:
    if _is_status(findings, SHARED, "not_checked"):
        return "UNKNOWN"
    if command == LOCATE:
        return "NO CULPRIT" if _is_status(findings, "LOC-001", "pass") else "NOT DECIDED"
    if command in (BENCH, TRAIN):
        return "MEASURED" if extent.measured else "UNKNOWN"
    if extent.only:
        return _selection_word(findings)
    if extent.soak:
        return "READY" if extent.measured and not _blocking(findings) else "UNKNOWN"
    return "READY" if not why_not_ready(findings) else "UNKNOWN"


def _is_status(findings: Sequence[Finding], id: str, status: str) -> bool:
    return any(finding.id == id and finding.status == status for finding in findings)


def _selection_word(findings: Sequence[Finding]) -> Verdict:
    passed = [finding for finding in findings if finding.status in ("pass", "warn")]
    return "PASSED" if passed and not _blocking(findings) else "UNKNOWN"


def why_not_ready(findings: Sequence[Finding]) -> str:
    """Return what a full check did not look at; empty where world, data and speed were all looked at."""
    if blocking := _blocking(findings):
        return f"{blocking[0].title}: {blocking[0].because}"
    families = {
        EXPLAINED[finding.id].family
        for finding in findings
        if finding.id in EXPLAINED and finding.status in ("pass", "warn", "measured")
    }
    missing = [name for name in ("world", "correctness", "bandwidth") if name not in families]
    return f"{missing[0]} was not looked at" if missing else ""


_MATTERS = ("world", "correctness")
"""Families of which nothing may be left out where it could have been looked at."""


def _blocking(findings: Sequence[Finding]) -> list[Finding]:
    return [
        finding
        for finding in findings
        if finding.status == "not_checked"
        and finding.id in EXPLAINED
        and EXPLAINED[finding.id].family in _MATTERS
    ]
