"""`wirespeed locate`: which node, link or rail is slow?"""

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.options import CONTEXT, FiniteRange, command, flag, option
from wirespeed.cli.run_options import RunOptions, common_options
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.locate.pair_figures import Diagnosis
    from wirespeed.model.records import Located, Run
    from wirespeed.runs.folder import PatientFolder


_FORMATS = ("table", "json", "jsonl", "md")
_LEAST_NODES = 2
_NODES, _FAULTS, _NOISE = 64, 1, 0.1
"""Of a simulation, unless asked otherwise."""
_MOST_STORED = 64
"""Nodes up to which every pair is kept in the run of a simulation."""
_SIMULATION_ONLY = ("faults", "noise", "rails")
"""And `--nodes`, which is the number of real nodes with `--on`."""


@command(context_settings=CONTEXT)
@option(
    "--over",
    "What is paired. nodes: one rank of each node; rails: the same local rank of every node; "
    "ranks: each rank with each. auto: nodes, and ranks where there is only one node.",
    ["auto", "nodes", "rails", "ranks"],
    default="auto",
)
@flag("--exhaustive", "Measure every pair (n-1 rounds).")
@option(
    "--rounds",
    "At most that many rounds of pairs, unless --exhaustive.",
    click.IntRange(1, 10_000),
    default=24,
)
@option(
    "--threshold",
    "Name who is slower than the others by this factor or more; of latency at least 2.",
    FiniteRange(1.01, 1000),
    default=1.2,
)
@flag("--simulate", "Try it on a simulated fabric with faults.")
@option("--rails", "Simulated rails.  [default: 8]", click.IntRange(1, 64))
@option("--faults", "Simulated faults.  [default: 1]", click.IntRange(0, 1000))
@option("--noise", "Sigma of the simulated noise.  [default: 0.1]", FiniteRange(0, 1))
@option("-o --output", "How to print the result.", _FORMATS, default="table")
@option(
    "--html FILE", "Also write one offline HTML file: verdict, culprits, heat maps of the pairs."
)
@common_options
@click.pass_context
def locate(ctx: click.Context, /, **values: Any) -> int:
    """Which node, link or rail is slow? Measure pairs in rounds, and name the culprit.

    Pairs of nodes talk at once, each node with another partner in every round; then all ranks do the
    same work without traffic. The last line says CULPRIT NAMED (exit code 1), NO CULPRIT (0) or NOT
    DECIDED (3).

    \f
    Examples:
      torchrun --nnodes 4 --nproc-per-node 1 ... -m wirespeed locate
      torchrun --nnodes 16 --nproc-per-node 8 ... -m wirespeed locate --over rails
      wirespeed locate --ranks 4                  the ranks of this machine, pair by pair
      wirespeed locate --html pairs.html          heat maps of the pairs, in one offline file
      wirespeed locate --exhaustive               every pair: finds a fault of one pair alone, too
      wirespeed locate --simulate --nodes 1024 --faults 4 --seed 7
    """
    pairs = {name: values.pop(name) for name in ("over", "exhaustive", "rounds", "threshold")}
    simulated = {name: values.pop(name) for name in _SIMULATION_ONLY}
    simulate = values.pop("simulate")
    if simulate and values["on"] is not None:
        raise UsageError(
            f"--simulate and --on {values['on']}", expected="one of them: a simulation has no ranks"
        )
    if values["on"] is None:
        simulated = {"nodes": values["nodes"], **simulated}
        values["nodes"] = None
    options = RunOptions.take(values, values.pop("output"))
    if options.output.html is not None and _writes_the_page():
        from wirespeed.cli.page import refuse_bad_target

        refuse_bad_target(options.output.html)
    if simulate:
        return _simulate(ctx, pairs, simulated, options)
    given = [f"--{name}" for name, value in simulated.items() if value is not None]
    if given:
        raise UsageError(
            f"{', '.join(given)} without --simulate" + (" or --on" if "--nodes" in given else ""),
            expected="a real world has its own nodes",
            next=f"wirespeed locate --simulate {given[0]} …",
        )
    return _run(ctx, pairs, options)


def _writes_the_page() -> bool:
    """Only rank 0 does; the other nodes need not have that folder."""
    from wirespeed.node.identity import detect

    identity = detect(os.environ)
    return identity is None or identity.rank == 0


