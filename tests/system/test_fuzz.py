"""Coverage-guided fuzzing of `diagnose`, for a while."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

PROGRAM = Path(__file__).parents[1] / "programs" / "fuzz_diagnose.py"
SECONDS = 20


def test_no_bytes_raise_anything_or_take_much_memory(tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("Requires: atheris (pip install 'wirespeed[fuzz]')")
    words = [sys.executable, str(PROGRAM), f"-max_total_time={SECONDS}", "-rss_limit_mb=1024"]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Done " in done.stderr
