"""From the options of `wirespeed train` to a plan; what cannot be is refused here, with proposals."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any

import click

from wirespeed.cli.options import Output, parse_duration, switch_of, words_of
from wirespeed.cli.page import refuse_bad_target
from wirespeed.cli.run_options import RunOptions
from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.model.bench_records import GridPoint
from wirespeed.model.training_records import TrainingKind
from wirespeed.model.units import parse_size
from wirespeed.node.identity import detect
from wirespeed.node.limits import choose_ranks
from wirespeed.plan import LastingPlan, Plan, TrainCase, TrainPlan
from wirespeed.training.models.catalogue import model_names
from wirespeed.training.strategies.registry import STRATEGIES, strategies_named

_SAMPLES_A_RANK = 4
_KINDS: dict[str, tuple[TrainingKind, ...]] = {
    "both": ("strong", "weak"),
    "strong": ("strong",),
    "weak": ("weak",),
}
_DEFAULT_BUCKET_MB = 25.0
"""torch's own default is 25 MiB."""
_AS_GIVEN = (
    *("micro_batches", "optimizer", "clip", "rounds", "steps", "prove", "fit", "load"),
    "data_workers",
)
_EVERY = "60s"
_OTHERS = ("scaling", "memory", "fit", "trace", "load", "rounds")
_ONLY_WITH = ("checkpoint_every", "checkpoint_dir", "resume")
_RESTARTED = "TORCHELASTIC_RESTART_COUNT"


def train_by(ctx: click.Context, values: dict[str, Any], options: RunOptions) -> int:
    """Train as the options say; the exit code."""
    from wirespeed.cli.execute import execute
    from wirespeed.cli.several import grid_of

    options = replace(options, output=replace(options.output, trace=values["trace"]))
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
    if options.grid or len(batches) > 1:
        _refuse_with_grid(values)
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


def _refuse_with_grid(values: dict[str, Any]) -> None:
    for name in ("scaling", "for_", "trace"):
        if values[name]:
            raise UsageError(
                f"{switch_of(name)} on a grid", expected="one value of --ranks and --batch with it"
            )


