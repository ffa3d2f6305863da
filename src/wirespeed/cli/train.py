"""`wirespeed train`: which strategy is fastest, what does communication cost, how does it scale?"""

import os
from dataclasses import replace
from typing import Any

import click

from wirespeed.cli import suggest
from wirespeed.cli.options import (
    CONTEXT,
    FiniteRange,
    Listed,
    Output,
    RunOptions,
    common_options,
)
from wirespeed.errors import UsageError
from wirespeed.model.bench_records import GridPoint
from wirespeed.model.training_records import TrainingKind
from wirespeed.plan import Plan, TrainPlan

_FORMATS = ("table", "wide", "json", "jsonl", "md", "csv")
_STRATEGIES = "naive,flat,overlap,bucketed,ddp"
_SCALED = "bucketed"
LASTS = "ddp"
"""What `--for` trains with, unless a strategy is named."""
_SAMPLES_A_RANK = 4
_KINDS: dict[str, tuple[TrainingKind, ...]] = {
    "both": ("strong", "weak"),
    "strong": ("strong",),
    "weak": ("weak",),
}

_EPILOG = """\b
Examples:
  wirespeed train --ranks 2                                 five strategies, tiny model
  wirespeed train --strategy bucketed,ddp --bucket-mb 0.1,1,10,100
  wirespeed train --strategy ddp,fsdp2,zero1,sharded --memory
  wirespeed train --scaling 1,2,4                           strong and weak scaling
  wirespeed train --ranks 1,2,4 --batch 16,32,64            a grid: one table
  wirespeed train --trace step.json                         timeline of a step, and step.svg
  wirespeed train --memory --load --html train.html         charts and tables in one offline file
  wirespeed train --model my_package.models:make --strategy ddp
  torchrun --nproc-per-node 8 ... -m wirespeed train --model xl --dtype bf16
  wirespeed train --for 30m --checkpoint-every 60s          goodput: useful time of all time
  wirespeed train --list                                    models and strategies
"""


