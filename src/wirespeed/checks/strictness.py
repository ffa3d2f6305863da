"""What fails a run: failures, on demand also warnings or speed without a judgement, never what was
allowed by name.

It changes no judgement: a warning stays one. GATE-001 says that warnings were asked to fail.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from wirespeed.checks.registry import tell
from wirespeed.errors import CannotMeasure
from wirespeed.model.records import Finding
from wirespeed.model.units import listed
from wirespeed.model.verdicts import Verdict, standing_of

if TYPE_CHECKING:
    from wirespeed.checks.verdicts import Grade

FailOn = Literal["fail", "warn", "unjudged"]
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

    def judged(self, findings: Sequence[Finding], grade: "Grade") -> "tuple[list[Finding], Grade]":
        """Return the findings and the grade as they count: only what is good can be refused.

        An unknown verdict stays unknown: a warning is no measurement.
        """
        if standing_of(grade.verdict) not in ("good", "measured"):
            return list(findings), grade
        warned = [one for one in findings if one.status == "warn" and not one.allowed]
        if self.fail_on == "warn" and warned:
            word = _REFUSED.get(grade.verdict, "FAILED")
            return [*findings, _refusal(warned)], replace(grade, verdict=word, exit_code=1)
        if self.fail_on == "unjudged" and grade.speed_judged is False:
            code = CannotMeasure.exit_code
            return [*findings, tell("GATE-009", "unjudged")], replace(
                grade, verdict="UNKNOWN", exit_code=code
            )
        return list(findings), grade


_REFUSED: dict[str, Verdict] = {"READY": "NOT READY", "NO CULPRIT": "NOT DECIDED"}
"""By word, the word that is said where warnings were asked to fail; else FAILED."""

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