_ROUNDS_S = 30.0
"""For the rounds, where --max-time does not bound all; else they have half of it."""


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
    lasting = lasting_of(values, launched=_launched(), elsewhere=options.where is not None)
    asked = Asked(
        strategies=strategies_named(values["strategy"]),
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
    total_s: float | None = values["max_time"]
    training = TrainPlan(
        model=values["model"],
        model_options=given,
        cases=(lasting_case(asked),) if lasting else cases_of(asked),
        **{name: values[name] for name in _AS_GIVEN},
        precision=values["dtype"],
        learning_rate=values["lr"],
        goal=values["precision"] / 100,
        max_time_s=_ROUNDS_S if total_s is None else total_s / 2,
        memory=values["memory"] or values["fit"],
        budget_bytes=parse_size(values["budget"]) if values["budget"] else None,
        trace=alone and (output.trace is not None or output.html is not None),
        lasting=lasting,
    )
    return options.plan("train", training=training, max_time_s=None if lasting else total_s)


def _launched() -> bool:
    return detect(os.environ) is not None


def _world_size(options: RunOptions) -> int:
    """Ranks of the whole world: the launcher's or engine's, else those that will start here."""
    if options.where is not None:
        return options.prepared().job.size
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
    if ":" in name or name in model_names():
        return
    raise UsageError(
        f"no model is called {name!r}",
        expected="one of " + ", ".join(model_names()) + ", or your own as module:function",
        next="wirespeed train --list",
    )


def _refuse_bad_files(output: Output) -> None:
    """Only rank 0 writes them; the other nodes need not have that folder."""
    identity = detect(os.environ)
    if identity is not None and identity.rank != 0:
        return
    for option, file in (("--trace", output.trace), ("--html", output.html)):
        if file is not None:
            refuse_bad_target(file, option)


def _require_packages(strategies: tuple[str, ...]) -> None:
    for name in strategies:
        package = STRATEGIES[name].requires
        if package and find_spec(package) is None:
            raise CannotMeasure(
                f"the strategy {name} needs the package {package}, which is not installed",
                expected=f"pip install 'wirespeed[{package}]'",
                next=f"pip install 'wirespeed[{package}]'",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked for, parsed."""

    strategies: tuple[str, ...]
    buckets: tuple[float, ...]
    """Empty: the default size."""
    world: int
    batch: int
    """Samples of one step over the whole world."""
    micro_batches: int
    worlds: tuple[int, ...]
    """Of --scaling; empty: no scaling."""
    kinds: tuple[TrainingKind, ...]


def cases_of(asked: Asked) -> tuple[TrainCase, ...]:
    """The yardstick first, then every strategy with every bucket size; UsageError where none fits."""
    _refuse_uneven(asked.batch, asked.world, asked.micro_batches)
    pairs = _with_buckets(asked)
    if not asked.worlds:
        return tuple(
            TrainCase(strategy=name, bucket_mb=bucket, ranks=asked.world, samples=asked.batch)
            for name, bucket in pairs
        )
    too_large = [ranks for ranks in asked.worlds if ranks > asked.world]
    if too_large:
        raise UsageError(
            f"--scaling asks for {too_large[0]} ranks, and there are {asked.world}",
            expected=f"numbers of ranks from 1 to {asked.world}",
            next=f"wirespeed train --ranks {max(too_large)} --scaling …",
        )
    return tuple(_scaling_cases(asked, pairs))


def _scaling_cases(asked: Asked, pairs: list[tuple[str, float | None]]) -> Iterable[TrainCase]:
    each = asked.batch // asked.world
    for kind in asked.kinds:
        for ranks in asked.worlds:
            samples = asked.batch if kind == "strong" else each * ranks
            _refuse_uneven(samples, ranks, asked.micro_batches)
            for name, bucket in pairs:
                yield TrainCase(
                    strategy=name, bucket_mb=bucket, ranks=ranks, samples=samples, kind=kind
                )


def _with_buckets(asked: Asked) -> list[tuple[str, float | None]]:
    """Each strategy once a bucket size, where it has buckets; the yardstick is always there."""
    names = dict.fromkeys(("none", *asked.strategies))
    sizes = asked.buckets or (_DEFAULT_BUCKET_MB,)
    if asked.buckets and not any(STRATEGIES[name].buckets for name in names):
        raise UsageError(
            f"--bucket-mb, and none of {', '.join(asked.strategies)} has buckets",
            expected="one of " + ", ".join(n for n, info in STRATEGIES.items() if info.buckets),
        )
    return [
        (name, bucket)
        for name in names
        for bucket in (sizes if STRATEGIES[name].buckets else (None,))
    ]


def _refuse_uneven(batch: int, ranks: int, micro_batches: int) -> None:
    unit = ranks * micro_batches
    if batch % unit == 0:
        return
    below, above = batch // unit * unit, (batch // unit + 1) * unit
    valid = " or ".join(str(one) for one in (below, above) if one)
    parts = f"{ranks} ranks" + (f" × {micro_batches} micro batches" if micro_batches > 1 else "")
    raise UsageError(
        f"a batch of {batch} samples cannot be shared evenly by {parts}",
        expected=f"a multiple of {unit}, such as {valid}",
        next=f"wirespeed train --batch {above}",
    )


def bucket_sizes(text: str | None) -> tuple[float, ...]:
    """Megabytes from `1,10,100`."""
    sizes = []
    for word in words_of(text):
        try:
            size = float(word)
        except ValueError:
            size = -1.0
        if not isfinite(size) or size <= 0:
            raise UsageError(
                f"--bucket-mb {word!r} is no bucket size",
                expected="megabytes (10^6 bytes) above 0, such as 1,10,100",
                next="wirespeed train --bucket-mb 1,10,100",
            )
        sizes.append(size)
    if text is not None and not sizes:
        raise UsageError("--bucket-mb is empty", expected="megabytes, such as 1,10,100")
    return tuple(dict.fromkeys(sizes))


def world_sizes(text: str | None) -> tuple[int, ...]:
    """Numbers of ranks from `1,2,4`, ascending."""
    words = words_of(text)
    wrong = [word for word in words if not word.isdecimal() or int(word) < 1]
    if wrong or (text is not None and not words):
        raise UsageError(
            f"--scaling {wrong[0] if wrong else text!r} is no number of ranks",
            expected="numbers of ranks such as 1,2,4",
            next="wirespeed train --scaling 1,2,4",
        )
    return tuple(sorted({int(word) for word in words}))


def lasting_of(values: Mapping[str, Any], *, launched: bool, elsewhere: bool) -> LastingPlan | None:
    """None without --for; UsageError for what does not go with it.

    launched: somebody else's launcher started us. elsewhere: ranks run on other nodes.
    """
    if values["for_"] is None:
        for name in _ONLY_WITH:
            if values[name]:
                raise UsageError(
                    f"{switch_of(name)} without --for",
                    expected="--for TIME: only training for a time has checkpoints",
                    next=f"wirespeed train --for 30m {switch_of(name)} …",
                )
        return None
    wrong = [name for name in _OTHERS if values[name]]
    if wrong:
        raise UsageError(
            f"--for and {switch_of(wrong[0])}",
            expected="one of them: --for trains by one strategy for a time, and compares nothing",
            next="wirespeed train --for 30m --strategy ddp",
        )
    folder, resume = values["checkpoint_dir"], values["resume"]
    if folder is None and (launched or elsewhere or resume):
        why = "--resume" if resume else "ranks that another launcher starts" if launched else "--on"
        raise UsageError(
            f"--for with {why} needs --checkpoint-dir",
            expected="the folder of the checkpoints, where the ranks run: one that all nodes see, or "
            "one of that name on each node",
            next="wirespeed train --for 30m --checkpoint-dir /data/checkpoints …",
        )
    seconds, steps = _every(values["checkpoint_every"] or _EVERY)
    again = os.environ.get(_RESTARTED, "0")
    return LastingPlan(
        for_s=parse_duration(values["for_"], "--for"),
        until=0.0,
        folder=str(Path(folder).expanduser().absolute()) if folder else "",
        checkpoint_s=seconds,
        checkpoint_steps=steps,
        # A launcher that starts its ranks again wants them to go on.
        resume=resume or (launched and again.isdecimal() and int(again) > 0),
    )


def lasting_case(asked: Asked) -> TrainCase:
    """The only case; UsageError where several strategies are named, or one without checkpoints."""
    name = asked.strategies[0]
    if len(asked.strategies) > 1 or len(asked.buckets) > 1:
        several = "strategies" if len(asked.strategies) > 1 else "bucket sizes"
        raise UsageError(
            f"--for with several {several}",
            expected="one: the time is spent on one training",
            next=f"wirespeed train --for 30m --strategy {name}",
        )
    if not STRATEGIES[name].checkpoint:
        raise UsageError(
            f"--for with {name}: its checkpoints are DeepSpeed's own, which are not read here",
            expected="one of " + ", ".join(n for n, info in STRATEGIES.items() if info.checkpoint),
            next="wirespeed train --for 30m --strategy fsdp2",
        )
    both = cases_of(replace(asked, worlds=()))
    return next(case for case in both if case.strategy == name)


def _every(text: str) -> tuple[float | None, int | None]:
    """Seconds, or steps, between checkpoints."""
    words = text.strip().lower().removesuffix("steps").removesuffix("step")
    if words != text.strip().lower():
        if not words.strip().isdecimal() or int(words) < 1:
            raise UsageError(
                f"--checkpoint-every {text!r} is no number of steps", expected="such as 100steps"
            )
        return None, int(words)
    try:
        return parse_duration(text, "--checkpoint-every"), None
    except UsageError as error:
        raise UsageError(error.saw, expected="such as 60s, 5m or 100steps") from error
