"""`wirespeed reference`: expected figures with their sources, and whether a number is normal."""

import json
import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.options import (
    PLAIN,
    argument,
    command,
    flag,
    group,
    option,
    shape_options,
    store_option,
    told_by,
)
from wirespeed.errors import CannotMeasure, NothingRan, UsageError

if TYPE_CHECKING:
    from wirespeed.reference.ask import TrainingFigure
    from wirespeed.reference.figures import Figure
    from wirespeed.reference.transfers import Transfer


@group(context_settings={**PLAIN, "show_default": True})
def reference() -> None:
    """Expected figures with their sources; is this number normal?

    `check` grades speed against a baseline (`wirespeed baseline`), else your own figures, else earlier
    runs on such nodes that did not fail, else the figures that come with wirespeed. Nobody has endorsed
    the earlier runs: they may warn of a change, and pass no speed.

    \f
    Examples:
      wirespeed reference ask all_reduce 8G --busbw 478 --gpu H100
      wirespeed reference ask all_reduce 4M --run last
      wirespeed reference list --gpu H100
      wirespeed reference add last --name good-monday
      wirespeed reference export > figures.csv
    """


@command("list", of=reference)
@option("--gpu NAME", "Only of that GPU, such as H100; `cpu` for none.")
@option("--op OP", "Only of that operation.")
@flag("--own", "Only your own.")
@flag("--transfers", "Copies, network cards and messages instead of collectives.")
@option("-o --output", kind=["table", "json", "csv"], default="table")
def list_command(gpu: str | None, op: str | None, own: bool, transfers: bool, output: str) -> None:
    """List the figures: your own first, then those that come with wirespeed.

    \f
    Examples:
      wirespeed reference list --gpu H100 --op all_reduce
      wirespeed reference list --own -o json
      wirespeed reference list --transfers --gpu H100
    """
    if transfers:
        _list_transfers(gpu, op, output)
        return
    from wirespeed.cli.reference_answers import figures_json, figures_table
    from wirespeed.reference.figures import figures_to_csv, shipped_figures
    from wirespeed.runs.named_files import load_own

    figures = [*load_own(), *(() if own else shipped_figures())]
    found = [one for one in figures if _wanted(one, gpu, op)]
    if output == "json":
        click.echo(figures_json(found))
    elif output == "csv":
        click.echo(figures_to_csv(found), nl=False)
    elif found:
        click.echo(figures_table(found))
    else:
        click.echo("no figures\nnext: wirespeed reference add last")


def _list_transfers(gpu: str | None, test: str | None, output: str) -> None:
    """Print the published figures of nvbandwidth, perftest and OSU."""
    from wirespeed.cli.reference_transfers import transfers_json, transfers_table
    from wirespeed.reference.shape import gpu_called
    from wirespeed.reference.transfers import shipped_transfers, transfer_named

    if output == "csv":
        raise UsageError("--transfers -o csv", expected="-o table or -o json")
    wanted = transfer_named(test) if test else None
    rows = [
        row
        for row in shipped_transfers()
        if (not gpu or row.gpu == gpu_called(gpu))
        and (not test or row.test == (wanted.name if wanted else test))
    ]
    click.echo(transfers_json(rows) if output == "json" else transfers_table(rows))


@command(of=reference)
@argument("what RUN|FILE.csv", completes="runs")
@option("--name NAME", "Of the set.  [default: the run's id, the file's name]")
@shape_options
@flag("-q --quiet", "Say nothing where all went well.")
@store_option
def add(what: str, name: str | None, quiet: bool, **told: Any) -> None:
    """Keep figures as your own, in place of a set of the same name: `check` grades against them.

    \f
    Examples:
      wirespeed reference add last                      every operation and size of that run
      wirespeed reference add 91ae --name good-monday
      wirespeed reference add 7f3c --gpu A100 --nodes 16 --interconnect ib      an imported log
      wirespeed reference add figures.csv               as `reference export` wrote it
    """
    from wirespeed.cli.reference_answers import figures_from, figures_in
    from wirespeed.runs.named_files import save_own

    said = told_by(told)
    if what.endswith(".csv") and said:
        raise UsageError("--gpu and the like with a CSV", expected="its columns say which nodes")
    found = figures_in(what, name) if what.endswith(".csv") else figures_from(what, name, said)
    figures, called = found
    path = save_own(called, figures)
    if not quiet:
        click.echo(f"{len(figures)} figures kept as {called} in {path}")


