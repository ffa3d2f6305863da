"""Options that several verbs of `wirespeed cluster` share, and what they make of a cluster file."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli import suggest

if TYPE_CHECKING:
    from wirespeed.clusters.deployment import Deployment
    from wirespeed.records import Finding

__all__ = ["CONTEXT", "deployment_options", "file_argument", "settled", "warning_lines"]

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

file_argument: Decorator = click.argument(
    "cluster", metavar="NAME|FILE", shell_complete=suggest.clusters
)

_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--nodes",
        type=click.IntRange(1, 10_000),
        metavar="N",
        help="Pods, one a node.  [default: the file's gpus.default_nodes]",
    ),
    click.option(
        "--mode",
        type=click.Choice(["auto", "rdma", "tcp"]),
        help="How ranks talk to each other.  [default: the file's]",
    ),
    click.option(
        "--engine",
        type=click.Choice(["statefulset", "mpijob", "trainjob", "jobset"]),
        help="What makes the pods.  [default: the file's]",
    ),
    click.option(
        "--fallback",
        type=click.Choice(["tcp"]),
        help="Where RDMA is asked and not there, go on with this instead of refusing.",
    ),
)


def deployment_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def warning_lines(one: "Finding") -> list[str]:
    """What it is, then what to do about it."""
    return [f"{one.title}  {one.id}", *([f"{one.id} fix: {one.fix}"] if one.fix else [])]


def settled(values: dict[str, Any], *, live: bool = False) -> "Deployment":
    """Take the argument and the options out of click's values; UsageError for a bad file.

    live: a cluster is asked afterwards.
    """
    from wirespeed.clusters.file.finding import read_named
    from wirespeed.clusters.settling import settle

    file = read_named(values.pop("cluster"))
    taken = {name: values.pop(name) for name in ("nodes", "mode", "engine", "fallback")}
    return settle(file, **taken, live=live)
