"""What the facts of the nodes explain of a world that could not be joined: the cause comes first."""

from collections.abc import Sequence
from dataclasses import replace

from wirespeed.model.records import Finding

_PREVENTS_JOINING = ("NET-001", "NET-002", "NET-004", "NET-005")
"""Findings that, where they fail, keep a world of several nodes from being joined at all."""
_STALLS = ("NET-005",)
"""Findings that, where they fail, make ranks hang in a collective."""
_BREAKS = ("COUNT-001",)
"""Findings that, where they fail, make ranks raise in a collective."""


def cause_first(
    ended: Sequence[Finding], proven: Sequence[Finding], *, joined: bool
) -> list[Finding]:
    """Findings of a run that ended badly; `ended`: the watchdog's, `proven`: what the facts show.

    The watchdog sees who raised, hung or never came. Where a failing fact of a node or the network
    says why, what the watchdog saw becomes its consequence: a warning.
    """
    hung = any(one.id.startswith("HANG-") for one in ended)
    raised = any(one.id.startswith("RAISED-") for one in ended)
    explains = _PREVENTS_JOINING if not joined else _STALLS if hung else _BREAKS if raised else ()
    causes = [one for one in proven if one.status == "fail" and one.id in explains]
    if not causes:
        return [*ended, *proven]
    rest = [one for one in proven if one not in causes]
    return [*causes, *(_consequence(one, causes) for one in ended), *rest]


def _consequence(seen: Finding, causes: Sequence[Finding]) -> Finding:
    """A warning that says whose consequence it is."""
    names = ", ".join(
        dict.fromkeys(f"{one.id} on {one.subject.name}" for one in causes if one.subject)
    )
    first = causes[0]
    return replace(
        seen,
        status="warn" if seen.status == "fail" else seen.status,
        because=f"a consequence of {names}",
        fix=first.fix,
        next=first.next,
    )
