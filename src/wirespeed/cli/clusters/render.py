"""`wirespeed cluster render`: the manifests, without a cluster."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli import suggest
from wirespeed.cli.clusters import (
    CONTEXT,
    deployment_options,
    file_argument,
    settled,
    warning_lines,
)

if TYPE_CHECKING:
    from wirespeed.clusters.deployment import Deployment


_EPILOG = """\b
Examples:
  wirespeed cluster render mine | kubectl diff -f -
  wirespeed cluster render mine --nodes 4 --mode tcp
  wirespeed cluster render mine -o json | jq '.items[].kind'
  wirespeed cluster render mine --to manifests && kubectl kustomize manifests
"""


@click.command("render", context_settings=CONTEXT, epilog=_EPILOG)
@file_argument
@deployment_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="A stream of YAML documents, or one List as JSON.",
)
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    shell_complete=suggest.folders,
    help="Write a kustomization and a file an object there instead.",
)
def command(output: str, folder: Path | None, **values: Any) -> int:
    """The manifests as one YAML stream on stdout, in the order in which to apply them.

    No cluster is asked. The first lines say what was chosen, and why.
    """
    from wirespeed.clusters.manifests.render import as_yaml, render, write_folder

    deployment = settled(values)
    objects = render(deployment)
    if folder is not None:
        for path in write_folder(objects, folder):
            click.echo(path)
    elif output == "json":
        whole = {"apiVersion": "v1", "kind": "List", "items": objects}
        click.echo(json.dumps(whole, indent=2))
    else:
        click.echo(_header(deployment) + as_yaml(objects), nl=False)
    return 0


def _header(deployment: "Deployment") -> str:
    """Comments: what was chosen, each on one line."""
    from wirespeed.views.text import Style

    plain = Style()
    size = f"{deployment.nodes} pods, {deployment.gpus} GPUs each, {deployment.mode}"
    lines = [
        f"{deployment.name}: {deployment.engine} in namespace {deployment.namespace}, {size}",
        *(f"{one.name} {one.value}: {one.reason}" for one in deployment.choices),
        *(f"warning: {line}" for one in deployment.warnings for line in warning_lines(one)),
    ]
    return "".join(f"# {plain.text(line)}\n" for line in lines)
