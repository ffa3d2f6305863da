"""Stored ends of jobs: of imports out of Slurm's accounting, and of our own launches and watches.

An import is a run like any other, with the jobs beside it in `jobs.jsonl`, one a line.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from wirespeed import __version__
from wirespeed.fleet.job_ends import LAST_S, How, JobEnd
from wirespeed.fleet.node_state import is_about_node
from wirespeed.fleet.nodes import REPAIRED, NodeEvent, naming
from wirespeed.model.records import Run, World
from wirespeed.node.reading import read_whole
from wirespeed.runs.folder import RunFolder
from wirespeed.runs.index import RunFilter
from wirespeed.runs.place import LARGEST
from wirespeed.runs.rows import FindingRow, RunRow
from wirespeed.runs.source import StoredRuns, folder_of

IMPORT = "nodes import-jobs"
_FILE = "jobs.jsonl"
_WATCHES = ("launch", "watch")
_LATER_S = 86400.0
"""So long after its end the logs of a job are read."""


def keep_jobs(jobs: Sequence[JobEnd], config: dict[str, object]) -> Run:
    """Store them; the run that tells of the import."""
    from msgspec.json import encode

    return _kept(IMPORT, config, "".join(f"{encode(one).decode()}\n" for one in jobs))


def keep_repair(node: str) -> Run:
    """Store that a node was repaired now: how its jobs ended until then says nothing of it any more."""
    return _kept(REPAIRED, {"node": node})


def _kept(command: str, config: dict[str, object], jobs: str = "") -> Run:
    folder = RunFolder.create(command, config)
    if jobs:
        folder.keep(_FILE, jobs)
    run = Run(
        id=folder.id,
        command=command,
        verdict="NONE",
        exit_code=0,
        started=folder.started,
        seconds=0.0,
        world=World(size=0, nodes=(), backend="", launcher=""),
        versions={"wirespeed": __version__},
        config=config,
    )
    folder.finish(run)
    return run


def stored_jobs(index: StoredRuns, since_s: float) -> list[JobEnd]:
    """Each job once, of those that ended since then (Unix time); the last that was told of it counts."""
    since = datetime.fromtimestamp(since_s, UTC).isoformat(timespec="seconds")[:19]
    found = _imports(index, since)
    name = named_in(found.values())
    for command in _WATCHES:
        found |= {(job.job, job.start_s): job for job in _watched(index, command, since, name)}
    jobs = [one for one in found.values() if since_s <= one.end_s < LAST_S]
    return _diagnosed(jobs, index, since, name)


def named_in(jobs: Iterable[JobEnd]) -> Callable[[str], str]:
    """What these jobs call a host."""
    return naming(node for job in jobs for node in job.nodes)


BEFORE = " before"
"""Stands behind the name of a node as it was until it was repaired or became another machine."""


def apart(jobs: Iterable[JobEnd], renewed: Mapping[str, str]) -> list[JobEnd]:
    """With a node as it was before as a node of its own. renewed: by node since when it is another."""
    jobs = list(jobs)
    called, since = named_in(jobs), dict[str, float]()
    for node, at in renewed.items():
        since[called(node)] = max(_moment(at), since.get(called(node), 0.0))

    def name(node: str, end_s: float) -> str:
        return f"{node}{BEFORE}" if end_s < since.get(node, 0.0) else node

    return [
        replace(
            job,
            nodes=tuple(name(node, job.end_s) for node in job.nodes),
            culprit=name(job.culprit, job.end_s),
        )
        if not since.keys().isdisjoint(job.nodes)
        else job
        for job in jobs
    ]


def job_events(jobs: Iterable[JobEnd], node: str) -> list[NodeEvent]:
    """Failures of the jobs that it was part of, oldest first."""
    bad = [job for job in jobs if job.how != "good" and node in job.nodes]
    return [
        NodeEvent(
            at=datetime.fromtimestamp(job.end_s, UTC).isoformat(timespec="seconds")[:19] + "Z",
            kind="job",
            text=_told(job, node),
            status="fail" if job.culprit == node else "warn",
        )
        for job in sorted(bad, key=lambda one: one.end_s)
    ]


def _told(job: JobEnd, node: str) -> str:
    others = f" on {len(job.nodes)} nodes" if len(job.nodes) > 1 else ""
    who = {node: ", by this node", "": ", by one of them" if others else ", by this node"}
    why = who.get(job.culprit, f", by {job.culprit}") if job.how == "node" else ""
    return f"job {job.job} ({job.workload}){others} failed{why}"


def new_jobs(index: StoredRuns, jobs: Sequence[JobEnd]) -> list[JobEnd]:
    """Those that no import has stored, or of which now is known which node ended them."""
    first = min((job.end_s for job in jobs), default=0.0)
    known = _imports(index, datetime.fromtimestamp(first, UTC).isoformat()[:19])

    def is_new(job: JobEnd) -> bool:
        before = known.get((job.job, job.start_s))
        return before is None or bool(job.culprit and not before.culprit)

    return [job for job in jobs if is_new(job)]


def _imports(index: StoredRuns, since: str) -> dict[tuple[str, float], JobEnd]:
    """Jobs of imports that were made since then, by id and start."""
    found: dict[tuple[str, float], JobEnd] = {}
    for row in index.runs(RunFilter(command=IMPORT, since=since)):
        for job in _imported(folder_of(row.run) / _FILE):
            known = found.get((job.job, job.start_s))
            culprit = job.culprit or (known.culprit if known else "")
            found[job.job, job.start_s] = replace(job, culprit=culprit) if culprit else job
    return found


def _imported(path: Path) -> Iterator[JobEnd]:
    """Damaged lines tell nothing."""
    from msgspec import MsgspecError
    from msgspec.json import Decoder

    decoder = Decoder(JobEnd)
    try:
        lines = read_whole(path, LARGEST, links=False).splitlines()
    except OSError:
        return
    for line in lines:
        try:
            job = decoder.decode(line)
        except MsgspecError:
            continue
        if 0 <= job.start_s <= job.end_s < LAST_S:
            yield job


def _watched(
    index: StoredRuns, command: str, since: str, name: Callable[[str], str]
) -> Iterator[JobEnd]:
    which = RunFilter(command=command, since=since)
    hosts: dict[str, list[str]] = {}
    for node in index.nodes(which=which):
        hosts.setdefault(node.run, []).append(name(node.host))
    blamed: dict[str, list[FindingRow]] = {}
    for one in index.findings(status=["fail"], which=which):
        blamed.setdefault(one.run, []).append(replace(one, host=name(one.host)))
    for row in index.runs(which):
        how = _how(row)
        if how is not None and row.run in hosts:
            yield _end(row, hosts[row.run], how, blamed.get(row.run, ()))


def _diagnosed(
    jobs: list[JobEnd], index: StoredRuns, since: str, name: Callable[[str], str]
) -> list[JobEnd]:
    """With the nodes that `diagnose` named: of the last failed job there within a day, else by itself.

    The same files diagnosed again name nobody anew.
    """
    which = RunFilter(command="diagnose", since=since)
    read = {row.run: row.job for row in index.runs(which)}
    named: dict[tuple[str, str], FindingRow] = {}
    for one in index.findings(status=["fail"], which=which):
        if one.subject_kind == "node" and one.host and is_about_node(one.id, one.category):
            host = name(one.host)
            named.setdefault((read.get(one.run, one.run), host), replace(one, host=host))
    by_node: dict[str, list[int]] = {host: [] for _, host in named}
    for place, job in enumerate(jobs):
        for node in job.nodes if job.how != "good" and not job.culprit else ():
            if node in by_node:
                by_node[node].append(place)
    for (_, host), one in named.items():
        at = _moment(one.started)
        such = [place for place in by_node[host] if 0 <= at - jobs[place].end_s <= _LATER_S]
        if such:
            last = max(such, key=lambda place: jobs[place].end_s)
            jobs[last] = replace(jobs[last], how="node", culprit=host)
        else:
            jobs.append(_alone(one, at))
    return jobs


def _alone(one: FindingRow, at_s: float) -> JobEnd:
    """A failure of a node in a job of which nothing else is known."""
    return JobEnd(
        job=one.run,
        workload="diagnose",
        start_s=at_s - 1,
        end_s=at_s,
        nodes=(one.host,),
        how="node",
        culprit=one.host,
    )


def _moment(told: str) -> float:
    """Unix time; 0, which is too long ago to count, where a run tells no moment."""
    try:
        return datetime.fromisoformat(told).timestamp()
    except ValueError:
        return 0.0


def _how(row: RunRow) -> How | None:
    """None where nobody knows how it ended."""
    if not row.finished or row.damaged or row.exit_code == 3:
        return None
    return "good" if row.exit_code in (0, 130) else "failed"


def _end(row: RunRow, hosts: Sequence[str], how: How, blamed: Iterable[FindingRow]) -> JobEnd:
    """A node is to blame where a finding about its hardware, system or network names it as a whole; a
    rank may have failed by itself."""
    nodes = [
        one.host
        for one in blamed
        if one.subject_kind == "node" and one.host in hosts and is_about_node(one.id, one.category)
    ]
    start = _moment(row.started)
    culprit = nodes[0] if how == "failed" and nodes else ""
    return JobEnd(
        job=row.run,
        workload=row.job or row.command,
        group=row.gpu,
        start_s=start,
        end_s=start + row.seconds,
        nodes=tuple(dict.fromkeys(hosts)),
        how="node" if culprit else how,
        culprit=culprit,
    )
