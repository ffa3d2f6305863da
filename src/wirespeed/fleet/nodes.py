"""What the stored runs tell of each node: since when it is there, what it was blamed for, what changed.

From the rows of stored runs, never from whole ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Literal, TypeVar

from wirespeed.fleet.node_state import NodeTrack, OpenFinding, Said, is_about_node, tracks
from wirespeed.runs.index import RunFilter
from wirespeed.runs.rows import FindingRow, NodeMark, NodeRow
from wirespeed.runs.source import StoredRuns

__all__ = ["DAYS", "REPAIRED", "NodeEvent", "NodeHistory", "NodeState", "OpenFinding", "Said"]

_Row = TypeVar("_Row", NodeMark, NodeRow)
REPAIRED = "nodes repaired"
"""Command of a run that tells that a node was; its `job` is the node."""
DAYS = 30
"""How far back changes are counted, unless asked otherwise."""

Kind = Literal[
    "seen", "verdict", "blamed", "restart", "machine", "version", "ecc", "xid", "repaired", "job"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node as it is now, as far as runs tell."""

    host: str
    said: Said
    """Its state: what is open, or that it was found good; empty: not known."""
    said_at: str
    """When the last run began that confirmed or changed it (ISO 8601 in UTC); empty: no run has."""
    since: str
    """Since when it is so."""
    open: tuple[OpenFinding, ...]
    """Findings about it that no later run has found good, failures first."""
    first: str
    """When the first run with it began: in service since, as far as is known."""
    last: str
    """When the last one began."""
    runs: int
    """Runs that it was part of, ever."""
    blamed: int
    """Findings about its hardware, system or network that failed."""
    flaps: int
    """How often it went from good or warned to failed, or back."""
    restarts: int
    """How often it was seen to have started again."""
    latest: NodeRow
    """Its row in the last run: what it is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """Something that happened to a node."""

    at: str
    """ISO 8601 in UTC: when the run began that tells it."""
    kind: Kind
    text: str
    run: str = ""
    """Name of that run's folder; empty of a job that no run tells of."""
    status: str = ""
    """Of a verdict or a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHistory:
    """A node and all that happened to it, oldest first."""

    state: NodeState
    events: tuple[NodeEvent, ...]


def naming(names: Iterable[str]) -> Callable[[str], str]:
    """What these names call a host: Slurm's are short where a machine's own may hold its domain."""
    known = frozenset(names)

    def name(host: str) -> str:
        short = host.partition(".")[0]
        return short if short in known and host not in known else host

    return name


def state(index: StoredRuns, *, days: float = DAYS) -> list[NodeState]:
    """Every node of the stored runs, by name. days: in which what happened is counted."""
    since = moment_ago(days)
    spans, blames = index.spans(), _blame_counts(index, since)
    marks = index.marks(since, troubled=True)
    followed, lately = tracks_of(index, marks, since=since), _by_host(marks, since)
    return [
        _state(
            row,
            followed.get(row.host, NodeTrack()),
            lately.get(row.host, [_mark(row)]),
            spans[row.host],
            blames.get(row.host, 0),
            since,
        )
        for row in index.latest()
        if row.host in spans
    ]


def history(index: StoredRuns, node: str, *, days: float = DAYS) -> NodeHistory | None:
    """All that the stored runs tell of it; None: it took part in none. days: as of `state`, for what
    it is now; events are told of all time."""
    rows = index.nodes(node=node) if node else []  # rows of no name are those of all nodes
    if not rows:
        return None
    found = index.findings(node=node, status=("fail", "warn"))
    found = [one for one in found if is_about_node(one.id)]
    marks = [_mark(row) for row in rows]
    span = rows[0].run, rows[-1].run, len(rows)
    blamed = sum(one.status == "fail" and one.host == node for one in found)
    track = tracks_of(index, marks, node=node).get(node, NodeTrack())
    now = tracks_of(index, marks, since=moment_ago(days), node=node).get(node, NodeTrack())
    repairs = list(_repairs(index, node))
    events = [*_changes(rows), *_verdicts(track), *_blames(found), *repairs]
    return NodeHistory(
        state=_state(rows[-1], now, marks, span, blamed, ""),
        events=tuple(sorted(events, key=lambda one: (one.run[:15], one.at))),
    )


def open_findings(index: StoredRuns, node: str) -> tuple[OpenFinding, ...]:
    """What is open at that node now, failures first."""
    marks = [_mark(row) for row in index.nodes(node=node)] if node else []
    followed = tracks_of(index, marks, node=node)
    return followed[node].findings() if node in followed else ()


def tracks_of(
    index: StoredRuns, marks: Sequence[NodeMark], *, since: str = "", node: str = ""
) -> dict[str, NodeTrack]:
    """The states of these marks' nodes by host, `since` as of `tracks`; node: the only one, if so."""
    first = marks[0].started if marks else ""
    runs = index.run_marks(first, node=node)
    return tracks(marks, runs, _renewals(index, marks), since=since)


def _by_host(marks: Iterable[NodeMark], since: str) -> dict[str, list[NodeMark]]:
    found: dict[str, list[NodeMark]] = {}
    for mark in marks:
        if mark.started >= since:
            found.setdefault(mark.host, []).append(mark)
    return found


