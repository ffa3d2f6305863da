"""`wirespeed nodes`: what the stored runs and the ends of jobs tell of each node."""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.options import argument, command, group, option, send_option, store_option
from wirespeed.errors import InputError, NothingRan, UsageError, harmless, refused_as
from wirespeed.model.units import counted, listed

if TYPE_CHECKING:
    from wirespeed.fleet.lemons import Judged
    from wirespeed.fleet.nodes import NodeEvent, NodeState
    from wirespeed.fleet.slurm_jobs import Accounted

_LARGEST_FILE = 1 << 30
_SHOWN = 40
_OUTPUT = option("-o --output", "How to print.", ["table", "json"], default="table")


@group()
def nodes() -> None:
    """Each node's past: what it was part of, what it was blamed for, what changed; and lemons.

    Read from the stored runs and, for lemons, from the ends of jobs.

    \f
    Examples:
      wirespeed nodes list
      wirespeed nodes show node-7
      wirespeed nodes import-jobs
      wirespeed nodes lemons
      wirespeed nodes repaired node-7
    """


@command("list", of=nodes)
@option("--days N", "Count what happened in so many days.", click.IntRange(1, 3660), default=30)
@_OUTPUT
@store_option
def list_command(days: int, output: str) -> None:
    """Each node of the stored runs: its state, since when, and how often it changed.

    STATE is fail or warn while a finding about its hardware, system or network is OPEN: a run failed it
    there, and no later run looked at the same thing and found it good. It is pass where none is open and
    a whole check, a locate or a gate found the node good. What a program does, and a fault that was
    injected on purpose, changes no node's state. FLAPS counts how often it went from good to failed or
    back, RESTARTS how often it was seen to have been started again.

    \f
    Examples:
      wirespeed nodes list
      wirespeed nodes list --days 7
      wirespeed nodes list -o json | jq '.[] | select(.said == "fail") | .host'
    """
    from wirespeed.fleet.nodes import state
    from wirespeed.runs.source import opened

    with opened(say=_say) as index:
        found = state(index, days=days)
    if output == "json":
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
    elif found:
        click.echo("\n".join(_table(found)))
    else:
        click.echo("no nodes: no stored run knows one\nnext: wirespeed check")


@command(of=nodes)
@argument("node", completes="nodes")
@_OUTPUT
@store_option
def show(node: str, output: str) -> None:
    """All that is known of one node: a few lines of how it is, then what happened to it, oldest first.

    From the stored runs, and of the last 91 days from the ends of its jobs.

    \f
    Examples:
      wirespeed nodes show node-7
      wirespeed nodes show node-7 -o json | jq '.events[] | select(.kind == "blamed")'
    """
    from wirespeed.fleet.job_store import job_events, named_in, stored_jobs
    from wirespeed.fleet.lemons import WINDOW_S
    from wirespeed.fleet.nodes import history
    from wirespeed.runs.source import opened

    with opened(say=_say) as index:
        told = history(index, node)
        if told is None and (longer := [h for h in index.hosts() if h.startswith(f"{node}.")]):
            told = history(index, longer[0])  # Slurm calls it so
        every = stored_jobs(index, time.time() - WINDOW_S)
        called = named_in(every)(node)
        jobs = [one for one in every if called in one.nodes]
        if told is None and not jobs:
            raise _unknown(node, index.hosts())
    events = [*(told.events if told else ()), *job_events(jobs, called)]
    events.sort(key=lambda one: one.at)
    state = told.state if told else None
    if output == "json":
        data = {"node": node, "state": state and asdict(state), "jobs": len(jobs)}
        click.echo(json.dumps(data | {"events": [asdict(one) for one in events]}, indent=2))
    else:
        click.echo("\n".join(_history(node, state, len(jobs), events)))


def _unknown(node: str, known: list[str]) -> UsageError:
    some = f"one of {', '.join(known[:8])}{' …' if len(known) > 8 else ''}" if known else ""
    return UsageError(
        f"no stored run or job knows a node {node[:80]!r}",
        expected=some,
        next="wirespeed nodes list",
    )


@command(of=nodes)
@option(
    "--false-share",
    "Share of innocent nodes among the accused that is allowed.",
    click.FloatRange(0.0001, 0.5),
    default=0.05,
)
@_OUTPUT
@store_option
def lemons(false_share: float, output: str) -> int:
    """Nodes that fail jobs more often than chance and their siblings explain, the surest first.

    Told by how jobs ended in the last 91 days: those that `import-jobs` stored, and those that
    `launch`, `watch` and `diagnose` saw. LEMON says that a node is accused; the others are worth a
    look. docs/nodes.md has the test, and how often it is right.

    \f
    Examples:
      wirespeed nodes lemons
      wirespeed nodes lemons --false-share 0.01
      wirespeed nodes lemons -o json | jq -r '.suspects[] | select(.accused) | .node'

    Exit codes: 0 no lemons, 1 at least one, 5 no jobs are known.
    """
    from wirespeed.fleet.lemons import judged
    from wirespeed.runs.source import opened

    with opened(say=_say) as index:
        found = judged(index, time.time(), alpha=false_share)
    if not found.jobs:
        raise NothingRan(
            "no job is known that ended in the last 91 days",
            expected="jobs of Slurm's accounting, or runs of launch, watch or diagnose",
            next="wirespeed nodes import-jobs",
        )
    if output == "json":
        click.echo(json.dumps(asdict(found), indent=2))
    else:
        click.echo("\n".join(_lemons(found)))
    return int(any(one.accused for one in found.suspects))


