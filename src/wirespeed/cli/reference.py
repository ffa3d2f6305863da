"""`wirespeed reference`: expected figures with their sources, and whether a number is normal."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli import suggest
from wirespeed.cli.shape_options import completed, shape_options, told_by
from wirespeed.errors import CannotMeasure, InputError, NothingRan, UsageError

if TYPE_CHECKING:
    from wirespeed.model.records import Measurement, Run, ToldShape
    from wirespeed.reference.ask import Answer, TrainingFigure
    from wirespeed.reference.figures import Figure
    from wirespeed.reference.shape import Shape


# `wirespeed reference training`: published step times of strategies, beside those of a run.


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
    from wirespeed.reference.ask import of_naive, shipped_training
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
    from wirespeed.model.units import format_duration
    from wirespeed.views.text import Column, Grid, style_for

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


_CONTEXT = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "show_default": True,
}
_LARGEST_FILE = 16 * 2**20


@click.group(
    context_settings=_CONTEXT,
    epilog="""\b
Examples:
  wirespeed reference ask all_reduce 8G --busbw 310 --gpu H100 --nodes 2 --interconnect ib
  wirespeed reference ask all_reduce 4M --run last
  wirespeed reference list --gpu H100
  wirespeed reference add last --name good-monday
  wirespeed reference export > figures.csv
""",
)
def reference() -> None:
    """Expected figures with their sources; is this number normal?

    `check` grades speed against a baseline (`wirespeed baseline`), else your own figures, else the
    median of earlier READY runs on such nodes, else the figures that come with wirespeed.
    """


@reference.command(
    "list",
    epilog="""\b
Examples:
  wirespeed reference list --gpu H100 --op all_reduce
  wirespeed reference list --own -o json
""",
)
@click.option("--gpu", metavar="NAME", help="Only of that GPU, such as H100; `cpu` for none.")
@click.option(
    "--op", metavar="OP", shell_complete=suggest.operations, help="Only of that operation."
)
@click.option("--own", is_flag=True, help="Only your own.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "csv"]), default="table")
def list_command(gpu: str | None, op: str | None, own: bool, output: str) -> None:
    """List the figures: your own first, then those that come with wirespeed."""
    from wirespeed.cli.reference_text import figures_json, figures_table
    from wirespeed.reference.figures import figures_to_csv, shipped_figures
    from wirespeed.runs.named_files import load_own

    figures = [*load_own(), *(() if own else shipped_figures())]
    found = [one for one in figures if _wanted(one, gpu, op)]
    if output == "json":
        click.echo(figures_json(found))
    elif output == "csv":
        click.echo(figures_to_csv(found), nl=False)
    elif found:
        click.echo(figures_table(found, sys.stdout))
    else:
        click.echo("no figures\nnext: wirespeed reference add last")


@reference.command(
    epilog="""\b
Examples:
  wirespeed reference add last                      every operation and size of that run
  wirespeed reference add 91ae --name good-monday
  wirespeed reference add 7f3c --gpu A100 --nodes 16 --interconnect ib      an imported log
  wirespeed reference add figures.csv               as `reference export` wrote it
"""
)
@click.argument("what", metavar="RUN|FILE.csv", shell_complete=suggest.runs)
@click.option(
    "--name", metavar="NAME", help="Of the set.  [default: the run's id, the file's name]"
)
@shape_options
@click.option("-q", "--quiet", is_flag=True, help="Say nothing where all went well.")
def add(what: str, name: str | None, quiet: bool, **told: Any) -> None:
    """Keep figures as your own, in place of a set of the same name: `check` grades against them."""
    from wirespeed.runs.named_files import save_own

    said = told_by(told)
    if what.endswith(".csv") and said:
        raise UsageError("--gpu and the like with a CSV", expected="its columns say which nodes")
    found = _from_csv(what, name) if what.endswith(".csv") else _from_run(what, name, said)
    figures, called = found
    path = save_own(called, figures)
    if not quiet:
        click.echo(f"{len(figures)} figures kept as {called} in {path}")


@reference.command(epilog="\b\nExamples:\n  wirespeed reference rm good-monday\n")
@click.argument("name", shell_complete=suggest.figure_sets)
def rm(name: str) -> None:
    """Forget a set of your own figures."""
    from wirespeed.runs.named_files import remove_own

    click.echo(f"removed {remove_own(name)}")


@reference.command(
    epilog="""\b
