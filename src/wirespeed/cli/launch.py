"""`wirespeed launch`: run any command as ranks, through an engine that is there already."""

import sys
from dataclasses import replace
from typing import Any

import click

from wirespeed.cli.options import (
    CONTEXT,
    FiniteRange,
    all_of,
    argument,
    command,
    flag,
    option,
    send_option,
)
from wirespeed.cli.run_options import Placement, placement_options, written
from wirespeed.errors import UsageError

launch_options = all_of(
    option("--ranks N", "Size of the world.", click.IntRange(1, 65_536)),
    option(
        "--startup-timeout",
        "Seconds for all ranks to start.",
        FiniteRange(1, 86_400),
        default=120.0,
    ),
    option(
        "--grace",
        "Seconds that the other ranks have left once one has failed.",
        FiniteRange(0, 3600),
        default=5.0,
    ),
    option(
        "-o --output", "Write what would run, as a shell script or YAML, and stop.", ["sh", "yaml"]
    ),
    flag("--watch", "Watch the job from inside: who is late or hangs, since when, what it costs."),
    flag("--tui", "As --watch, shown as a page: ranks as a grid, steps as a strip."),
    flag("--no-prefix", "Output lines without node and rank before them."),
    flag("-q --quiet", "Nothing on stderr but the ranks' own words."),
    send_option,
    argument(
        "command -- COMMAND ...",
        type=click.UNPROCESSED,
        nargs=-1,
        completes="command_line",
    ),
)
"""How ranks of a command are started, shown and ended; shared with `wirespeed cluster run`."""


@command(context_settings=CONTEXT)
@placement_options
@flag("--list list_", "List the engines and their options, and stop.")
@launch_options
@click.pass_context
def launch(ctx: click.Context, /, **values: Any) -> int:
    """Run any command as ranks: here, or by ssh, mpirun, srun, deepspeed, Ray, Metaflow, kubectl.

    Every rank finds RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as under torchrun. The
    first that fails is named with its exit code or signal, and the rest are ended.

    \f
    Examples:
      wirespeed launch --ranks 4 -- python train.py --lr 0.1
      wirespeed launch --on ssh --hosts node-0,node-1 --ranks-per-node 8 -- python train.py
      wirespeed launch --on mpi --hostfile hosts --with map-by=node -x NCCL_DEBUG=INFO -- ./all_reduce_perf
      wirespeed launch --on slurm --nodes 4 --ranks-per-node 8 --with partition=train -- python train.py
      wirespeed launch --on slurm --nodes 4 --with batch -o sh -- python train.py > job.sh
      wirespeed launch --on k8s --cluster mine --nodes 2 -- python train.py
      wirespeed launch --watch --ranks 4 -- python train.py     who is late or hangs, and since when
      wirespeed launch --list                      the engines and their own options

    Each line of output begins with node and rank; the whole output of a rank is in the run folder.
    Exit code: of the worst rank (128 + n for signal n); 3 if ranks never started or were lost.
    --watch leaves it as it is: what was found stands in the run, as `wirespeed runs show last` tells.
    """  # noqa: E501
    from wirespeed.cli.config import refuse_unknown_keys

    refuse_unknown_keys(ctx)
    if values.pop("list_"):
        click.echo(_listing())
        return 0
    where = Placement.take(values, default="local")
    return run_launch(where, values, "wirespeed launch --ranks 2 -- hostname")


def run_launch(where: Placement | None, values: dict[str, Any], example: str) -> int:
    """Carry out what the options say; `example`: a command that would be right."""
    if where is None or not values["command"]:
        raise UsageError("no command to run", expected="-- COMMAND …", next=example)

    from wirespeed.launchers.watch_relay import VARIABLE as WATCH
    from wirespeed.session.launched import Launched, Watching

    command = tuple(values["command"])
    form = values["output"] or ("run" if where.dry_run else None)
    where.dry_run = form is not None
    prepared = where.prepared(values["ranks"], values["startup_timeout"])
    shown: Watching = "page" if values["tui"] else "line" if values["watch"] else "no"
    if shown == "page" and not sys.stderr.isatty():
        from wirespeed.typed_command import TYPED

        raise UsageError(
            "--tui: stderr is no terminal",
            expected="a terminal",
            next=f"{TYPED:--watch without --tui}",
        )
    if shown != "no" and form is not None:
        raise UsageError(
            "--watch: what is only written down has nobody who watches it",
            expected="--watch without -o and --dry-run",
            next="in the script: -- python -m wirespeed.watch train.py",
        )
    environment = {**prepared.job.environment, **({} if shown == "no" else {WATCH: "yes"})}
    job = replace(prepared.job, command=command, grace_s=values["grace"], environment=environment)
    prepared = replace(prepared, job=job)
    if form is not None:
        title = f"wirespeed launch --on {where.engine}: {job.size} ranks"
        click.echo(written(prepared, form, title), nl=False)
        return 0
    prepared.check_command()
    from wirespeed.session.held_nodes import STOPPING

    stop = any(one.status in STOPPING for one in prepared.findings)
    launched = Launched(where.engine, prepared, watch=shown)
    prefix = not values["no_prefix"] and job.size > 1
    return launched.refuse() if stop else launched.run(quiet=values["quiet"], prefix=prefix)


def _listing() -> str:
    from wirespeed.launchers import ENGINES
    from wirespeed.launchers.engines import engine_named

    lines = []
    for name in ENGINES:
        engine = engine_named(name)
        lines.append(f"{name:<10} {engine.summary}")
        wide = max((len(_told(option)) for option in engine.options), default=0)
        lines += [f"  --with {_told(o):<{wide}}  {o.help}" for o in engine.options]
    return "\n".join(lines)


def _told(option: Any) -> str:
    return option.name if option.flag else f"{option.name}=…"
