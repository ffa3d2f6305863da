"""`wirespeed topo`: what the nodes are made of, as found."""

import os
import platform
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.execute import execute, only_config, told_config
from wirespeed.cli.options import (
    CONTEXT,
    LONGEST_S,
    FiniteRange,
    Output,
    color_option,
    command,
    flag,
    option,
    store_option,
)
from wirespeed.cli.page import show
from wirespeed.cli.run_options import RunOptions, secret_option
from wirespeed.errors import UsageError
from wirespeed.model.records import NodeFacts, Run, World
from wirespeed.node.identity import detect
from wirespeed.views.switches import FORMATS, LABEL

if TYPE_CHECKING:
    from wirespeed.runs.folder import PatientFolder

_FORMATS = ("table", "json", "md")
_OF_SWITCHES = tuple(one for one in FORMATS if one not in _FORMATS)


@command(context_settings=CONTEXT)
@option("-o --output", "How to print the result.", [*_FORMATS, *_OF_SWITCHES], default="table")
@option(
    "--from runs RUN",
    "Which nodes share a switch, from this run of locate; may be repeated.",
    multiple=True,
)
@option("--label KEY", "Label that -o k8s-labels sets.", default=LABEL)
@store_option
@option(
    "--startup-timeout",
    "Seconds for all nodes to tell what they are.",
    FiniteRange(1, LONGEST_S),
    default=120.0,
)
@secret_option
@flag("-q --quiet", "No progress on stderr.")
@flag("-v --verbose", "Also nodes that are alike, and what could not be read.")
@color_option
@flag("--print-config", "Show the value of each option and where it comes from, and stop.")
@click.pass_context
def topo(ctx: click.Context, /, **values: Any) -> int:
    """Nodes, GPUs, NICs, RDMA devices, NUMA nodes, links and zones, as found.

    Nothing is measured and nothing is judged: `wirespeed check --only nodes` does that. Exit code 3
    where nothing could be read.

    With --from, what pairs of nodes showed to each other is told as groups behind one switch: as a
    table, JSON, Slurm's topology.conf or topology.yaml, or labels of Kubernetes. Nodes that are not
    clear are said to be so; exit code 3 where most are not.

    \f
    Examples:
      wirespeed topo                        this machine; needs neither torch nor a GPU
      mpirun -n 16 -N 1 ... wirespeed topo  one process a node: all nodes, alike ones folded
      torchrun --nnodes 4 --nproc-per-node 1 ... -m wirespeed topo
      wirespeed topo -v                     each node by itself
      wirespeed topo --from last            nodes by switch, from a run of locate --exhaustive
      wirespeed topo --from 7f3c --from 91ae -o slurm > topology.conf
      wirespeed topo --from last -o k8s-labels | kubectl apply --server-side -f -
      wirespeed topo -o json | jq '.world.nodes[] | {host, near: .facts["topo.distances"]}'
    """
    output = Output(values["output"], values["color"], values["quiet"], values["verbose"])
    if values["runs"]:
        return _switches(ctx, values["runs"], values["label"], output)
    if values["output"] in _OF_SWITCHES:
        raise UsageError(
            f"-o {values['output']} without --from",
            expected="a run of locate, whose pairs tell which nodes share a switch",
            next=f"wirespeed locate --exhaustive, then wirespeed topo --from last -o {values['output']}",
        )
    if detect(os.environ) is None:
        return _here(ctx, output)
    from wirespeed.checks.strictness import Strictness

    options = RunOptions(
        output,
        Strictness(),
        startup_timeout=values["startup_timeout"],
        secret_file=values["secret_file"],
    )
    return execute(ctx, options.plan("topo", facts_only=True), options)


def _switches(ctx: click.Context, refs: Sequence[str], label: str, output: Output) -> int:
    """What stored pairs tell; nothing is run or stored."""
    if only_config(ctx):
        return 0
    from wirespeed.locate.grouping import switches
    from wirespeed.views.switches import render
    from wirespeed.views.text import style_for

    if output.format not in FORMATS:
        raise UsageError(f"-o {output.format} with --from", expected=", ".join(FORMATS))
    runs = runs_of_pairs(refs)
    pods = {node.host: _node_of_pod(node) for run in runs for node in run.world.nodes}
    names = {host: kube for host, kube in pods.items() if kube}
    located = [run.located for run in runs if run.located]
    style = style_for(sys.stdout, color=output.color, verbose=output.verbose)
    text = render(switches(located), output.format, style, names, label)
    click.echo(text, color=style.color, nl=False)
    return 0


def runs_of_pairs(refs: Sequence[str]) -> list[Run]:
    """The runs, each of which measured pairs of nodes."""
    from wirespeed.runs.store import find, load

    runs = [load(find(ref)) for ref in dict.fromkeys(refs)]
    for run in runs:
        if run.located is None or not run.located.pairs or run.located.over == "ranks":
            raise UsageError(
                f"run {run.id} holds no pairs of nodes",
                expected="a run of wirespeed locate over several nodes",
                next="wirespeed runs list",
            )
    return runs


def _node_of_pod(node: NodeFacts) -> str:
    """What Kubernetes calls the node of a pod; empty where it is none."""
    of_pod = node.facts.placement_source == "kubernetes"
    return (node.facts.placement_physical_host or "") if of_pod else ""


def _here(ctx: click.Context, output: Output) -> int:
    """This machine alone, by this process."""
    if only_config(ctx):
        return 0
    from wirespeed.node.facts import survey_node
    from wirespeed.node.neighbours import refuse_separate_worlds
    from wirespeed.session.folders import patient_folder

    began = time.monotonic()
    refuse_separate_worlds(os.environ, None)
    folder = patient_folder("topo", told_config(ctx))
    node = survey_node((0,))
    run = _run(folder, time.monotonic() - began, node)
    return show(run, output, folder)


def _run(folder: "PatientFolder", seconds: float, node: NodeFacts) -> Run:
    from wirespeed import __version__

    told = any((node.gpus, node.nics, node.rdma, node.facts.cpu_model is not None))
    versions = {"wirespeed": __version__, "python": platform.python_version()}
    known = {n: one for n in ("torch", "cuda", "nccl") if (one := getattr(node.facts, n))}
    return folder.ended(
        "NONE" if told else "UNKNOWN",
        0 if told else 3,
        seconds=seconds,
        world=World(size=1, nodes=(node,), backend="", launcher="local"),
        versions=versions | known,
    )
