"""What a gate did, as a stored run: the node's facts, what is wrong with it, and the act."""

from collections.abc import Sequence

from wirespeed import __version__
from wirespeed.checks.registry import tell
from wirespeed.fleet.gate.decision import Decision, Rules, Seen, exit_code
from wirespeed.model.records import Finding, NodeFacts, Run, Subject, Verdict, World

_VERDICTS: dict[str, Verdict] = {"good": "READY", "bad": "NOT READY", "unknown": "UNKNOWN"}
_IDS = {
    "take": "GATE-002",
    "keep": "GATE-003",
    "return": "GATE-004",
    "hold": "GATE-005",
    "pass": "GATE-006",
}
_COULD_NOT = "GATE-007"


def finding_of(node: str, rules: Rules, decision: Decision) -> Finding | None:
    """What was done; None for a good node that is in service."""
    if decision.act == "pass" and decision.health != "unknown":
        return None
    case = "dry run" if rules.dry_run and decision.act in ("take", "return") else "done"
    return tell(
        _IDS[decision.act],
        case,
        subject=Subject("node", node),
        host=node,
        why=decision.why,
        purpose=rules.purpose,
        rule=rules.unknown,
    )


def could_not(node: str, problems: Sequence[str]) -> list[Finding]:
    """Nothing that the node is to blame for."""
    return [tell(_COULD_NOT, "failed", host=node, what=one) for one in problems]


def run_of(
    node: str,
    facts: NodeFacts,
    rules: Rules,
    decision: Decision,
    seen: Seen,
    problems: Sequence[str],
    seconds: float,
) -> str:
    """Store it; the run's id."""
    from wirespeed.runs.folder import new_id
    from wirespeed.runs.store import save

    done = finding_of(node, rules, decision)
    findings = (*([done] if done else []), *seen.findings, *could_not(node, problems))
    run = Run(
        id=new_id(),
        command="gate",
        verdict="UNKNOWN" if problems and decision.health == "good" else _VERDICTS[decision.health],
        exit_code=exit_code(
            rules, refuses=decision.refuses, health=decision.health, problems=bool(problems)
        ),
        started="",
        seconds=seconds,
        world=World(size=1, nodes=(facts,), backend="", launcher=rules.purpose.partition("-")[0]),
        versions={"wirespeed": __version__},
        config={
            "for": rules.purpose,
            "node": node,
            "unknown": rules.unknown,
            "never_take_more_than": rules.most_taken,
            "dry_run": rules.dry_run,
            "act": decision.act,
            "why": decision.why,
            "missing": list(seen.missing),
        },
        findings=findings,
    )
    save(run)
    return run.id
