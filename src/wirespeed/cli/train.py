"""`wirespeed train`: which strategy is fastest, what does communication cost, how does it scale?"""

from typing import Any

import click

from wirespeed.cli.options import CONTEXT, FiniteRange, Listed, command, flag, option
from wirespeed.cli.run_options import RunOptions, common_options

_FORMATS = ("table", "wide", "json", "jsonl", "md", "csv")
_STRATEGIES = "naive,flat,overlap,bucketed,ddp"
_SCALED = "bucketed"
_LASTS = "ddp"
"""What `--for` trains with, unless a strategy is named."""


@command(context_settings=CONTEXT)
@option(
    "--model",
    "A model of --list, or your own as module:function.",
    default="tiny",
    completes="models",
)
@option(
    "--strategy NAME,…",
    f"Ways of synchronising, see --list.  [default: {_STRATEGIES}; {_SCALED} with --scaling]",
    completes="strategies",
)
@option("--bucket-mb MB,…", "Bucket sizes to compare, in 10^6 bytes.")
@option(
    "--batch N",
    "Samples of one step over all ranks; several (16,32,64): a grid.  [default: 4 a rank]",
    Listed(click.IntRange(min=1)),
)
@option(
    "--micro-batches",
    "Backward passes before each step (gradient accumulation).",
    click.IntRange(1, 4096),
    default=1,
)
@option(
    "--dtype",
    "bf16, fp16: autocast; fp16 with a gradient scaler.",
    ["float32", "bf16", "fp16"],
    default="float32",
)
@option("--context", "Tokens of a sample.", click.IntRange(1, 1 << 20))
@option("--layers", "Layers, instead of the model's own.", click.IntRange(1, 1024))
@option("--vocab", "Different tokens.", click.IntRange(2, 1 << 24))
@option("--tied/--untied", "Whether the output matrix is the embedding.", default=None)
@option("--text FILE", "Train on the bytes of this file, not on random tokens.")
@option(
    "--data-workers",
    "Batches come from a file by torch's DataLoader with so many workers a rank (0: the rank reads "
    "itself); the wait for them is a part of the step.  [default: batches are made on the spot]",
    click.IntRange(0, 64),
)
@option("--optimizer", "Optimizer.", ["adamw", "sgd"], default="adamw")
@option("--lr", "Learning rate.", FiniteRange(0, 1e6), default=1e-3)
@option("--clip", "Clip the gradients' norm.", FiniteRange(0, 1e9, min_open=True))
@option(
    "--rounds",
    "Rounds, in each of which every strategy has its turn.  [default: as --precision needs]",
    click.IntRange(1, 10_000),
)
@option("--steps", "Steps of a turn.", click.IntRange(1, 1000), default=3)
@option(
    "--precision",
    "Go on until each mean step is known to this many percent (95 % interval), or the time of the "
    "rounds is over: 30 seconds, or half of --max-time.",
    FiniteRange(0.1, 100),
    default=5.0,
)
@option(
    "--max-time",
    "Seconds for all that is measured, after start-up, first steps and proof (two rounds at least). "
    "What did not fit is named.  [default: 30 for the rounds, and as much again for what follows]",
    FiniteRange(0.1, 86_400),
)
@option(
    "--prove/--no-prove",
    "First compare each strategy with one process on the whole batch.",
    default=True,
)
@flag("--memory", "Also where the memory goes, measured and predicted.")
@flag("--fit", "Also the largest batch a rank that fits in memory.")
@option("--budget SIZE", "Memory of one rank that --fit may use, such as 2G.")
@option("--scaling N,…", "Scaling over these numbers of ranks, such as 1,2,4.")
@option(
    "--scaling-kind",
    "strong: one batch for any number of ranks; weak: the same batch a rank.",
    ["both", "strong", "weak"],
    default="both",
)
@option(
    "--trace FILE",
    "Write the timeline of one step of each strategy for Perfetto, and beside it a picture "
    "(FILE with .svg).",
)
@flag("--load", "Also how much computing and sending slow each other.")
@option(
    "--for for_ TIME",
    "Train by one strategy for so long (90s, 30m, 2h), with checkpoints, starting ranks that fail "
    f"again: how much of the time was useful?  [default strategy: {_LASTS}]",
)
@option(
    "--checkpoint-every TIME|STEPS",
    "With --for: between checkpoints, such as 5m or 100steps.  [default: 60s]",
)
@option(
    "--checkpoint-dir DIR",
    "With --for: where checkpoints lie on the nodes of the ranks.  [default: in the run's folder]",
    completes="files",
)
@flag("--resume", "Go on from the newest checkpoint in --checkpoint-dir.")
@flag("--list list_", "List the models and the strategies, and stop.")
@option("-o --output", "How to print the result.", _FORMATS, default="table")
@option(
    "--html FILE",
    "Also write one offline HTML file: verdict, charts, tables, the timeline of a step.",
)
@common_options
@click.pass_context
def train(ctx: click.Context, /, **values: Any) -> int:
    """Which strategy is fastest, and what does communication cost?

    Trains a model with several ways of synchronising gradients, in interleaved rounds, so that what
    disturbs one disturbs all. Each is first proven to train as one process on the whole batch does.

    \f
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
    if values.pop("list_"):
        click.echo(_listing())
        return 0
    from wirespeed.cli.train_plan import train_by

    usual = _LASTS if values["for_"] else _SCALED if values["scaling"] else _STRATEGIES
    values["strategy"] = values["strategy"] or usual
    options = RunOptions.take(values, values.pop("output"), several=("ranks",))
    return train_by(ctx, values, options)


def _listing() -> str:
    from wirespeed.training.models.catalogue import model_lines
    from wirespeed.training.strategies.registry import STRATEGIES

    wide = max(map(len, STRATEGIES))
    known = [f"  {info.name:<{wide}}  {info.says}" for info in STRATEGIES.values()]
    return "\n".join(["models", *model_lines(), "", "strategies", *known])
