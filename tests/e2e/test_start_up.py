"""The command process stays light: counted in modules, since times depend on the machine."""

import json
import subprocess
import sys
from typing import Any

import pytest

HEAVY = {"torch", "numpy", "rich", "pydantic", "psutil", "yaml", "importlib.metadata"}
PROBE = """
import json, sys
from wirespeed.cli import run
code = run(sys.argv[1:])
sys.stdout.flush()
sys.stderr.write("\\n" + json.dumps([code, sorted(sys.modules)]))
"""


def modules(cli: Any, *words: str) -> set[str]:
    """What the process of that command had imported when it ended."""
    done = cli.start_words([sys.executable, "-c", PROBE, *words]).wait()
    code, names = json.loads(done.err.splitlines()[-1])
    assert code == 0, done.err
    return set(names)


def bare() -> set[str]:
    """What any command with click costs."""
    words = [sys.executable, "-c", "import click, json, sys; print(json.dumps(list(sys.modules)))"]
    found: list[str] = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    return set(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "most", "foreign"),
    [
        ("--help", 3, 15),
        ("check --help", 10, 25),
        ("bench --help", 15, 25),
        ("check --list", 31, 40),
    ],
)
def test_help_imports_next_to_nothing(cli: Any, words: str, most: int, foreign: int) -> None:
    found = modules(cli, *words.split())
    assert found & HEAVY == set()
    ours = {name for name in found if name.startswith("wirespeed")}
    assert len(ours) <= most, sorted(ours)
    others = found - bare() - ours
    assert len(others) <= foreign, sorted(others)


def test_the_version_needs_no_click(cli: Any) -> None:
    done = cli.start_words([sys.executable, "-X", "importtime", "-m", "wirespeed", "--version"])
    ended = done.wait()
    assert ended.code == 0
    assert ended.out.startswith("wirespeed 0.")
    assert len(ended.out.split()) == 2
    imported = {line.rpartition("|")[2].strip() for line in ended.err.splitlines()}
    assert {"click", "json", *HEAVY} & imported == set()


@pytest.mark.slow
def test_a_good_check_imports_what_it_needs(cli: Any) -> None:
    """Of the process that started the ranks, without what only bad ends and other worlds need."""
    found = modules(cli, *["check", "--ranks", "2", "-l", "quick", "--only", "correctness"])
    ours = {name for name in found if name.startswith("wirespeed")}
    # Of these the index of stored runs, which spares it reading them, is eight; what the hardware can
    # reach at each size, by which figures are judged, is two.
    assert len(ours) <= 103, sorted(ours)


@pytest.mark.slow
def test_the_session_of_a_run_never_imports_torch(cli: Any) -> None:
    words = ("bench", "barrier", "-n", "3", "-w", "1", "--ranks", "1", "-q")
    found = modules(cli, *words)
    assert not {name for name in found if name.split(".")[0] in ("torch", "numpy")}


def test_help_names_every_verb_and_the_exit_codes(cli: Any) -> None:
    shown = cli("--help")
    assert shown.code == 0
    for word in ("check", "bench", "runs", "Exit codes", "130 interrupted", "Examples"):
        assert word in shown.out
    for verb in ("check", "bench", "runs"):
        assert "Examples" in cli.here(verb, "--help").out
