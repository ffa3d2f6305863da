"""`wirespeed cluster render`, `deploy` and `clean`: the environment comes and goes."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.cluster import (
    deployment_options,
    file_argument,
    output_option,
    settled,
    warning_lines,
)
from wirespeed.cli.options import command, flag, option
from wirespeed.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from wirespeed.clusters.deployment import Deployment
    from wirespeed.clusters.file import ClusterFile
    from wirespeed.clusters.operations.clean import Cleaned
    from wirespeed.session.cluster_runs import Telling


# `wirespeed cluster render`


@command()
@file_argument
@deployment_options
@option(
    "-o --output",
    "A stream of YAML documents, or one List as JSON.",
    ["yaml", "json"],
    default="yaml",
    show_default=True,
)
@option(
    "--to folder FOLDER",
    "Write a kustomization and a file an object there instead.",
    click.Path(path_type=Path, file_okay=False),
)
def render(output: str, folder: Path | None, **values: Any) -> int:
    """The manifests as one YAML stream on stdout, in the order in which to apply them.

    No cluster is asked. The first lines say what was chosen, and why.

    \f
    Examples:
      wirespeed cluster render mine | kubectl diff -f -
      wirespeed cluster render mine --nodes 4 --mode tcp
      wirespeed cluster render mine -o json | jq '.items[].kind'
      wirespeed cluster render mine --to manifests && kubectl kustomize manifests
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


# `wirespeed cluster deploy`


@command()
@file_argument
@deployment_options
@option(
    "--timeout SECONDS",
    "For all pods to become ready; a cause that cannot pass ends it earlier.",
    click.FloatRange(1, 86_400),
    default=300.0,
    show_default=True,
)
@flag(
    "--recreate",
    "Make anew what Kubernetes does not change, such as a StatefulSet's claims; claims stay.",
)
@flag(
    "--no-preflight",
    "Do not compare with what nodes have free (for clusters that add nodes by themselves).",
)
@option(
    "-o --output",
    "json: the run, as `wirespeed runs show` has it.",
    ["table", "json"],
    default="table",
    show_default=True,
)
@flag("-q --quiet", "No progress on stderr.")
@flag("-v --verbose", "Every value that changes, and all evidence.")
def deploy(output: str, quiet: bool, verbose: bool, **values: Any) -> int:
    """Bring the environment up, wait until all its pods are ready, or say why they are not.

    \f
    Examples:
      wirespeed cluster deploy mine
      wirespeed cluster deploy mine --nodes 4 --timeout 900
      wirespeed cluster deploy mine --mode rdma --fallback tcp
      wirespeed cluster deploy mine -o json | jq '.findings[].title'

    Nothing is made before everything was looked at: free GPUs and RDMA devices, objects of that name, and a
    dry run of all objects on the server. Interrupted anywhere, the same command finishes the job.
    Exit code: 0 all pods ready; 1 a finding; 2 wrong file or another cluster; 3 nobody could tell.
    """  # noqa: E501
    from wirespeed.clusters.kube import kubectl_of
    from wirespeed.clusters.operations.deploy import deploy
    from wirespeed.session.cluster_runs import Telling, show_deploy

    deployment, fallback = _settled(values)
    kubectl = kubectl_of(deployment.file.cluster)
    how = {"recreate": values["recreate"], "preflight": not values["no_preflight"]}
    text, code = show_deploy(
        deployment,
        Telling(output, quiet, verbose),
        lambda progress: deploy(
            kubectl, deployment, progress, within_s=values["timeout"], fallback=fallback, **how
        ),
    )
    click.echo(text, nl=False)
    return code


def _settled(values: dict[str, Any]) -> tuple["Deployment", "Deployment | None"]:
    """What to deploy, and what instead where the cluster itself turns out to have no RDMA."""
    instead = {**values, "mode": "tcp", "fallback": None}
    wanted = values["fallback"]
    deployment = settled(values, live=True)
    return deployment, settled(instead) if wanted and deployment.mode == "rdma" else None


# `wirespeed cluster clean`


@command()
@file_argument
@flag("--claims", "Also its claims, and with them the data.")
@flag("--yes", "Do not ask.")
@option(
    "--timeout SECONDS",
    "For everything to be gone.",
    click.FloatRange(1, 86_400),
    default=120.0,
    show_default=True,
)
@output_option
@flag("-q --quiet", "No progress on stderr.")
def clean(cluster: str, claims: bool, yes: bool, timeout: float, output: str, quiet: bool) -> int:
    """Remove the environment; it shows what, and asks for its name first. Claims stay.

    \f
    Examples:
      wirespeed cluster clean mine
      wirespeed cluster clean mine --yes
      wirespeed cluster clean mine --claims        also the data in its claims

    Only what carries the environment's labels is removed, never a namespace. A second call finds nothing
    to do, and that is good. Exit code: 0 gone; 1 a finding; 3 not gone in time.
    """
    from wirespeed.clusters.reading import read_named
    from wirespeed.session.cluster_runs import Telling, clean_lines

    if not yes and not sys.stdin.isatty():
        raise UsageError(
            "nobody can be asked: this is no terminal",
            expected="--yes, which removes without asking",
            next=f"wirespeed cluster clean {cluster} --yes",
        )
    file, telling = read_named(cluster), Telling(output, quiet)
    done = _done(file, telling, claims=claims, yes=yes, within_s=timeout)
    click.echo(clean_lines(done, file.cluster.name, telling), nl=False)
    return done.exit_code


def _done(
    file: "ClusterFile", telling: "Telling", *, claims: bool, yes: bool, within_s: float
) -> "Cleaned":
    from wirespeed.clusters.kube import Refused, finding_of, kubectl_of, wrong_server
    from wirespeed.clusters.operations.clean import Cleaned, clean, removal

    name, kubectl = file.cluster.name, kubectl_of(file.cluster)
    if wrong := wrong_server(kubectl, file.cluster.api):
        return Cleaned((wrong,))
    try:
        with telling.progress() as progress:
            plan = removal(kubectl, name, progress, claims=claims)
        if plan.objects and not yes:
            from wirespeed.session.cluster_runs import removal_lines

            _ask(removal_lines(plan, telling.style()), name)
        with telling.progress() as progress:
            return clean(kubectl, name, progress, claims=claims, within_s=within_s, planned=plan)
    except Refused as refused:
        return Cleaned((finding_of(refused),))
    except Interrupted:
        raise Interrupted(
            "interrupted: some of it may be left", next=f"wirespeed cluster clean {name}"
        ) from None


def _ask(lines: list[str], name: str) -> None:
    """By name: a habit of typing y removes nothing."""
    click.echo("\n".join(lines), err=True)
    if click.prompt(f"type {name} to remove it", default="", show_default=False, err=True) != name:
        raise UsageError("the name was not typed: nothing was removed", expected=name)
