"""torch's flight recorder: who never came to a collective, runs another one, or is missing.

Each rank dumps its last collectives (`TORCH_FR_BUFFER_SIZE`, torch's tutorial on the flight
recorder). Within one process group every rank must issue the same collectives in the same order.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.diagnose.flight_read import WINDOW, Call, Dump, Group, is_dump, read_dump
from wirespeed.diagnose.flight_waits import Job, Jobs, Lack, by_group, job_of, jobs_of, kinds_of
from wirespeed.errors import InputError
from wirespeed.model.records import Finding, Subject

__all__ = ["Dump", "Mismatch", "compare", "is_dump", "read_dump", "unread"]


_USUAL = 4
"""Calls before, over all ranks, that make one usual for its group."""

_SAME_SIZE = {name for one in CATALOGUE.values() if one.same_size for name in one.recorded}
"""Calls whose size and type must be alike on all ranks; others may differ, such as all_to_all."""


Calls = Mapping[int, Mapping[int, Call]]
"""Of one group: by rank and number."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One number of one group at which ranks issued different collectives."""

    group: Group
    seq: int
    parts: tuple[tuple[str, tuple[int, ...]], ...]
    """What each set of ranks issued; the largest first."""
    odd: tuple[int, ...]
    """Ranks that differ from most, here or in groups alike; empty where nothing tells."""
    usual: str
    ended: bool
    """Whether all of them came through it."""


def mismatches(dumps: Mapping[int, Dump]) -> list[Mismatch]:
    """The first of each group."""
    groups, kinds = by_group(dumps), kinds_of(dumps)
    found = []
    for group, calls in groups.items():
        for seq in _compared(calls):
            parts = _parts(calls, seq)
            if len(parts) > 1:
                others = [
                    other
                    for one, other in groups.items()
                    if one != group and kinds[one] == kinds[group] and len(other) == len(calls)
                ]
                found.append(_mismatch(group, calls, seq, parts, others))
                break
    return sorted(found, key=lambda one: (one.ended, not one.odd, one.group))


def _compared(calls: Calls) -> list[int]:
    if len(calls) < 2:
        return []
    return sorted({seq for of in calls.values() for seq in sorted(of)[-WINDOW:]})


def _parts(calls: Calls, seq: int) -> dict[object, list[int]]:
    """Ranks by what they issued at that number."""
    parts: dict[object, list[int]] = {}
    for rank, of in calls.items():
        call = of.get(seq)
        if call is not None:
            if call.many:
                return {}
            parts.setdefault(_signature(call), []).append(rank)
    return parts


def _signature(call: Call) -> object:
    """What must be alike on all ranks."""
    what = call.what
    if what.op not in _SAME_SIZE or what.sizes is None:
        return (what.name,)
    return (what.name, sum(math.prod(one) for one in what.sizes), what.dtypes)


def _mismatch(
    group: Group, calls: Calls, seq: int, parts: Mapping[object, list[int]], others: Sequence[Calls]
) -> Mismatch:
    """others: the calls of groups alike."""
    ordered = sorted(parts.items(), key=lambda item: -len(item[1]))
    sign, ranks = ordered[0]
    if 2 * len(ranks) <= sum(map(len, parts.values())):
        sign = _usual(seq, parts, others) or _before(calls, seq, parts, others)
    odd = tuple(one for key, some in ordered if key != sign for one in some) if sign else ()
    usual = calls[parts[sign][0]][seq].title if sign else ""
    told = tuple((calls[some[0]][seq].title, tuple(some)) for _, some in ordered)
    ended = all(calls[rank][seq].done for some in parts.values() for rank in some)
    later = all(max(calls[rank]) > seq for some in parts.values() for rank in some)
    return Mismatch(group, seq, told, odd, usual, ended and later)


def _usual(seq: int, parts: Mapping[object, list[int]], others: Sequence[Calls]) -> object:
    """What groups alike issue at that number, where they agree."""
    seen = {sign for calls in others if len(alike := _parts(calls, seq)) == 1 for sign in alike}
    known = [sign for sign in parts if sign in seen]
    return known[0] if len(known) == 1 else None


def _before(
    calls: Calls, seq: int, parts: Mapping[object, list[int]], others: Sequence[Calls]
) -> object:
    """What this group has called again and again, where no group alike ever called the other."""
    own = [_signature(call) for of in calls.values() for call in of.values() if call.seq < seq]
    alike = {
        _signature(call)
        for calls_there in (calls, *others)
        for of in calls_there.values()
        for call in of.values()
        if call.seq != seq
    }
    known = [sign for sign in parts if sign in alike]
    return known[0] if len(known) == 1 and own.count(known[0]) >= _USUAL else None


_SHOWN = 6
_MOST = 32
"""Culprits that are told one by one."""


