"""torch's flight recorder: who never came to a collective, runs another one, or is missing.

Each rank dumps its last collectives (`TORCH_FR_BUFFER_SIZE`, torch's tutorial on the flight
recorder). Within one process group every rank must issue the same collectives in the same order.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.diagnose.findings import JOB, make_finding, one_rank, ranks_told
from wirespeed.diagnose.flight_progress import Progress, Stall, progress_of
from wirespeed.diagnose.flight_read import WINDOW, Call, Calls, Dump, Group
from wirespeed.diagnose.flight_waits import Job, Lack, by_group, job_of, jobs_of, kinds_of
from wirespeed.model.records import Finding

_USUAL = 4
"""Calls before, over all ranks, that make one usual for its group."""

_SAME_SIZE = {name for one in CATALOGUE.values() if one.same_size for name in one.recorded}
"""Calls whose size and type must be alike on all ranks; others may differ, such as all_to_all."""


_EVEN = "gloo:all_gather"
"""Which takes outputs of its input's size only (ProcessGroupGloo.cpp); NCCL's may be uneven."""


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
    even = what.op in _SAME_SIZE or what.name == _EVEN
    if not even or what.sizes is None:
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


@dataclass(frozen=True, slots=True)
class OtherOrder:
    """A rank whose calls were its peers' up to the one that it waits in."""

    rank: int
    group: Group
    call: Call
    peers: tuple[int, ...]
    theirs: tuple[Group, Call]
    """What the first of these called in its place, as all did."""
    alike: int
    """Calls before that it had in common with each of them, at least."""


def left_order(job: Job) -> OtherOrder | None:
    """Who holds all others up, and alone called something else at that place of its program.

    Only peers tell: ranks (`_PEERS` or more, who all agree) that made the same calls before. None where
    nobody stands alone, as in a circle in which two ranks called one thing and two another.
    """
    ways = {rank: _way(dump) for rank, dump in job.dumps.items()}
    found = [one for rank in job.holding() if (one := _beside_peers(rank, ways)) is not None]
    return found[0] if len(found) == 1 else None


_PEERS, _ALIKE = 2, 4
_Way = Mapping[tuple[str, int], tuple[Group, Call]]
"""A rank's calls by backend and by how many its recorder had before."""


def _way(dump: Dump) -> _Way:
    return {
        (group.backend, call.place): (group, call)
        for group, calls in dump.groups.items()
        for call in calls.values()
        if call.place >= 0 and not call.many
    }


def _beside_peers(rank: int, ways: Mapping[int, _Way]) -> OtherOrder | None:
    """By the first call that it waits in and that is not that of all its peers."""
    for place in sorted(at for at, (_, call) in ways[rank].items() if not call.done):
        peers = _peers(rank, place, ways)
        own, *others = (_kind(*ways[one][place]) for one in (rank, *peers))
        if len(peers) < _PEERS or (own in others and {own} != set(others)):
            return None
        if own not in others:
            theirs = ways[next(iter(peers))][place]
            told = OtherOrder(rank, *ways[rank][place], tuple(peers), theirs, min(peers.values()))
            return told if len(set(others)) == 1 else None
    return None


def _kind(group: Group, call: Call) -> object:
    """What is the same on ranks that do the same in groups of their own."""
    return _signature(call), len(group.members), group.desc


def _peers(rank: int, place: tuple[str, int], ways: Mapping[int, _Way]) -> dict[int, int]:
    """Ranks that called the same at all places before which are known of both: how many these are."""
    way, (backend, number) = ways[rank], place
    before = [at for at in way if at[0] == backend and at[1] < number]
    found = {}
    for other, theirs in ways.items():
        common = [at for at in before if at in theirs]
        alike = all(_kind(*theirs[at]) == _kind(*way[at]) for at in common)
        if other != rank and place in theirs and alike and len(common) >= _ALIKE:
            found[other] = len(common)
    return found


_SHOWN = 6
_MOST = 32
"""Culprits that are told one by one."""
_FEW, _MANY = 8, 4
"""One of eight ranks may be behind with certainty; where more than one of four is, the job may run."""


