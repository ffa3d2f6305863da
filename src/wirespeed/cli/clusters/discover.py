"""`wirespeed cluster discover`: a cluster file from a live cluster."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirespeed.cli import suggest
from wirespeed.cli.clusters import CONTEXT
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.clusters.file import Cluster


_EPILOG = """\b
Examples:
  wirespeed cluster discover -o clusters/mine.yaml
  wirespeed cluster discover --context prod --namespace ml --name prod > clusters/prod.yaml
"""


@click.command("discover", context_settings=CONTEXT, epilog=_EPILOG)
@click.option("--name", default="", metavar="N", help="Of the environment.  [default: the context]")
@click.option("--context", default="", metavar="C", help="Of the kubeconfig.  [default: current]")
@click.option(
    "--kubeconfig",
    default="",
    metavar="F",
    shell_complete=suggest.files,
    help="Path.  [default: as kubectl finds it]",
)
@click.option("--namespace", default="", metavar="NS", help="[default: the context's]")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=suggest.files,
    help="Write here; a file that exists is kept.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    name: str, context: str, kubeconfig: str, namespace: str, output: str | None, quiet: bool
) -> int:
    """Write a cluster file from a live cluster: what was found, and what was guessed and why.

    Asks for nodes, storage classes, operators and networks; changes nothing, and reads no secret.
    What you may not read becomes a comment.
    """
    from wirespeed.clusters.discover import discover
    from wirespeed.clusters.kube import kubectl_of
    from wirespeed.views.text import open_progress

    if output:
        _refuse_existing(Path(output))
    where = _where(name, context, kubeconfig, namespace)
    progress = open_progress(quiet=quiet)
    try:
        made = discover(
            kubectl_of(where), name=name, namespace=namespace, context=context,
            kubeconfig=kubeconfig, progress=progress,
        )  # fmt: skip
    finally:
        progress.close()
    if output:
        _write(Path(output), made.text)
    else:
        click.echo(made.text, nl=False)
    if not quiet:
        click.echo(f"{made.summary}; next: wirespeed cluster validate {output or 'FILE'}", err=True)
    return 0


def _where(name: str, context: str, kubeconfig: str, namespace: str) -> "Cluster":
    """The options, held to what a cluster file may say."""
    from pydantic import ValidationError

    from wirespeed.clusters.file import Cluster

    told = {"context": context, "kubeconfig": kubeconfig, "namespace": namespace, "name": name}
    try:
        return Cluster.model_validate({"name": "cluster", **{k: v for k, v in told.items() if v}})
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0])
        raise UsageError(
            f"--{option} {told.get(option, '')!r} cannot be used", expected=first["msg"]
        ) from None


def _refuse_existing(path: Path) -> None:
    """Before the cluster is asked: what somebody wrote by hand is never lost."""
    if path.exists():
        raise UsageError(
            f"{path} exists already",
            expected="a file that does not exist yet",
            next="write to another file and compare, or remove it first",
        )


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}",
            expected="a new file in a folder of yours",
        ) from error