Examples:
  wirespeed reference export > mine.csv         then elsewhere: wirespeed reference add mine.csv
  wirespeed reference export --name good-monday
"""
)
@click.option("--name", metavar="NAME", help="Only that set.", shell_complete=suggest.figure_sets)
def export(name: str | None) -> None:
    """Print your own figures as CSV, with every column."""
    from wirespeed.reference.figures import figures_to_csv
    from wirespeed.runs.named_files import load_own

    figures = [one for one in load_own() if name in (None, one.name)]
    if not figures:
        raise NothingRan(
            "there are no figures of your own" + (f" called {name!r}" if name else ""),
            next="wirespeed reference add last",
        )
    click.echo(figures_to_csv(figures), nl=False)


@reference.command(
    epilog="""\b
Examples:
  wirespeed reference ask all_reduce 8G --busbw 310 --gpu H100 --nodes 2 --interconnect ib --nics 8x400
  wirespeed reference ask all_reduce 8G --busbw 478 --gpu H100
  wirespeed reference ask --run last                                  its best figure
  wirespeed reference ask all_reduce 4M --run last -o json
  wirespeed reference ask all_reduce 1G --run last --gpu A100 --nodes 16 --interconnect ib

\b
Of a run that was imported the options complete what its log does not tell; elsewhere one node of 8
is meant where they say nothing.

\b
Exit codes: 0 normal, 1 low, 3 nothing is known that it could be compared with.
"""
)
@click.argument("op", required=False, shell_complete=suggest.operations)
@click.argument("size", required=False)
@click.option(
    "--busbw", type=click.FloatRange(min=0, min_open=True), metavar="GB/s", help="The figure."
)
@click.option(
    "--run",
    "run_ref",
    metavar="RUN",
    shell_complete=suggest.runs,
    help="Take figure and nodes from a stored run.",
)
@shape_options
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def ask(op: str | None, size: str | None, output: str, **told: Any) -> int:
    """Is this number normal? Where it lies, by whose figures, and why it may be low.

    With --run OP and SIZE may be left out: the run's best figure is meant.
    """
    from wirespeed.cli.reference_text import answer_json, answer_text
    from wirespeed.collectives.catalogue import collective_named
    from wirespeed.model.units import parse_size

    run = completed(_run(told["run_ref"]), told_by(told)) if told["run_ref"] else None
    if op is None or size is None:
        best = _best_of(run, collective_named(op).name if op else None)
        name, size_bytes = best.op, best.size_bytes
    else:
        name, size_bytes = collective_named(op).name, parse_size(size)
    answer = _answer(name, size_bytes, told, run)
    click.echo(answer_json(answer) if output == "json" else answer_text(answer, sys.stdout))
    return {"low": 1, "unknown": CannotMeasure.exit_code}.get(answer.place, 0)


def _best_of(run: "Run | None", op: str | None) -> "Measurement":
    from wirespeed.cli.shape_options import best_of

    if run is None:
        raise UsageError("which figure?", expected="OP SIZE --busbw GB/s, or --run RUN")
    best = best_of(run, op)
    if best is None:
        raise UsageError(
            f"run {run.id} measured no {op or 'collective'} over all ranks",
            next=f"wirespeed runs show {run.id}",
        )
    return best


def _answer(op: str, size: int, told: dict[str, Any], run: "Run | None") -> "Answer":
    """A run's figure is held against all that `check` knows, a told one against figures."""
    from wirespeed.model.units import GIGA
    from wirespeed.reference.ask import Asked, ask, expected_of
    from wirespeed.runs.named_files import load_own
    from wirespeed.session.references import answer_of

    shape = _shape(told, run)
    if told["busbw"]:
        figure = Asked(size, told["busbw"] * GIGA)
        nodes = run.world.nodes if run else ()
        return ask(shape, op, figure, expected_of(shape, op, size, load_own()), nodes=nodes)
    if run is None:
        raise UsageError("which figure?", expected="--busbw GB/s, or --run RUN")
    return answer_of(run, _measured(run, op, size))


