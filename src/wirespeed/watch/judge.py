"""From the table of a job's steps to findings: who is late, why, since when, and what it costs.

One accusation a cause: what data loading, garbage collection, checkpoints and uneven batches take is
judged first and taken out of own work, then nodes, then ranks, then what the whole job shares.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wirespeed.model.records import Finding, Status
from wirespeed.model.watch_records import Gain, StepChange, Traffic, Watched
from wirespeed.watch import telling
from wirespeed.watch.bursts import bursts, one_each
from wirespeed.watch.causes import (
    Cause,
    causes_of,
    contended,
    growth,
    lacks_most,
    parts_of,
    starved,
)
from wirespeed.watch.change_points import Change, events_since, levels
from wirespeed.watch.costs import Blame, Cost, cost_of, cost_of_late, mended
from wirespeed.watch.late import MATERIAL, Late, Units, always_late
from wirespeed.watch.memory_growth import memory_growth
from wirespeed.watch.network import SlowPart, slow_parts
from wirespeed.watch.own_work import Floats, Matrix, OwnWork, highest, own_work
from wirespeed.watch.places import place_of, synchronising
from wirespeed.watch.steps import StepTable
from wirespeed.watch.watched import watched
from wirespeed.watch.whole_job import JobChange, communication, job_change, share_interval

LEAST_STEPS = 20
FAILS = 0.05
"""What surely costs this share fails, what costs less is a warning."""
_LEAST_HIT = 3
"""Steps that something must have held up."""
_JOB_WARNS, _JOB_FAILS = 0.08, 0.12
"""The same of what the whole job does, which has no others to compare it with."""
_EXPOSED = 0.30
_LATE_SHARE = 0.05
"""Of a step: who is late by so much is named even where the noise of thousands hides its cost."""
_CONTENDED_FAILS = 0.10
"""What a rank without a core must surely cost where all wait for cores and others as much as it."""
_CONTENDED_RISE = 0.5
"""The same of a rise of the whole job's step that is waiting for cores."""
_NO = {
    "data": "batches that are there in time",
    "gc": "no garbage collection within steps",
    "checkpoint": "checkpoints in the background",
    "load": "batches of even size",
}
_MANY, _MANY_SHARE = 8, 0.25
"""So many ranks, late from the begin on, are no outliers."""


@dataclass(frozen=True, slots=True)
class Judged:
    findings: tuple[Finding, ...]
    watched: Watched


@dataclass(slots=True)
class _Case:
    """What is known and said so far."""

    table: StepTable
    seen: OwnWork
    findings: list[Finding] = field(default_factory=list)
    changes: list[StepChange] = field(default_factory=list)
    gains: list[Gain] = field(default_factory=list)
    explained: Floats = field(default_factory=lambda: np.zeros(0))
    """By row, seconds of a step that have a cause."""

    @property
    def step_s(self) -> float:
        return float(np.median(self.seen.step_s))

    def gain(self, what: str, cost: Cost, finding: str) -> None:
        share, low, high = (1 - 1 / max(1.0, ratio) for ratio in (cost.ratio, cost.low, cost.high))
        self.gains.append(Gain(what=what, share=share, low=low, high=high, finding=finding))


@dataclass(frozen=True, slots=True)
class _Blamed:
    ranks: Sequence[int]
    """Rows of OwnWork."""
    late: Late
    cost: Cost


def judge(
    table: StepTable,
    *,
    world_size: int,
    traffic: Sequence[Traffic] = (),
    launches: int = 1,
    unseen: Sequence[str] = (),
) -> Judged:
    """All findings about one launch, worst first, and the record of what was seen."""
    seen = own_work(table)
    found = [*_of_memory(table), *_of_loss(table)]
    changes: list[StepChange] = []
    gains: list[Gain] = []
    if seen is not None and seen.each.sum() >= LEAST_STEPS:
        case = _Case(table, seen, explained=np.zeros(len(seen.rows)))
        _judge_work(case)
        _judge_job(case, traffic)
        found, changes, gains = case.findings + found, case.changes, case.gains
    found += _of_places(table, {rank for one in found for rank in _late_ranks(one, table.hosts)})
    found += telling.not_seen(seen, world_size, unseen, LEAST_STEPS)
    record = watched(
        table,
        seen,
        world_size=world_size,
        changes=changes,
        gains=gains,
        traffic=traffic,
        launches=launches,
        unseen=unseen,
    )
    order = ("fail", "warn", "not_checked", "pass")
    return Judged(tuple(sorted(found, key=lambda one: order.index(one.status))), record)


