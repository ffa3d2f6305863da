"""The examples of every command's help are commands that it takes."""

import re
import shlex
from collections.abc import Iterator

import click

from wirespeed.cli import _cli


def commands(of: click.Command, *path: str) -> Iterator[tuple[click.Command, tuple[str, ...]]]:
    yield of, path
    if isinstance(of, click.Group):
        context = click.Context(of)
        for name in of.list_commands(context):
            if (one := of.get_command(context, name)) is not None:
                yield from commands(one, *path, name)


def examples(of: click.Command) -> Iterator[list[str]]:
    """The words of each, without what stands behind it: a remark, another program, a file."""
    for line in (of.epilog or "").replace("\\\n", " ").splitlines():
        if line.strip().startswith("wirespeed "):
            alone = re.split(r"\s{2,}| \| | && | > ", line.strip())[0]
            yield shlex.split(alone, comments=True)[1:]


def test_the_command_of_each_example_takes_its_words() -> None:
    known = {path: one for one, path in commands(_cli)}
    seen = 0
    for one in known.values():
        for words in examples(one):
            path = tuple(words)
            while path not in known:
                path = path[:-1]
            if not isinstance(known[path], click.Group):
                known[path].make_context(" ".join(path), words[len(path) :])
                seen += 1
    assert seen > 200
