"""`wirespeed cluster new` and `discover`: cluster files are written."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.options import argument, command, flag, option
from wirespeed.clusters import CPU_IMAGE, GPU_IMAGE
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.clusters.file import Cluster


# `wirespeed cluster new`

_KEYS = {
    "namespace": "cluster.namespace",
    "image": "workload.image",
    "gpus": "gpus.per_node",
    "nodes": "gpus.default_nodes",
    "preset": "network.preset",
}
"""Key of the file by option."""
_QUESTIONS = (
    ("cluster.namespace", "namespace", "default"),
    ("gpus.per_node", "GPUs of each node (0: none)", "0"),
    ("workload.image", "image of the pods", CPU_IMAGE),
    ("gpus.default_nodes", "nodes", "2"),
    ("network.preset", "fabric (`wirespeed cluster presets` explains them; empty: none)", ""),
    ("storage.mode", "storage: rwx (shared), volumeClaimTemplates (a pod's own) or none", "none"),
)


@command()
@argument("name")
@option("--namespace NAME", "Where its objects are made.")
@option("--image IMAGE", "Of the pods.")
@option("--gpus N", "GPUs of each node.", int)
@option("--nodes N", "Pods, one a node.", int)
@option("--preset PRESET", "The fabric: wirespeed cluster presets.")
@flag("--interactive", "Ask, also where options are given.")
@option("-o --output FILE", "Where to; - is stdout.  [default: clusters/NAME.yaml]")
@flag("--force", "Overwrite a file that is there.")
def new(name: str, interactive: bool, output: str | None, force: bool, **options: Any) -> None:
    """Write a cluster file with every key in it, explained; what is given is set.

    Asks for the few that matter when started on a terminal without an option.

    \f
    Examples:
      wirespeed cluster new mine                       asks a few questions on a terminal
      wirespeed cluster new mine --gpus 8 --nodes 4 --preset h100-ib
      wirespeed cluster new mine --image registry.example.org/team/train:1 -o -
      wirespeed cluster discover > clusters/mine.yaml  from a live cluster instead
    """
    from wirespeed.clusters.reading import FOLDER
    from wirespeed.clusters.template import check_value, new_text, write_file

    check_value("cluster.name", name)
    path = Path(output) if output else Path(FOLDER) / f"{name}.yaml"
    if output != "-" and path.exists() and not force:
        raise UsageError(f"{path} is there already", expected="another name, or --force")
    given = {_KEYS[key]: value for key, value in options.items() if value is not None}
    for key, value in given.items():
        check_value(key, value)
    if interactive or (not given and output is None and sys.stdin.isatty()):
        given = _asked(given)
    text = new_text({"cluster.name": name, **given})
    if output == "-":
        click.echo(text, nl=False)
        return
    write_file(path, text, force=force)
    click.echo(f"wrote {path}\nnext: edit it, then wirespeed cluster validate {_meant(name, path)}")


def _meant(name: str, path: Path) -> str:
    """What means the file on the command line."""
    import shlex

    from wirespeed.clusters.reading import stem

    return name if stem(path) == name else shlex.quote(str(path))


def _asked(given: dict[str, Any]) -> dict[str, Any]:
    """Answers by key; what is given already is the default, and what stays empty is not set."""
    click.echo("Enter keeps what is in brackets.", err=True)
    found = dict(given)
    for key, question, default in _QUESTIONS:
        if key == "workload.image" and found.get("gpus.per_node"):
            default = GPU_IMAGE
        preset = str(given.get(key, default))
        answer = click.prompt(
            question, default=preset, value_proc=_checked(key), err=True, show_default=bool(preset)
        )
        if answer:
            found[key] = int(answer) if key.startswith("gpus.") else answer
    return found


def _checked(key: str) -> Any:
    """A check of one answer: click asks again where it raises its own error."""
    from wirespeed.clusters.template import check_value

    def checked(answer: str) -> str:
        try:
            check_value(key, answer.strip())
        except UsageError as error:
            raise click.UsageError(error.saw) from None
        return answer.strip()

    return checked


# `wirespeed cluster discover`


@command()
@option("--name N", "Of the environment.  [default: the context]", default="")
@option("--context C", "Of the kubeconfig.  [default: current]", default="")
@option(
    "--kubeconfig F",
    "Path.  [default: as kubectl finds it]",
    default="",
    completes="files",
)
@option("--namespace NS", "[default: the context's]", default="")
@option("-o --output FILE", "Write here; a file that exists is kept.")
@flag("-q --quiet", "No progress.")
def discover(
    name: str, context: str, kubeconfig: str, namespace: str, output: str | None, quiet: bool
) -> int:
    """Write a cluster file from a live cluster: what was found, and what was guessed and why.

    Asks for nodes, storage classes, operators and networks; changes nothing, and reads no secret.
    What you may not read becomes a comment.

    \f
    Examples:
      wirespeed cluster discover -o clusters/mine.yaml
      wirespeed cluster discover --context prod --namespace ml --name prod > clusters/prod.yaml
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