def compare(dumps: Iterable[Dump], unreadable: int = 0) -> list[Finding]:
    """Who is to blame, as far as the dumps single somebody out.

    unreadable: files beside them that are dumps, too, and cannot be read.
    """
    jobs = jobs_of(dumps)
    found = [make_finding("dumps_mixed", mixed=jobs.mixed)] if jobs.mixed else []
    for every in jobs.sets:
        told = _of_job(every, unreadable)
        found += [one for one in told if one.status != "pass"] if jobs.mixed else told
    return found


def _of_job(every: Mapping[int, Dump], unreadable: int) -> list[Finding]:
    job = job_of(every)
    wrong = mismatches(every)
    found = [_other_collective(one, every) for one in _first_of_each(wrong)]
    progress = progress_of(job)
    if all(one.ended for one in wrong):
        found += _holding_up(job, progress)
    if not found and (left := left_order(job)) is not None:
        found.append(_other_order(left, job))
    if not found and (cycle := job.cycle()):
        found.append(_circle(cycle, job))
    if not found:
        unsure = _unsure(job, progress, unreadable)
        found.append(unsure or make_finding("dumps_agree", ranks=len(job.dumps)))
    missing = sorted(job.absent) or job.missing
    if missing and all(one.id != "FLIGHT-003" for one in found):
        found.append(make_finding("dumps_missing", ranks=ranks_told(missing), read=len(every)))
    return found


