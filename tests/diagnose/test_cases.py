"""Every labelled log is answered rightly, as `benchmarks/diagnose_score.py` judges it."""

import json
from pathlib import Path

import pytest

from diagnose_score import scored
from wirespeed.diagnose.rules import all_rules

CASES = Path(__file__).parent / "cases"
LOGS = sorted(CASES.glob("*.log"))


def test_there_are_cases_of_every_kind() -> None:
    labels = [json.loads(log.with_suffix(".json").read_text()) for log in LOGS]
    assert len(LOGS) >= 112
    assert {label.get("cause_in_log", "yes") for label in labels} == {"yes", "partly", "no"}
    assert any(label["healthy"] for label in labels)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_case_is_right(log: Path) -> None:
    case = scored(log)
    assert case.right, f"said {case.said}, without {case.missing}"


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_category_is_one_that_the_rules_know(log: Path) -> None:
    label = json.loads(log.with_suffix(".json").read_text())
    known = {rule.category for rule in all_rules()}
    assert label["healthy"] or label.get("cause_in_log") == "no" or label["category"] in known
