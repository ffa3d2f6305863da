"""`wirespeed fleet`: regular checks of idle nodes, planned and started."""

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli import LazyGroup
from wirespeed.cli.options import (
    CONTEXT,
    FiniteRange,
    all_of,
    command,
    flag,
    group,
    option,
    store_option,
)
from wirespeed.errors import UsageError, escaped, harmless

if TYPE_CHECKING:
    from wirespeed.fleet.plan import Batch, Seen

_VERBS = {
    "plan": "Which idle nodes to check together next, and what to do with suspects.",
    "run": "Submit these checks to Slurm, as jobs of low priority.",
}
_OF_PAIRS, _OF_LEAVES = 64, 16
_MOST = 4096
"""Nodes whose pairs can be seen at all: 8 million, and a table of 64 MB."""
_CRON = re.compile(r"[\w*/,-]+( [\w*/,-]+){4}", re.ASCII)
_SLURM = ("partition", "qos", "account", "constraint", "reservation", "gpus-per-node", "output")


_HOMES = {verb: f"fleet.{verb}" for verb in _VERBS}


class _FleetGroup(LazyGroup):
    verbs = _VERBS
    homes = _HOMES


@group(cls=_FleetGroup)
def fleet() -> None:
    """Regular checks: each node and each pair of nodes seen again in time, at few node-hours.

    What was seen when, and who is suspected, comes from the stored runs.

    \f
    Examples:
      wirespeed fleet plan                         what is due, with the nodes that Slurm calls idle
      wirespeed fleet run --with partition=low     once an hour, from cron
      wirespeed fleet plan -o k8s --cluster mine --nodes 16 | kubectl apply -f -
    """


_options = all_of(
    option("--idle NODES", "Nodes to choose from: names, commas, a[0-3].  [default: Slurm's idle]"),
    option(
        "--within DAYS",
        "Each node and each pair is to be seen again within so many days.",
        FiniteRange(0.01, 365),
        default=14.0,
    ),
    option(
        "--leaves RUN",
        "Pairs of leaf switches are enough, told from this run of locate; may be repeated.",
        multiple=True,
    ),
    option(
        "--size N",
        f"Nodes in one check at most.  [default: {_OF_PAIRS}; {_OF_LEAVES} with --leaves]",
        click.IntRange(4, 1024),
    ),
    option("--node-hours H", "Spend at most so many now.", FiniteRange(0, 1e6)),
    option("--ranks-per-node N", "Rails: ranks of each node.", click.IntRange(1, 64), default=1),
    option(
        "--with given KEY=VALUE",
        f"Of sbatch: {', '.join(_SLURM)}. Choose what other jobs may preempt.",
        multiple=True,
    ),
    store_option,
)


@command(context_settings=CONTEXT)
@_options
@option(
    "-o --output",
    "sbatch: the scripts of the jobs; k8s: a CronJob.",
    ["table", "json", "sbatch", "k8s"],
    default="table",
)
@option("--cluster NAME|FILE", "Cluster file for -o k8s.")
@option("--nodes N", "Pods of each check for -o k8s.", click.IntRange(2, 1024))
@option("--at CRON", "When, for -o k8s.", default="17 * * * *")
def plan(**values: Any) -> int:
    """Which idle nodes to check together next; nothing is started.

    A node or pair that was not seen for long counts more; of all sizes of a check the one that sees most
    for its node-hours is taken. Who was blamed last is checked again with three nodes that are known to
    be good; who is blamed again in other company is to be taken out.

    \f
    Examples:
      wirespeed fleet plan --within 7
      wirespeed fleet plan --idle 'node-[0-63]' --node-hours 4
      wirespeed fleet plan --leaves last           pairs of leaf switches instead of nodes
      wirespeed fleet plan -o sbatch --with partition=low
      wirespeed fleet plan -o k8s --cluster mine --nodes 16 --at '17 2 * * *'
    """
    if values["output"] == "k8s":
        return _cronjob(values)
    planned = _Planned(values)
    match values["output"]:
        case "json":
            click.echo(escaped(json.dumps(planned.data(), indent=1)))
        case "sbatch":
            click.echo("\n".join(planned.scripts()), nl=False)
        case _:
            click.echo("\n".join(planned.lines()))
    return 0


