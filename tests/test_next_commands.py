"""`next:` is a command that can be typed: it begins with a program, and never asks to repeat another."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import wirespeed

PACKAGE = Path(wirespeed.__path__[0])
TEXTS = sorted(
    path
    for path in PACKAGE.rglob("*.yaml")
    if path.name in ("findings.yaml", "errors.yaml", "meanings.yaml", "settings.yaml")
)
PROGRAMS = frozenset(
    {
        "apt-get",
        "cat",
        "chmod",
        "chronyc",
        "cp",
        "df",
        "dmesg",
        "env",
        "ethtool",
        "export",
        "findmnt",
        "getent",
        "ip",
        "kubectl",
        "ls",
        "lspci",
        "ncclras",
        "nft",
        "nvidia-smi",
        "oc",
        "ping",
        "pip",
        "ps",
        "py-spy",
        "quota",
        "scontrol",
        "sinfo",
        "sleep",
        "squeue",
        "srun",
        "sudo",
        "tail",
        "tc",
        "timedatectl",
        "tracepath",
        "wirespeed",
    }
)
PLACE = re.compile(r"on (?:\{[\w.\[\]]+\}|[\w-]+): (?P<command>.*)")
"""Where it is to be typed: `on node-1: dmesg -T`."""
REPEATS = re.compile(r"same command|run (?:it |this )?again|PID-OF|attach PID", re.IGNORECASE)


def nexts(node: Any) -> Iterator[str]:
    """Every text under the key `next`, however deep."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "next" and isinstance(value, str):
                yield value
            else:
                yield from nexts(value)
    elif isinstance(node, list):
        for value in node:
            yield from nexts(value)


def program_of(text: str) -> str:
    place = PLACE.fullmatch(text)
    first = (place["command"] if place else text).split()[0].rstrip(";")
    return "wirespeed" if first.startswith("{typed") else first


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_each_next_begins_with_a_program(path: Path) -> None:
    texts = list(nexts(yaml.safe_load(path.read_text())))
    whole = re.compile(r"\{[\w.]+\}")  # the code gives all of it
    wrong = [
        text for text in texts if not whole.fullmatch(text) and program_of(text) not in PROGRAMS
    ]
    assert wrong == []
    assert [text for text in texts if REPEATS.search(text)] == []


def test_rooms_have_texts() -> None:
    """The walk above sees what it should."""
    assert sum(len(list(nexts(yaml.safe_load(path.read_text())))) for path in TEXTS) > 150


def keywords(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "next":
            yield node.value


def words_in(value: ast.expr) -> str:
    constants = (one for one in ast.walk(value) if isinstance(one, ast.Constant))
    return " ".join(one.value for one in constants if isinstance(one.value, str))


def test_no_code_asks_to_repeat_a_command() -> None:
    asked = [
        f"{path.relative_to(PACKAGE)}: {words_in(value)}"
        for path in PACKAGE.rglob("*.py")
        for value in keywords(ast.parse(path.read_text()))
        if REPEATS.search(words_in(value))
    ]
    assert asked == []


RULE_PLACE = re.compile(
    r"(?:on|in|from|through|as|inside|within) [^:]{1,50}: (?P<command>.*)", re.DOTALL
)
"""Where a rule's command is to be typed: `in the container: df -h /dev/shm`."""
SENTENCES = frozenset(
    ("a", "an", "the", "read", "print", "run", "look", "see", "compare", "try", "ask")
)
"""First words of what is no command."""


def test_rules_for_logs_say_commands() -> None:
    rules = sorted((PACKAGE / "diagnose" / "rules").glob("*.yaml"))
    texts = [text for path in rules for text in nexts(yaml.safe_load(path.read_text())) if text]
    assert len(texts) > 300
    assert [text for text in texts if REPEATS.search(text)] == []
    commands = [
        found["command"] if (found := RULE_PLACE.fullmatch(text)) else text for text in texts
    ]
    assert [text for text in commands if text.split()[0].lower() in SENTENCES] == []
