"""`wirespeed cluster clean`: remove the environment; claims stay unless asked."""

import sys
from typing import TYPE_CHECKING

import click

from wirespeed.cli.clusters import CONTEXT, file_argument, output_option
from wirespeed.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from wirespeed.clusters.file import ClusterFile
    from wirespeed.clusters.operations.clean import Cleaned
    from wirespeed.session.cluster_runs import Telling


_EPILOG = """\b
Examples:
  wirespeed cluster clean mine
  wirespeed cluster clean mine --yes
  wirespeed cluster clean mine --claims        also the data in its claims

\b
Only what carries the environment's labels is removed, never a namespace. A second call finds nothing
to do, and that is good. Exit code: 0 gone; 1 a finding; 3 not gone in time.
"""


@click.command("clean", context_settings=CONTEXT, epilog=_EPILOG)
@file_argument
@click.option("--claims", is_flag=True, help="Also its claims, and with them the data.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--timeout",
    type=click.FloatRange(1, 86_400),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="For everything to be gone.",
)
@output_option
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def command(cluster: str, claims: bool, yes: bool, timeout: float, output: str, quiet: bool) -> int:
    """Remove the environment; it shows what, and asks for its name first. Claims stay."""
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