def _judge_work(case: _Case) -> None:
    seen = case.seen
    if np.isnan(seen.own).mean() > 0.5:
        return
    work, parts = parts_of(seen)
    blamed = [*_late(seen, work, case.step_s)]
    well = mended(work, blamed)
    top = highest(well)
    case.explained = (highest(seen.own) - top).astype(np.float64)
    base = np.maximum(seen.step_s - case.explained, 1e-9)
    _tell_late(
        case,
        [_Blamed(*one, cost_of_late(work, top, one, blamed, base, seen.each)) for one in blamed],
    )
    for part in parts:
        for found in causes_of(part, well, seen):
            _tell_cause(case, found, base)


def _tell_cause(case: _Case, cause: Cause, base: Floats) -> None:
    """If it costs enough."""
    seen = case.seen
    onset = _onset(cause.extra, seen.each, case.step_s)
    span = slice(onset.at if onset else 0, None)
    cost = cost_of(cause.extra[span], base[span], seen.each[span])
    alone = cause.ranks or cause.name == "load"
    warns, fails = (MATERIAL, FAILS) if alone else (_JOB_WARNS, _JOB_FAILS)
    hit = cause.extra > MATERIAL * case.step_s
    # A single long pause, such as one collection of garbage, is no habit.
    if cost.ratio - 1 < warns or seen.each[hit].sum() < _LEAST_HIT:
        return
    status: Status = "fail" if cost.low - 1 >= fails else "warn"
    case.findings.append(told := telling.cause(seen, cause, cost, onset, status))
    case.gain(_NO[cause.name] + telling.whose_part(seen, cause.ranks), cost, told.id)
    if onset is not None:
        case.changes.append(telling.step_change(seen, onset, *telling.whose(seen, cause.ranks)))


def _onset(extra: Floats, each: Floats, step_s: float) -> Change | None:
    """Where it began: of what is always there its level, of what is there now and then its rate."""
    event = extra > MATERIAL * step_s
    if event.mean() > 0.5 or not event.any():
        first, *later = levels(extra, each)
        if first.value >= MATERIAL * step_s:
            return None
        return next((one.change for one in later if one.value >= MATERIAL * step_s), None)
    return events_since(event, each)[0]


def _late(seen: OwnWork, work: Matrix, step_s: float) -> Iterator[Blame]:
    """Nodes on which the rank with the least work is late beside the other nodes', then single ranks."""
    nodes = list(_late_nodes(seen, work, step_s))
    yield from nodes
    rest = [rank for rank in range(len(work)) if not any(rank in ranks for ranks, _ in nodes)]
    if len(rest) > 1:
        for one in _late_units(work[rest] if nodes else work, seen.each, step_s):
            yield (rest[one.unit],), one


def _late_units(work: Matrix, each: Floats, step_s: float) -> list[Late]:
    units = Units(work, each, step_s)
    always = always_late(units)
    found = bursts(units, always)
    twice = {one.unit for one in always} & {one.unit for one in found}
    if twice:  # bursts in many rows look like lateness in every step: without them it is seen
        quiet = work.copy()
        for one in found:
            quiet[one.unit, one.rows] = np.nan
        again = always_late(Units(quiet, each, step_s))
        always = [one for one in always if one.unit not in twice]
        always += [one for one in again if one.unit in twice]
        found = bursts(units, always)
    return one_each(always, found)


def _late_nodes(seen: OwnWork, work: Matrix, step_s: float) -> Iterator[Blame]:
    names, node = np.unique(np.array(seen.hosts), return_inverse=True)
    counts = np.bincount(node)
    if len(names) < 2 or counts.min() < 2:
        return
    order = np.argsort(node, kind="stable")
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    for one in _late_units(np.fmin.reduceat(work[order], starts, axis=0), seen.each, step_s):
        yield tuple(np.nonzero(node == one.unit)[0].tolist()), one


def _tell_late(case: _Case, blamed: Sequence[_Blamed]) -> None:
    """Those that matter."""
    seen = case.seen
    told = [one for one in blamed if _matters(one, case.step_s)]
    many = [one for one in told if one.late.onset is None and not one.late.bursts]
    if len(many) > max(_MANY, _MANY_SHARE * len(seen.ranks)):
        case.findings.append(telling.stages(seen, len(many), max(one.cost.ratio for one in many)))
        told = [one for one in told if one not in many]
    few_cores = contended(seen)
    for one in sorted(told, key=lambda one: -one.cost.low):
        grown = growth(seen, list(one.ranks), one.late)
        sure = one.cost.low - 1 >= _CONTENDED_FAILS or lacks_most(seen, list(one.ranks), one.late)
        if few_cores and grown.case == "no core" and not sure:
            continue
        status: Status = "fail" if one.cost.low - 1 - one.late.natural >= FAILS else "warn"
        place = place_of(case.table, [int(seen.ranks[i]) for i in one.ranks])
        late = telling.late(seen, one.ranks, one.late, one.cost, grown, status, place)
        case.findings.append(late)
        case.gain(f"{telling.whose(seen, one.ranks)[1]} as quick as the others", one.cost, late.id)
        if one.late.onset is not None:
            who = telling.whose(seen, one.ranks)
            case.changes.append(telling.step_change(seen, one.late.onset, *who))


