"""Commands in the docs are ones that wirespeed takes: verbs, options, names; nothing is run."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from wirespeed.checks.registry import EXPLAINED, select
from wirespeed.cli import _cli
from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.errors import WirespeedError
from wirespeed.launchers.engines import engine_named
from wirespeed.launchers.request import parse_hosts, read_options
from wirespeed.model.units import parse_size
from wirespeed.training.strategies.registry import STRATEGIES

ROOT = Path(__file__).parents[2]
DOCS = (
    "README.md",
    "docs/migrating.md",
    "docs/launchers.md",
    "docs/kubernetes.md",
    "docs/openshift.md",
    "docs/comparing.md",
    "docs/reference.md",
    "docs/report.md",
    "docs/soak.md",
    "docs/counters.md",
    "docs/common-store.md",
    "docs/shell.md",
    "docs/quickstart.md",
    "docs/tutorial.md",
    "docs/guides/platform-engineer.md",
    "docs/guides/ml-engineer.md",
    "docs/guides/performance-engineer.md",
    "docs/alternatives.md",
)
SETTING = re.compile(r"[A-Z][A-Z0-9_]*=\S*")
FENCE = re.compile(r"^```.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
COMMENT = re.compile(r"(?:\s{2,}|\s)#.*| {3,}\S.*")
"""What stands behind a command in a block: a comment, or words that three spaces set apart."""


def candidates(text: str) -> Iterator[str]:
    """Lines of blocks, and code within a line."""
    for block in FENCE.findall(text):
        joined = block.replace("\\\n", " ")
        for line in joined.splitlines():
            yield COMMENT.sub("", line.strip().removeprefix("$ "))
    yield from INLINE.findall(FENCE.sub("", text))


def commands_in(text: str) -> Iterator[list[str]]:
    """Words of each `wirespeed …`, up to a pipe or a file; without those that leave something out."""
    for line in candidates(text):
        try:
            words = shlex.split(re.split(r" [|>] ", line)[0])
        except ValueError:
            continue
        while words and (SETTING.fullmatch(words[0])):
            words.pop(0)
        is_title = " · " in line  # the first line of what a verb prints
        if words[:1] == ["wirespeed"] and len(words) > 1 and "…" not in line and not is_title:
            yield words[1:]


def all_commands() -> list[tuple[str, list[str]]]:
    return [(name, words) for name in DOCS for words in commands_in((ROOT / name).read_text())]


def parsed(words: list[str], where: Path) -> click.Context:
    """As the command line does it, without running; click's error where it would complain."""
    group: click.Context = _cli.make_context("wirespeed", list(words))
    name, command, rest = _cli.resolve_command(group, words)
    while isinstance(command, click.Group):
        name, command, rest = command.resolve_command(group, rest)
    assert name is not None
    assert command is not None
    return command.make_context(name, [places(word, where) for word in rest], parent=group)


def places(word: str, where: Path) -> str:
    """Files that the command would read need not be there: options that want one get one."""
    if re.fullmatch(r"[\w./-]+\.(?:log|json|txt)", word):
        file = where / Path(word).name
        file.write_text("{}")
        return str(file)
    if word.endswith("/") and not word.startswith("-"):
        return str(where)
    return word


def names_are_known(context: click.Context) -> None:
    """What the verbs look at only when they run; a WirespeedError or `strange` where they complain."""
    values = context.params
    for size in (values.get("min_bytes"), values.get("max_bytes")):
        assert not isinstance(size, str) or parse_size(size) > 0
    if values.get("only"):
        select(values["only"])
    if values.get("with_"):
        read_options(engine_named(values["on"] or "local"), values["with_"])
    if values.get("hosts"):
        parse_hosts(values["hosts"])
    strange = set(values.get("ops") or ()) - {*CATALOGUE, "all"}
    strange |= set((values.get("strategy") or "none").split(",")) - set(STRATEGIES)
    assert not strange


@pytest.mark.parametrize(
    ("name", "words"),
    [pytest.param(n, w, id=f"{Path(n).stem}: {shlex.join(w)}") for n, w in all_commands()],
)
def test_each_command_is_taken(
    name: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIRESPEED_STORE", "postgresql://db.example/fleet")  # for `--store common`
    with parsed(words, tmp_path) as context:
        names_are_known(context)


def test_what_is_wrong_is_seen(tmp_path: Path) -> None:
    for text in (
        "`wirespeed launch --on pbs -- true`",
        "`wirespeed check --no-such-option`",
        "| `wirespeed nosuchverb x` |",
        "```\nA=1 wirespeed bench all_reduce --max-time x   # how fast?\n```",
    ):
        (words,) = commands_in(text)
        with pytest.raises(click.ClickException):
            parsed(words, tmp_path)
    for text in (
        "`wirespeed bench all_redoce`",
        "`wirespeed bench all_reduce -b no_size`",
        "`wirespeed check --only COL-999`",
        "`wirespeed train --strategy naiv`",
        "`wirespeed launch --on ssh --with zzz=1 -- true`",
    ):
        (words,) = commands_in(text)
        with parsed(words, tmp_path) as context, pytest.raises((AssertionError, WirespeedError)):
            names_are_known(context)


@pytest.mark.parametrize("name", DOCS)
def test_there_are_commands(name: str) -> None:
    assert len(list(commands_in((ROOT / name).read_text()))) >= 5


def test_each_check_that_is_named_exists() -> None:
    named = set(re.findall(r"\b[A-Z]+-\d{3}\b", (ROOT / "docs/migrating.md").read_text()))
    assert "NET-004" in named
    assert not named - set(EXPLAINED)
