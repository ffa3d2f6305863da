"""`bench --replay` and `--shape`: from the record of a job, or the shape of a large one, to a plan."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from wirespeed.cli.options import switch_of, words_of
from wirespeed.cli.run_options import RunOptions
from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import dtype_named
from wirespeed.errors import UsageError
from wirespeed.model.bench_records import Shape
from wirespeed.model.records import Choice
from wirespeed.model.units import format_size, parse_size
from wirespeed.node import limits
from wirespeed.node.identity import detect

if TYPE_CHECKING:
    from wirespeed.plan import Measure, Plan
    from wirespeed.training.models.shapes import Degrees
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
    allowed = "how long is measured (-w, -n, --precision, --time-per-size, --max-time)"
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
        from wirespeed.typed_command import TYPED

        raise UsageError(
            f"the job has {found.world} ranks, and this world {size}; the job's groups are cut from "
            f"all of its ranks ({cut[:80]})",
            expected="as many ranks as the job had",
            next=f"{TYPED:--ranks {found.world}}",
        )


def _named(sources: Sequence[str]) -> str:
    return sources[0][:200] + (f" and {len(sources) - 1} more" if len(sources) > 1 else "")


DEGREES = {"tensor": "tp", "pipeline": "pp", "data": "dp", "expert": "ep"}
"""The options by what they cut."""
OWN = (*DEGREES.values(), "tokens")
"""Options that say something with --shape alone."""
_TOLD = (
    *("min_bytes", "factor", "sizes", "step_bytes", "root", "in_flight", "in_place", "timing"),
    *("asynchronous", "groups", "max_fit", "env", "rounds", "search", "replay"),
)
"""Options of `bench` that the shape tells, or that measure in another way."""
_CPU_BYTES = 4 << 20
"""The largest call where there is no GPU: what the cores of a laptop carry in some milliseconds."""
_DTYPE = "bfloat16"


def shaped(
    ctx: click.Context, options: RunOptions, measure: "Measure"
) -> "tuple[Plan, RunOptions]":
    """What is measured, and the options with as many ranks as it takes where none were told.

    Raises UsageError for options that say nothing here, for a model that cannot be cut so, and where
    this world is too small or too odd for such groups.
    """
    from wirespeed.plan import ShapePlan
    from wirespeed.training.models.shapes import Degrees, shape_named, shape_of

    values = ctx.params
    _refuse_others(ctx, options)
    model = shape_named(values["shape"])
    job = Degrees(**{kind: values[name] or 1 for kind, name in DEGREES.items()})
    ranks = known_size(options)
    if ranks is None:
        ranks = _ranks_for(job, options)
        options = replace(options, ranks=ranks)
    elif options.where is not None and options.prepared().findings:
        ranks = max(2, ranks)  # nodes that cannot be used are told by who starts the ranks
    dtype, most = _dtype(ctx), _most_bytes(values["max_bytes"], options)
    shape = shape_of(
        *(model, job, ranks),
        dtype=dtype,
        itemsize=dtype_named(dtype).itemsize,
        tokens=values["tokens"],
        most_bytes=most,
    )
    plan = options.plan(
        "bench",
        steps=tuple(_steps(shape, verify=bool(values["check"]), measure=measure)),
        shape=ShapePlan(shape=shape, choices=tuple(_choices(shape, job, most))),
    )
    return plan, options


def _refuse_others(ctx: click.Context, options: RunOptions) -> None:
    if ctx.params["ops"] or options.grid:
        raise UsageError(
            "--shape with operations or a grid",
            expected="one world, and what the model sends in it",
        )
    if options.engine == "mpi4py":
        raise UsageError(
            "--shape with --engine mpi4py",
            expected="torch or deepspeed: several threads call at once, which not every MPI allows",
        )
    allowed = "how long is measured (-w, -n, --precision, --time-per-size, --max-time)"
    refuse_beside(ctx, _TOLD, "--shape", f"{allowed}, the type (-d), the largest call (-e)")


def _ranks_for(job: "Degrees", options: RunOptions) -> int:
    """Of this machine: as many as it usually has, without a GPU at least two of each kind of group."""
    usual = usual_size(options)
    if not _may_have_gpus(options):
        kinds = sum(one > 1 for one in (job.tensor, job.pipeline, job.data))
        usual = max(usual, 2**kinds)
    return min(job.ranks, usual)


def _may_have_gpus(options: RunOptions) -> bool:
    """Of other nodes nobody knows before the ranks are there."""
    return options.backend != "gloo" and (options.where is not None or bool(limits.count_gpus()))


def _dtype(ctx: click.Context) -> str:
    if ctx.get_parameter_source("dtypes") is ParameterSource.DEFAULT:
        return _DTYPE
    names = [name for text in ctx.params["dtypes"] for name in words_of(text)]
    if len(names) != 1 or not dtype_named(names[0]).name.startswith(("float", "bfloat")):
        raise UsageError(
            f"-d {','.join(names)} with --shape", expected="one type of floating point numbers"
        )
    return dtype_named(names[0]).name


def _most_bytes(asked: str | None, options: RunOptions) -> int | None:
    if asked is None:
        return None if _may_have_gpus(options) else _CPU_BYTES
    return max(1, parse_size(asked))


def _steps(shape: Shape, *, verify: bool, measure: "Measure") -> Iterator[Any]:
    """Each operation of each kind of group, in the order of the shape."""
    from wirespeed.plan import Case, Step

    for group in shape.groups:
        for op in group.ops:
            case = Case(
                op=op,
                dtype=shape.dtype,
                redop="sum" if CATALOGUE[op].reduces else "none",
                groups=group.groups,
                size_bytes=group.size_bytes,
            )
            yield Step(case=case, verify=verify, measure=measure)


def _choices(shape: Shape, job: "Degrees", most_bytes: int | None) -> Iterator[Choice]:
    here = " × ".join(f"{one.kind} {one.ranks}" for one in shape.groups)
    if shape.ranks != shape.job_ranks:
        why = f"{job} ({shape.job_ranks} ranks) on {shape.ranks}; calls stay as large as in the job"
        yield Choice("groups", here, why)
    if shape.lost:
        yield Choice("left out", ", ".join(shape.lost), "too few ranks for groups of every kind")
    cut = [
        f"{here} of {there} {what}"
        for here, there, what in (
            (shape.tokens, shape.job_tokens, "tokens a micro-batch"),
            (shape.columns, shape.job_columns, "columns of the product"),
        )
        if here < there
    ]
    data = next((one for one in shape.groups if one.kind == "data"), None)
    if data is not None and data.size_bytes < data.job_size_bytes:
        pieces = round(data.job_size_bytes / data.size_bytes)
        cut.append(f"a layer's gradients in {pieces} pieces")
    if cut and most_bytes is not None:
        why = f"{', '.join(cut)}; -e sets another bound"
        yield Choice("largest call", format_size(most_bytes), why)


def refuse_without_shape(ctx: click.Context) -> None:
    """UsageError for an option that says nothing of single operations."""
    for name in OWN:
        if ctx.params[name] is not None:
            raise UsageError(
                f"{switch_of(name)} without --shape",
                expected="--shape MODEL with it",
                next="wirespeed bench --shape llama-70b --tp 8 --pp 4 --dp 16",
            )
