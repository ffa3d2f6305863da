"""What fails a run: failures, on demand also warnings, and never what was allowed by name.

It changes no judgement: a warning stays one. GATE-001 says that warnings were asked to fail.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from wirespeed.checks.registry import tell
from wirespeed.model.records import Finding, Verdict
from wirespeed.model.units import listed

FailOn = Literal["fail", "warn"]
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Strictness:
    fail_on: FailOn = "fail"
    allow: frozenset[str] = frozenset()
    """Ids of findings that do not count."""

    def allowed(self, findings: Sequence[Finding]) -> list[Finding]:
        """The findings with those marked, as warnings, that were allowed."""
        return [
            replace(
                one,
                status="warn",
                allowed=one.status,
                title=f"{one.title} (allowed by --allow {one.id})",
            )
            if one.id in self.allow and one.status in ("warn", "fail")
            else one
            for one in findings
        ]

    def judged(
        self, findings: Sequence[Finding], verdict: Verdict, code: int
    ) -> tuple[list[Finding], Verdict, int]:
        """(findings, verdict, exit code) as they count: only what is READY can be refused.

        An unknown verdict stays unknown: a warning is no measurement.
        """
        warned = [one for one in findings if one.status == "warn" and not one.allowed]
        if self.fail_on != "warn" or verdict != "READY" or not warned:
            return list(findings), verdict, code
        return [*findings, _refusal(warned)], "NOT READY", 1


PLAIN = Strictness()
"""Failures fail, and nothing is allowed."""


def _refusal(warned: Sequence[Finding]) -> Finding:
    ids = list(dict.fromkeys(one.id for one in warned))
    count = f"{len(warned)} warning{'s fail' if len(warned) > 1 else ' fails'}"
    return tell(
        "GATE-001",
        "refused",
        what=count,
        ids=listed(ids, _SHOWN),
        first=ids[0],
        saw="; ".join(one.title for one in warned[:_SHOWN]),
    )