def _holding_up(job: Job, progress: Progress) -> list[Finding]:
    """Who is behind; nobody where the job still ran between the dumps."""
    if job.earlier:
        return [_still_moving(job)]
    blamed = job.culprits()
    stuck = [one for one in progress.stuck() if one.rank not in blamed]
    known = {*blamed, *(one.rank for one in stuck)}
    stopped = [one for one in progress.stopped() if one.rank not in known]
    idle = [one for one in progress.not_started() if one.rank not in known]
    known.update(one.rank for one in (*stopped, *idle))
    # Where nobody waits for them the job ran on, or was about to end.
    if not progress.is_explained_by(known) or not (blamed or progress.lead_to(known)):
        return []
    if progress.items and len(known) > max(2, len(job.dumps) // _MANY):
        return [_many_behind(sorted(known), job)]
    few = len(blamed) <= max(1, len(job.dumps) // _FEW)
    found = [_behind(rank, job, few) for rank in blamed]
    found += [_device_behind(one, job, progress) for one in stuck]
    found += [_stopped_early(one, job) for one in stopped]
    found += [_never_started(one, job) for one in idle]
    return found[:_MOST]


def _many_behind(ranks: Sequence[int], job: Job) -> Finding:
    return make_finding(
        "many_behind",
        evidence=(f"{job.dumps[rank].source}: behind" for rank in ranks[:_SHOWN]),
        ranks=ranks_told(ranks),
        count=len(ranks),
        dumps=len(job.dumps),
    )


def _still_moving(job: Job) -> Finding:
    one = job.earlier[0]
    where = f"collective {one.seq} of group {one.group.title}"
    return make_finding(
        "dumps_moving",
        evidence=(
            f"{job.dumps[one.other].source}: {where}, completed",
            f"{job.dumps[one.rank].source}: has not called it",
        ),
        other=one.other,
        rank=one.rank,
        where=where,
        ranks=ranks_told(sorted({each.rank for each in job.earlier})),
    )


def _device_behind(stall: Stall, job: Job, progress: Progress) -> Finding:
    dump, lack = job.dumps[stall.rank], stall.lack
    through = ranks_told(lack.waiting)
    behind = sorted(progress.lead_to([stall.rank]) - {stall.rank})
    waits = f"{ranks_told(behind)} {_verb(behind, 'waits')}" if behind else ""
    return make_finding(
        "device_behind",
        subject=one_rank([stall.rank]) if dump.sure else JOB,
        evidence=(
            f"{dump.source}: {_where(lack)}, {lack.call.state}",
            *(f"{job.dumps[rank].source}: completed it" for rank in lack.waiting[:_SHOWN]),
        ),
        rank=stall.rank,
        where=_where(lack),
        through=through,
        calls=stall.calls,
        behind=f"; {waits} for it, directly or behind others" if waits else "",
    )


def _never_started(stall: Stall, job: Job) -> Finding:
    dump, lack = job.dumps[stall.rank], stall.lack
    return make_finding(
        "never_started",
        subject=one_rank([stall.rank]) if dump.sure else JOB,
        evidence=(
            f"{dump.source}: {_where(lack)}, {lack.call.state}",
            *(f"{job.dumps[rank].source}: started it" for rank in lack.waiting[:_SHOWN]),
        ),
        rank=stall.rank,
        where=_where(lack),
        others=ranks_told(lack.waiting),
        are="is" if len(lack.waiting) == 1 else "are",
    )


def _stopped_early(stall: Stall, job: Job) -> Finding:
    dump = job.dumps[stall.rank]
    first = min(job.lacks[stall.rank], key=lambda one: (one.call.seq < 0, one.call.created))
    return make_finding(
        "stopped_early",
        subject=one_rank([stall.rank]) if dump.sure else JOB,
        evidence=(
            f"{dump.source}: {_where(stall.lack)}, {stall.lack.call.state}",
            f"{job.dumps[stall.lack.waiting[0]].source}: waits in it, too, and called more",
        ),
        rank=stall.rank,
        where=_where(first),
        own=_where(stall.lack),
        peers=ranks_told(stall.lack.waiting),
        wait=_verb(stall.lack.waiting, "waits"),
        calls=stall.calls,
        others=ranks_told(first.waiting),
        waits=_verb(first.waiting, "waits"),
    )


def _first_of_each(wrong: Sequence[Mismatch]) -> list[Mismatch]:
    """Each odd rank once; what follows from one that is named is left out, and a tie after it."""
    told: set[int] = set()
    kept = []
    for one in wrong:
        if (one.odd and not told.issuperset(one.odd)) or not (told or one.odd):
            kept.append(one)
            told.update(one.odd)
    return kept[:_MOST]


def _other_collective(one: Mismatch, every: Mapping[int, Dump]) -> Finding:
    parts = one.parts[:_SHOWN]
    where = f"number {one.seq} of group {one.group.title}"
    both = ranks_told([rank for _, some in one.parts for rank in some])
    title = (
        f"{both} run different collectives as {where}; which of them is right the dumps do not tell"
    )
    if one.odd:
        runs = f"{ranks_told(one.odd)} {_verb(one.odd, 'runs')}"
        title = f"{runs} another collective than the rest: {where}"
    return make_finding(
        "other_collective",
        title=title,
        subject=one_rank(one.odd),
        evidence=(f"{every[some[0]].source}: {what}" for what, some in parts),
        saw="; ".join(f"{ranks_told(some)}: {what}" for what, some in parts),
        such=f", such as {one.usual}" if one.usual else "",
    )


def _behind(rank: int, job: Job, few: bool) -> Finding:
    lacks, dump = job.lacks[rank], job.dumps[rank]
    first = min(lacks, key=lambda one: (one.call.seq < 0, one.call.created))
    direct = sorted({other for one in lacks for other in one.waiting})
    others = len(job.busy) - len(direct)
    last = _last(dump, first)
    waits = (
        f"{job.dumps[one.waiting[0]].source}: {_where(one)}, {one.call.state}, waited for by "
        f"{ranks_told(one.waiting)}"
        for one in lacks[:_SHOWN]
    )
    return make_finding(
        "never_came",
        subject=one_rank([rank]) if dump.sure else JOB,
        evidence=(f"{dump.source}: its last call in that group: {last}", *waits),
        who=f"rank {rank}" if dump.sure else f"the rank that wrote {dump.source}",
        where=_where(first),
        others=ranks_told(direct),
        waits=_verb(direct, "waits"),
        more=f"; {others} more wait behind them" if others > 0 else "",
        rank=rank,
        last=last,
        confidence="certain" if len(direct) > 1 and few else "likely",
    )


def _circle(cycle: Sequence[int], job: Job) -> Finding:
    following = [*cycle[1:], cycle[0]]
    told = [
        f"rank {one} waits in {_where(lack)}, which rank {other} has not called"
        for one, other in zip(cycle, following, strict=True)
        for lack in [lack for lack in job.lacks.get(other, ()) if one in lack.waiting][:1]
    ][:_SHOWN]
    return make_finding(
        "wait_in_circle", evidence=told, ranks=ranks_told(cycle), saw="; ".join(told)
    )


def _other_order(one: OtherOrder, job: Job) -> Finding:
    peers = ranks_told(one.peers)
    group, call = one.theirs
    own = f"{one.call.title} of group {one.group.title}"
    theirs = f"{call.title} of group {group.title}"
    apart = group != one.group and len(group.members) < len(job.dumps)
    return make_finding(
        "other_order",
        subject=one_rank([one.rank]),
        evidence=(
            f"{job.dumps[one.rank].source}: {own}, {one.call.state}",
            f"{job.dumps[one.peers[0]].source}: {theirs}",
        ),
        rank=one.rank,
        own=own,
        peers=peers,
        call=_verb(one.peers, "calls"),
        theirs=f"{call.title} of their own groups" if apart else theirs,
        alike=one.alike,
        confidence="certain" if len(one.peers) > _PEERS else "likely",
    )


def _unsure(job: Job, progress: Progress, unreadable: int) -> Finding | None:
    """Somebody waits, and nobody is singled out; None where nobody waits."""
    waits = sorted(job.busy)
    bare = [rank for rank, dump in job.dumps.items() if dump.bare]
    missing = sorted(job.absent) or job.missing
    if not waits and not unreadable and len(bare) < len(job.dumps):
        return None
    lack = next(iter(job.open), None) or next((x for of in job.lacks.values() for x in of), None)
    some = [f"no dump of {ranks_told(missing)}: the one behind may be there"] if missing else []
    end = _common_end(job, progress, missing)
    where = f" in {_where(lack)}" if lack else ""
    if end is not None:
        where = f" for {_where(end.lack)}"
        some.append(end.text)
    some += [f"{unreadable} dumps cannot be read"] if unreadable else []
    some += [f"no collectives in the dumps of {ranks_told(bare)}"] if bare else []
    who = f"{ranks_told(waits)} {_verb(waits, 'waits')}{where}" if waits else "; ".join(some)
    return make_finding(
        "all_issued" if not job.lacks or (end and end.issued) else "somebody_waits",
        subject=one_rank(waits),
        evidence=(f"{job.dumps[rank].source}: waits" for rank in waits[:_SHOWN]),
        saw="; ".join([f"{len(job.dumps) - len(waits)} ranks with a dump wait for nobody", *some]),
        why=who,
    )


@dataclass(frozen=True, slots=True)
class _End:
    """The call that the waits of all ranks lead to in the end."""

    lack: Lack
    issued: bool
    """Whether all members of the group issued that call."""
    text: str


def _common_end(job: Job, progress: Progress, missing: Sequence[int]) -> _End | None:
    """Return the call or the missing ranks that all others wait for; None where there are several."""
    roots = progress.roots()
    if len(roots) == 1:
        (group, seq, _) = roots[0]
        rank = next(rank for rank, events in progress.waits.items() if roots[0] in events)
        lack = Lack(group, job.dumps[rank].groups[group][seq], group.members)
        text = (
            f"what all of them wait for leads to {_where(lack)}, which {ranks_told(group.members)} "
            "issued: one of these holds it up, or the network between them"
        )
        return _End(lack, True, text)
    first = next((one for rank in missing for one in job.absent.get(rank, ())), None)
    if first is None or roots or not progress.waits or not progress.is_explained_by(set()):
        return None
    return _End(first, False, f"what all of them wait for leads to {ranks_told(missing)}")


def _where(lack: Lack) -> str:
    if lack.call.seq < 0:
        return f"{lack.call.title} of group {lack.group.title}"
    return f"collective {lack.call.seq} of group {lack.group.title}: {lack.call.title}"


def _last(dump: Dump, lack: Lack) -> str:
    of = dump.groups.get(lack.group)
    if not of:
        return _last_by_count(dump, lack)
    call = of[max(of)]
    return f"{call.seq} {call.title} {call.state}"


def _last_by_count(dump: Dump, lack: Lack) -> str:
    """Its own count, where its dump holds no call of the group, as one of open calls alone."""
    reach = dump.reached.get(lack.group)
    if reach is None or not 0 <= reach.issued < lack.call.seq:
        return "none is recorded"
    return f"{reach.issued}, completed" if reach.completed == reach.issued else f"{reach.issued}"


def _verb(ranks: Sequence[int], singular: str) -> str:
    return singular if len(ranks) == 1 else singular[:-1]
