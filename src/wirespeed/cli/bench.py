"""`wirespeed bench`: how fast is each collective?"""

from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from wirespeed.cli.options import CONTEXT, FiniteRange, argument, command, flag, option, words_of
from wirespeed.cli.run_options import RunOptions, common_options
from wirespeed.collectives.catalogue import CATALOGUE, collective_named
from wirespeed.collectives.collective import REDOPS, Collective, check_groups, dtype_named
from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.model.units import parse_size
from wirespeed.views import FORMATS

if TYPE_CHECKING:
    from wirespeed.plan import Case, Measure, Plan, Step


_ROUND_S = 0.5
"""Default of --time-per-size where settings are compared: certainty comes from the rounds."""
_SIZE_S = 2.0
"""Default of --time-per-size."""
_DEVICES = ("gemm", "memory", "copy")


@command(
    context_settings=CONTEXT,
    told={
        "operations": fill(f"Operations: {' '.join(CATALOGUE)}; `all` means each of them.", 90)
        + f"\nOf each device by itself: {' '.join(_DEVICES)}."
    },
)
@argument("ops OP…", nargs=-1)
@option("-b --min-bytes SIZE", "Smallest size, such as 8, 64K or 1.5G.", default="1K")
@option("-e --max-bytes SIZE", "Largest size.  [default: 16M, or -b if larger]")
@option("-f --factor", "Multiply the size by this.  [default: 4]", click.IntRange(min=2))
@option("--sizes SIZE,…", "These sizes, instead of -b, -e, -f and -i.")
@option("-i --step-bytes SIZE", "Add this to the size, instead of -f.")
@option("-w --warmup", "Operations before timing.  [default: until stable]", click.IntRange(min=0))
@option(
    "-n --iterations",
    "Timed operations a size.  [default: as --precision needs]",
    click.IntRange(min=1),
)
@option(
    "--precision",
    "Time each size until the median is known to this many percent (95 % interval) …",
    FiniteRange(0.1, 100),
    default=5.0,
)
@option(
    "--time-per-size",
    "… or for this many seconds; the interval that was reached is always shown.  [default: 2; 0.5 "
    "per round with --env; with --max-time each size's share of it]",
    FiniteRange(0.01, 86_400),
)
@option(
    "--max-time",
    "Seconds for all measuring of the command, after start-up. They are divided over what is to be "
    "measured, and what did not fit is named.  [default: no bound but that of each size]",
    FiniteRange(0.01, 86_400),
)
@option(
    "-d --dtype dtypes",
    "Element types, with commas.",
    completes="data_types",
    default=("float32",),
    multiple=True,
)
@option(
    "-o --output",
    "Format (table, wide, json, jsonl, md, nccl-tests) or reduction (sum, prod, min, max, avg).",
    completes="formats_and_reductions",
    multiple=True,
)
@option(
    "-r --root", "Root rank of the group, where there is one.", click.IntRange(min=0), default=0
)
@option("-c --check", "1: check the data of each size; 0: do not.", click.IntRange(0, 1), default=1)
@option(
    "-m --in-flight",
    "Operations issued before the first is waited for.",
    click.IntRange(min=1),
    default=1,
)
@option(
    "--in-place",
    "One buffer for input and output. auto: both ways for -o nccl-tests, else no.",
    ["auto", "no", "yes", "both"],
    default="auto",
)
@option(
    "--timing",
    "each: one by one, after a barrier; batch: back to back; graph: CUDA graph replay.",
    ["each", "batch", "graph"],
    default="each",
)
@flag("--async asynchronous", "Issue without blocking (async_op), then wait.")
@option(
    "--groups",
    "Cut the world into groups that run side by side: all (no cut), nodes, rails, pairs, every-K, "
    "of-S (S neighbours), of-S-every-K (S ranks K apart).",
    completes="groups",
    default="all",
)
@flag("--max-fit", "Only one size: the largest that fits in memory.")
@option(
    "--env NAME=V1,V2",
    "Compare these values of an environment variable with its being unset, every "
    "combination in ranks of its own, in interleaved rounds. `unset` is a value, too; \\, is a "
    "comma within one.",
    multiple=True,
)
@option(
    "--rounds N",
    "Rounds of --env.  [default: as many as the number of combinations needs, from 9]",
    click.IntRange(1, 1000),
)
@flag(
    "--search",
    "With many combinations: drop the slower half every few rounds, then compare what is left.",
)
@option(
    "--replay RUN|TRACE",
    "Instead of OP: the collectives of a step of your own job, in its groups, sizes and order, with "
    "and without its own work between them. A watched run, or its traces or flight-recorder dumps "
    "(files or folders; further ones stand where OP does).",
    completes="files",
)
@option(
    "--shape MODEL",
    "Instead of OP: what a training job of this model sends, cut as --tp, --pp, --dp and --ep say and "
    "scaled to the ranks that there are: each kind of group alone, beside a matrix product, and all "
    "at once.",
    completes="shapes",
)
@option(
    "--tp", "With --shape: tensor parallel ranks of the job.  [default: 1]", click.IntRange(min=1)
)
@option("--pp", "With --shape: pipeline stages of the job.  [default: 1]", click.IntRange(min=1))
@option(
    "--dp", "With --shape: data parallel ranks of the job.  [default: 1]", click.IntRange(min=1)
)
@option(
    "--ep",
    "With --shape: ranks that a mixture's experts are spread over, within --dp.  [default: 1]",
    click.IntRange(min=1),
)
@option(
    "--tokens",
    "With --shape: tokens of a micro-batch.  [default: the model's context]",
    click.IntRange(1, 1 << 24),
)
@option(
    "--products MxNxK|MODEL,…",
    "With gemm (of -d, else of each type that a device has): shapes of the products, or those of a "
    "model's layer (llama-8b; `train --list`).  "
    "[default: 1024x1024x1024 a core, 8192x8192x8192 a GPU]",
)
@option(
    "--for for_ TIME",
    "With gemm: then the first product for so long, such as 5m: what heat leaves of its rate.",
)
@option(
    "--repeat N",
    "So many runs one after the other, each stored: `compare` needs three a side to tell a change "
    "from noise. Ctrl-C keeps those that have ended.",
    click.IntRange(1, 100),
    default=1,
)
@common_options
@click.pass_context
def bench(ctx: click.Context, /, **values: Any) -> int:
    """How fast is each collective? The data are checked, and each figure has its interval.

    Options are those of nccl-tests where it has them; `OP…` is one or more operations, or `all`.

    \f
    {operations}

    Examples:
      wirespeed bench all_reduce -b 1K -e 16M -f 4
      wirespeed bench all_reduce all_gather -o json --ranks 3
      wirespeed bench all_reduce -o max -d int32,bfloat16        reduction and dtypes
      wirespeed bench all_reduce -w 5 -n 20 --timing batch -o nccl-tests
      wirespeed bench all_gather --groups every-2                 groups side by side
      wirespeed bench all_reduce -b 1M -e 64M -f 8 --env NCCL_ALGO=Ring,Tree
      wirespeed bench all_reduce --repeat 3                       three runs, for compare
      wirespeed bench all_reduce -b 4M -e 4M --env OMP_NUM_THREADS=2,4 --env TORCH_GLOO_LAZY_INIT=1,unset
      wirespeed bench all_reduce --ranks 2,4,6 --sizes 1M,10M,100M   a grid: one table
      torchrun --nproc-per-node 8 -m wirespeed bench all_reduce -b 8 -e 8G -f 2
      wirespeed bench --replay traces/ --ranks 8       is it the fabric, or the job's code?
      wirespeed bench --shape llama-70b --tp 8 --pp 4 --dp 16     a job's groups, alone and at once
      wirespeed bench gemm -d float32,bfloat16         what the devices compute, and whether right
      wirespeed bench memory                           bandwidth of their memory: copy and triad
      wirespeed bench copy                             from host to GPU, back, and to the next one
    """
    from wirespeed.cli.execute import execute
    from wirespeed.cli.job_traffic import refuse_without_shape
    from wirespeed.cli.several import asked_settings, grid_of

    redops, format = split_output(values.pop("output"))
    options = RunOptions.take(values, format, several=("ranks", "backend"))
    values["time_per_size"] = _time_per_size(values)
    if values["timing"] == "graph":
        _require_gpus(options.backend)
    _refuse_sizes_twice(ctx)
    _refuse_to_repeat(values)
    if values["shape"] is not None:
        return _shape(ctx, values, options, redops)
    refuse_without_shape(ctx)
    if set(_DEVICES) & set(values["ops"]):
        from wirespeed.cli.computing import bench_devices

        return bench_devices(ctx, values, options, redops)
    if values["products"] or values["for_"]:
        raise UsageError("--products or --for without gemm", next="wirespeed bench gemm")
    if values["replay"] is not None:
        return _replay(ctx, values, options, redops)
    steps = _steps(values, redops, format)
    plan = options.plan("bench", steps=steps, max_time_s=values["max_time"])
    passed = options.where.passed if options.where else ()
    asked = asked_settings(
        values["env"], values["rounds"], search=values["search"], plan=plan, passed=passed
    )
    grid = grid_of(options, lambda _: plan)
    if grid and asked:
        raise UsageError(
            "--env on a grid", expected="one value of --ranks and --backend with --env"
        )
    if values["repeat"] == 1 or ctx.params["dry_run"] or ctx.params["print_config"]:
        return execute(ctx, plan, options, settings=asked, grid=grid)
    if asked or grid:
        raise UsageError(
            "--repeat with --env or a grid", expected="--rounds N with --env; one world to repeat"
        )
    return _repeat(ctx, plan, options)


