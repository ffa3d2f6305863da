"""All commands of the command line: the verbs, and the verbs of groups, for what is written about them.

Man pages and the documentation are made from this. Walking imports every verb: not for a run.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import click

__all__ = ["Node", "commands"]


@dataclass(frozen=True, slots=True)
class Node:
    """One command and where it stands."""

    path: tuple[str, ...]
    """Its words on the command line, such as ("wirespeed", "cluster", "deploy")."""
    context: click.Context
    """As if it had been called without arguments: nothing is parsed, nothing has run."""
    says: str
    """What it is for, in one line."""
    children: tuple[tuple[str, ...], ...]
    """Paths of its own commands, in the order of its help; () for anything but a group."""

    @property
    def command(self) -> click.Command:
        return self.context.command


def commands(root: click.Command | None = None, name: str = "wirespeed") -> Iterator[Node]:
    """Each command that is not hidden: a group first, then what is in it, in the order of its help."""
    if root is None:
        from wirespeed.cli import _cli

        root = _cli
    yield from _below(click.Context(root, info_name=name, **root.context_settings))


def _below(context: click.Context) -> Iterator[Node]:
    command = context.command
    path = tuple(context.command_path.split())
    listed = _listed(context)
    children = tuple((*path, name) for name, _ in listed)
    yield Node(path, context, command.get_short_help_str(200), children)
    for name, child in listed:
        inner = click.Context(child, info_name=name, parent=context, **child.context_settings)
        yield from _below(inner)


def _listed(context: click.Context) -> list[tuple[str, click.Command]]:
    group = context.command
    if not isinstance(group, click.Group):
        return []
    found = ((name, group.get_command(context, name)) for name in group.list_commands(context))
    return [(name, child) for name, child in found if child is not None and not child.hidden]
