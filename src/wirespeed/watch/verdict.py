"""What a watch comes to: what could not be seen is never a pass."""

from collections.abc import Sequence

from wirespeed.model.records import Finding, Verdict


def verdict_of(findings: Sequence[Finding]) -> tuple[Verdict, int]:
    """The verdict, and the exit code of a command that does nothing but judge."""
    kinds = {one.status for one in findings}
    if "fail" in kinds:
        return "NOT READY", 1
    return ("UNKNOWN", 3) if "not_checked" in kinds or not findings else ("READY", 0)