def _refuse_to_repeat(values: dict[str, Any]) -> None:
    """UsageError where something else than collectives is to be repeated."""
    devices = sorted(set(_DEVICES) & set(values["ops"]))
    others = [f"--{name}" for name in ("shape", "replay") if values[name] is not None]
    if values["repeat"] > 1 and (others or devices):
        raise UsageError(
            f"--repeat with {(others or devices)[0]}",
            expected="collectives",
            next="the command without --repeat, once for each run",
        )


def _repeat(ctx: click.Context, plan: "Plan", options: RunOptions) -> int:
    from wirespeed.cli.execute import execute, told_config
    from wirespeed.cli.repeating import repeat

    return repeat(
        ctx.params["repeat"],
        lambda on_end: execute(ctx, plan, options, on_end=on_end),
        told_config(ctx),
        quiet=options.output.quiet,
    )


def _time_per_size(values: dict[str, Any]) -> float:
    """Return the seconds of a size; with --max-time alone it gets its share, which the ranks know."""
    given: float | None = values["time_per_size"]
    if given is not None:
        return given
    if values["env"]:
        return _ROUND_S
    total: float | None = values["max_time"]
    return _SIZE_S if total is None else total


def _replay(
    ctx: click.Context, values: dict[str, Any], options: RunOptions, redops: tuple[str, ...]
) -> int:
    from wirespeed.cli.execute import execute, only_config
    from wirespeed.cli.job_traffic import replayed

    if only_config(ctx):
        return 0
    if redops or options.grid:
        raise UsageError(
            "--replay with a reduction or a grid", expected="one world, and no reduction: the job's"
        )
    plan, options = replayed(ctx, (values["replay"], *values["ops"]), options, _measure(values))
    return execute(ctx, replace(plan, max_time_s=values["max_time"]), options)


