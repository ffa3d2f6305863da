"""`wirespeed cluster`: training environments on Kubernetes and OpenShift; what its verbs share."""

import sys
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli import LazyGroup
from wirespeed.cli.options import Decorator, all_of, argument, group, option
from wirespeed.errors import CannotMeasure

if TYPE_CHECKING:
    from wirespeed.clusters.deployment import Deployment
    from wirespeed.clusters.file import ClusterFile
    from wirespeed.clusters.kube import Kubectl
    from wirespeed.model.records import Finding


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
    "gate": "Tell each node's health as its condition, from a pod on each; a taint by choice.",
    "clean": "Remove the environment; claims stay unless asked.",
}

_HOMES = {
    **{verb: f"cluster.files.{verb}" for verb in ("validate", "schema", "presets")},
    **{verb: f"cluster.pods.{verb}" for verb in ("status", "gpus", "logs", "shell")},
    **{verb: f"cluster.deployment.{verb}" for verb in ("render", "deploy", "clean")},
    "list": "cluster.files.list_files",
    "new": "cluster.new.new",
    "discover": "cluster.new.discover",
    "gate": "gate.cluster_gate",
    "sync": "cluster.sync.sync",
    "run": "cluster.jobs.run",
    "nccl-tests": "cluster.jobs.nccl_tests",
}


class _ClusterGroup(LazyGroup):
    verbs = _VERBS
    homes = _HOMES

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


@group(cls=_ClusterGroup)
def cluster() -> None:
    """Training environments on Kubernetes and OpenShift, from one file a cluster.

    NAME is a file clusters/NAME.yaml of this folder, or the path of any cluster file. Everything goes
    through your own kubectl or oc: your login, contexts and proxies.

    \f
    Examples:
      wirespeed cluster discover > clusters/mine.yaml
      wirespeed cluster validate mine
      wirespeed cluster deploy mine --nodes 4
      wirespeed check --on k8s --cluster mine
      wirespeed cluster clean mine
    """


file_argument: Decorator = argument("cluster NAME|FILE")

output_option: Decorator = option(
    "-o --output", "How to print.", ["table", "json"], default="table", show_default=True
)

deployment_options = all_of(
    option(
        "--nodes N",
        "Pods, one a node.  [default: the file's gpus.default_nodes]",
        click.IntRange(1, 10_000),
    ),
    option(
        "--mode", "How ranks talk to each other.  [default: the file's]", ["auto", "rdma", "tcp"]
    ),
    option(
        "--engine",
        "What makes the pods.  [default: the file's]",
        ["statefulset", "mpijob", "trainjob", "jobset"],
    ),
    option(
        "--fallback",
        "Where RDMA is asked and not there, go on with this instead of refusing.",
        ["tcp"],
    ),
)


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