def _blame_counts(index: StoredRuns, since: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for (host, id), count in index.blames(since).items():
        if is_about_node(id):
            counts[host] = counts.get(host, 0) + count
    return counts


def moment_ago(days: float) -> str:
    """As runs tell when they began."""
    return (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds")[:19] + "Z"


def _mark(row: NodeRow) -> NodeMark:
    return NodeMark(*(getattr(row, name) for name in NodeMark._fields))


def _state(
    latest: NodeRow,
    track: NodeTrack,
    marks: Sequence[NodeMark],
    span: tuple[str, str, int],
    blamed: int,
    since: str,
) -> NodeState:
    """since: before then nothing is counted."""
    told = [(said, mark.started) for said, mark in track.changes if said]
    return NodeState(
        host=latest.host,
        said=track.said,
        said_at=track.said_at,
        since=track.changes[-1][1].started if track.said else "",
        open=track.findings(),
        first=_moment(span[0]),
        last=latest.started,
        runs=span[2],
        blamed=blamed,
        flaps=sum(
            (a == "fail") != (b == "fail") for (a, _), (b, at) in pairwise(told) if at >= since
        ),
        restarts=sum(1 for _ in _new(marks, "boot")),
        latest=latest,
    )


def _moment(run: str) -> str:
    """ISO 8601 of the start in a run folder's name."""
    day, time = run[:8], run[9:15]
    return f"{day[:4]}-{day[4:6]}-{day[6:]}T{time[:2]}:{time[2:4]}:{time[4:]}Z"


def _new(rows: Iterable[_Row], name: str) -> Iterator[tuple[str, _Row]]:
    """Where that is known and another than it was, with what it was."""
    before = ""
    for row in rows:
        value = getattr(row, name)
        if value and before and value != before:
            yield before, row
        before = value or before


_VERSIONS = {
    "kernel": "kernel",
    "os": "system",
    "driver": "GPU driver",
    "cuda": "CUDA",
    "nccl": "NCCL",
    "torch": "torch",
    "gpu": "GPUs",
}


def _changes(rows: Sequence[NodeRow]) -> Iterator[NodeEvent]:
    first = rows[0]
    yield _event("seen", first, f"first seen, by {first.command}, {first.role}")
    for _, row in _new(rows, "boot"):
        yield _event("restart", row, "it was started again")
    for _, row in _new(rows, "machine"):
        yield _event("machine", row, "another machine has its name, or it was installed anew")
    for name, called in _VERSIONS.items():
        for before, row in _new(rows, name):
            yield _event("version", row, f"{called} {before} → {getattr(row, name)}")
    yield from _errors(rows)


def _errors(rows: Sequence[NodeRow]) -> Iterator[NodeEvent]:
    """ECC errors and Xids that were not there before; a restart clears both."""
    count, known, boot = 0, set[str](), ""
    for row in rows:
        if row.boot and row.boot != boot:
            count, known, boot = 0, set(), row.boot
        if row.ecc_uncorrected > count:
            more = row.ecc_uncorrected - count
            yield _event("ecc", row, f"{more} uncorrected ECC errors, {row.ecc_uncorrected} in all")
        codes = {code for code in row.xids.split(",") if code}
        if new := sorted(codes - known):
            yield _event("xid", row, f"Xid {', '.join(new)}")
        count, known = max(count, row.ecc_uncorrected), known | codes


def _verdicts(track: NodeTrack) -> Iterator[NodeEvent]:
    before: Said = ""
    for said, mark in track.changes:
        if said:
            text = f"{said} by {mark.command}" + (f", {before} before" if before else "")
            yield NodeEvent(at=mark.started, kind="verdict", text=text, run=mark.run, status=said)
        before = said


def _blames(found: Iterable[FindingRow]) -> Iterator[NodeEvent]:
    for one in found:
        yield NodeEvent(
            at=one.started,
            kind="blamed",
            text=f"{one.id} {one.title}",
            run=one.run,
            status=one.status,
        )


def _repairs(index: StoredRuns, node: str) -> Iterator[NodeEvent]:
    for row in index.runs(RunFilter(command=REPAIRED)):
        if row.job == node:
            yield NodeEvent(at=row.started, kind="repaired", text="it was repaired", run=row.run)


def renewed(index: StoredRuns, *, days: float) -> dict[str, str]:
    """By node when it was last repaired, or became another machine: what was before says nothing.

    days: in which another machine is looked for.
    """
    found = _renewals(index, index.marks(moment_ago(days)))
    return {host: moments[-1] for host, moments in found.items()}


def _renewals(index: StoredRuns, marks: Iterable[NodeMark]) -> dict[str, list[str]]:
    """By node each moment at which it was repaired, or became another machine, in order."""
    marks = list(marks)
    hosts = {mark.host for mark in marks}
    short = {host.partition(".")[0]: host for host in hosts}
    found: dict[str, list[str]] = {}
    for row in index.runs(RunFilter(command=REPAIRED)):
        host = row.job if row.job in hosts else short.get(row.job.partition(".")[0], row.job)
        found.setdefault(host, []).append(row.started)
    before: dict[str, NodeMark] = {}
    for mark in marks:
        if not mark.machine:
            continue
        known = before.get(mark.host, mark)
        # Containers of one machine have ids of their own; another machine has also booted anew.
        booted = not (known.boot and mark.boot) or known.boot != mark.boot
        if mark.machine != known.machine and booted:
            found.setdefault(mark.host, []).append(mark.started)
        before[mark.host] = mark
    return {host: sorted(moments) for host, moments in found.items()}


def _event(kind: Kind, row: NodeRow, text: str, status: str = "") -> NodeEvent:
    return NodeEvent(at=row.started, kind=kind, text=text, run=row.run, status=status)
