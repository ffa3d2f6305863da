"""`wirespeed cluster`: training environments on Kubernetes and OpenShift; one file a verb beside it."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from wirespeed.errors import CannotMeasure

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["cluster"]

_VERBS = {
    "new": "Write a commented cluster file.",
    "list": "The cluster files of this folder.",
    "validate": "Is the file right? All errors at once, with their lines.",
    "schema": "The JSON Schema of cluster files, for editors.",
    "discover": "Write a cluster file from a live cluster.",
    "presets": "Fabrics by name: what each sets, and why.",
    "render": "The manifests as one YAML stream, or a folder for kubectl kustomize.",
    "deploy": "Bring the environment up; say why where it does not come.",
    "status": "Pods, nodes, zones, GPUs and restarts.",
    "sync": "Bring this folder to all pods.",
    "shell": "A shell in one pod.",
    "run": "Run a command as ranks on the pods.",
    "logs": "Output of all pods, prefixed.",
    "gpus": "nvidia-smi of every pod as one table.",
    "nccl-tests": "Run nccl-tests as an MPIJob and keep its figures as a run.",
    "clean": "Remove the environment; claims stay unless asked.",
}

_EPILOG = """\b
Examples:
  wirespeed cluster discover > clusters/mine.yaml
  wirespeed cluster validate mine
  wirespeed cluster deploy mine --nodes 4
  wirespeed check --on k8s --cluster mine
  wirespeed cluster clean mine
"""


class _LazyGroup(click.Group):
    """Knows each verb's line by heart, and imports a verb only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module = cmd_name.replace("-", "_")
        command: click.Command = import_module(f"wirespeed.cli.clusters.{module}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """What kubectl refused, or answered in rubbish, is told as a finding."""
        try:
            return super().invoke(ctx)
        except CannotMeasure as error:
            from wirespeed.clusters.kube.kubectl import Refused
            from wirespeed.clusters.kube.refusals import finding_of
            from wirespeed.views.findings import finding_lines
            from wirespeed.views.style import style_for

            if not isinstance(error, Refused):
                raise
            lines = finding_lines([finding_of(error)], style_for(sys.stderr))
            click.echo("\n".join(lines), err=True)
            return error.exit_code

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_VERBS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        from wirespeed.cli.suggest import offered

        return offered(_VERBS.items(), incomplete) or click.Command.shell_complete(
            self, ctx, incomplete
        )


@click.group(
    cls=_LazyGroup,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def cluster() -> None:
    """Training environments on Kubernetes and OpenShift, from one file a cluster.

    NAME is a file clusters/NAME.yaml of this folder, or the path of any cluster file. Everything goes
    through your own kubectl or oc: your login, contexts and proxies.
    """