@command(of=nodes)
@argument("node", completes="nodes")
@send_option
def repaired(node: str) -> None:
    """Tell that a node was repaired: how its jobs ended until now is not held against it any more.

    Another machine under its name is noticed by itself, where runs see it. It is kept as a run, and
    `wirespeed runs rm` takes it back.

    \f
    Examples:
      wirespeed nodes repaired node-7
    """
    from wirespeed.fleet.job_store import keep_repair, stored_jobs
    from wirespeed.fleet.lemons import WINDOW_S
    from wirespeed.runs.index import Index

    with Index.opened(say=_say) as index:
        jobs = stored_jobs(index, time.time() - WINDOW_S)
        known = node in index.hosts() or any(node in one.nodes for one in jobs)
    run = keep_repair(node)
    click.echo(f"{harmless(node)}: repaired, from now on; run {run.id}")
    if not known:
        _say(f"no run or job stored here knows it; to take it back: wirespeed runs rm {run.id}")


@command("import-jobs", of=nodes)
@argument("files [FILE]…", nargs=-1)
@option("--since WHEN", "How far back sacct is asked, as it takes it.", default="now-91days")
@send_option
def import_jobs(files: tuple[str, ...], since: str) -> None:
    """Store how jobs ended, from Slurm's accounting, for `wirespeed nodes lemons`.

    Without FILE, sacct and sacctmgr are asked. A FILE is what they printed with --parsable2, and `-`
    is standard input; from events of nodes (sacctmgr list event) the node that ended a job is known.
    Only jobs that are new are stored, so that it may be asked every day.

    \f
    Examples:
      wirespeed nodes import-jobs
      sacct --allusers --allocations --duplicates --parsable2 -S now-91days \\
        -o JobIDRaw,User,Partition,State,Start,End,NodeList,JobName > jobs.txt
      sacctmgr --parsable2 list event start=now-91days format=NodeName,TimeStart,TimeEnd,State > down.txt
      wirespeed nodes import-jobs jobs.txt down.txt
    """
    from wirespeed.fleet.job_store import keep_jobs, new_jobs
    from wirespeed.fleet.slurm_jobs import ask_accounting, read_accounting, with_culprits
    from wirespeed.runs.index import Index

    texts = [(file, _read(file)) for file in files] if files else ask_accounting(since)
    told = [read_accounting(text, source) for source, text in texts]
    jobs = with_culprits(
        (job for one in told for job in one.jobs), [down for one in told for down in one.downs]
    )
    if not jobs:
        raise InputError(
            f"no job that has ended in {', '.join(source for source, _ in texts)}",
            expected="jobs of sacct with a State, a Start, an End and a NodeList",
            next="wirespeed nodes import-jobs --help",
        )
    click.echo(_imported(jobs, told))
    with Index.opened(say=_say) as index:
        new = new_jobs(index, jobs)
    if new:
        run = keep_jobs(new, {"files": list(files)} if files else {"since": since})
        click.echo(f"{len(new):,} of them are new, stored in run {run.id}")
    else:
        click.echo("all of them were stored already")
    click.echo("next: wirespeed nodes lemons")


def _say(text: str) -> None:
    click.echo(f"wirespeed: {text}", err=True)


def _table(found: "Sequence[NodeState]") -> list[str]:
    from wirespeed.cli.page import table_lines

    titles = (
        "node",
        "state",
        "since",
        "open",
        "blamed",
        "flaps",
        "restarts",
        "runs",
        "in service since",
    )
    rows = [
        (
            *(one.host, one.said or "unknown", _at(one.since), _open_ids(one), one.blamed or ""),
            *(
                one.flaps or "",
                one.restarts or "",
                one.runs,
                _at(one.first),
                _at(one.last),
                _made_of(one),
            ),
        )
        for one in sorted(found, key=lambda one: _ORDER.index(one.said))
    ]
    table = table_lines(
        (*titles, "last run", "made of"), rows, ("blamed", "flaps", "restarts", "runs")
    )
    return [*table, *_look_again(found)]


_MOST_OPEN = 4
_MOST_LOOKS = 3


def _open_ids(one: "NodeState") -> str:
    """Return the ids of the open findings that make the state of the node."""
    return listed([finding.id for finding in one.open if finding.status == one.said], _MOST_OPEN)