@click.command(context_settings=CONTEXT, epilog=_EPILOG)
@click.option(
    "--model",
    default="tiny",
    shell_complete=suggest.models,
    help="A model of --list, or your own as module:function.",
)
@click.option(
    "--strategy",
    metavar="NAME,…",
    shell_complete=suggest.strategies,
    help=f"Ways of synchronising, see --list.  [default: {_STRATEGIES}; {_SCALED} with --scaling]",
)
@click.option("--bucket-mb", metavar="MB,…", help="Bucket sizes to compare, in 10^6 bytes.")
@click.option(
    "--batch",
    type=Listed(click.IntRange(min=1)),
    metavar="N",
    help="Samples of one step over all ranks; several (16,32,64): a grid.  [default: 4 a rank]",
)
@click.option(
    "--micro-batches",
    type=click.IntRange(1, 4096),
    default=1,
    help="Backward passes before each step (gradient accumulation).",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bf16", "fp16"]),
    default="float32",
    help="bf16, fp16: autocast; fp16 with a gradient scaler.",
)
@click.option("--context", type=click.IntRange(1, 1 << 20), help="Tokens of a sample.")
@click.option("--layers", type=click.IntRange(1, 1024), help="Layers, instead of the model's own.")
@click.option("--vocab", type=click.IntRange(2, 1 << 24), help="Different tokens.")
@click.option("--tied/--untied", default=None, help="Whether the output matrix is the embedding.")
@click.option(
    "--text",
    metavar="FILE",
    shell_complete=suggest.files,
    help="Train on the bytes of this file, not on random tokens.",
)
@click.option(
    "--data-workers",
    type=click.IntRange(0, 64),
    help="Batches come from a file by torch's DataLoader with so many workers a rank (0: the rank reads "
    "itself); the wait for them is a part of the step.  [default: batches are made on the spot]",
)
@click.option(
    "--optimizer", type=click.Choice(["adamw", "sgd"]), default="adamw", help="Optimizer."
)
@click.option("--lr", type=FiniteRange(0, 1e6), default=1e-3, help="Learning rate.")
@click.option("--clip", type=FiniteRange(0, 1e9, min_open=True), help="Clip the gradients' norm.")
@click.option(
    "--rounds",
    type=click.IntRange(1, 10_000),
    help="Rounds, in each of which every strategy has its turn.  [default: as --precision needs]",
)
@click.option("--steps", type=click.IntRange(1, 1000), default=3, help="Steps of a turn.")
@click.option(
    "--precision",
    type=FiniteRange(0.1, 100),
    default=5.0,
    help="Go on until each mean step is known to this many percent (95 % interval) …",
)
@click.option(
    "--max-time",
    type=FiniteRange(0.1, 86_400),
    default=30.0,
    help="… or for this many seconds; the interval that was reached is always shown.",
)
@click.option(
    "--prove/--no-prove",
    default=True,
    help="First compare each strategy with one process on the whole batch.",
)
@click.option("--memory", is_flag=True, help="Also where the memory goes, measured and predicted.")
@click.option("--fit", is_flag=True, help="Also the largest batch a rank that fits in memory.")
@click.option("--budget", metavar="SIZE", help="Memory of one rank that --fit may use, such as 2G.")
@click.option(
    "--scaling", metavar="N,…", help="Scaling over these numbers of ranks, such as 1,2,4."
)
@click.option(
    "--scaling-kind",
    type=click.Choice(list(_KINDS)),
    default="both",
    help="strong: one batch for any number of ranks; weak: the same batch a rank.",
)
@click.option(
    "--trace",
    metavar="FILE",
    shell_complete=suggest.files,
    help="Write the timeline of one step of each strategy for Perfetto, and beside it a picture "
    "(FILE with .svg).",
)
@click.option("--load", is_flag=True, help="Also how much computing and sending slow each other.")
@click.option(
    "--for",
    "for_",
    metavar="TIME",
    help="Train by one strategy for so long (90s, 30m, 2h), with checkpoints, starting ranks that fail "
    f"again: how much of the time was useful?  [default strategy: {LASTS}]",
)
@click.option(
    "--checkpoint-every",
    metavar="TIME|STEPS",
    help="With --for: between checkpoints, such as 5m or 100steps.  [default: 60s]",
)
@click.option(
    "--checkpoint-dir",
    metavar="DIR",
    shell_complete=suggest.files,
    help="With --for: where checkpoints lie on the nodes of the ranks.  [default: in the run's folder]",
)
@click.option(
    "--resume", is_flag=True, help="Go on from the newest checkpoint in --checkpoint-dir."
)
@click.option("--list", "list_", is_flag=True, help="List the models and the strategies, and stop.")
@click.option(
    "-o", "--output", type=click.Choice(_FORMATS), default="table", help="How to print the result."
)
@click.option(
    "--html",
    metavar="FILE",
    shell_complete=suggest.files,
    help="Also write one offline HTML file: verdict, charts, tables, the timeline of a step.",
)
@common_options
@click.pass_context
def train(ctx: click.Context, /, **values: Any) -> int:
    """Which strategy is fastest, and what does communication cost?

    Trains a model with several ways of synchronising gradients, in interleaved rounds, so that what
    disturbs one disturbs all. Each is first proven to train as one process on the whole batch does.
    """
    if values.pop("list_"):
        click.echo(_listing())
        return 0
    trace = values["trace"]
    options = RunOptions.take(values, values.pop("output"), several=("ranks",))
    options = replace(options, output=replace(options.output, trace=trace))
    return _run(ctx, values, options)


def _run(ctx: click.Context, values: dict[str, Any], options: RunOptions) -> int:
    from wirespeed.cli.execute import execute
    from wirespeed.cli.grids import grid_of
    from wirespeed.cli.train_plan import world_sizes

    _refuse_other_engines(options.engine)
    _refuse_unknown_model(values["model"])
    _refuse_bad_files(options.output)
    batch = values["batch"]
    batches = batch if isinstance(batch, tuple) else () if batch is None else (batch,)
    if values["for_"] and values["data_workers"] is not None:
        raise UsageError(
            "--data-workers with --for: training that goes on from a checkpoint makes its batches anew",
            expected="one of the two",
        )
    several = bool(options.grid) or len(batches) > 1
    if several:
        _refuse_with_grid(values, options)
    worlds = world_sizes(values["scaling"])
    if worlds and options.ranks is None and options.where is None and not _launched():
        options = replace(options, ranks=max(worlds))

    def plan_for(point: GridPoint) -> Plan:
        return _plan(values, options, worlds, point.ranks, point.batch or None, alone=False)

    grid = grid_of(options, plan_for, batches)
    if grid:
        plan = next(one.plan for one in grid if one.plan is not None)
    else:
        plan = _plan(values, options, worlds, _world_size(options), batch, alone=True)
    return execute(ctx, plan, options, grid=grid)


def _refuse_with_grid(values: dict[str, Any], options: RunOptions) -> None:
    for name, given in (("--scaling", values["scaling"]), ("--for", values["for_"])):
        if given:
            raise UsageError(
                f"{name} on a grid", expected="one value of --ranks and --batch with it"
            )
    if options.output.trace is not None:
        raise UsageError("--trace on a grid", expected="one value of --ranks and --batch with it")


