"""The command line without a lab: wrong words, no root, help."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from wirespeed.lab.__main__ import run_lab

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["up", "--slow", "node-9=1mbit"], "node-9"),
        (["up", "--rate", "fast"], "'fast' is not a rate"),
        (["up", "--nodes", "0"], "0 nodes"),
        (["up", "--name", "../x"], "'../x' is no name"),
        (["up", "--slow", "node-1=1mbit", "--slow", "node-1=2mbit"], "another one"),
        (["up", "--melt", "node-1"], "--melt"),
        (["up", "--firewall", "node-9=22"], "node-9"),
        (["up", "--firewall", "all", "--firewall", "node-1=22"], "another one"),
        (["up", "--firewall", "node-1=ssh"], "'ssh' is not a port"),
        (["up", "--loopback-name", "node-4"], "node-4"),
        (["up", "--env", "node-1=A"], "does not say NAME=VALUE"),
        (["up", "--env", "node-1=A=1", "--env", "node-1=A=2"], "another one"),
        (["up", "--nodes", "9999999999", "--cut", "all"], "9999999999 nodes"),
        (["up", "--one-way", "node-1=1mbit:up"], "'up' is no way"),
    ],
)
def test_wrong_words_are_told_with_code_2(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_lab(words) == 2
    assert told in capsys.readouterr().err


def test_without_root_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for words in (["up"], ["down"], ["run", "--", "true"]):
        assert run_lab(words) == 3
        assert "sudo -E" in capsys.readouterr().err


@pytest.mark.slow
def test_help_has_examples_and_torch_is_not_imported(command: Command) -> None:
    for words in ((), ("up",), ("run",)):
        done = command(*words, "--help")
        assert done.returncode == 0
        assert "Examples:" in done.stdout
    code = (
        "import sys, wirespeed.lab.__main__; sys.exit(bool({'torch','numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == 0
