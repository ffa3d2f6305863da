"""`wirespeed cluster VERB`: one file a verb; here what several of them share."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli import suggest

if TYPE_CHECKING:
    from wirespeed.clusters.deployment import Deployment
    from wirespeed.clusters.file import ClusterFile
    from wirespeed.clusters.kube import Kubectl
    from wirespeed.model.records import Finding


CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

file_argument: Decorator = click.argument(
    "cluster", metavar="NAME|FILE", shell_complete=suggest.clusters
)

output_option: Decorator = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print.",
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


def opened(name: str) -> "tuple[ClusterFile, Kubectl]":
    """The cluster file that the argument means, and what drives its cluster."""
    from wirespeed.clusters.kube import kubectl_of
    from wirespeed.clusters.reading import read_named

    file = read_named(name)
    return file, kubectl_of(file.cluster)


def settled(values: dict[str, Any], *, live: bool = False) -> "Deployment":
    """Take the argument and the options out of click's values; UsageError for a bad file.

    live: a cluster is asked afterwards.
    """
    from wirespeed.clusters.deployment import settle
    from wirespeed.clusters.reading import read_named

    file = read_named(values.pop("cluster"))
    taken = {name: values.pop(name) for name in ("nodes", "mode", "engine", "fallback")}
    return settle(file, **taken, live=live)
