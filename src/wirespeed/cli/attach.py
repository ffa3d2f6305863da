"""`wirespeed attach`: a running job that knows nothing of us, looked at from outside."""

import time
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.options import CONTEXT, Output, argument, color_option, command, flag, option
from wirespeed.cli.run_options import Placement, placement_options
from wirespeed.errors import UsageError
from wirespeed.views import FORMATS

if TYPE_CHECKING:
    from wirespeed.model.records import Finding, Run
    from wirespeed.model.verdicts import Verdict
    from wirespeed.runs.folder import PatientFolder
    from wirespeed.watch.attach.look import NodeLook
    from wirespeed.watch.attach.node import Asked


_ENGINES = ("ssh", "slurm", "k8s", "local")
"""Those that start a process on a node beside a job that runs there."""


@command(context_settings=CONTEXT)
@placement_options
@argument("pids PID...", nargs=-1, type=click.IntRange(min=1))
@option("--seconds", "How long to look.", click.FloatRange(0.5, 600), default=3.0)
@flag("--native", "C frames between Python's, too: each rank is paused for some 0.2 s.")
@option("-o --output", "How to print.", FORMATS, default="table")
@option(
    "--match TEXT",
    "Of a node's processes those with it in their command line; with --on.",
    default="",
)
@flag("-q --quiet", "No progress.")
@flag("-v --verbose", "All the evidence.")
@color_option
def attach(pids: tuple[int, ...], seconds: float, native: bool, color: str, **asked: Any) -> int:
    """Does this running job progress, is it slow or hung, and which rank is it?

    PIDs of ranks, or of what started them (torchrun, mpirun, deepspeed): its ranks are found. The job
    knows nothing of it, and nothing of it is changed: stacks of all ranks, what the kernel counts, and
    where they answer, torch's flight recorder and NCCL's RAS. With --on the only job of each node
    is found: of hosts, of a job of Slurm (a step beside it), or in the pods of a cluster file.

    \f
    Examples:
      wirespeed attach 4242                    a torchrun: all its ranks
      wirespeed attach 4250 4251 4252 4253     these ranks
      wirespeed attach 4242 --native           with C frames: what a rank does inside a library
      wirespeed attach 4242 --seconds 60       for steps of many seconds
      wirespeed attach --on ssh --hosts node-0,node-1
      wirespeed attach --on slurm --with jobid=1234
      wirespeed attach --on k8s --cluster train.yaml
      wirespeed attach 4242 -o json | jq '.findings[0].subject'

    Exit codes: 0 it progresses, or a rank makes it slow, 1 it hangs, and by whom, 2 wrong usage, 3 it
    cannot be told.
    """
    where = Placement.take(asked)
    if where is not None and (pids or where.engine not in _ENGINES):
        raise UsageError(
            "pids with --on" if pids else f"--on {where.engine} is not known to attach",
            expected="--on ssh, slurm or k8s without pids: the job of each node is found",
            next="wirespeed attach --on ssh --hosts node-0,node-1",
        )
    if not pids and where is None:
        raise UsageError(
            "no process is named",
            expected="pids of ranks, or of their launcher",
            next="pgrep -af torchrun",
        )
    from wirespeed.cli.page import show

    quiet = asked["quiet"]
    if where is not None:
        from wirespeed.watch.attach.node import Asked

        told = Asked(seconds=seconds, native=native, match=asked["match"])
        run, folder = _on_nodes(where, told, quiet)
    else:
        run, folder = _attached(tuple(dict.fromkeys(pids)), seconds, native, quiet)
    return show(run, Output(asked["output"], color, quiet, asked["verbose"]), folder)


def _attached(
    pids: tuple[int, ...], seconds: float, native: bool, quiet: bool
) -> "tuple[Run, PatientFolder]":
    from wirespeed.model.units import counted
    from wirespeed.session.folders import patient_folder
    from wirespeed.views.text import open_progress
    from wirespeed.watch.attach.ranks import find_ranks
    from wirespeed.watch.attach.whole import whole_look

    began = time.monotonic()
    chosen = find_ranks(pids)
    progress = open_progress(quiet=quiet)
    progress.phase(f"looking at {counted(len(chosen.ranks), 'rank')} for {seconds:g} s")
    try:
        one, findings, verdict = whole_look(chosen, seconds, native=native)
    finally:
        progress.close()
    folder = patient_folder("attach", {"pids": list(pids), "seconds": seconds})
    return _run(folder, [one], findings, verdict, time.monotonic() - began), folder


def _on_nodes(where: Placement, asked: "Asked", quiet: bool) -> "tuple[Run, PatientFolder]":
    from wirespeed.checks.registry import tell
    from wirespeed.errors import CannotMeasure
    from wirespeed.session.attaching import look_on_nodes
    from wirespeed.session.folders import patient_folder
    from wirespeed.session.held_nodes import STOPPING
    from wirespeed.views.text import open_progress
    from wirespeed.watch.attach.judge import judge, seen

    began = time.monotonic()
    prepared = where.beside_a_job().prepared(None, 30.0)
    if any(one.status in STOPPING for one in prepared.findings):
        told = "; ".join(one.title for one in prepared.findings)
        raise CannotMeasure(told, expected="nodes that can be reached, with wirespeed")
    folder = patient_folder("attach", {"on": where.engine, "seconds": asked.seconds})
    progress = open_progress(quiet=quiet)
    progress.phase(f"looking at the job of each node for {asked.seconds:g} s")
    try:
        looks, why_not = look_on_nodes(prepared, folder, asked, progress.phase)
    finally:
        progress.close()
    if not looks:
        told = "; ".join(f"{node}: {why}" for node, why in why_not.items())
        raise CannotMeasure(told or "no node answered", expected="a job on each node")
    findings, verdict = judge(seen(looks))
    findings += [tell("WATCH-016", "no look", host=node, why=why) for node, why in why_not.items()]
    findings += prepared.findings
    return _run(folder, looks, findings, verdict, time.monotonic() - began), folder


def _run(
    folder: "PatientFolder",
    looks: "list[NodeLook]",
    findings: "list[Finding]",
    verdict: "Verdict",
    seconds: float,
) -> "Run":
    from wirespeed.model.node_facts import Facts
    from wirespeed.model.records import NodeFacts, World
    from wirespeed.watch.attach.judge import exit_code, subject_of

    ranks = [rank.process for look in looks for rank in look.ranks]
    nodes = [
        NodeFacts(
            host=look.host,
            ranks=tuple(rank.process.rank for rank in look.ranks),
            facts=Facts(),
            counters=look.counters,
        )
        for look in looks
    ]
    size, launcher = max(one.world_size for one in ranks), ranks[0].launcher
    world = World(size=size, nodes=tuple(nodes), backend="", launcher=launcher)
    config = {"processes": {str(one.rank): f"{one.pid} on {one.host}" for one in ranks}}
    told = {"seconds": seconds, "world": world, "config": config}
    told["verdict_subject"] = subject_of(verdict, findings)
    return folder.ended(verdict, exit_code(verdict), findings, **told)
