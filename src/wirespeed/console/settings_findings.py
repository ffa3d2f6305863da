"""What is to be told of compared settings beside their verdicts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wirespeed.checks.combinations import Taken
from wirespeed.checks.correctness import correctness_findings
from wirespeed.console.ranklogs import log_findings
from wirespeed.plan import Plan
from wirespeed.records import Finding, Verification
from wirespeed.records_settings import Setting
from wirespeed.world.watch import Outcome

__all__ = ["given_up_finding", "search_finding", "too_few_finding", "wrong_findings"]

_MOST_TOLD = 12


def given_up_finding(one: Taken, outcome: Outcome, plan: Plan, logs: Path | None) -> Finding:
    """SET-001: the ranks failed under this setting, from its first failure."""
    said = [*outcome.findings, *(log_findings(logs) if logs else [])]
    first = said[0] if said else None
    rest = [text for cause in said[1:] for text in (cause.title, cause.because) if text]
    times = f"in {len(one.rounds)} other rounds they ran" if one.rounds else "no round went well"
    return Finding(
        id="SET-001",
        status="warn",
        title=f"{one.name}: the ranks did not run to the end",
        saw=f"{first.title if first else 'no figure came'}; {times}",
        expected="ranks that run under it as they do in the default",
        because=(first.because if first else "") or (rest[0] if rest else ""),
        costs="this setting has no verdict; the others are not touched by it",
        fix="correct the value, or leave it out",
        next=f"{one.name} wirespeed bench {plan.steps[0].case.op} -v",
        evidence=(*(first.evidence if first else ()), *rest)[:_MOST_TOLD],
    )


def wrong_findings(name: str, checked: Sequence[Verification]) -> list[Finding]:
    """Wrong data under this setting; nothing where all data were right."""
    return [
        replace(one, title=f"{name}: {one.title}")
        for one in correctness_findings(checked)
        if one.status == "fail"
    ]


def search_finding(taken: Sequence[Taken]) -> list[Finding]:
    """SET-003: what --search has not compared to the end."""
    dropped = [one for one in taken if one.given_up == "dropped"]
    if not dropped:
        return []
    rounds = sorted({len(one.rounds) for one in dropped})
    spread = f"{rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else str(rounds[0])
    return [
        Finding(
            id="SET-003",
            status="not_checked",
            title=f"{len(dropped)} of {len(taken) - 1} combinations were not compared to the end",
            because=f"--search dropped them after {spread} rounds, as they lay in the slower half "
            "so far; none of them is proven slower, and the best of them may be as good as a winner",
            fix="leave --search out, or compare those in question alone",
            next="the same command without --search",
            evidence=tuple(one.name for one in dropped[:_MOST_TOLD]),
        )
    ]


def too_few_finding(settings: Sequence[Setting]) -> list[Finding]:
    """SET-002: with so few rounds, no figures could have given a verdict."""
    short = [one for one in settings if one.rounds and len(one.rounds) < one.needed]
    if not short:
        return []
    least, needed = min(len(one.rounds) for one in short), max(one.needed for one in short)
    return [
        Finding(
            id="SET-002",
            status="not_checked",
            title=f"{least} rounds are too few for any verdict on this many combinations",
            because="a 95 % interval, corrected for the number of combinations, needs more rounds",
            expected=f"{needed} rounds or more",
            fix="more rounds, or fewer combinations",
            next=f"the same command with --rounds {needed}",
        )
    ]
