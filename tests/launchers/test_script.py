"""A job as a shell script that really runs, and as YAML."""

import os
import subprocess
from pathlib import Path

import yaml

from wirespeed.launchers.base import SCRATCH, Piece, as_sh, as_yaml

HOSTILE = ("a b", "it's", '"', ";id", "$(id)", "`id`", "\n", "é", "*", "$HOME", "\\")
ONE = Piece(
    name="mpirun",
    command=(
        "sh",
        "-c",
        'cat "$1"; shift; printf "%s|" "$@" "$A"; exit 7',
        "-",
        str(SCRATCH / "hosts"),
        *HOSTILE,
    ),
    environment={"A": "it's $(id)\n!"},
    files={str(SCRATCH / "hosts"): "node-0 slots=2\nit's\n"},
)
ASKS = Piece(
    name="node-1", command=("sh", "-c", "read line; echo node-1 got $line"), stdin="orders\n"
)
FAILS = Piece(name="node-2", command=("sh", "-c", "exit 3"))


def run(script: str, folder: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["sh", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, **env},
    )


def test_words_files_and_environment_reach_the_command_unchanged(tmp_path: Path) -> None:
    done = run(as_sh([ONE], "a title\nof two lines"), tmp_path)
    assert done.returncode == 7
    assert done.stdout == "node-0 slots=2\nit's\n" + "|".join([*HOSTILE, "it's $(id)\n!", ""])
    assert (tmp_path / SCRATCH / "hosts").stat().st_mode & 0o077 == 0


def test_several_processes_run_at_once_and_the_worst_code_counts(tmp_path: Path) -> None:
    done = run(as_sh([ASKS, FAILS], "title"), tmp_path)
    assert (done.returncode, done.stdout) == (3, "node-1 got orders\n")


def test_what_is_hidden_must_be_set(tmp_path: Path) -> None:
    script = as_sh([ONE], "title", hidden=["HF_TOKEN"])
    done = run(script, tmp_path)
    assert done.returncode != 0
    assert "HF_TOKEN" in done.stderr
    assert run(script, tmp_path, HF_TOKEN="x").returncode == 7


def test_as_data() -> None:
    data = yaml.safe_load(as_yaml([ONE, ASKS], "title", ["HF_TOKEN"]))
    assert data["expects"] == ["HF_TOKEN"]
    first, second = data["processes"]
    assert first["command"] == list(ONE.command)
    assert first["files"] == dict(ONE.files)
    assert first["environment"] == dict(ONE.environment)
    assert (second["name"], second["stdin"]) == ("node-1", "orders\n")
