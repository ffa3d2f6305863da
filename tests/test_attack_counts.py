"""`make test-hostile` tells how many attacks were made, also where workers made them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.mark.hostile("strangers")
@pytest.mark.parametrize("n", range(3))
def test_one_each(n):
    pass

@pytest.mark.hostile("floods")
def test_many(count_attacks):
    count_attacks("floods", 1000)
    count_attacks("strangers", 20)

@pytest.mark.hostile("floods")
def test_not_made():
    pytest.skip("no")

def test_harmless():
    pass
"""


@pytest.mark.slow
def test_counts_of_workers_are_summed_by_kind(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    helpers = Path(__file__).parent / "helpers"
    settings = f"[pytest]\nmarkers = hostile(kind)\npythonpath = {helpers}\n"
    (tmp_path / "pytest.ini").write_text(settings)
    words = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", "."]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = [line.strip() for line in done.stdout.splitlines()]
    assert "1,000  floods (tests: 1)" in told
    assert "23  strangers (tests: 4)" in told
    assert "1,023  in all" in told