def _shape(
    ctx: click.Context, values: dict[str, Any], options: RunOptions, redops: tuple[str, ...]
) -> int:
    from wirespeed.cli.execute import execute, only_config
    from wirespeed.cli.job_traffic import shaped

    if only_config(ctx):
        return 0
    if redops:
        raise UsageError(
            f"--shape with -o {redops[0]}", expected="no reduction: the job's are sums"
        )
    plan, options = shaped(ctx, options, _measure(values))
    return execute(ctx, replace(plan, max_time_s=values["max_time"]), options)


def _refuse_sizes_twice(ctx: click.Context) -> None:
    names = ("min_bytes", "max_bytes", "factor", "step_bytes")
    typed = [ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in names]
    if ctx.params["sizes"] is not None and any(typed):
        raise UsageError("--sizes beside -b, -e, -f or -i", expected="one of the two")


def _require_gpus(backend: str) -> None:
    from wirespeed.node.limits import count_gpus

    if backend == "gloo" or not count_gpus():
        raise CannotMeasure(
            "--timing graph replays a CUDA graph, and there is no GPU here",
            expected="a GPU, or another way of timing",
            next="wirespeed bench … --timing batch",
        )


def _steps(values: dict[str, Any], redops: tuple[str, ...], format: str) -> "tuple[Step, ...]":
    from wirespeed.plan import Step

    check_groups(values["groups"])
    sides = _sides(values["in_place"], format)
    measure = _measure(values)
    return tuple(
        Step(case=case, verify=bool(values["check"]), measure=measure)
        for collective in _operations(values["ops"])
        if collective.has_data or not _left_out(collective, values)
        for case in _cases(collective, values, redops or ("sum",), sides)
    )


def _left_out(collective: Collective, values: dict[str, Any]) -> bool:
    """Whether a graph cannot hold it: NCCL's barrier waits on the host."""
    captured = bool(values["timing"] == "graph")
    if captured and "all" not in values["ops"]:
        raise UsageError(
            f"--timing graph of a {collective.name}, which waits on the host",
            expected="operations that move data, or another way of timing",
            next=f"wirespeed bench {collective.name} --timing batch",
        )
    return captured