def _wanted(one: "Figure", gpu: str | None, op: str | None) -> bool:
    from wirespeed.collectives.catalogue import collective_named
    from wirespeed.reference.shape import gpu_called

    if op and one.collective != collective_named(op).name:
        return False
    return not gpu or one.gpu.lower().startswith(gpu.lower()) or one.gpu == gpu_called(gpu)


def _from_run(ref: str, name: str | None, told: "ToldShape | None") -> "tuple[list[Figure], str]":
    from wirespeed.reference.known import figures_of_run
    from wirespeed.reference.shape import shape_of

    run = completed(_run(ref), told)
    called = name or run.id
    figures = figures_of_run(run, called)
    shape = shape_of(run.world)
    if shape is None:
        raise _shapeless(run)
    if not shape.interconnect:
        raise UsageError(
            f"run {run.id} does not tell what carries its traffic",
            expected="--interconnect, such as ib, roce, efa or tcp: figures hold for one only",
        )
    if not figures:
        raise UsageError(
            f"run {run.id} has no figures that can stand for its nodes",
            expected="measured collectives over all ranks",
            next=f"wirespeed runs show {run.id}",
        )
    return figures, called


def _from_csv(file: str, name: str | None) -> "tuple[list[Figure], str]":
    from wirespeed.node.reading import read_whole
    from wirespeed.reference.figures import figures_from_csv

    path = Path(file)
    try:
        text = read_whole(path, _LARGEST_FILE, pipes=True).decode("utf-8-sig")
    except OSError as error:
        raise InputError(
            f"cannot read {file}: {error.strerror or error}", expected="a table of figures"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not text", expected="CSV in UTF-8") from error
    called = name or path.stem
    figures = figures_from_csv(text, source=file, name=called)
    if not figures:
        raise InputError(f"{file} has no rows", expected="one row a figure")
    return list(figures), called


def _run(ref: str) -> "Run":
    from wirespeed.runs.store import find, load

    return load(find(ref))


def _shape(told: dict[str, Any], run: "Run | None") -> "Shape":
    """As the run tells it, with what was said; else as said."""
    from wirespeed.reference.shape import shape_of, shape_told

    if run is not None:
        found = shape_of(run.world)
        if found is None:
            raise _shapeless(run)
        return found
    said = told_by(told)
    if said is None or not said.gpu:
        raise UsageError("which GPU?", expected="--gpu NAME, such as --gpu H100, or --gpu cpu")
    return shape_told(
        said.gpu,
        per_node=said.gpus_per_node or 8,
        nodes=said.nodes or 1,
        interconnect=said.interconnect,
        nics=said.nics or None,
        nic_Gbitps=said.nic_Gbitps or None,
    )


def _shapeless(run: "Run") -> UsageError:
    from wirespeed.reference.reasons import lacking

    words = lacking(run.world)
    if not words:
        return UsageError(
            f"the nodes of run {run.id} are not alike", expected="a run of alike nodes"
        )
    return UsageError(
        f"run {run.id} does not tell which nodes it is of",
        expected=f"{' and '.join(words)} with it, such as --gpu H100, or --gpu cpu",
    )


def _measured(run: "Run", op: str, size: int) -> "Measurement":
    """The run's figure of that operation and exactly that size."""
    from wirespeed.model.units import format_size

    alike = [one for one in run.measurements if one.op == op and one.groups == "all"]
    found = [one for one in alike if one.size_bytes == size and one.busbw]
    if found:
        return found[0]
    sizes = ", ".join(format_size(n, exact=True) for n in sorted({one.size_bytes for one in alike}))
    raise UsageError(
        f"run {run.id} has no busbw of {op} at {format_size(size, exact=True)}",
        expected=f"one of {sizes}" if sizes else f"a run that measured {op}",
    )


reference.add_command(training)