def _plan(
    values: dict[str, Any],
    options: RunOptions,
    worlds: tuple[int, ...],
    world: int,
    batch: int | None,
    *,
    alone: bool,
) -> Plan:
    """For one world of that many ranks; alone: no part of a grid."""
    from wirespeed.cli.train_plan import (
        Asked,
        bucket_sizes,
        cases_of,
        lasting_case,
        lasting_of,
    )
    from wirespeed.model.units import parse_size
    from wirespeed.training.strategies.registry import strategies_named

    lasting = lasting_of(values, launched=_launched(), elsewhere=options.where is not None)
    asked = Asked(
        strategies=strategies_named(
            values["strategy"] or (LASTS if lasting else _SCALED if worlds else _STRATEGIES)
        ),
        buckets=bucket_sizes(values["bucket_mb"]),
        world=world,
        batch=batch or _SAMPLES_A_RANK * world * values["micro_batches"],
        micro_batches=values["micro_batches"],
        worlds=worlds,
        kinds=_KINDS[values["scaling_kind"]],
    )
    _require_packages(asked.strategies)
    names = ("context", "layers", "vocab", "tied", "text")
    given = {name: values[name] for name in names if values[name] is not None}
    output = options.output
    training = TrainPlan(
        model=values["model"],
        model_options=given,
        cases=(lasting_case(asked),) if lasting else cases_of(asked),
        micro_batches=values["micro_batches"],
        precision=values["dtype"],
        optimizer=values["optimizer"],
        learning_rate=values["lr"],
        clip=values["clip"],
        rounds=values["rounds"],
        steps=values["steps"],
        goal=values["precision"] / 100,
        max_time_s=values["max_time"],
        prove=values["prove"],
        memory=values["memory"] or values["fit"],
        fit=values["fit"],
        budget_bytes=parse_size(values["budget"]) if values["budget"] else None,
        trace=alone and (output.trace is not None or output.html is not None),
        load=values["load"],
        data_workers=values["data_workers"],
        lasting=lasting,
    )
    return options.plan("train", training=training)


def _launched() -> bool:
    from wirespeed.node.identity import detect

    return detect(os.environ) is not None


def _world_size(options: RunOptions) -> int:
    """Ranks of the whole world: the launcher's or engine's, else those that will start here."""
    if options.where is not None:
        return options.placed().prepared.job.size
    from wirespeed.node.identity import detect
    from wirespeed.node.limits import choose_ranks

    identity = detect(os.environ)
    if identity is not None:
        return identity.world_size
    return int(choose_ranks(options.ranks, options.backend).value)


def _refuse_other_engines(engine: str) -> None:
    if engine != "torch":
        raise UsageError(
            f"train cannot use the engine {engine}",
            expected="torch; DeepSpeed is a strategy here",
            next="wirespeed train --strategy deepspeed-zero2",
        )


def _refuse_unknown_model(name: str) -> None:
    from wirespeed.training.models.catalogue import model_names

    if ":" in name or name in model_names():
        return
    raise UsageError(
        f"no model is called {name!r}",
        expected="one of " + ", ".join(model_names()) + ", or your own as module:function",
        next="wirespeed train --list",
    )


def _refuse_bad_files(output: Output) -> None:
    """Only rank 0 writes them; the other nodes need not have that folder."""
    from wirespeed.cli.page import refuse_bad_target
    from wirespeed.node.identity import detect

    identity = detect(os.environ)
    if identity is not None and identity.rank != 0:
        return
    for option, file in (("--trace", output.trace), ("--html", output.html)):
        if file is not None:
            refuse_bad_target(file, option)


def _require_packages(strategies: tuple[str, ...]) -> None:
    from importlib.util import find_spec

    from wirespeed.errors import CannotMeasure
    from wirespeed.training.strategies.registry import STRATEGIES

    for name in strategies:
        package = STRATEGIES[name].requires
        if package and find_spec(package) is None:
            raise CannotMeasure(
                f"the strategy {name} needs the package {package}, which is not installed",
                expected=f"pip install 'wirespeed[{package}]'",
                next=f"pip install 'wirespeed[{package}]'",
            )


def _listing() -> str:
    from wirespeed.training.models.catalogue import model_lines
    from wirespeed.training.strategies.registry import STRATEGIES

    wide = max(map(len, STRATEGIES))
    known = [f"  {info.name:<{wide}}  {info.says}" for info in STRATEGIES.values()]
    return "\n".join(["models", *model_lines(), "", "strategies", *known])