def _matters(one: _Blamed, step_s: float) -> bool:
    if one.cost.low - 1 - one.late.natural >= MATERIAL:
        return True
    steady_s = one.late.steady_s if one.late.bursts else one.late.typical_s
    return steady_s >= _LATE_SHARE * step_s


def _judge_job(case: _Case, traffic: Sequence[Traffic]) -> None:
    seen = case.seen
    waits = communication(seen)
    share, interval = share_interval(waits, seen.step_s, seen.each)
    parts = slow_parts(case.table) if share >= MATERIAL else []
    for part in parts[:_MANY]:
        case.findings.append(telling.network(seen, part, waits))
    if share >= MATERIAL and case.table.waits_known:
        case.gains.append(
            Gain(
                what="all communication hidden behind work",
                share=share,
                low=interval.low,
                high=interval.high,
                finding="WATCH-002" if parts else "WATCH-013",
            )
        )
    change = job_change(seen, case.explained, seen.own)
    if change is not None:
        _tell_change(case, change, parts)
    if not parts and len(seen.own) > 1 and case.table.waits_known:
        case.findings.append(telling.exposed(seen, share, interval, traffic, _EXPOSED))


def _tell_change(case: _Case, change: JobChange, parts: Sequence[SlowPart]) -> None:
    """Of steps of all ranks: who lacks cores since then, else that they take longer."""
    seen, hungry = case.seen, None
    if change.change is not None:
        since = seen.step_at(change.change.at)
        if not parts:
            hungry = starved(case.table.use, {*seen.ranks.tolist()}, since)
        kind, name = telling.node_of(parts[0]) if parts else ("job", "job")
        if hungry is not None:
            kind, name = "rank", f"rank {hungry.rank}"
        known = any(one.subject == name for one in _changed_then(case, change))
        if not known:
            case.changes.append(telling.step_change(seen, change.change, kind, name))
        if hungry is not None:
            _tell_starved(case, telling.starved(case.table, seen, change, hungry), known)
    if hungry is None and not _follows(case, change) and _is_told(seen, change, bool(parts)):
        case.findings.append(telling.changed(seen, change))


def _tell_starved(case: _Case, told: Finding, known: bool) -> None:
    """Of a rank that is known to be late since then it is one more thing that was seen."""
    for index, one in enumerate(case.findings):
        if known and (one.id, one.subject) == (told.id, told.subject):
            costs, evidence = f"{one.costs}; beyond that {told.costs}", (*one.evidence, told.saw)
            case.findings[index] = replace(one, status=told.status, costs=costs, evidence=evidence)
            return
    case.findings.append(told)


def _changed_then(case: _Case, change: JobChange) -> list[StepChange]:
    """What is known to have changed as the whole job did."""
    if change.change is None:
        return []
    at = case.seen.step_at(change.change.at)
    return [one for one in case.changes if one.low_step - _NEAR <= at <= one.high_step + _NEAR]


def _follows(case: _Case, change: JobChange) -> bool:
    """Whether it comes with a rank whose GPU is late since then: what its host hid before shows."""
    grown = change.after - change.before
    return bool(case.table.device) and any(
        one.subject_kind == "rank" and one.after - one.before > 2 * grown
        for one in _changed_then(case, change)
    )


def _is_told(seen: OwnWork, change: JobChange, network: bool) -> bool:
    """Neither what a slow network explains, nor what comes and goes where ranks lack cores anyway."""
    if change.grown == "communication":
        return not network
    return change.grown != "waited" or change.low >= _CONTENDED_RISE or not contended(seen)


def _of_memory(table: StepTable) -> Iterable[Finding]:
    grown = memory_growth(table.use)
    return [telling.memory(table, grown)] if grown else []


def _of_places(table: StepTable, late: Collection[int]) -> Iterable[Finding]:
    """late: ranks that the others wait for; these are at such a line because of that."""
    places = {rank: one for rank, one in table.places.items() if rank in late or not late}
    looks = sum(one.looks for one in places.values())
    found = synchronising(replace(table, places=places))
    return [telling.synchronises(one, looks) for one in found[:_MANY]]


def _late_ranks(one: Finding, hosts: Sequence[str]) -> list[int]:
    subject = one.subject
    if one.id not in _LATE or subject.kind not in ("rank", "node"):
        return []
    if subject.kind == "node":
        return [rank for rank, host in enumerate(hosts) if host == subject.name]
    return [int(word) for word in subject.name.split() if word.isdecimal()]


_NEAR = 10
"""Steps within which two changes are one."""
_LATE = ("WATCH-001", "WATCH-003", "WATCH-004", "WATCH-005")


def _of_loss(table: StepTable) -> Iterable[Finding]:
    return [telling.bad_loss(table)] if table.bad_loss else []
