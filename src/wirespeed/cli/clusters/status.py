"""`wirespeed cluster status`: pods, nodes, zones, GPUs and restarts."""

import click

from wirespeed.cli.clusters import CONTEXT, file_argument, opened, output_option

_EPILOG = """\b
Examples:
  wirespeed cluster status mine
  wirespeed cluster status mine -o json | jq '.pods[] | select(.ready | not) | .name'

\b
Exit code: 0 all pods ready; 1 not; 2 wrong file or another cluster; 3 nobody could tell.
"""


@click.command("status", context_settings=CONTEXT, epilog=_EPILOG)
@file_argument
@output_option
@click.option("-v", "--verbose", is_flag=True, help="All evidence.")
def command(cluster: str, output: str, verbose: bool) -> int:
    """Pods, nodes, zones, GPUs, restarts, and why a pod is not ready."""
    from wirespeed.clusters.operations.status import status
    from wirespeed.session.cluster_runs import Telling, show_status

    file, kubectl = opened(cluster)
    telling = Telling(output, verbose=verbose, quiet=True)
    with telling.progress() as progress:
        found = status(kubectl, file.cluster, progress)
    click.echo(show_status(found, telling), nl=False)
    return found.exit_code
