"""Whether a command can be started, by the exit codes of shells."""

import subprocess
from pathlib import Path

import pytest

from wirespeed.process.lookup import explain, find_problem


def make(path: Path, mode: int, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def places(tmp_path: Path) -> str:
    """A PATH of two folders."""
    make(tmp_path / "first" / "data", 0o644)
    make(tmp_path / "first" / "both", 0o644)
    make(tmp_path / "second" / "both", 0o755)
    (tmp_path / "first" / "folder").mkdir()
    return f"{tmp_path}/first:{tmp_path}/second"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("both", None),  # a file that cannot be run does not hide one that can
        ("data", 126),
        ("nosuch", 127),
        ("folder", 127),  # shells look for files
        ("", 127),
        ("./nosuch", 127),
        ("first/data", 126),  # from the job's directory, and not by PATH
        ("second/both", None),
        ("data/", 127),
        ("first/", 126),
    ],
)
def test_codes_are_those_of_shells(
    tmp_path: Path, places: str, name: str, code: int | None
) -> None:
    problem = find_problem(name, str(tmp_path), places)
    assert (problem and problem.exit_code) == code


def test_bash_says_the_same(tmp_path: Path, places: str) -> None:
    for name in ("both", "data", "nosuch", "./nosuch", "first/data", "second/both"):
        words = ["/bin/bash", "-c", '"$0"', name]
        done = subprocess.run(words, cwd=tmp_path, env={"PATH": places}, stderr=-1, check=False)
        problem = find_problem(name, str(tmp_path), places)
        assert done.returncode == (problem.exit_code if problem else 0), name


def test_texts_name_the_place(places: str) -> None:
    missing, unfit = find_problem("nosuch", "/", places), find_problem("/etc/passwd")
    assert missing is not None and unfit is not None
    assert missing.text() == "command not found: nosuch"
    assert missing.text("node-1") == "command not found on node-1: nosuch"
    assert unfit.text("node-1").startswith("cannot run on node-1: /etc/passwd: ")


def test_an_interpreter_that_is_missing_is_not_a_missing_command(tmp_path: Path) -> None:
    script = make(tmp_path / "job", 0o755, "#!/no/such/python\n")
    with pytest.raises(FileNotFoundError) as refused:
        subprocess.run([str(script)], check=False)
    problem = explain(refused.value, str(script), None)
    assert problem.exit_code == 126
    assert "interpreter" in problem.text()
