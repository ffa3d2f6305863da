"""`wirespeed compare`: better, worse or noise?"""

import sys
from typing import TYPE_CHECKING

import click

from wirespeed.cli import suggest
from wirespeed.cli.options import CONTEXT
from wirespeed.cli.sides import PERCENT, load_refs, operations, stored_runs
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.compare.compare import SideRuns
    from wirespeed.compare.estimate import Floor
    from wirespeed.model.derived_records import What


_FIELDS: tuple[str, ...] = ("engine", "timing", "dtype", "redop", "ranks", "groups", "in_place")
_FIELDS += ("blocking", "in_flight", "bucket_mb", "batch", "precision", "model", "for_s")

_EPILOG = """\b
Examples:
  wirespeed compare 7f3c 91ae                       one run a side
  wirespeed compare 7f3c,80aa,8e21 91ae,92b0,9c55   repeats: these tell noise from change
  wirespeed compare 7f3c 91ae b2d4 --only all_reduce --fail-on 2%
  wirespeed compare last --baseline                 against `wirespeed baseline set`
  wirespeed compare a/run.json nccl-tests-run -o md --across engine
  wirespeed compare last --baseline -o junit > compared.xml

\b
Verdicts: WORSE or better needs a difference that noise does not explain, of --fail-on or more; same
needs evidence that it is less than that; all else is `not enough runs`.
Exit codes: 1 something is WORSE (or its data are wrong); 3 nothing is decided, or nothing pairs;
0 otherwise. --strict: 3 also while any row is undecided.
"""


@click.command(context_settings=CONTEXT, epilog=_EPILOG)
@click.argument("sides", nargs=-1, metavar="SIDE…", shell_complete=suggest.runs)
@click.option(
    "--baseline",
    is_flag=False,
    flag_value="default",
    metavar="[NAME]",
    shell_complete=suggest.baselines,
    help="Compare with this baseline; put it last, or write --baseline=NAME.",
)
@click.option(
    "--fail-on",
    type=PERCENT,
    allow_from_autoenv=False,
    envvar="WIRESPEED_COMPARE_FAIL_ON",
    default="5%",
    help="The change of the time that matters to you.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="OP",
    shell_complete=suggest.measured,
    help="Operations or strategies, with commas.",
)
@click.option(
    "--across",
    multiple=True,
    type=click.Choice(_FIELDS),
    help="Pair figures although they differ in this, such as engine.",
)
@click.option(
    "--noise",
    type=PERCENT,
    help="The standard deviation from run to run, if you know it.  [default: as repeats show]",
)
@click.option(
    "--history/--no-history",
    default=True,
    help="Learn the noise from stored repeats of such runs, where a side has fewer than 3.",
)
@click.option("--strict", is_flag=True, help="Exit 3 while any row is undecided.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "md", "json", "junit"]),
    default="table",
    help="Format.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; the exit code tells.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto")
def compare(
    sides: tuple[str, ...],
    baseline: str | None,
    fail_on: float,
    only: tuple[str, ...],
    across: tuple[str, ...],
    noise: float | None,
    history: bool,
    strict: bool,
    output: str,
    quiet: bool,
    color: str,
) -> int:
    """Better, worse or noise? Each SIDE against the first, or against a baseline.

    SIDE is a run, or repeats of one with commas between them: ids, the starts of ids, `last`, or the
    paths of run folders or of runs' JSON; imported runs too. Several runs a side tell what is noise.
    """
    from wirespeed.cli.config import refuse_unknown_keys
    from wirespeed.compare.compare import compare as compare_runs
    from wirespeed.views.comparison import render
    from wirespeed.views.text import style_for

    refuse_unknown_keys(click.get_current_context())
    chosen = operations(only)
    loaded = _sides(sides, baseline)
    floors = _floors(loaded, across) if history and noise is None else None
    comparison = compare_runs(
        loaded, fail_on, only=chosen, across=across, floors=floors, stated=noise, strict=strict
    )
    if output == "junit" and not quiet:
        from wirespeed.views.junit import render_comparison

        click.echo(render_comparison(comparison), nl=False)
    elif not quiet:
        style = style_for(sys.stdout, color=color)
        click.echo(render(comparison, output, style), color=style.color, nl=False)
    return comparison.exit_code


def _sides(refs: tuple[str, ...], baseline: str | None) -> "list[SideRuns]":
    from wirespeed.compare.compare import SideRuns
    from wirespeed.runs.named_files import load_baseline

    loaded = [SideRuns(load_refs(ref)) for ref in refs]
    if baseline is not None:
        kept = load_baseline(baseline)
        loaded.insert(0, SideRuns(kept.runs, f"baseline {kept.name}"))
    if not refs:
        raise UsageError(
            "nothing to compare",
            expected="two sides of runs, or one and --baseline",
            next="wirespeed runs list",
        )
    return loaded


def _floors(sides: "list[SideRuns]", across: tuple[str, ...]) -> "dict[What, Floor]":
    """Noise from stored repeats; not looked for where every side has repeats enough."""
    from wirespeed.compare.compare import floors_of

    if all(len(side.runs) >= 3 for side in sides):
        return {}
    return floors_of(stored_runs([run for side in sides for run in side.runs]), across)