@command(context_settings=CONTEXT)
@_options
@flag("--dry-run", "Show what would be submitted, and stop.")
def run(**values: Any) -> int:
    """Submit what `fleet plan` names to Slurm, as jobs of the lowest priority, and do not wait.

    Nodes for which such a job runs or waits already are left out, so it may be started often. A job
    whose nodes another one takes is not started again, but planned anew.

    \f
    Examples:
      wirespeed fleet run --with partition=low --with qos=preemptible
      wirespeed fleet run --dry-run
    """
    from wirespeed.fleet.regular import submit

    planned = _Planned(values)
    scripts = planned.scripts()
    click.echo("\n".join(planned.lines()))
    for number, text in enumerate(scripts, 1):
        if values["dry_run"]:
            click.echo(f"\n{text}", nl=False)
        else:
            click.echo(f"check {number}: job {submit(text)}")
    return 0


class _Planned:
    """The plan for now, by the options."""

    def __init__(self, values: dict[str, Any]) -> None:
        from wirespeed.fleet.nodes import moment_ago, naming
        from wirespeed.fleet.plan import batches, recheck
        from wirespeed.fleet.regular import seen_in, slurm_nodes, standing
        from wirespeed.locate.grouping import natural
        from wirespeed.runs.source import opened
        from wirespeed.views.switches import expanded

        self.with_ = _slurm_options(values["given"])
        self.ranks_per_node: int = values["ranks_per_node"]
        self.within: float = values["within"]
        leaves = _leaves(values["leaves"])
        with opened(say=lambda text: click.echo(text, err=True)) as index:
            if values["idle"] is not None:
                self.idle = expanded(values["idle"])
                since = moment_ago(2 * self.within)
                lately = {one.host for one in index.latest() if one.started >= since}
                names = sorted({*self.idle, *map(naming(self.idle), lately)}, key=natural)
            else:
                told = slurm_nodes(self.with_.get("partition", ""))
                self.idle, names = list(told.idle), list(told.usable)
            if len(names) > _MOST and not leaves:
                raise UsageError(
                    f"pairs of {len(names):,} nodes",
                    expected=f"at most {_MOST:,}, or pairs of leaf switches",
                    next="wirespeed fleet plan --leaves RUN, with a run of locate --exhaustive",
                )
            leaves = tuple(tuple(map(naming(names), one)) for one in leaves)
            self.seen: Seen = seen_in(index, names, leaves, self.within)
            self.suspects, good = standing(index, names)
        leaf = {name: number for number, one in enumerate(leaves) for name in one}
        most = float("inf") if values["node_hours"] is None else values["node_hours"]
        self.batches: list[Batch] = recheck(
            self.suspects, good, self.idle, leaf, most_node_hours=most
        )
        bad = {one.name for one in self.suspects}
        taken = bad.union(*(one.nodes for one in self.batches))
        number = {name: place for place, name in enumerate(names)}
        spent = sum(one.node_hours for one in self.batches)
        self.batches += batches(
            self.seen,
            [number[name] for name in self.idle if name not in taken],
            within=self.within,
            size=values["size"] or (_OF_LEAVES if leaves else _OF_PAIRS),
            most_node_hours=most - spent,
        )
        self.what = "pairs of leaves" if leaves else "pairs"

    def scripts(self) -> list[str]:
        from wirespeed.fleet.regular import script

        each, options = self.ranks_per_node, self.with_
        return [script(one, ranks_per_node=each, options=options) for one in self.batches]

    def lines(self) -> list[str]:
        from wirespeed.cli.page import table_lines
        from wirespeed.views.switches import hostlist

        nodes, pairs = self.seen.coverage(self.within)
        lines = [
            f"{len(self.seen.names):,} nodes, {len(self.idle):,} idle; seen within "
            f"{self.within:g} days: {nodes:.0%} of the nodes, {pairs:.0%} of the {self.what}"
        ]
        rows = [
            (
                number,
                f"suspect {one.suspect}" if one.suspect else "due",
                len(one.nodes),
                f"{one.pairs:,}",
                f"{one.node_hours:.2f}",
                hostlist(one.nodes),
            )
            for number, one in enumerate(self.batches, 1)
        ]
        titles = ("check", "why", "nodes", self.what, "node-hours", "which")
        right = {"check", "nodes", self.what, "node-hours"}
        lines += ["", *table_lines(titles, rows, right)] if rows else ["nothing to check now"]
        return lines + self._advice()

    def _advice(self) -> list[str]:
        """What to do with suspects that are in no check."""
        checked = {name for one in self.batches if one.suspect for name in one.nodes}
        lines = []
        for one in self.suspects:
            if one.take_out:
                name = shlex.quote(one.name)  # as a run tells it, for somebody's shell
                lines += [
                    f"take out {one.name}: {one.blamed} runs in a row blame it, in "
                    f"{one.companies} companies",
                    f"  wirespeed nodes show {name}",
                    f"  scontrol update nodename={name} state=drain reason=wirespeed",
                    f"  kubectl cordon {name}",
                ]
            elif not one.by_locate:
                lines.append(
                    f"suspect {one.name}: {one.looks[0]} on it shows whether it is good again"
                )
            elif one.name not in checked:
                lines.append(
                    f"suspect {one.name}: to be checked again with good nodes when it and they are idle"
                )
        return ["", *map(harmless, lines)] if lines else []

    def data(self) -> dict[str, Any]:
        nodes, pairs = self.seen.coverage(self.within)
        return {
            "nodes": len(self.seen.names),
            "idle": self.idle,
            "within_days": self.within,
            "nodes_seen": nodes,
            "pairs_seen": pairs,
            "checks": [
                {
                    "why": one.why,
                    "suspect": one.suspect or None,
                    "nodes": list(one.nodes),
                    "pairs": one.pairs,
                    "node_hours": one.node_hours,
                }
                for one in self.batches
            ],
            "take_out": [one.name for one in self.suspects if one.take_out],
            "suspects": [one.name for one in self.suspects],
        }


