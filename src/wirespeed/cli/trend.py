"""`wirespeed trend`: one figure over many runs, and when its level changed."""

import sys

import click

from wirespeed.cli import suggest
from wirespeed.cli.options import CONTEXT
from wirespeed.cli.sides import PERCENT, load_refs, operations, stored_runs
from wirespeed.errors import UsageError

_EPILOG = """\b
Examples:
  wirespeed trend                          every figure of the stored runs
  wirespeed trend all_reduce --last 50
  wirespeed trend --runs 7f3c,80aa,8e21,91ae,92b0,9c55,a014,b2d4 -o md
  wirespeed trend --fail-on 5%             exit 1 if the newest level is that much slower

\b
Exit codes: 1 with --fail-on, a regression; 3 no figure has runs enough (8); 0 otherwise.
"""


@click.command(context_settings=CONTEXT, epilog=_EPILOG)
@click.argument("ops", nargs=-1, metavar="[OP…]", shell_complete=suggest.measured)
@click.option(
    "--runs",
    metavar="RUN,…",
    shell_complete=suggest.runs,
    help="These runs.  [default: all stored ones]",
)
@click.option("--last", type=click.IntRange(min=2), metavar="N", help="Only the newest N runs.")
@click.option(
    "--fail-on",
    type=PERCENT,
    allow_from_autoenv=False,
    envvar="WIRESPEED_TREND_FAIL_ON",
    help="Slower by this since the last change: exit 1.",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "md", "json"]), default="table", help="Format."
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; the exit code tells.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto")
def trend(
    ops: tuple[str, ...],
    runs: str | None,
    last: int | None,
    fail_on: float | None,
    output: str,
    quiet: bool,
    color: str,
) -> int:
    """One figure over many runs: its levels, since when, and what was different then.

    OP is an operation or a strategy; without any it is all of them.
    """
    from wirespeed.cli.config import refuse_unknown_keys
    from wirespeed.compare.compare import trend as trend_of
    from wirespeed.views.text import style_for
    from wirespeed.views.trend import render

    refuse_unknown_keys(click.get_current_context())
    chosen = operations(ops)
    loaded = sorted(load_refs(runs) if runs else stored_runs(), key=lambda run: run.started)
    found = trend_of(loaded[-last:] if last else loaded, chosen, fail_on)
    if not found.series:
        raise UsageError(
            f"no figure was measured by two of {len(loaded)} runs",
            expected="several runs of the same",
            next="wirespeed runs list",
        )
    if not quiet:
        style = style_for(sys.stdout, color=color)
        click.echo(render(found, output, style), color=style.color, nl=False)
    return found.exit_code
