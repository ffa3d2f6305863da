"""How a watched run ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from wirespeed.model.records import Finding
from wirespeed.watchdog.rank_status import RankStatus

__all__ = ["Outcome", "OutcomeKind", "kind_of"]

OutcomeKind = Literal[
    "finished", "died", "raised", "hung", "never_joined", "claimed_twice", "interrupted"
]

_KINDS: dict[str, OutcomeKind] = {
    "DIED-001": "died",
    "RAISED-001": "raised",
    "HANG-001": "hung",
    "HANG-002": "hung",
    "HANG-003": "hung",
    "HANG-004": "hung",
    "JOIN-001": "never_joined",
    "JOIN-002": "claimed_twice",
    "INT-001": "interrupted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Decided once by the monitor; after any kind but `finished` all ranks were told to end."""

    kind: OutcomeKind
    findings: tuple[Finding, ...] = ()
    """The first cause first; `finished` has only warnings, if any."""
    statuses: tuple[RankStatus, ...] = ()
    """Where each rank was when it was decided."""
    stacks: Mapping[int, str] = field(default_factory=dict)
    """Python stacks by rank, where they were asked for and could be had."""

    @property
    def ok(self) -> bool:
        """Whether every rank delivered all its results."""
        return self.kind == "finished"


def kind_of(findings: tuple[Finding, ...]) -> OutcomeKind:
    """The kind that the first finding stands for; `finished` without any but warnings."""
    return _KINDS.get(findings[0].id, "finished") if findings else "finished"