@command(of=reference)
@argument("name", completes="figure_sets")
def rm(name: str) -> None:
    """Forget a set of your own figures.

    \f
    Examples:
      wirespeed reference rm good-monday
    """
    from wirespeed.runs.named_files import remove_own

    click.echo(f"removed {remove_own(name)}")


@command(of=reference)
@option("--name NAME", "Only that set.", completes="figure_sets")
def export(name: str | None) -> None:
    """Print your own figures as CSV, with every column.

    \f
    Examples:
      wirespeed reference export > mine.csv         then elsewhere: wirespeed reference add mine.csv
      wirespeed reference export --name good-monday
    """
    from wirespeed.reference.figures import figures_to_csv
    from wirespeed.runs.named_files import load_own

    figures = [one for one in load_own() if name in (None, one.name)]
    if not figures:
        raise NothingRan(
            "there are no figures of your own" + (f" called {name!r}" if name else ""),
            next="wirespeed reference add last",
        )
    click.echo(figures_to_csv(figures), nl=False)


@command(of=reference)
@argument("op", required=False, completes="operations")
@argument("size", required=False)
@option("--busbw GB/s", "The figure.", click.FloatRange(min=0, min_open=True))
@option("--time US", "The figure, where it is a latency.", click.FloatRange(min=0, min_open=True))
@option("--run run_ref RUN", "Take figure and nodes from a stored run.")
@shape_options
@option(
    "--switch",
    "Whether switches reduce: `sharp` between nodes, NVLS within one.",
    ["sharp", "sharp-off", "nvls", "nvls-off"],
)
@option("--site NAME", "Whose cluster it is, such as azure: what that site asks of its own counts.")
@option("-o --output", kind=["text", "json"], default="text")
@store_option
def ask(op: str | None, size: str | None, output: str, **told: Any) -> int:
    """Is this number normal? What the hardware can reach, what others got, and why it may be low.

    With --run OP and SIZE may be left out: the run's best figure is meant.

    \f
    Examples:
      wirespeed reference ask all_reduce 8G --busbw 310 --gpu H100 --nodes 2 --interconnect ib --nics 8x400
      wirespeed reference ask all_reduce 8G --busbw 478 --gpu H100
      wirespeed reference ask --run last                                  its best figure
      wirespeed reference ask all_reduce 4M --run last -o json
      wirespeed reference ask all_reduce 1G --run last --gpu A100 --nodes 16 --interconnect ib
      wirespeed reference ask h2d --busbw 52 --gpu H100
      wirespeed reference ask ib_write_bw 64K --busbw 49 --interconnect ib --nics 1x400
      wirespeed reference ask osu_latency 8 --time 1.1 --interconnect ib

    Besides collectives OP is a test of nvbandwidth (host_to_device_memcpy_ce, or h2d, d2h, d2d), of
    perftest (ib_write_bw, of one card) or of OSU (osu_bw, osu_latency).

    Of a run that was imported the options complete what its log does not tell; elsewhere one node of 8
    is meant where they say nothing.

    Figures hold for one interconnect only. Where it is not given, there is an answer for each that has
    a figure, and exit 3 unless it makes no difference which of them it is.

    Exit codes: 0 normal, 1 low or impossible, 3 it cannot be told; the answer says what would decide.
    """  # noqa: E501
    from wirespeed.cli.reference_answers import (
        answer,
        answer_json,
        answer_text,
        best_figure,
        completed,
        run_named,
    )
    from wirespeed.collectives.catalogue import collective_named
    from wirespeed.model.units import parse_size
    from wirespeed.reference.transfers import transfer_named

    if op is not None and not told["run_ref"] and (test := transfer_named(op)):
        return _tell_transfer(test, size, output, told)
    if told["time"]:
        raise UsageError("--time is of latencies", expected="--busbw GB/s for a collective")
    run = completed(run_named(told["run_ref"]), told_by(told)) if told["run_ref"] else None
    if op is None or size is None:
        best = best_figure(run, collective_named(op).name if op else None)
        name, size_bytes = best.op, best.size_bytes
    else:
        name, size_bytes = collective_named(op).name, parse_size(size)
    found = answer(name, size_bytes, told, run)
    if output == "json":
        click.echo(answer_json(found))
    else:
        click.echo(answer_text(found, sys.stdout, _typed(name, size or str(size_bytes), told)))
    return _CODES.get(found.place, 0)


