"""`wirespeed baseline`: runs that are good, kept to compare later ones with."""

import json
import sys

import click

from wirespeed.cli import suggest
from wirespeed.cli.sides import load_refs

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}
_NAME = click.option(
    "--name",
    default="default",
    shell_complete=suggest.baselines,
    metavar="NAME",
    help="Which baseline.",
)


@click.group(
    context_settings=_CONTEXT,
    epilog="""\b
Examples:
  wirespeed baseline set 7f3c 80aa 8e21     three repeats: their spread is the noise
  wirespeed baseline set last --name nightly
  wirespeed compare last --baseline
""",
)
def baseline() -> None:
    """Runs that are good, kept by a name: set, show, list, rm.

    A baseline is a copy in $WIRESPEED_HOME/baselines (else as `wirespeed runs --help` says): it stays
    when its runs are removed.
    """


@baseline.command("set")
@click.argument("refs", metavar="RUN…", shell_complete=suggest.runs, nargs=-1, required=True)
@_NAME
def set_command(refs: tuple[str, ...], name: str) -> None:
    """Keep these runs, repeats of the same, in place of what had that name."""
    from wirespeed.errors import UsageError
    from wirespeed.runs.named_files import set_baseline

    runs = [run for ref in refs for run in load_refs(ref)]
    ids = [run.id for run in runs]
    if len(set(ids)) < len(ids):
        raise UsageError("a run stands twice in the baseline", expected="different runs")
    empty = [run.id for run in runs if not run.measurements and not run.training]
    if empty:
        raise UsageError(
            f"run {empty[0]} measured nothing that could be compared",
            expected="runs of bench, check or train, or imported ones",
            next="wirespeed runs list",
        )
    path = set_baseline(runs, name)
    few = "" if len(runs) > 2 else "; three or more would tell the noise from run to run"
    click.echo(f"baseline {name}: {len(runs)} run{'s' * (len(runs) != 1)}, {path}{few}")
    named = "" if name == "default" else f"={name}"
    click.echo(f"next: wirespeed compare last --baseline{named}")


@baseline.command()
@click.argument("name", default="default", shell_complete=suggest.baselines)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def show(name: str, output: str) -> None:
    """Which runs a baseline holds."""
    from wirespeed.runs.named_files import load_baseline
    from wirespeed.views.text import Column, Grid, style_for

    kept = load_baseline(name)
    if output == "json":
        from wirespeed.views.data import document

        runs = [document(run) for run in kept.runs]
        data = {"name": kept.name, "set": kept.set, "runs": runs}
        click.echo(json.dumps(data, indent=2))
        return
    style = style_for(sys.stdout)
    titles = ("run", "started (UTC)", "command", "verdict", "ranks", "backend", "figures")
    grid = Grid(tuple(Column(title, left=title not in ("ranks", "figures")) for title in titles))
    for run in kept.runs:
        when = run.started[:19].replace("T", " ")
        size, figures = str(run.world.size or ""), str(len(run.measurements) + len(run.training))
        grid.add(run.id, when, run.command, run.verdict, size, run.world.backend, figures)
    click.echo("\n".join([style.text(f"baseline {kept.name}, set {kept.set}"), *grid.lines(style)]))


@baseline.command("list")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def list_command(output: str) -> None:
    """The names of the baselines."""
    from wirespeed.runs.named_files import baselines_home, list_baselines

    names = list_baselines()
    if output == "json":
        click.echo(json.dumps(names))
    elif names:
        click.echo("\n".join(names))
    else:
        click.echo(f"no baselines in {baselines_home()}\nnext: wirespeed baseline set last")


@baseline.command()
@click.argument("name", shell_complete=suggest.baselines)
def rm(name: str) -> None:
    """Forget a baseline; the stored runs stay."""
    from wirespeed.runs.named_files import remove_baseline

    click.echo(f"removed {remove_baseline(name)}")
