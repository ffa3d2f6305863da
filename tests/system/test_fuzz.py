"""Coverage-guided fuzzing of `diagnose`, for a while."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.hostile("fuzzed files")]

PROGRAM = Path(__file__).parents[1] / "programs" / "fuzz_diagnose.py"
SECONDS = 20


def test_no_bytes_raise_anything_or_take_much_memory(tmp_path: Path, count_attacks: Any) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("Requires: atheris (pip install 'wirespeed[fuzz]')")
    words = [sys.executable, str(PROGRAM), f"-max_total_time={SECONDS}", "-rss_limit_mb=1024"]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ended = re.search(r"Done (\d+) runs", done.stderr)
    assert ended, done.stderr[-3000:]
    count_attacks("fuzzed files", int(ended[1]))
