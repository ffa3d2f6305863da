"""`wirespeed cluster`: training environments on Kubernetes and OpenShift; one file a verb beside it."""

import sys
from typing import Any

import click

from wirespeed.cli import LazyGroup
from wirespeed.errors import CannotMeasure

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


class _ClusterGroup(LazyGroup):
    verbs = _VERBS
    folder = "clusters."
    holds = "command"

    def invoke(self, ctx: click.Context) -> Any:
        """What kubectl refused, or answered in rubbish, is told as a finding."""
        try:
            return super().invoke(ctx)
        except CannotMeasure as error:
            from wirespeed.clusters.kube import Refused, finding_of
            from wirespeed.views.findings import finding_lines
            from wirespeed.views.text import style_for

            if not isinstance(error, Refused):
                raise
            lines = finding_lines([finding_of(error)], style_for(sys.stderr))
            click.echo("\n".join(lines), err=True)
            return error.exit_code


@click.group(
    cls=_ClusterGroup,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def cluster() -> None:
    """Training environments on Kubernetes and OpenShift, from one file a cluster.

    NAME is a file clusters/NAME.yaml of this folder, or the path of any cluster file. Everything goes
    through your own kubectl or oc: your login, contexts and proxies.
    """
