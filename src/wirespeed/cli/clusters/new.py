"""`wirespeed cluster new`: a commented cluster file, from options or a few questions."""

import sys
from pathlib import Path
from typing import Any

import click

from wirespeed.cli import suggest
from wirespeed.cli.clusters import CONTEXT
from wirespeed.clusters import CPU_IMAGE, GPU_IMAGE
from wirespeed.errors import UsageError

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


@click.command(
    "new",
    context_settings=CONTEXT,
    epilog="""\b
Examples:
  wirespeed cluster new mine                       asks a few questions on a terminal
  wirespeed cluster new mine --gpus 8 --nodes 4 --preset h100-ib
  wirespeed cluster new mine --image registry.example.org/team/train:1 -o -
  wirespeed cluster discover > clusters/mine.yaml  from a live cluster instead
""",
)
@click.argument("name")
@click.option("--namespace", metavar="NAME", help="Where its objects are made.")
@click.option("--image", metavar="IMAGE", help="Of the pods.")
@click.option("--gpus", type=int, metavar="N", help="GPUs of each node.")
@click.option("--nodes", type=int, metavar="N", help="Pods, one a node.")
@click.option(
    "--preset",
    metavar="PRESET",
    shell_complete=suggest.presets,
    help="The fabric: wirespeed cluster presets.",
)
@click.option("--interactive", is_flag=True, help="Ask, also where options are given.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=suggest.files,
    help="Where to; - is stdout.  [default: clusters/NAME.yaml]",
)
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
def command(name: str, interactive: bool, output: str | None, force: bool, **options: Any) -> None:
    """Write a cluster file with every key in it, explained; what is given is set.

    Asks for the few that matter when started on a terminal without an option.
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
