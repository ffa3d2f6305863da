"""`wirespeed reference training`: published step times of strategies, beside those of a run."""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from wirespeed.cli import suggest
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.records import Run
    from wirespeed.reference.training import TrainingFigure

__all__ = ["training"]


@click.command(
    "training",
    epilog="""\b
Examples:
  wirespeed reference training
  wirespeed reference training --run last        beside what `wirespeed train` measured
""",
)
@click.option(
    "--run", "run_ref", metavar="RUN", shell_complete=suggest.runs, help="A run of train."
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def training(run_ref: str | None, output: str) -> None:
    """Step times of gradient synchronisation that a study published.

    Seconds hold for its GPUs, model and batch only, so what is set beside a run is the share of naive's
    step. The study's share of communication counts only what is waited for after backward.
    """
    from wirespeed.reference.training import of_naive, shipped_training
    from wirespeed.runs.store import find, load

    figures = shipped_training()
    here = _shares(load(find(run_ref))) if run_ref else {}
    rows = [(one, of_naive(one, figures), here.get(one.strategy)) for one in figures]
    if output == "json":
        told = [{**asdict(one), "of_naive": share, "here": mine} for one, share, mine in rows]
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        click.echo(_table(rows, bool(run_ref)))


def _shares(run: "Run") -> dict[str, float]:
    """Each strategy's step over naive's, of the first model and batch that naive was run with."""
    naive = next((one for one in run.training if one.strategy == "naive" and one.ranks > 1), None)
    if naive is None:
        raise UsageError(
            f"run {run.id} has no step of the strategy naive over several ranks",
            next="wirespeed train --strategy naive,flat,overlap,bucketed",
        )
    same = (naive.model, naive.batch, naive.ranks)
    alike = [one for one in run.training if (one.model, one.batch, one.ranks) == same]
    return {one.strategy: one.step.mean / naive.step.mean for one in reversed(alike)}


def _table(rows: "list[tuple[TrainingFigure, float | None, float | None]]", beside: bool) -> str:
    from wirespeed.units import format_duration
    from wirespeed.views.grid import Column, Grid
    from wirespeed.views.style import style_for

    left = ("system", "model", "strategy", "source")
    names = ["system", "model", "batch", "ranks", "strategy", "bucket", "step", "of naive"]
    names += [*(["here"] if beside else []), "comm", "source"]
    grid = Grid(tuple(Column(name, left=name in left) for name in names))
    for one, share, mine in rows:
        grid.add(
            *(one.system, one.model, str(one.batch), str(one.ranks), one.strategy),
            *(f"{one.bucket_mb:g} MB" if one.bucket_mb else "", format_duration(one.step_s)),
            f"{share:.2f}" if share else "",
            *((f"{mine:.2f}" if mine else "",) if beside else ()),
            f"{one.comm_share * 100:.3g} %" if one.comm_share is not None else "",
            f"{one.source}, read {one.read}" if one.read else one.source,
        )
    return "\n".join(grid.lines(style_for(sys.stdout)))
