"""`bench --replay`: from the record of a job to the plan of its replay."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from wirespeed.cli.options import switch_of
from wirespeed.cli.run_options import RunOptions
from wirespeed.errors import UsageError
from wirespeed.node import limits
from wirespeed.node.identity import detect

if TYPE_CHECKING:
    from wirespeed.plan import Measure, Plan
    from wirespeed.watch.sequence import Found

_OWN = (
    *("min_bytes", "max_bytes", "factor", "sizes", "step_bytes", "dtypes", "root", "in_flight"),
    *("in_place", "timing", "asynchronous", "groups", "max_fit", "env", "rounds", "search"),
)
"""Options of `bench` that say what the job's record says, or measure in another way."""
_FEW = 8
"""Ranks that are started on this machine without being asked for."""


def replayed(
    ctx: click.Context, sources: Sequence[str], options: RunOptions, measure: "Measure"
) -> "tuple[Plan, RunOptions]":
    """What is measured, and the options with as many ranks as the job had where none were told.

    Raises UsageError for options that say nothing here, for records that cannot be replayed, and where
    this world has another size than the job's and its groups are not the whole of it.
    """
    allowed = "how long is measured (-w, -n, --precision, --max-time)"
    refuse_beside(ctx, _OWN, "--replay", allowed)
    from wirespeed.model.records import Choice
    from wirespeed.plan import ReplayPlan, Step
    from wirespeed.watch.recorded import recorded_calls, recorded_step
    from wirespeed.watch.sequence import find_sequence

    found = find_sequence(recorded_calls(sources), step=recorded_step(sources))
    size = known_size(options)
    if size is None and found.world <= max(_FEW, usual_size(options)):
        size, options = found.world, replace(options, ranks=found.world)
    size = size or usual_size(options)
    choices = list(found.choices)
    if size != found.world:
        _refuse_size(found, size)
        choices.append(
            Choice(
                "ranks", f"{size}, the job had {found.world}", "all its groups are the whole world"
            )
        )
    check = bool(ctx.params["check"])
    plan = options.plan(
        "bench",
        steps=tuple(Step(case=case, verify=check, measure=measure) for case in found.cases),
        replay=ReplayPlan(
            source=_named(sources),
            job_ranks=found.world,
            job_steps=found.steps,
            job_step=found.step,
            calls=found.calls,
            in_job=found.in_job,
            choices=tuple(choices),
        ),
    )
    return plan, options


def refuse_beside(ctx: click.Context, names: Sequence[str], switch: str, allowed: str) -> None:
    """UsageError where one of these options was typed beside `switch`, which tells what they would."""
    for name in names:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{switch_of(name)} with {switch}",
                expected=f"no more than {allowed}, where, and how it is shown: {switch} tells the rest",
            )


def known_size(options: RunOptions) -> int | None:
    """Ranks of this world; None: not decided yet."""
    if options.where is not None:
        return options.prepared().job.size
    identity = detect(os.environ)
    return identity.world_size if identity is not None else options.ranks


def usual_size(options: RunOptions) -> int:
    """Ranks of this machine where nobody tells."""
    return int(limits.choose_ranks(options.ranks, options.backend).value)


def _refuse_size(found: "Found", size: int) -> None:
    cut = next((case.groups for case in found.cases if case.groups != "all"), None)
    if cut is not None:
        raise UsageError(
            f"the job has {found.world} ranks, and this world {size}; the job's groups are cut from "
            f"all of its ranks ({cut[:80]})",
            expected="as many ranks as the job had",
            next=f"the same command with --ranks {found.world}",
        )


def _named(sources: Sequence[str]) -> str:
    return sources[0][:200] + (f" and {len(sources) - 1} more" if len(sources) > 1 else "")