def _slurm_options(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in given:
        key, _, value = text.partition("=")
        if key not in _SLURM or not value or any(one.isspace() for one in value):
            raise UsageError(
                f"--with {text!r}", expected=f"KEY=VALUE without blanks, of {', '.join(_SLURM)}"
            )
        found[key] = value
    return found


def _leaves(refs: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Nodes by switch; none where pairs of nodes are to be seen."""
    if not refs:
        return ()
    from wirespeed.cli.topo import runs_of_pairs
    from wirespeed.locate.grouping import switches

    return switches([run.located for run in runs_of_pairs(refs) if run.located]).leaves


def _cronjob(values: dict[str, Any]) -> int:
    if values["cluster"] is None:
        raise UsageError("-o k8s without --cluster", expected="a cluster file, whose pods check")
    if not _CRON.fullmatch(values["at"]):
        raise UsageError(f"--at {values['at']!r}", expected="five fields of cron, as '17 2 * * *'")
    from wirespeed.clusters.deployment import settle
    from wirespeed.clusters.manifests.render import as_yaml
    from wirespeed.clusters.reading import read_named
    from wirespeed.fleet.cronjob import objects

    file = read_named(values["cluster"])
    name = f"{file.cluster.name[:34]}-fleet"
    deployment = settle(file, nodes=values["nodes"], engine="statefulset", name=name)
    if not file.workload.priority_class:
        click.echo(
            "wirespeed: warning: workload.priority_class is empty, so other pods cannot take the nodes",
            err=True,
        )
    click.echo(as_yaml(objects(deployment, values["at"])), nl=False)
    return 0
