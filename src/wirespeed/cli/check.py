"""`wirespeed check`: is this cluster ready?"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from wirespeed.cli.options import (
    CONTEXT,
    FiniteRange,
    command,
    flag,
    option,
    parse_duration,
    switch_of,
)
from wirespeed.cli.run_options import RunOptions, common_options
from wirespeed.errors import UsageError
from wirespeed.views import FORMATS

_DEFAULT_FOR = "30m"


@command(context_settings=CONTEXT)
@option(
    "-l --level",
    "How thorough. quick: every operation once, in seconds; medium: also each dtype, reduction, "
    "root, and in place; long: also more sizes, time for narrow intervals, and the devices (compute); "
    "soak: calls and checks for hours (--for), whatever fails meanwhile.",
    ["quick", "medium", "long", "soak"],
    default="medium",
)
@option(
    "--for for_ TIME",
    f"With -l soak: how long, such as 90s, 30m or 8h.  [default: {_DEFAULT_FOR}]",
)
@option(
    "--resume RUN", "Go on with a soak that was interrupted or killed, with the options it had."
)
@option(
    "--only ID,…",
    "Only these checks: ids (COL-001), prefixes (COL) or families (correctness).",
    completes="check_ids",
)
@option(
    "--data FOLDER",
    "Also check this folder of data and checkpoints, seen by all nodes: how fast, how full, the same "
    "on each (docs/storage.md). What is written there is small beside what is free, and removed.",
)
@option(
    "--model",
    "With --data: tell what its figures mean for this model of train --list.",
    completes="models",
)
@option(
    "--samples-per-s",
    "With --data: samples that the job reads in a second.  [default: those of the newest stored run of "
    "train with that --model]",
    FiniteRange(0, min_open=True),
)
@flag("--list list_", "List the checks and stop.")
@option(
    "--explain ID",
    "Tell what a finding means and what to do, and stop.",
    completes="explained_ids",
)
@option("-o --output", "How to print the result.", FORMATS, default="table")
@common_options
@click.pass_context
def check(ctx: click.Context, /, **values: Any) -> int:
    """Is this cluster ready? Check the data of every collective, their speed and the nodes.

    On this machine it starts ranks of its own; under torchrun, mpirun or srun each process is one
    rank of that world. The last lines give the verdict: READY, NOT READY or UNKNOWN; with --only
    PASSED, FAILED or UNKNOWN.

    \f
    Examples:
      wirespeed check                             this machine, in half a minute
      wirespeed check -l quick --ranks 2          a first look, in seconds
      wirespeed check --only correctness          see --list for what there is
      wirespeed check --only compute              GPUs and cores: right, and as fast as the others?
      wirespeed check --explain COL-001           what a finding means
      wirespeed check --inject flip:rank=1        see a flipped bit caught
      wirespeed check --only storage --data /mnt/shared --model llama-8b
      wirespeed check -l soak --for 8h            overnight: rare wrong data, stalls, drift
      torchrun --nnodes 2 --nproc-per-node 8 ... -m wirespeed check
    """
    resumed = None
    if values["resume"] is not None:
        from wirespeed.cli.soaking import resumed_values

        resumed = resumed_values(ctx, values)
    if values["level"] != "soak" and values["for_"] is not None:
        raise UsageError(
            f"--for {values['for_']} says nothing without -l soak",
            next=f"wirespeed check -l soak --for {values['for_']}",
        )
    options = replace(RunOptions.take(values, values["output"]), resumed=resumed)
    asked = values["level"], values["only"], values["for_"]
    if values["explain"]:
        click.echo(_explanation(values["explain"]))
    elif values["list_"]:
        click.echo(_listing())
    else:
        return _run(ctx, *asked, options, _storage_words(values))
    return 0


def _storage_words(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of storage that were given, by name."""
    names = ("data", "model", "samples_per_s")
    told = {name: values[name] for name in names if values[name] is not None}
    if told and ("data" not in told or values["level"] == "soak"):
        first = next(iter(told))
        lacks = "with -l soak" if "data" in told else "without --data"
        raise UsageError(
            f"{switch_of(first)} says nothing {lacks}",
            expected="--data FOLDER, with -l quick, medium or long",
            next="wirespeed check --only storage --data FOLDER",
        )
    if "samples_per_s" in told:
        told["samples_per_s"] = told["samples_per_s"], "--samples-per-s"
    elif "model" in told:
        told["samples_per_s"] = _trained(told["model"])
    return told


def _trained(model: str) -> tuple[float, str]:
    """Samples a second of the fastest strategy in the newest stored run of that model, and its name."""
    from wirespeed.runs.store import past_runs

    for run in past_runs():
        if known := [one.samples_per_s for one in run.training if one.model == model]:
            return max(known), f"train run {run.id}, {run.world.size} ranks"
    return 0.0, ""


def _run(
    ctx: click.Context,
    level: str,
    only: str | None,
    for_: str | None,
    options: RunOptions,
    storage: Mapping[str, Any],
) -> int:
    from wirespeed.checks.levels import (
        compute_plan,
        soak_cases,
        soak_window_s,
        steps_for,
        storage_plan,
    )
    from wirespeed.checks.registry import facts_suffice, select
    from wirespeed.cli.execute import execute
    from wirespeed.node.limits import count_gpus
    from wirespeed.plan import SoakPlan

    chosen = frozenset(select(only)) if only else frozenset()
    gpus = options.backend == "nccl" or (options.backend == "auto" and count_gpus() > 0)
    if level == "soak":
        known = options.resumed.soak if options.resumed else None
        seconds = (
            known.for_s - known.elapsed_s
            if known
            else parse_duration(for_ or _DEFAULT_FOR, "--for")
        )
        window_s = soak_window_s(known.for_s if known else seconds)
        soak = SoakPlan(cases=soak_cases(chosen, gpus=gpus), for_s=seconds, window_s=window_s)
        plan = options.plan("check", soak=soak)
    else:
        facts_only = facts_suffice(chosen) and not options.inject and not storage
        steps = steps_for(level, chosen, gpus=gpus)
        compute, folder = compute_plan(level, chosen), storage_plan(level, chosen, **storage)
        parts = {"steps": steps, "compute": compute, "storage": folder}
        plan = options.plan("check", facts_only=facts_only, **parts)
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