def _look_again(found: "Iterable[NodeState]") -> list[str]:
    """Which command shows whether what failed is good again, those of most nodes first."""
    nodes: dict[str, dict[str, None]] = {}
    for node in found:
        for one in node.open:
            if one.status == "fail":
                nodes.setdefault(one.look_again, {})[node.host] = None
    looks = sorted(nodes.items(), key=lambda told: -len(told[1]))[:_MOST_LOOKS]
    return [
        harmless(f"next: {command}   (with {listed(list(hosts))}: is it good again?)")
        for command, hosts in looks
    ]


_ORDER = ("fail", "warn", "", "pass")


def _at(moment: str) -> str:
    return moment[:16].replace("T", " ")


def _made_of(one: "NodeState") -> str:
    row = one.latest
    gpus = f"{row.gpus} × {row.gpu}" if row.gpus and row.gpu else ""
    driver = f"driver {row.driver}" if row.driver else ""
    return ", ".join(filter(None, (gpus, driver, row.kernel and f"kernel {row.kernel}")))


def _history(
    node: str, one: "NodeState | None", jobs: int, events: "Sequence[NodeEvent]"
) -> list[str]:
    from wirespeed.cli.page import table_lines
    from wirespeed.views.text import style_for

    style = style_for(sys.stdout)
    failed = sum(event.kind == "job" for event in events)
    ended = counted(jobs, "job")
    ends = f"  {ended} in the last 91 days, {failed} of them failed" if jobs else ""
    lines = [f"{node}  in no stored run"]
    if one is not None:
        since = f" since {_at(one.since)}" if one.since else ""
        runs = counted(one.runs, "run")
        lines = [
            f"{node}  {one.said or 'unknown'}{since}",
            *(
                f"  {finding.id} {finding.status} since {_at(finding.since)}, last told by run "
                f"{finding.runs[-1].rpartition('-')[2]}; is it good again: {finding.look_again}"
                for finding in one.open
            ),
            f"  in service since {_at(one.first)}, last run {_at(one.last)}, {runs}",
            f"  blamed {counted(one.blamed, 'time')}, {counted(one.flaps, 'flap')}, "
            f"{counted(one.restarts, 'restart')}",
            f"  {_made_of(one)}",
        ]
    rows = [(_at(e.at), e.kind, e.text, e.run.rpartition("-")[2]) for e in events]
    table = table_lines(("when (UTC)", "what", "", "run"), rows) if rows else []
    return [*(style.text(line) for line in (*lines, ends) if line.strip()), "", *table]


def _lemons(judged: "Judged") -> list[str]:
    from datetime import UTC, datetime

    from wirespeed.cli.page import table_lines

    rows = [
        (
            "LEMON" if one.accused else "suspect",
            one.node,
            f"{one.failures} of {counted(one.jobs, 'job')}",
            f"{one.expected:.1f}",
            f"10^{one.evidence:.1f}",
            datetime.fromtimestamp(one.since_s, UTC).date().isoformat(),
            f"or {', '.join(one.rivals[:4])}: they ran the same jobs" if one.rivals else "",
        )
        for one in judged.suspects[:_SHOWN]
    ]
    titles = ("", "node", "failed", "by chance", "evidence", "since", "remark")
    table = table_lines(titles, rows, ("failed", "by chance", "evidence")) if rows else []
    more = len(judged.suspects) - len(rows)
    accused = [one.node for one in judged.suspects if one.accused]
    said = counted(len(accused), "lemon") if accused else "no lemons"
    left = (
        f"; {counted(judged.loops, 'failure')} of crash loops and {judged.outages} of outages "
        "do not count"
        if judged.loops or judged.outages
        else ""
    )
    lines = [*table, *([f"{more} more with less evidence"] if more > 0 else [])]
    lines.append(
        f"{said}   {counted(judged.nodes, 'node')}, {counted(judged.jobs, 'job')}, "
        f"{judged.failures:,} failed{left}"
    )
    if accused:
        lines.append(f"next: wirespeed nodes show {quote(harmless(accused[0]))}")
    return lines


def _imported(jobs: Sequence[Any], told: "Sequence[Accounted]") -> str:
    failed = sum(job.how == "failed" for job in jobs)
    by_node = [job for job in jobs if job.how == "node"]
    named = sum(bool(job.culprit) for job in by_node)
    unread = sum(one.unread for one in told)
    left = f"; {counted(unread, 'line')} could not be read" if unread else ""
    nodes = counted(len({node for job in jobs for node in job.nodes}), "node")
    return (
        f"{counted(len(jobs), 'job')} that ended on {nodes}: "
        f"{failed:,} failed, {len(by_node):,} by a node, which is known of {named:,}{left}"
    )


def _read(file: str) -> str:
    from wirespeed.node.reading import read_whole

    expected, again = "the output of sacct --parsable2", "wirespeed nodes import-jobs --help"
    with refused_as(InputError, f"cannot read {file}", expected=expected, next=again):
        if file == "-":
            return sys.stdin.buffer.read(_LARGEST_FILE).decode(errors="replace")
        return read_whole(Path(file), _LARGEST_FILE, pipes=True).decode(errors="replace")
