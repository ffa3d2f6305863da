"""What the stored runs tell of each node: since when it is there, what it was blamed for, what changed.

From the rows of stored runs, never from whole ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Literal, TypeVar

from wirespeed.runs.index import RunFilter
from wirespeed.runs.rows import FindingRow, NodeMark, NodeRow
from wirespeed.runs.source import StoredRuns

_Row = TypeVar("_Row", NodeMark, NodeRow)
_ALONE = "alone"
"""Role of a node in a run without another."""
REPAIRED = "nodes repaired"
"""Command of a run that tells that a node was; its `job` is the node."""
DAYS = 30
"""How far back changes are counted, unless asked otherwise."""

Said = Literal["pass", "warn", "fail", ""]
"""What a run says of a node: as its findings about it; a run that is READY says `pass` of all of its
nodes; a run that is not, for another's fault, says nothing."""
Kind = Literal[
    "seen", "verdict", "blamed", "restart", "machine", "version", "ecc", "xid", "repaired", "job"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node as it is now, as far as runs tell."""

    host: str
    said: Said
    """By the last run that said something of it."""
    said_at: str
    """When that was (ISO 8601 in UTC); empty: no run in the time asked for has."""
    since: str
    """Since when it is said, without another word between."""
    first: str
    """When the first run with it began: in service since, as far as is known."""
    last: str
    """When the last one began."""
    runs: int
    """Runs that it was part of, ever."""
    blamed: int
    """Findings that failed because of it."""
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
    spans, blames = index.spans(), index.blames(since)
    marks: dict[str, list[NodeMark]] = {}
    for mark in index.marks(since):
        marks.setdefault(mark.host, []).append(mark)
    return [
        _state(row, marks.get(row.host, [_mark(row)]), spans[row.host], blames.get(row.host, 0))
        for row in index.latest()
        if row.host in spans
    ]


def history(index: StoredRuns, node: str) -> NodeHistory | None:
    """All that the stored runs tell of it; None: it took part in none."""
    rows = index.nodes(node=node) if node else []  # rows of no name are those of all nodes
    if not rows:
        return None
    found = index.findings(node=node, status=("fail", "warn"))
    marks = [_mark(row) for row in rows]
    span = rows[0].run, rows[-1].run, len(rows)
    blamed = sum(one.status == "fail" and one.host == node for one in found)
    events = [*_changes(rows), *_verdicts(rows), *_blames(found), *_repairs(index, node)]
    return NodeHistory(
        state=_state(rows[-1], marks, span, blamed),
        events=tuple(sorted(events, key=lambda one: (one.run[:15], one.at))),
    )


def said_of(mark: NodeMark | NodeRow) -> Said:
    """What one run says of a node."""
    if mark.status in ("fail", "warn", "pass"):
        return mark.status  # type: ignore[return-value]
    return "pass" if mark.verdict == "READY" else ""


def moment_ago(days: float) -> str:
    """As runs tell when they began."""
    return (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds")[:19] + "Z"


def _mark(row: NodeRow) -> NodeMark:
    return NodeMark(*(getattr(row, name) for name in NodeMark._fields))


def _state(
    latest: NodeRow, marks: Sequence[NodeMark], span: tuple[str, str, int], blamed: int
) -> NodeState:
    told = _told(marks)
    last = told[-1] if told else None
    return NodeState(
        host=latest.host,
        said=last[0] if last else "",
        said_at=last[1].started if last else "",
        since=_since(told),
        first=_moment(span[0]),
        last=latest.started,
        runs=span[2],
        blamed=blamed,
        flaps=sum((a == "fail") != (b == "fail") for (a, _), (b, _) in pairwise(told)),
        restarts=sum(1 for _ in _new(marks, "boot")),
        latest=latest,
    )


def _told(marks: Iterable[_Row]) -> list[tuple[Said, _Row]]:
    """What was said of a node, run by run.

    What is well by itself does not answer what failed in company: a gate looks every few minutes,
    and sees neither a slow link nor wrong data.
    """
    told: list[tuple[Said, _Row]] = []
    failed_in_company = False
    for one in marks:
        said, alone = said_of(one), one.role == _ALONE
        if said and (said == "fail" or not (failed_in_company and alone)):
            told.append((said, one))
            if not alone:
                failed_in_company = said == "fail"
    return told


def _since(told: Sequence[tuple[Said, NodeMark]]) -> str:
    began = ""
    for said, mark in reversed(told):
        if said != told[-1][0]:
            break
        began = mark.started
    return began


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


def _verdicts(rows: Sequence[NodeRow]) -> Iterator[NodeEvent]:
    before: Said = ""
    for said, row in _told(rows):
        if said != before:
            text = f"{said} by {row.command}" + (f", {before} before" if before else "")
            yield _event("verdict", row, text, said)
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
    found = {row.job: row.started for row in index.runs(RunFilter(command=REPAIRED))}
    marks: dict[str, list[NodeMark]] = {}
    for mark in index.marks(moment_ago(days)):
        if mark.machine:
            marks.setdefault(mark.host, []).append(mark)
    for host, own in marks.items():
        for _, mark in _new(own, "machine"):
            found[host] = max(found.get(host, ""), mark.started)
    return found


def _event(kind: Kind, row: NodeRow, text: str, status: str = "") -> NodeEvent:
    return NodeEvent(at=row.started, kind=kind, text=text, run=row.run, status=status)
