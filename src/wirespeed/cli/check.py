"""`wirespeed check`: is this cluster ready?"""

from dataclasses import replace
from typing import Any

import click

from wirespeed.cli import suggest
from wirespeed.cli.options import CONTEXT, RunOptions, common_options
from wirespeed.cli.soaking import asked_soak, resumed_values, soak_options
from wirespeed.errors import UsageError
from wirespeed.views import FORMATS

_EPILOG = """\b
Examples:
  wirespeed check                             this machine, in half a minute
  wirespeed check -l quick --ranks 2          a first look, in seconds
  wirespeed check --only correctness          see --list for what there is
  wirespeed check --explain COL-001           what a finding means
  wirespeed check --inject flip:rank=1        see a flipped bit caught
  wirespeed check -l soak --for 8h            overnight: rare wrong data, stalls, drift
  torchrun --nnodes 2 --nproc-per-node 8 ... -m wirespeed check
"""


@click.command(context_settings=CONTEXT, epilog=_EPILOG)
@click.option(
    "-l",
    "--level",
    type=click.Choice(["quick", "medium", "long", "soak"]),
    default="medium",
    help="How thorough. quick: every operation once, in seconds; medium: also each dtype, reduction, "
    "root, and in place; long: also more sizes, and time for narrow intervals; soak: calls and checks "
    "for hours (--for), whatever fails meanwhile.",
)
@soak_options
@click.option(
    "--only",
    metavar="ID,…",
    shell_complete=suggest.check_ids,
    help="Only these checks: ids (COL-001), prefixes (COL) or families (correctness).",
)
@click.option("--list", "list_", is_flag=True, help="List the checks and stop.")
@click.option(
    "--explain",
    metavar="ID",
    shell_complete=suggest.explained_ids,
    help="Tell what a finding means and what to do, and stop.",
)
@click.option(
    "-o", "--output", type=click.Choice(FORMATS), default="table", help="How to print the result."
)
@common_options
@click.pass_context
def check(ctx: click.Context, /, **values: Any) -> int:
    """Is this cluster ready? Check the data of every collective, their speed and the nodes.

    On this machine it starts ranks of its own; under torchrun, mpirun or srun each process is one
    rank of that world. The last lines give the verdict: READY, NOT READY or UNKNOWN.
    """
    resumed = resumed_values(ctx, values)
    level, only = values.pop("level"), values.pop("only")
    soak_s = asked_soak(level, values.pop("for_"), resumed)
    values.pop("resume")
    list_, explain = values.pop("list_"), values.pop("explain")
    options = RunOptions.take(values, values.pop("output"))
    if explain:
        click.echo(_explanation(explain))
        return 0
    if list_:
        click.echo(_listing())
        return 0
    if soak_s is not None:
        return _soak(ctx, only, replace(options, resumed=resumed), soak_s)
    return _run(ctx, level, only, options)


def _soak(ctx: click.Context, only: str | None, options: RunOptions, seconds: float) -> int:
    from wirespeed.checks.levels import soak_cases, soak_window_s
    from wirespeed.checks.registry import select
    from wirespeed.cli.execute import execute
    from wirespeed.plan import SoakPlan

    chosen = frozenset(select(only)) if only else frozenset()
    total = options.resumed.soak.for_s if options.resumed else seconds
    soak = SoakPlan(
        cases=soak_cases(chosen, gpus=_on_gpus(options)),
        for_s=seconds,
        window_s=soak_window_s(total),
    )
    return execute(ctx, options.plan("check", soak=soak), options, only=chosen)


def _on_gpus(options: RunOptions) -> bool:
    from wirespeed.node.limits import count_gpus

    return options.backend == "nccl" or (options.backend == "auto" and count_gpus() > 0)


def _run(ctx: click.Context, level: str, only: str | None, options: RunOptions) -> int:
    from wirespeed.checks.levels import steps_for
    from wirespeed.checks.registry import facts_suffice, select
    from wirespeed.cli.execute import execute

    chosen = frozenset(select(only)) if only else frozenset()
    plan = options.plan(
        "check",
        steps=steps_for(level, chosen, gpus=_on_gpus(options)),
        facts_only=facts_suffice(chosen) and not options.inject,
    )
    return execute(ctx, plan, options, only=chosen)


def _explanation(id: str) -> str:
    from wirespeed.checks.registry import EXPLAINED

    found = EXPLAINED.get(id.strip().upper())
    if found is None:
        raise UsageError(
            f"no finding has the id {id!r}",
            expected="an id as it stands at the end of a line, such as COL-001",
            next="wirespeed check --list",
        )
    text = click.wrap_text(found.explanation, 88, "  ", "  ")
    return f"{found.id}  {found.title}  ({found.family})\n{text}"


def _listing() -> str:
    from wirespeed.checks.registry import CHECKS

    wide = max(len(check.family) for check in CHECKS.values())
    lines = [f"{c.id:<11} {c.family:<{wide}}  {c.title}" for c in CHECKS.values()]
    return "\n".join(lines)