def _refuse_faults_in_data(texts: tuple[str, ...]) -> None:
    """A fault that cannot strike would prove nothing."""
    from wirespeed.rank.faulty_engine import PROCESS_FAULTS, Fault

    for text in texts:
        fault = Fault.parse(text)
        if fault.kind not in PROCESS_FAULTS or fault.kind == "other" or fault.at:
            raise UsageError(
                f"locate runs no collective that {text!r} could strike",
                expected="a fault of a process, such as kill:rank=1,after=3 (rounds)",
                next="wirespeed check --inject " + text,
            )


def _run(ctx: click.Context, pairs: dict[str, Any], options: RunOptions) -> int:
    from wirespeed.cli.execute import execute
    from wirespeed.plan import PairPlan

    _refuse_faults_in_data(options.inject)
    asked = PairPlan(most_rounds=pairs.pop("rounds"), **pairs)
    return execute(ctx, options.plan("locate", pairs=asked), options)


def _simulate(
    ctx: click.Context, pairs: dict[str, Any], asked: dict[str, Any], options: RunOptions
) -> int:
    """The localiser on a fabric that exists only in arithmetic; exit code 1 where a culprit is named."""
    from wirespeed.cli.execute import only_config, told_config
    from wirespeed.cli.page import show
    from wirespeed.session.folders import patient_folder

    if only_config(ctx):
        return 0
    if (asked["nodes"] or _NODES) < _LEAST_NODES:
        raise UsageError(
            f"--nodes {asked['nodes']}", expected=f"at least {_LEAST_NODES} simulated nodes"
        )
    folder = patient_folder("locate", told_config(ctx))
    run = _simulated(folder, pairs, asked, options)
    return show(run, options.output, folder)


def _simulated(
    folder: "PatientFolder", pairs: dict[str, Any], asked: dict[str, Any], options: RunOptions
) -> "Run":
    from wirespeed.checks.locating import culprit_findings
    from wirespeed.checks.verdicts import Extent, grade
    from wirespeed.locate.simulator import (
        culprit_json,
        random_faults,
        score,
        simulate,
        simulated_part,
        standard_spec,
    )
    from wirespeed.model.records import Simulation, World

    seed, nodes = options.seed, asked["nodes"] or _NODES
    noise = _NOISE if asked["noise"] is None else asked["noise"]
    spec = standard_spec(nodes, noise)
    if asked["rails"]:
        spec = replace(spec, rails=asked["rails"])
    count = _FAULTS if asked["faults"] is None else asked["faults"]
    faults = random_faults(spec, count, seed=seed)
    found, seconds = simulate(
        spec, faults, seed, exhaustive=pairs["exhaustive"], most_rounds=pairs["rounds"]
    )
    names = [f"node-{node}" for node in range(nodes)]
    precision, recall = score(found.culprits, faults)
    located = _located(found, names, spec.rails)
    findings = culprit_findings(located, [culprit_json(one) for one in found.culprits])
    findings = options.strictness.allowed(findings)
    ended = grade("locate", findings, Extent(measured=found.pairs_measured))
    findings, ended = options.strictness.judged(findings, ended)
    return folder.ended(
        ended.verdict,
        ended.exit_code,
        findings,
        verdict_subject=ended.subject,
        seconds=seconds,
        world=World(size=0, nodes=(), backend="simulated", launcher=""),
        config={"nodes": nodes, "rails": spec.rails, "noise": noise, "seed": seed},
        located=located,
        simulation=Simulation(
            nodes=nodes,
            rails=spec.rails,
            noise=noise,
            faults=tuple(simulated_part(fault, names) for fault in faults),
            named=tuple(simulated_part(culprit, names) for culprit in found.culprits),
            precision=precision,
            recall=recall,
            rounds=found.rounds,
            seconds=seconds,
        ),
    )


def _located(found: "Diagnosis", names: list[str], rails: int) -> "Located":
    """What a simulated search found; without the pairs' figures where there are too many nodes."""
    from wirespeed.locate.simulator import pair_figures
    from wirespeed.model.records import Located

    per_round = max(1, len(names) // 2)
    stored = found.readings if len(names) <= _MOST_STORED else ()
    return Located(
        over="rails" if rails > 1 else "nodes",
        nodes=tuple(names),
        rounds=found.rounds,
        pairs_measured=found.pairs_measured,
        pairs_possible=found.pairs,
        stopped=found.stopped,
        compute=found.compute,
        pairs=tuple(
            figures
            for number, reading in enumerate(stored)
            for figures in pair_figures(reading, names, number // per_round)
        ),
    )
