"""From what `train` tells to findings: does each strategy train as one process does, and troubles."""

from collections.abc import Mapping, Sequence
from typing import Any

from wirespeed.checks.per_node import worded
from wirespeed.model.records import Finding, Subject


def proof_findings(proofs: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """One failing finding a strategy that trains differently; one passing for the others."""
    wrong = [proof for proof in proofs if not proof["equal"]]
    right = [proof for proof in proofs if proof["equal"]]
    found = [_differs(proof) for proof in wrong]
    if right:
        names = ", ".join(dict.fromkeys(proof["label"] for proof in right))
        found.append(
            Finding(
                id="TRAIN-001",
                status="pass",
                title=f"{names}: train as one process on the whole batch does",
                saw=f"all parameters within {right[0]['tolerance']} after {right[0]['steps']} steps",
            )
        )
    return found


def _differs(proof: Mapping[str, Any]) -> Finding:
    names = proof["names"]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return worded(
        id="TRAIN-001",
        status="fail",
        title=f"{proof['label']} does not train as one process on the whole batch does",
        saw=f"{', '.join(names[:3])}{more} differ by up to {proof['difference']:.2g}",
        expected=f"within {proof['tolerance']} after {proof['steps']} steps",
        next="wirespeed check --only correctness",
    )


def trouble_finding(data: Mapping[str, Any]) -> Finding:
    """A strategy that could not be measured to its end, as a rank told it."""
    rank = data.get("rank", -1)
    return Finding(
        id=data["id"],
        status=data["status"],
        title=data["title"],
        subject=Subject("rank", f"rank {rank}") if rank >= 0 else Subject("job", "job"),
        saw=data.get("saw", ""),
        expected=data.get("expected", ""),
        because=data.get("because", ""),
        fix=data.get("fix", ""),
        next=data.get("next", ""),
    )