_CODES = {"low": 1, "impossible": 1, "unknown": CannotMeasure.exit_code}


def _tell_transfer(test: "Transfer", size: str | None, output: str, options: dict[str, Any]) -> int:
    """Print the answer for a figure of nvbandwidth, perftest or OSU, and return the exit code."""
    from wirespeed.cli.reference_transfers import answer_transfer, transfer_json, transfer_text

    answer = answer_transfer(test, size, options)
    click.echo(transfer_json(answer) if output == "json" else transfer_text(answer, sys.stdout))
    return _CODES.get(answer.place, 0)


def _typed(op: str, size: str, values: dict[str, Any]) -> str:
    """Return the command with the options that were given."""
    options = {
        "--busbw": values["busbw"],
        "--run": values["run_ref"],
        "--gpu": values["gpu"],
        "--gpus-per-node": values["gpus_per_node"],
        "--nodes": values["nodes"],
        "--nics": values["nics"],
        "--switch": values["switch"],
        "--site": values["site"],
    }
    words = ["wirespeed reference ask", op, size]
    for option_name, value in options.items():
        if value:
            given = f"{value:g}" if isinstance(value, float) else str(value)
            words.append(f"{option_name} {shlex.quote(given)}")
    return " ".join(words)


def _wanted(one: "Figure", gpu: str | None, op: str | None) -> bool:
    from wirespeed.collectives.catalogue import collective_named
    from wirespeed.reference.shape import gpu_called

    if op and one.collective != collective_named(op).name:
        return False
    return not gpu or one.gpu.lower().startswith(gpu.lower()) or one.gpu == gpu_called(gpu)


@command(of=reference)
@option("--run run_ref RUN", "A run of train.")
@option("-o --output", kind=["table", "json"], default="table")
@store_option
def training(run_ref: str | None, output: str) -> None:
    """Step times of gradient synchronisation that a study published.

    Seconds hold for its GPUs, model and batch only, so what is set beside a run is the share of naive's
    step. The study's share of communication counts only what is waited for after backward.

    \f
    Examples:
      wirespeed reference training
      wirespeed reference training --run last        beside what `wirespeed train` measured
    """
    from wirespeed.reference.ask import of_naive, shipped_training

    here = {}
    if run_ref:
        from wirespeed.cli.reference_answers import run_named, shares_of_naive

        here = shares_of_naive(run_named(run_ref))
    figures = shipped_training()
    rows = [(one, of_naive(one, figures), here.get(one.strategy)) for one in figures]
    if output == "json":
        told = [{**asdict(one), "of_naive": share, "here": mine} for one, share, mine in rows]
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        click.echo(_table(rows, bool(run_ref)))


def _table(rows: "list[tuple[TrainingFigure, float | None, float | None]]", beside: bool) -> str:
    from wirespeed.cli.page import table_lines
    from wirespeed.model.units import format_duration

    right = ("batch", "ranks", "bucket", "step", "of naive", "here", "comm")
    titles = ["system", "model", "batch", "ranks", "strategy", "bucket", "step", "of naive"]
    titles += [*(["here"] if beside else []), "comm", "source"]
    told = [
        [
            *(one.system, one.model, one.batch, one.ranks, one.strategy),
            *(f"{one.bucket_mb:g} MB" if one.bucket_mb else "", format_duration(one.step_s)),
            f"{share:.2f}" if share else "",
            *((f"{mine:.2f}" if mine else "",) if beside else ()),
            f"{one.comm_share * 100:.3g} %" if one.comm_share is not None else "",
            f"{one.source}, read {one.read}" if one.read else one.source,
        ]
        for one, share, mine in rows
    ]
    return "\n".join(table_lines(titles, told, right))
