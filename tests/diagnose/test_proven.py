"""A rule that no real log has matched, and that cites no proof, says so."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from wirespeed.diagnose.derived import DERIVED, Evidence
from wirespeed.diagnose.rules import all_rules
from wirespeed.diagnose.scan import Scanner
from wirespeed.diagnose.sources import Source

CASES = Path(__file__).parent / "cases"
LOGS = os.environ.get("WIRESPEED_TEST_LOGS")


def seen_in(folder: Path) -> Iterator[str]:
    """Ids of rules that match lines which were seen in a public thread, not those that were composed."""
    rules = all_rules()
    for log in sorted(folder.glob("*.log")):
        scanner = Scanner(rules)
        label = json.loads(log.with_suffix(".json").read_text())
        if label.get("log_text") == "composed":
            continue
        composed = label.get("composed_lines", ())
        evidence = Evidence()
        read = scanner.read(Source(log.name, log))
        hits = [hit for hit in read if hit.line.number not in composed]
        yield from (hit.rule.id for hit in hits)
        evidence.add(hits)
        evidence.ranks, evidence.hosts = scanner.ranks, scanner.hosts
        evidence.settle(rules, scanner.counts, DERIVED)
        yield from evidence.seen


@pytest.fixture(scope="module")
def seen() -> set[str]:
    return {*seen_in(CASES), *(seen_in(Path(LOGS)) if LOGS else ())}


@pytest.mark.slow
def test_no_rule_is_called_unproven_that_a_real_log_has_matched(seen: set[str]) -> None:
    assert len(seen) > 150
    assert [rule.id for rule in all_rules() if rule.unproven and rule.id in seen] == []


@pytest.mark.skipif(not LOGS, reason="Requires: WIRESPEED_TEST_LOGS, more public logs")
def test_each_other_rule_has_matched_one_or_cites_its_proof(seen: set[str]) -> None:
    proven = {rule.id for rule in all_rules() if not rule.unproven and not rule.proof}
    assert proven - seen == set()
