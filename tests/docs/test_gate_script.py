"""The prolog of docs/gate.md refuses a node by a gate's own words, and by nothing else that fails."""

import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from wirespeed.fleet.gate.guarded import Answer

DOCS = Path(__file__).parents[2] / "docs" / "gate.md"
TRACEBACK = "echo \"ModuleNotFoundError: No module named 'wirespeed'\" >&2; exit 1"


def prolog(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run it where `wirespeed` is that program; empty: where there is none."""
    (script,) = re.findall(r"^#!/bin/sh\n.*?(?=^```)", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    script, replaced = re.subn(r"(?<=PATH=)\S+", f"{folder}:/usr/bin:/bin", script)
    assert replaced == 1
    if program:
        (folder / "wirespeed").write_text(f"#!/bin/sh\n{program}\n")
        (folder / "wirespeed").chmod(0o755)
    return subprocess.run(
        ["/bin/sh", "-c", script], capture_output=True, text=True, timeout=30, check=False
    )


def says(code: int, *, refuses: bool, why: str = "") -> str:
    answer = Answer(node="n1", act="take", health="bad", refuses=refuses, why=why)
    return f"cat <<'END'\n{msgspec.json.encode(answer).decode()}\nEND\nexit {code}"


def test_a_refusal(tmp_path: Path) -> None:
    done = prolog(tmp_path, says(1, refuses=True, why="GPU-002 it's $(bad)"))
    assert done.returncode == 1
    assert "GPU-002 it's $(bad)" in done.stderr, "for slurmd's log"


@pytest.mark.parametrize(
    "program",
    [
        says(0, refuses=False),
        says(0, refuses=True),  # a dry run
        says(1, refuses=False, why='"refuses":true'),
        TRACEBACK,
        "exit 1",
        "exit 2",
        "exit 4",
        "kill -9 $$",
        "",
    ],
)
def test_no_refusal(program: str, tmp_path: Path) -> None:
    assert prolog(tmp_path, program).returncode == 0
