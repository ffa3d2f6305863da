"""docs/reliability.md has a row for each fault that `make reliability` makes, and it was named."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from reliability_faults import FAULTS

ROOT = Path(__file__).parents[2]


def test_each_fault_has_its_row_and_was_named() -> None:
    rows = re.findall(r"^\| (.+) \|$", (ROOT / "docs/reliability.md").read_text(), re.MULTILINE)
    cells = [row.split(" | ") for row in rows[1:]]
    assert [one[0] for one in cells] == [fault.name for fault in FAULTS]
    for fault, row in zip(FAULTS, cells, strict=True):
        assert row[1] == fault.made and row[6:] == [fault.nccl_tests, fault.superbench]
        assert "NOT NAMED" not in row[2] and any(text in row[2] for text in fault.named), row
        assert int(row[5]) in fault.codes, row


@pytest.mark.system
def test_a_fault_is_made_and_named() -> None:
    words = [sys.executable, "benchmarks/reliability.py", "-k", "rank killed"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "(DIED-001, fail)" in done.stdout
