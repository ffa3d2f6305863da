"""`wirespeed locate --simulate`: the localiser on a fabric that exists only in arithmetic."""

import os
from typing import Any

import click

from wirespeed.cli.config import print_config, refuse_unknown_keys
from wirespeed.cli.execute import show
from wirespeed.cli.options import RunOptions
from wirespeed.errors import UsageError
from wirespeed.records import Located, Run, Simulation, World

__all__ = ["run_simulation"]

LEAST_NODES = 2
DEFAULT_NODES, DEFAULT_FAULTS, DEFAULT_NOISE = 64, 1, 0.1
MOST_STORED = 64
"""Nodes up to which every pair is kept in the run."""


def run_simulation(
    ctx: click.Context, pairs: dict[str, Any], asked: dict[str, Any], options: RunOptions
) -> int:
    """Simulate, store and print; exit code 1 where a culprit is named."""
    refuse_unknown_keys(ctx)
    if ctx.params.get("print_config"):
        click.echo(print_config(ctx))
        return 0
    if (asked["nodes"] or DEFAULT_NODES) < LEAST_NODES:
        raise UsageError(
            f"--nodes {asked['nodes']}", expected=f"at least {LEAST_NODES} simulated nodes"
        )
    from wirespeed.console.unstored import patient_folder

    config = {**{k: v for k, v in ctx.params.items() if k != "print_config"}}
    folder = patient_folder("locate", {k: _plain(v) for k, v in config.items()})
    run = _simulated(folder.id, folder.started, pairs, asked, options)
    return show(run, options.output, folder)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _simulated(
    id: str, started: str, pairs: dict[str, Any], asked: dict[str, Any], options: RunOptions
) -> Run:
    from dataclasses import replace

    from wirespeed import __version__
    from wirespeed.checks.judge import verdict_of
    from wirespeed.checks.locating import culprit_findings
    from wirespeed.locate.faults import random_faults, score
    from wirespeed.locate.simulator import simulate, standard_spec
    from wirespeed.locate.telling import culprit_json, pair_figures, simulated_part
    from wirespeed.world.redact import allowed_environment

    seed = options.seed
    nodes = asked["nodes"] or DEFAULT_NODES
    noise = DEFAULT_NOISE if asked["noise"] is None else asked["noise"]
    spec = standard_spec(nodes, noise)
    if asked["rails"]:
        spec = replace(spec, rails=asked["rails"])
    count = DEFAULT_FAULTS if asked["faults"] is None else asked["faults"]
    faults = random_faults(spec, count, seed=seed)
    found, seconds = simulate(
        spec, faults, seed, exhaustive=pairs["exhaustive"], most_rounds=pairs["rounds"]
    )
    names = [f"node-{node}" for node in range(nodes)]
    precision, recall = score(found.culprits, faults)
    per_round = max(1, nodes // 2)
    stored = found.readings if nodes <= MOST_STORED else ()
    located = Located(
        over="rails" if spec.rails > 1 else "nodes",
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
    findings = culprit_findings(located, [culprit_json(one) for one in found.culprits])
    findings = options.gate.allowed(findings)
    judged = options.gate.judged(findings, *verdict_of(findings, found.pairs_measured))
    findings, verdict, code = judged
    return Run(
        id=id,
        command="locate",
        verdict=verdict,
        exit_code=code,
        started=started,
        seconds=seconds,
        world=World(size=0, nodes=(), backend="simulated", launcher=""),
        versions={"wirespeed": __version__},
        environment=allowed_environment(os.environ),
        config={"nodes": nodes, "rails": spec.rails, "noise": noise, "seed": seed},
        findings=tuple(findings),
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
