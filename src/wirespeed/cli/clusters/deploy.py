"""`wirespeed cluster deploy`: bring the environment up, or say why it does not come."""

from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.clusters import CONTEXT, deployment_options, file_argument, settled

if TYPE_CHECKING:
    from wirespeed.clusters.deployment import Deployment


_EPILOG = """\b
Examples:
  wirespeed cluster deploy mine
  wirespeed cluster deploy mine --nodes 4 --timeout 900
  wirespeed cluster deploy mine --mode rdma --fallback tcp
  wirespeed cluster deploy mine -o json | jq '.findings[].title'

\b
Nothing is made before everything was looked at: free GPUs and RDMA devices, objects of that name, and a
dry run of all objects on the server. Interrupted anywhere, the same command finishes the job.
Exit code: 0 all pods ready; 1 a finding; 2 wrong file or another cluster; 3 nobody could tell.
"""


@click.command("deploy", context_settings=CONTEXT, epilog=_EPILOG)
@file_argument
@deployment_options
@click.option(
    "--timeout",
    type=click.FloatRange(1, 86_400),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="For all pods to become ready; a cause that cannot pass ends it earlier.",
)
@click.option(
    "--recreate",
    is_flag=True,
    help="Make anew what Kubernetes does not change, such as a StatefulSet's claims; claims stay.",
)
@click.option(
    "--no-preflight",
    is_flag=True,
    help="Do not compare with what nodes have free (for clusters that add nodes by themselves).",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="json: the run, as `wirespeed runs show` has it.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@click.option("-v", "--verbose", is_flag=True, help="Every value that changes, and all evidence.")
def command(
    timeout: float,
    recreate: bool,
    no_preflight: bool,
    output: str,
    quiet: bool,
    verbose: bool,
    **values: Any,
) -> int:
    """Bring the environment up, wait until all its pods are ready, or say why they are not."""
    from wirespeed.clusters.kube import kubectl_of
    from wirespeed.clusters.operations.deploy import deploy
    from wirespeed.session.cluster_runs import Telling, show_deploy

    deployment, fallback = _settled(values)
    kubectl = kubectl_of(deployment.file.cluster)
    text, code = show_deploy(
        deployment,
        Telling(output, quiet, verbose),
        lambda progress: deploy(
            kubectl,
            deployment,
            progress,
            within_s=timeout,
            preflight=not no_preflight,
            recreate=recreate,
            fallback=fallback,
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
