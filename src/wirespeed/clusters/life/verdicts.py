"""From findings to an exit code: a finding is 1, what nobody knows is 3."""

from collections.abc import Iterable

from wirespeed.records import Finding, Verdict

__all__ = ["exit_code", "verdict"]

_UNKNOWN = frozenset(
    {"CLUSTER-011", "CLUSTER-017", "CLUSTER-020", "CLUSTER-021", "CLUSTER-026", "CLUSTER-029"}
)
"""How things stand could not be seen: no answer, no login, not ready and no cause."""
_WRONG = "CLUSTER-019"
"""The kubeconfig is not the one that the file means."""


def exit_code(findings: Iterable[Finding]) -> int:
    """0 good, 1 a finding, 2 wrong configuration, 3 unknown."""
    failed = {one.id for one in findings if one.status == "fail"}
    if not failed:
        return 0
    if _WRONG in failed:
        return 2
    return 3 if failed <= _UNKNOWN else 1


def verdict(code: int) -> Verdict:
    return {0: "READY", 1: "NOT READY"}.get(code, "UNKNOWN")  # type: ignore[return-value]
