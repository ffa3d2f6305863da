"""The fuzzers for long: WIRESPEED_TEST_SEEDS of each, 100,000 where every release is judged."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.hostile("fuzzed files")]

PROGRAMS = Path(__file__).parents[1] / "programs"
SEEDS = int(os.environ.get("WIRESPEED_TEST_SEEDS", "2000"))
SHARES = 2


@pytest.mark.timeout(60 + SEEDS // 10)
@pytest.mark.parametrize("program", ["fuzz_runs", "fuzz_inputs", "fuzz_kubectl"])
def test_no_traceback_and_no_exit_of_4(program: str, count_attacks: Any) -> None:
    words = [sys.executable, str(PROGRAMS / f"{program}.py"), str(SEEDS // SHARES)]
    started = [
        subprocess.Popen(
            [*words, str(1000 + share * (SEEDS // SHARES))],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for share in range(SHARES)
    ]  # fmt: skip
    said = [one.communicate()[0] for one in started]
    sys.stdout.write("".join(said))
    count_attacks("fuzzed files", SEEDS)
    assert [one.returncode for one in started] == [0] * SHARES, "\n".join(said)
