"""`wirespeed topo`: what the nodes are made of, as found."""

import os
import platform
import time
from typing import Any

import click

from wirespeed.cli.config import print_config, refuse_unknown_keys
from wirespeed.cli.execute import execute
from wirespeed.cli.options import CONTEXT, FiniteRange, Output, RunOptions, secret_option
from wirespeed.cli.page import show
from wirespeed.model.records import NodeFacts, Run, World

_FORMATS = ("table", "json", "md")
_LONGEST_S = 86_400.0

_EPILOG = """\b
Examples:
  wirespeed topo                        this machine; needs neither torch nor a GPU
  mpirun -n 16 -N 1 ... wirespeed topo  one process a node: all nodes, alike ones folded
  torchrun --nnodes 4 --nproc-per-node 1 ... -m wirespeed topo
  wirespeed topo -v                     each node by itself
  wirespeed topo -o json | jq '.world.nodes[] | {host, near: .facts["topo.distances"]}'
"""


@click.command(context_settings=CONTEXT, epilog=_EPILOG)
@click.option(
    "-o", "--output", type=click.Choice(_FORMATS), default="table", help="How to print the result."
)
@click.option(
    "--startup-timeout",
    type=FiniteRange(1, _LONGEST_S),
    default=120.0,
    help="Seconds for all nodes to tell what they are.",
)
@secret_option
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@click.option(
    "-v", "--verbose", is_flag=True, help="Also nodes that are alike, and what could not be read."
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="auto: on a terminal, unless NO_COLOR is set.",
)
@click.option(
    "--print-config",
    is_flag=True,
    help="Show the value of each option and where it comes from, and stop.",
)
@click.pass_context
def topo(ctx: click.Context, /, **values: Any) -> int:
    """Nodes, GPUs, NICs, RDMA devices, NUMA nodes, links and zones, as found.

    Nothing is measured and nothing is judged: `wirespeed check --only nodes` does that. Exit code 3
    where nothing could be read.
    """
    from wirespeed.node.identity import detect
    from wirespeed.plan import Plan

    output = Output(values["output"], values["color"], values["quiet"], values["verbose"])
    if detect(os.environ) is None:
        return _here(ctx, output)
    plan = Plan(
        command="topo", steps=(), facts_only=True, startup_timeout_s=values["startup_timeout"]
    )
    return execute(ctx, plan, _options(plan, output, values["secret_file"]))


def _options(plan: Any, output: Output, secret_file: str | None) -> RunOptions:
    """What the other verbs let the user choose, and has no meaning here."""
    return RunOptions(
        ranks=None,
        backend="auto",
        engine=plan.engine,
        seed=plan.seed,
        timeout=plan.op_timeout_s,
        startup_timeout=plan.startup_timeout_s,
        inject=(),
        output=output,
        secret_file=secret_file,
    )


def _here(ctx: click.Context, output: Output) -> int:
    """This machine alone, by this process."""
    refuse_unknown_keys(ctx)
    if ctx.params.get("print_config"):
        click.echo(print_config(ctx))
        return 0
    from wirespeed.node.facts import survey_node
    from wirespeed.node.neighbours import refuse_separate_worlds
    from wirespeed.session.shown_session import patient_folder

    began = time.monotonic()
    refuse_separate_worlds(os.environ, None)
    config = {name: value for name, value in ctx.params.items() if name != "print_config"}
    folder = patient_folder("topo", config)
    node = survey_node((0,))
    run = _run(folder.id, folder.started, time.monotonic() - began, config, node)
    return show(run, output, folder)


def _run(id: str, started: str, seconds: float, config: dict[str, Any], node: NodeFacts) -> Run:
    from wirespeed import __version__
    from wirespeed.node.redact import allowed_environment

    told = any((node.gpus, node.nics, node.rdma, node.facts.cpu_model is not None))
    versions = {"wirespeed": __version__, "python": platform.python_version()}
    known = {n: one for n in ("torch", "cuda", "nccl") if (one := getattr(node.facts, n))}
    return Run(
        id=id,
        command="topo",
        verdict="READY" if told else "UNKNOWN",
        exit_code=0 if told else 3,
        started=started,
        seconds=seconds,
        world=World(size=1, nodes=(node,), backend="", launcher="local"),
        versions=versions | known,
        environment=allowed_environment(os.environ),
        config=config,
    )
