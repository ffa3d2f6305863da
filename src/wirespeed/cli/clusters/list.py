"""`wirespeed cluster list`: the cluster files of this folder."""

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from wirespeed.cli.clusters import CONTEXT
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One file, as it would be deployed without options."""

    name: str
    """What means the file on the command line."""
    file: str
    valid: bool
    environment: str = ""
    """cluster.name"""
    namespace: str = ""
    engine: str = ""
    nodes: int = 0
    gpus: int = 0
    """Of each node."""
    mode: str = ""
    problem: str = ""
    """The first one."""


@click.command(
    "list",
    context_settings=CONTEXT,
    epilog="""\b
Examples:
  wirespeed cluster list
  wirespeed cluster list -o json | jq '.[] | select(.valid) | .name'
""",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print."
)
def command(output: str) -> None:
    """List the files clusters/*.yaml of this folder, each with what it would deploy."""
    from wirespeed.clusters.reading import FOLDER, known_files

    rows = [_row(path) for path in known_files()]
    if output == "json":
        import json

        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
    elif rows:
        click.echo("\n".join(_table(rows)))
    else:
        click.echo(f"no cluster files in {FOLDER}/\nnext: wirespeed cluster new NAME")


def _row(path: "Path") -> _Row:
    from wirespeed.clusters.deployment import settle
    from wirespeed.clusters.reading import ClusterFileError, read_cluster, read_file, stem

    name, file = stem(path), str(path)
    try:
        one = settle(read_cluster(read_file(path), file), live=True)
    except ClusterFileError as error:
        first = error.problems[0]
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        key = f"{first.key}: " if first.key else ""
        text = f"line {first.line}: {key}saw {first.saw}{more}"
        return _Row(name=name, file=file, valid=False, problem=text)
    except UsageError as error:
        return _Row(name=name, file=file, valid=False, problem=error.saw)
    return _Row(
        name=name, file=file, valid=True, environment=one.name, namespace=one.namespace,
        engine=one.engine, nodes=one.nodes, gpus=one.gpus, mode=one.mode,
    )  # fmt: skip


def _table(rows: list[_Row]) -> list[str]:
    from wirespeed.views.text import Column, Grid, style_for

    titles = ("name", "namespace", "engine", "nodes×GPUs", "mode", "state")
    grid = Grid([Column(title, left=title != "nodes×GPUs") for title in titles])
    for row in rows:
        size = f"{row.nodes}×{row.gpus}" if row.valid else ""
        state = "valid" if row.valid else row.problem
        color = "" if row.valid else "red"
        grid.add(row.name, row.namespace, row.engine, size, row.mode, state, color=color)
    return grid.lines(style_for(sys.stdout))