def unread(error: InputError) -> Finding:
    """A dump among others that cannot be read."""
    return Finding(
        id="FLIGHT-004", status="not_checked", title=error.saw, because=f"expected {error.expected}"
    )


def compare(dumps: Iterable[Dump], unreadable: int = 0) -> list[Finding]:
    """Who is to blame, as far as the dumps single somebody out.

    unreadable: files beside them that are dumps, too, and cannot be read.
    """
    jobs = jobs_of(dumps)
    found = [_mixed(jobs)] if jobs.mixed else []
    for every in jobs.sets:
        found += _of_job(every, unreadable, sure=not jobs.mixed)
    return found


def _of_job(every: Mapping[int, Dump], unreadable: int, sure: bool) -> list[Finding]:
    job = job_of(every)
    wrong = mismatches(every)
    found = [_flight_mismatch(one, every) for one in _first_of_each(wrong)]
    blamed = job.culprits() if not any(not one.ended for one in wrong) else []
    found += [_behind(rank, job) for rank in blamed[:_MOST]]
    if not found and (cycle := job.cycle()):
        found.append(_circle(cycle, job))
    if not found:
        found.append(_unsure(job, unreadable) or _alike(job))
    missing = sorted(job.absent) or job.missing
    if missing and all(one.id != "FLIGHT-003" for one in found):
        found.append(_missing(missing, len(every)))
    return found if sure else [one for one in found if one.status != "pass"]


def _first_of_each(wrong: Sequence[Mismatch]) -> list[Mismatch]:
    """Each odd rank once; what follows from one that is named is left out, and a tie after it."""
    told: set[int] = set()
    kept = []
    for one in wrong:
        if (one.odd and not told.issuperset(one.odd)) or not (told or one.odd):
            kept.append(one)
            told.update(one.odd)
    return kept[:_MOST]


def _flight_mismatch(one: Mismatch, every: Mapping[int, Dump]) -> Finding:
    told = "; ".join(f"{_ranks(some)}: {what}" for what, some in one.parts[:_SHOWN])
    where = f"number {one.seq} of group {one.group.title}"
    both = [rank for _, some in one.parts for rank in some]
    return Finding(
        id="FLIGHT-001",
        status="fail",
        title=f"{_ranks(one.odd)} {_verb(one.odd, 'runs')} another collective than the rest: {where}"
        if one.odd
        else f"{_ranks(both)} run different collectives as {where}; which of them is right the "
        "dumps do not tell",
        subject=_subject(one.odd),
        saw=told,
        expected="the same collective of the same size and type on every rank"
        + (f", such as {one.usual}" if one.usual else ""),
        because="ranks took different branches: a condition on the rank, uneven data, another setting",
        costs="a collective ends only when every rank calls the same one: the job hangs, or data are "
        "wrong",
        fix="make every rank issue the same collectives in the same order",
        next="run again with TORCH_DISTRIBUTED_DEBUG=DETAIL",
        evidence=tuple(f"{every[some[0]].source}: {what}" for what, some in one.parts[:_SHOWN]),
        category="collective-mismatch",
        confidence="certain",
    )


def _behind(rank: int, job: Job) -> Finding:
    lacks = job.lacks[rank]
    first = min(lacks, key=lambda one: (one.call.seq < 0, one.call.created))
    dump = job.dumps[rank]
    direct = sorted({other for one in lacks for other in one.waiting})
    others = len(job.busy) - len(direct)
    more = f"; {others} more wait behind them" if others > 0 else ""
    last = _last(dump, first)
    return Finding(
        id="FLIGHT-002",
        status="fail",
        title=f"{_who(dump)} never came to {_where(first)}",
        subject=Subject("rank", f"rank {rank}") if dump.sure else Subject("job", "job"),
        saw=f"{_ranks(direct)} {_verb(direct, 'waits')} for it{more}; rank {rank} waits for nobody, "
        f"its last call in that group: {last}",
        expected="the collective issued by every rank of the group",
        because="a rank that is stuck or slow before the call (data loading, a checkpoint, a lock, an "
        "exception that was caught), or that left its loop early; where the job still ran, dump "
        "again: who is stuck is at the same number",
        costs="all others wait for it until the watchdog ends the job",
        fix=f"look at what rank {rank} did at that moment: its stack and its log",
        next="py-spy dump --pid PID on that rank's node, while it hangs",
        evidence=(
            f"{dump.source}: its last call in that group: {last}",
            *(
                f"{job.dumps[one.waiting[0]].source}: {_where(one)}, {one.call.state}, waited for by "
                f"{_ranks(one.waiting)}"
                for one in lacks[:_SHOWN]
            ),
        ),
        category="rank-behind",
        confidence="certain" if len(direct) > 1 else "likely",
    )