def _operations(names: tuple[str, ...]) -> list[Collective]:
    if not names:
        raise UsageError(
            "no operation given",
            expected=f"one or more of {', '.join(CATALOGUE)}, or all; or of {', '.join(_DEVICES)}",
            next="wirespeed bench all_reduce",
        )
    if "all" in names:
        return list(CATALOGUE.values())
    try:
        return list(dict.fromkeys(map(collective_named, names)))
    except UsageError as error:
        error.expected += f"; or of devices {', '.join(_DEVICES)}"
        raise


def _sides(asked: str, format: str) -> tuple[bool, ...]:
    if asked == "auto":
        asked = "both" if format == "nccl-tests" else "no"
    return {"no": (False,), "yes": (True,), "both": (False, True)}[asked]


def _measure(values: dict[str, Any]) -> "Measure":
    from wirespeed.plan import Measure

    names = ("timing", "in_flight", "warmup", "iterations")
    return Measure(
        **{name: values[name] for name in names},
        blocking=not values["asynchronous"] and values["in_flight"] == 1,
        precision=values["precision"] / 100,
        max_time_s=values["time_per_size"],
    )


def _cases(
    collective: Collective, values: dict[str, Any], redops: tuple[str, ...], sides: tuple[bool, ...]
) -> "list[Case]":
    from wirespeed.plan import Case

    root = values["root"] if collective.rooted else -1
    base = Case(op=collective.name, root=root, groups=values["groups"], max_fit=values["max_fit"])
    if not collective.has_data:
        return [replace(base, max_fit=False)]
    sizes = (0,) if values["max_fit"] else _sizes(values)
    dtypes = [name for text in values["dtypes"] for name in words_of(text)]
    return [
        replace(base, dtype=dtype_named(dtype).name, redop=redop, size_bytes=size, in_place=side)
        for dtype in dtypes
        for redop in (redops if collective.reduces else ("none",))
        for size in sizes
        for side in sides
        if collective.in_place or not side
    ]


def _sizes(values: dict[str, Any]) -> list[int]:
    """Sizes in bytes of --sizes, else from -b to -e, by -f or -i."""
    if values["sizes"] is not None:
        return _listed_sizes(values["sizes"])
    smallest = parse_size(values["min_bytes"])
    text = values["max_bytes"]
    largest = parse_size(text) if text else max(smallest, parse_size("16M"))
    if smallest < 1:
        raise UsageError(f"-b {values['min_bytes']} is not above 0", expected="1 byte or more")
    if largest < smallest:
        raise UsageError(
            f"-e {text} is below -b {values['min_bytes']}", expected="-e at or above -b"
        )
    if values["factor"] and values["step_bytes"]:
        raise UsageError("both -f and -i were given", expected="one of them")
    sizes, step = [smallest], parse_size(values["step_bytes"]) if values["step_bytes"] else 0
    if values["step_bytes"] and step < 1:
        raise UsageError("-i 0 would never end", expected="a step of 1 byte or more")
    factor = values["factor"] or 4
    while (following := sizes[-1] + step if step else sizes[-1] * factor) <= largest:
        sizes.append(following)
        if len(sizes) > 10_000:
            raise UsageError("more than 10,000 sizes", expected="a larger step (-i) or factor (-f)")
    return sizes


def _listed_sizes(text: str) -> list[int]:
    sizes = sorted({parse_size(word) for word in words_of(text)})
    if not sizes or sizes[0] < 1:
        raise UsageError(f"--sizes {text!r}", expected="sizes of 1 byte or more, such as 1M,10M,1G")
    return sizes


def split_output(values: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """(reductions, format) from `-o`, which is nccl-tests' letter for one and ours for the other."""
    words = [word for value in values for word in words_of(value)]
    formats = [word for word in words if word in FORMATS]
    redops = [word for word in words if word in REDOPS]
    unknown = [word for word in words if word not in FORMATS and word not in REDOPS]
    if unknown:
        raise UsageError(
            f"-o {unknown[0]!r} is neither an output format nor a reduction",
            expected=f"a format ({', '.join(FORMATS)}) or a reduction ({', '.join(REDOPS)})",
        )
    if len(set(formats)) > 1:
        raise UsageError(f"two output formats: {' and '.join(formats)}", expected="one of them")
    return tuple(dict.fromkeys(redops)), formats[0] if formats else "table"
