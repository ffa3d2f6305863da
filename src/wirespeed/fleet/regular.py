"""Regular checks: what the stored runs have seen of a fleet, who is idle in Slurm, and a check as a job
of low priority that any other job may take the nodes from."""

import math
import shlex
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from wirespeed.errors import CannotMeasure, WirespeedError
from wirespeed.fleet.nodes import DAYS, moment_ago, naming, tracks_of
from wirespeed.fleet.plan import Batch, Seen, Suspect
from wirespeed.launchers import slurm
from wirespeed.model.verdicts import is_decided
from wirespeed.runs.index import RunFilter
from wirespeed.runs.source import StoredRuns, folder_of
from wirespeed.runs.store import load
from wirespeed.views.switches import hostlist, refuse_strange

JOB = "wirespeed-fleet"
LOWEST = 10_000
"""What is taken from the job's priority: more needs no rights, and this is behind any other job."""
ROOM = 3.0
"""Times what a check should take that its job may."""
_DAY_S = 86_400.0


def seen_in(
    index: StoredRuns, names: Sequence[str], leaves: Sequence[Sequence[str]], within: float
) -> Seen:
    """When each node and each pair was measured last, as far as it is not longer ago than counts."""
    seen, now = Seen.nothing(names, leaves), datetime.now(UTC)
    number, name = {name: place for place, name in enumerate(names)}, naming(names)
    since = moment_ago(2 * within)
    together: dict[str, list[str]] = {}
    started = {}
    for mark in index.marks(since):
        if is_decided(mark.verdict):
            together.setdefault(mark.run, []).append(name(mark.host))
            started[mark.run] = _days(mark.started, now)
    hosts = {run: [number[n] for n in some if n in number] for run, some in together.items()}
    for run, some in together.items():
        if len(some) > 1:  # a node by itself shows nothing of its network
            which = hosts[run]
            seen.node_days[which] = np.minimum(seen.node_days[which], started[run])
    for row in index.runs(RunFilter(command="locate", since=since, finished=True)):
        if len(hosts.get(row.run, [])) > 1:
            for one, other in (map(name, pair) for pair in _pairs(row.run)):
                if one in number and other in number:
                    seen.met_pair(number[one], number[other], started[row.run])
    return seen


def _pairs(run: str) -> set[tuple[str, str]]:
    """Those that it measured: one that lost a rank has not met all; none where it cannot be read."""
    try:
        located = load(folder_of(run)).located
    except WirespeedError:
        return set()
    return {(one.first, one.second) for one in located.pairs} if located else set()


def _days(started: str, now: datetime) -> float:
    try:
        return max((now - datetime.fromisoformat(started)).total_seconds() / _DAY_S, 0.0)
    except (ValueError, TypeError):  # a run that tells no moment was seen nobody knows when
        return math.inf


def standing(index: StoredRuns, names: Iterable[str] = ()) -> tuple[list[Suspect], list[str]]:
    """(nodes that have a failed finding open, nodes that were found good together with others and have
    none, the latest first), as `names` call them."""
    name, since = naming(names), moment_ago(DAYS)
    marks = [one._replace(host=name(one.host)) for one in index.marks(since, troubled=True)]
    company: dict[str, set[str]] = {}
    for mark in marks:
        company.setdefault(mark.run, set()).add(mark.host)
    suspects: list[Suspect] = []
    good: dict[str, str] = {}
    for host, track in sorted(tracks_of(index, marks, since=since).items()):
        failed = [one for one in track.findings() if one.status == "fail"]
        runs = {run for one in failed for run in one.runs}
        companies = {frozenset(company[run] - {host}) for run in runs}
        if failed:
            looks = tuple(dict.fromkeys(one.look_again for one in failed))
            suspects.append(
                Suspect(name=host, blamed=len(runs), companies=len(companies), looks=looks)
            )
        elif track.good_together:
            good[host] = track.good_together
    return suspects, sorted(good, key=good.__getitem__, reverse=True)


# Slurm.


@dataclass(frozen=True, slots=True)
class SlurmNodes:
    """Nodes that jobs may be given, those of them that are idle, and those that a check of ours has or
    waits for."""

    usable: tuple[str, ...]
    idle: tuple[str, ...]
    ours: frozenset[str]


def slurm_nodes(partition: str = "") -> SlurmNodes:
    """As sinfo and squeue tell; CannotMeasure where they do not."""
    words = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
    told = _asked(*words, *([f"--partition={partition}"] if partition else []))
    states = dict(line.split()[:2] for line in told.splitlines() if len(line.split()) >= 2)
    usable = [name for name, one in states.items() if not one.startswith(("down", "drain", "fail"))]
    lists = _asked("squeue", "--noheader", f"--name={JOB}", "--format=%N,%n").split()
    wanted = [word.strip(",") for word in lists if word.strip(",")]
    ours = _asked("scontrol", "show", "hostnames", ",".join(wanted)).split() if wanted else []
    idle = [name for name in usable if states[name] == "idle" and name not in ours]
    return SlurmNodes(tuple(usable), tuple(idle), frozenset(ours))


def _asked(*words: str) -> str:
    done = slurm.ask(*words)
    if done.returncode:
        raise CannotMeasure(
            f"{words[0]}: {done.stderr.strip() or f'exit code {done.returncode}'}",
            expected="Slurm's commands on this machine, or the nodes that are idle by name",
            next="wirespeed fleet plan --idle 'node-[0-15]'",
        )
    return done.stdout


def script(
    batch: Batch, *, ranks_per_node: int = 1, options: Mapping[str, str], python: str = ""
) -> str:
    """For sbatch. options: partition, qos, account and the like, as sbatch spells them.

    It is never started again by itself: whoever lost its nodes to another job is planned anew.
    """
    refuse_strange(batch.nodes)
    minutes = math.ceil(ROOM * batch.seconds / 60) + 1
    asked = {
        "job-name": JOB,
        "nodes": str(len(batch.nodes)),
        "nodelist": hostlist(batch.nodes),
        "ntasks-per-node": str(ranks_per_node),
        "time": f"0:{minutes}:00",
        "nice": str(LOWEST),
        **options,
    }
    check = [python or sys.executable, "-m", "wirespeed", "locate", "--exhaustive", "--on", "slurm"]
    check += ["--ranks-per-node", str(ranks_per_node)]
    check += ["--over", "rails"] if ranks_per_node > 1 else []
    return "\n".join(
        [
            "#!/bin/sh",
            *(f"#SBATCH --{name}={value}" for name, value in asked.items()),
            "#SBATCH --no-requeue",
            f"# {batch.why}: {batch.pairs} pairs, {batch.node_hours:.2f} node-hours",
            f"exec {shlex.join(check)}",
            "",
        ]
    )


def submit(text: str) -> str:
    """The number of the job; CannotMeasure where Slurm refuses it."""
    with tempfile.NamedTemporaryFile("w", prefix="wirespeed-", suffix=".sh") as file:
        file.write(text)
        file.flush()
        done = slurm.ask("sbatch", "--parsable", file.name)
    if done.returncode:
        raise CannotMeasure(
            f"sbatch: {done.stderr.strip() or f'exit code {done.returncode}'}",
            expected="a job that this user may submit",
            next="wirespeed fleet plan -o sbatch, to read it; --with partition=NAME, --with qos=NAME",
        )
    return done.stdout.strip().partition(";")[0]