def _circle(cycle: Sequence[int], job: Job) -> Finding:
    following = [*cycle[1:], cycle[0]]
    told = [
        f"rank {one} waits in {_where(lack)}, which rank {other} has not called"
        for one, other in zip(cycle, following, strict=True)
        for lack in [lack for lack in job.lacks.get(other, ()) if one in lack.waiting][:1]
    ]
    return Finding(
        id="FLIGHT-006",
        status="fail",
        title=f"{_ranks(sorted(cycle))} wait for each other: two groups' collectives are called in "
        "another order",
        saw="; ".join(told[:_SHOWN]),
        expected="the collectives of all groups in one order on every rank",
        because="each is in a collective that the other comes to only after its own; who of them "
        "left the order the dumps do not tell",
        costs="none of them ever goes on",
        fix="call the groups' collectives in the same order on all ranks, or one group's asynchronously",
        next="py-spy dump --pid PID of each of these ranks: the lines that call them",
        evidence=tuple(told[:_SHOWN]),
        category="collective-order",
        confidence="likely",
    )


def _unsure(job: Job, unreadable: int) -> Finding | None:
    """Somebody waits, and nobody is singled out; None where nobody waits."""
    waits = sorted(job.busy)
    bare = [rank for rank, dump in sorted(job.dumps.items()) if dump.bare]
    missing = sorted(job.absent) or job.missing
    if not waits and not unreadable and len(bare) < len(job.dumps):
        return None
    lack = next(iter(job.open), None) or next((x for of in job.lacks.values() for x in of), None)
    some = [f"no dump of {_ranks(missing)}: the one behind may be there"] if missing else []
    some += [f"{unreadable} dumps cannot be read"] if unreadable else []
    some += [f"no collectives in the dumps of {_ranks(bare)}"] if bare else []
    where = f" in {_where(lack)}" if lack else ""
    return Finding(
        id="FLIGHT-003",
        status="warn",
        title="cannot tell why: "
        + (f"{_ranks(waits)} {_verb(waits, 'waits')}{where}" if waits else "; ".join(some)),
        subject=_subject(waits),
        saw="; ".join([f"{len(job.dumps) - len(waits)} ranks with a dump wait for nobody", *some]),
        expected="a dump of every rank, and one that others wait for and that waits for nobody",
        because="every rank that wrote a dump issued it, so the program is not to blame: data do not "
        "arrive, or a rank without a dump is missing"
        if not job.lacks
        else "no rank with a dump is waited for without waiting itself",
        costs="the job hangs until the watchdog ends it",
        fix="check in this order: 1. the ranks without a dump; 2. links and NICs between these ranks "
        "(wirespeed locate); 3. Xid and NVLink errors in the kernel logs of their nodes",
        next="wirespeed locate",
        evidence=tuple(f"{job.dumps[rank].source}: waits" for rank in waits[:_SHOWN]),
        category="collective-stuck",
        confidence="cannot tell",
    )


def _alike(job: Job) -> Finding:
    return Finding(
        id="FLIGHT-000",
        status="pass",
        title=f"the flight recorder's dumps of {len(job.dumps)} ranks agree: all collectives "
        "completed",
    )


def _missing(ranks: Sequence[int], read: int) -> Finding:
    return Finding(
        id="FLIGHT-005",
        status="not_checked",
        title=f"no dump of {_ranks(ranks)}: {read} ranks wrote one",
        because="a rank that is gone, or stuck where it cannot dump, may be the one that others wait "
        "for: look at its log and node first",
    )


def _mixed(jobs: Jobs) -> Finding:
    return Finding(
        id="FLIGHT-007",
        status="warn",
        title=f"these are dumps of several jobs or moments: {jobs.mixed}",
        expected="the dumps of one job, one a rank, of one moment",
        because="ranks of different jobs do not wait for each other; each set is looked at alone",
        fix="give the folder of one job's dumps",
        category="dumps-mixed",
        confidence="cannot tell",
    )


def _where(lack: Lack) -> str:
    if lack.call.seq < 0:
        return f"{lack.call.title} of group {lack.group.title}"
    return f"collective {lack.call.seq} of group {lack.group.title}: {lack.call.title}"


def _last(dump: Dump, lack: Lack) -> str:
    of = dump.groups.get(lack.group)
    if not of:
        return "none is recorded"
    call = of[max(of)]
    return f"{call.seq} {call.title} {call.state}"


def _who(dump: Dump) -> str:
    return f"rank {dump.rank}" if dump.sure else f"the rank that wrote {dump.source}"


def _verb(ranks: Sequence[int], singular: str) -> str:
    return singular if len(ranks) == 1 else singular[:-1]


def _ranks(ranks: Sequence[int]) -> str:
    """`ranks 0-7, 10`, up to a few runs."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    told = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs[:_SHOWN]]
    left = sum(map(len, runs[_SHOWN:]))
    more = f" and {left} more" if left else ""
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(told) + more


def _subject(ranks: Sequence[int]) -> Subject:
    return Subject("rank", f"rank {ranks[0]}") if len(ranks) == 1 else Subject("job", "job")
