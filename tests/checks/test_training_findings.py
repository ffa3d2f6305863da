"""What the proofs of strategies and their troubles become."""

from typing import Any

import pytest

from wirespeed.checks.correctness import proof_findings, trouble_finding
from wirespeed.checks.registry import EXPLAINED


def proof(label: str, equal: bool = True, **more: Any) -> dict[str, Any]:
    base = {"label": label, "equal": equal, "names": [], "difference": 0.0}
    return {**base, "tolerance": "rtol 1e-4, atol 1e-6", "steps": 3, **more}


def test_all_right_is_one_line() -> None:
    (found,) = proof_findings([proof("naive"), proof("ddp"), proof("ddp")])
    assert (found.id, found.status) == ("TRAIN-001", "pass")
    assert found.title.startswith("naive, ddp: train as one process")


def test_a_strategy_that_trains_otherwise_fails_by_itself() -> None:
    names = ["a.weight", "b.weight", "c.weight", "d.weight"]
    wrong = proof("mine", False, names=names, difference=0.5)
    failed, passed = proof_findings([proof("naive"), wrong])
    assert (failed.status, passed.status) == ("fail", "pass")
    assert failed.title.startswith("mine does not train")
    assert "a.weight, b.weight, c.weight and 1 more differ by up to 0.5" in failed.saw
    assert "mine" not in passed.title


def test_nothing_proven_says_nothing() -> None:
    assert proof_findings([]) == []


def test_a_trouble_names_its_rank() -> None:
    found = trouble_finding(
        {"id": "TRAIN-002", "status": "fail", "title": "stopped", "rank": 3, "saw": "nan"}
    )
    assert (found.subject.kind, found.subject.name) == ("rank", "rank 3")
    assert trouble_finding({"id": "x", "status": "warn", "title": "y"}).subject.name == "job"


@pytest.mark.parametrize("id", [f"TRAIN-{i:03d}" for i in range(1, 12)])
def test_each_is_explained(id: str) -> None:
    assert EXPLAINED[id].family == "training"
    assert len(EXPLAINED[id].explanation) > 80
