"""Who waits for whom, from the dumps of one job: pure.

A rank waits for another in a group where it has an open collective with a number that the other has
not issued. A culprit lacks a collective in which others wait, and itself waits for nobody.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.diagnose.flight_read import Call, Calls, Dump, Group, Reach, What

_ENOUGH = 2
"""Calls that others came through, at least: a single one may have ended between two dumps."""
_NAMED = 16
"""Ranks that completed a call, as many as are named at most."""
_HOLDING = 64
"""Ranks of a circle that are looked at: of a longer one nobody stands out."""
_APART_NS = 6 * 3600 * 10**9
"""Ranks of one job that hangs stop within a time-out of each other; torch's are 10 and 30 min."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """Dumps by job, each by rank."""

    sets: tuple[Mapping[int, Dump], ...]
    mixed: str = ""
    """What shows that they are of several jobs or moments; empty: nothing does."""


def jobs_of(dumps: Iterable[Dump]) -> Jobs:
    """As one job where nothing speaks against it, else by folder and by time."""
    every = list(dumps)
    if not (mixed := _mixed(every)):
        return Jobs((_by_rank(every),))
    folders: dict[Path, list[Dump]] = {}
    for dump in every:
        folders.setdefault(Path(dump.source).parent, []).append(dump)
    parts = [part for some in folders.values() for part in _by_time(some)]
    # Where a rank still has two dumps nothing tells which go together.
    return Jobs(tuple(_by_rank(part) for part in parts if not _twice(part)), mixed)


def _by_rank(dumps: Sequence[Dump]) -> dict[int, Dump]:
    return {dump.rank: dump for dump in sorted(dumps, key=lambda one: one.rank)}


def _mixed(dumps: Sequence[Dump]) -> str:
    if twice := _twice(dumps):
        return f"rank {twice[0].rank} has {twice[0].source} and {twice[1].source}"
    parts = _by_time(dumps)
    if len(parts) > 1:
        return f"{parts[0][0].source} is from hours before {parts[-1][0].source}"
    worlds = {size: dump for dump in dumps if (size := _world(dump))}
    if len(worlds) > 1:
        told = [f"{dump.source} of {size} ranks" for size, dump in sorted(worlds.items())]
        return ", ".join(told[:4])
    return ""


def _world(dump: Dump) -> int:
    """Ranks of the default group; 0: not told."""
    return next((len(one.members) for one in dump.told if one.desc == "default_pg"), 0)


def _twice(dumps: Sequence[Dump]) -> tuple[Dump, ...]:
    seen: dict[int, Dump] = {}
    for dump in dumps:
        if (other := seen.setdefault(dump.rank, dump)) is not dump:
            return (other, dump)
    return ()


def _by_time(dumps: Sequence[Dump]) -> list[list[Dump]]:
    """Parts between which there are hours; a dump that has no times belongs to the last."""
    parts: list[list[Dump]] = []
    last = 0
    for dump in sorted(dumps, key=lambda one: one.newest):
        if not parts or (dump.newest and last and dump.newest - last > _APART_NS):
            parts.append([])
        parts[-1].append(dump)
        last = dump.newest or last
    if parts and len(parts) > 1 and (timeless := [one for one in parts[0] if not one.newest]):
        parts[0] = [one for one in parts[0] if one.newest]
        parts[-1] += timeless
    return [part for part in parts if part]


_ONE_SIDED = {
    name for one in CATALOGUE.values() if one.rooted or one.point_to_point for name in one.recorded
}
"""Calls that may end on one rank before another has issued them."""


@dataclass(frozen=True, slots=True)
class Lack:
    """A collective that a rank has not issued, and who waits in it."""

    group: Group
    call: Call
    waiting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Earlier:
    """A collective that one rank came through, and that another member had not issued at its dump."""

    rank: int
    group: Group
    seq: int
    other: int
    """Who came through it."""


@dataclass(slots=True)
class Job:
    """What the dumps of one job show."""

    dumps: Mapping[int, Dump]
    missing: list[int] = field(default_factory=list)
    """Ranks that a job of these dumps has, and that wrote none."""
    lacks: dict[int, list[Lack]] = field(default_factory=dict)
    busy: set[int] = field(default_factory=set)
    """Ranks that wait in some collective or transfer."""
    absent: dict[int, list[Lack]] = field(default_factory=dict)
    """Members of groups, without a dump, for which others may wait."""
    open: list[Lack] = field(default_factory=list)
    """Open collectives that every rank with a dump has issued."""
    awaits: dict[int, set[int]] = field(default_factory=dict)
    """Whom each rank waits for: one per group is enough to follow a cycle."""
    stuck: dict[int, list[Lack]] = field(default_factory=dict)
    """Calls of NCCL that a rank has open and that others, who are named as waiting, came through."""
    blind: set[int] = field(default_factory=set)
    """Ranks with several such calls: what else they have open says nothing of their devices."""
    over: set[tuple[Group, int]] = field(default_factory=set)
    """Numbers of calls that are open somewhere and that somebody came through: all have come."""
    earlier: list[Earlier] = field(default_factory=list)
    """Ranks whose dump is from before that of another: the job still ran between them."""

    def culprits(self) -> list[int]:
        """Who is waited for and waits for nobody; empty where that singles nobody out."""
        found = [rank for rank in sorted(self.lacks) if rank not in self.busy]
        if self._has_gloo():
            return self._sole(found) if not self.missing else []
        return found if len(found) <= len(self.busy) else []

    def _sole(self, found: list[int]) -> list[int]:
        """The one of them that stopped first; empty where that is open.

        gloo records no transfer: a rank that seems to wait for nobody may be in one. But its next
        call is then one that nobody waits in yet, or it came further than the one it waits for.
        """
        if len(found) < 2:
            return found
        next_one = [rank for rank in found if self._is_next_awaited(rank)]
        least = min((self.dumps[rank].issued for rank in next_one), default=0)
        first = [rank for rank in next_one if self.dumps[rank].issued == least]
        if len(first) != 1:
            waits = {rank for of in self.lacks.values() for one in of for rank in one.waiting}
            first = [rank for rank in found if self.behind(rank) >= waits]
        return first if len(first) == 1 else []

    def _is_next_awaited(self, rank: int) -> bool:
        """Whether others wait in the very call that comes after its last, where all do the same."""
        issued = self.dumps[rank].issued
        return any(one.call.place == issued for one in self.lacks[rank])

    def behind(self, rank: int) -> set[int]:
        """Who waits for it, directly or behind others."""
        found: set[int] = set()
        left, seen = [rank], set()
        while left:
            for lack in self.lacks.get(left.pop(), ()):
                if id(lack.waiting) not in seen:
                    seen.add(id(lack.waiting))
                    left += set(lack.waiting) - found
                    found.update(lack.waiting)
        return found

    def holding(self) -> list[int]:
        """Ranks that wait themselves, for which all others wait, and without which none of these would.

        Where one rank left the order of calls it is one of them. Whom a rank waits for, whom that one
        waits for and so on ends in a circle, which it is in, or at it.
        """
        way: dict[int, None] = {}
        rank = min(self.busy, default=None)
        while rank is not None and rank not in way:
            way[rank] = None
            rank = min(self.awaits.get(rank, ()), default=None)
        last = [*way][-1:] if rank is None else [*way][[*way].index(rank) :]
        found = [one for one in last[:_HOLDING] if one in self.busy and self._holds_all(one)]
        return sorted(one for one in found if not self._still_stuck(one))

    def _holds_all(self, rank: int) -> bool:
        return self.behind(rank) | {rank} >= self.busy

    def _still_stuck(self, free: int) -> bool:
        """Whether ranks wait in a circle that `free` is not in."""
        left = {rank: len(of) for rank, of in self.awaits.items() if rank != free}
        ready = [free, *(rank for rank in self.lacks if rank not in self.awaits)]
        while ready:
            for other in {
                rank for lack in self.lacks.get(ready.pop(), ()) for rank in lack.waiting
            }:
                if other in left:
                    left[other] -= 1
                    if not left[other]:
                        del left[other]
                        ready.append(other)
        return bool(left)

    def _has_gloo(self) -> bool:
        return any(group.backend == "gloo" for dump in self.dumps.values() for group in dump.groups)

    def cycle(self) -> list[int]:
        """Ranks that wait for each other in a circle, in its order; empty: there is none."""
        over: set[int] = set()
        for start in sorted(self.awaits):
            way: list[int] = []
            rank: int | None = start
            while rank is not None and rank not in over:
                over.add(rank)
                way.append(rank)
                rank = min(self.awaits.get(rank, ()), default=None)
            if rank in way:
                return way[way.index(rank) :]
        return []


def job_of(dumps: Mapping[int, Dump]) -> Job:
    """Who waits where, and for whom."""
    job = Job(dumps, _missing(dumps))
    job.busy = {rank for rank, dump in dumps.items() if dump.pending or dump.transfers}
    groups = by_group(dumps)
    unclear = _unclear_counts(dumps)
    every = [
        _GroupState(
            group,
            groups[group],
            members,
            all_known,
            {} if group in unclear else _counts(group, members, dumps),
        )
        for group, (members, all_known) in _members(groups, dumps).items()
    ]
    for state in every:
        _find_over(job, state)
    job.blind = {rank for rank, lacks in job.stuck.items() if len(lacks) >= _ENOUGH}
    job.busy |= job.blind
    for state in every:
        _judge(job, state)
    _judge_transfers(job)
    return job


def _unclear_counts(dumps: Mapping[int, Dump]) -> set[Group]:
    """Groups in which a rank's count is not that of its collectives, so that nobody's may be."""
    return {
        group
        for dump in dumps.values()
        if dump.reached
        for one in dump.told
        if (group := one._replace(backend="nccl")) not in dump.reached
    }


def _counts(group: Group, members: Iterable[int], dumps: Mapping[int, Dump]) -> dict[int, Reach]:
    found = {rank: dumps[rank].reached.get(group) for rank in members if rank in dumps}
    return {rank: reach for rank, reach in found.items() if reach is not None}


def _missing(dumps: Mapping[int, Dump]) -> list[int]:
    """Ranks below the highest, or told as members of a group, without a dump."""
    groups = {group for dump in dumps.values() for group in dump.told}
    told = {rank for group in groups for rank in group.members}
    sure = all(dump.sure for dump in dumps.values())
    return sorted((told | set(range(max(dumps) + 1) if sure else ())) - set(dumps))


def by_group(dumps: Mapping[int, Dump]) -> dict[Group, dict[int, dict[int, Call]]]:
    found: dict[Group, dict[int, dict[int, Call]]] = {}
    for rank, dump in sorted(dumps.items()):
        for group, calls in dump.groups.items():
            found.setdefault(group, {})[rank] = calls
    return found


def kinds_of(dumps: Mapping[int, Dump]) -> dict[Group, str]:
    """Groups that play one part, such as all of tensor parallelism, have one kind."""
    return {group: kind for dump in dumps.values() for group, kind in dump.kinds.items()}


def _members(
    groups: Mapping[Group, Mapping[int, object]], dumps: Mapping[int, Dump]
) -> dict[Group, tuple[tuple[int, ...], bool]]:
    """The ranks of each group, and whether these are all.

    Where the dumps do not tell, as gloo's, they are those that issued anything in it; a rank that
    came to no group of that kind is of the only one that is smaller than the others.
    """
    kinds = kinds_of(dumps)
    found: dict[Group, tuple[tuple[int, ...], bool]] = {}
    untold: dict[str, list[Group]] = {}
    for group, calls in groups.items():
        found[group] = (group.members or tuple(calls), True)
        if not group.members:
            untold.setdefault(kinds[group], []).append(group)
    for alike in untold.values():
        usual = max(2, *(len(groups[group]) for group in alike))
        small = [group for group in alike if len(groups[group]) < usual]
        away = sorted(set(dumps) - {rank for group in alike for rank in groups[group]})
        for group in small:
            own = tuple(groups[group])
            fits = len(small) == 1 and len(own) + len(away) == usual
            found[group] = ((*own, *away), True) if fits else (own, False)
    return found


@dataclass(slots=True)
class _GroupState:
    """The calls of one group in all dumps, by rank."""

    group: Group
    calls: Calls
    members: tuple[int, ...]
    all_known: bool
    counts: Mapping[int, Reach]
    over: set[int] = field(default_factory=set)
    last: dict[int, Call] = field(default_factory=dict)
    issued: dict[int, int] = field(default_factory=dict)
    """The newest number of each member, as far as it is known."""


def _find_over(job: Job, state: _GroupState) -> None:
    """Find calls that all members have come to, and ranks that still have them open."""
    calls, counts = state.calls, state.counts
    state.last = {rank: of[max(of)] for rank, of in calls.items()}
    state.issued = {rank: reach.issued for rank, reach in counts.items()}
    state.issued |= {rank: call.seq for rank, call in state.last.items()}
    state.over = _over(calls, state.last) | _passed(calls, counts)
    job.over |= {(state.group, seq) for seq in state.over}
    if state.group.backend == "nccl":
        _find_stuck(job, state)
        _find_earlier(job, state)


def _judge(job: Job, state: _GroupState) -> None:
    group, calls, last, issued = state.group, state.calls, state.last, state.issued
    members = state.members
    waiting = {
        rank: max(seqs)
        for rank, of in calls.items()
        if rank not in job.blind and (seqs := [seq for seq in _open(of) if seq not in state.over])
    }
    here = [rank for rank in members if rank in job.dumps]
    least = min((issued.get(rank, -1) for rank in here), default=-1)
    least = least if state.all_known else -1
    for rank, call in last.items():
        # Over, and another member never issued it: it failed there.
        if call.doubtful and call.seq > least and rank not in waiting:
            waiting[rank] = call.seq
    job.busy |= set(waiting)
    if not waiting:
        return
    lacking = _lacking(group, calls, issued, waiting, here)
    for rank, lack in lacking.items():
        job.lacks.setdefault(rank, []).append(lack)
        for other in lack.waiting:
            job.awaits.setdefault(other, set()).add(rank)
    _add_rest(job, group, calls, waiting, lacking, [one for one in members if one not in job.dumps])


def _open(calls: Mapping[int, Call]) -> list[int]:
    return [seq for seq, call in calls.items() if not call.done]


def _over(calls: Calls, last: Mapping[int, Call]) -> set[int]:
    """Numbers of calls that are open somewhere, and that another rank came through: all have come.

    Who has them open waits for nobody: its dump was just too early, or its own device is stuck.
    """
    left = {seq for of in calls.values() for seq in _open(of)}
    return {
        seq
        for seq in left
        for rank, of in calls.items()
        if (call := of.get(seq)) is not None
        and call.done
        and call.what.op not in _ONE_SIDED
        and (not call.doubtful or seq < last[rank].seq)
    }


def _passed(calls: Calls, counts: Mapping[int, Reach]) -> set[int]:
    """Numbers that are open somewhere, and that another rank's count says it came through.

    Dumps of what is open alone leave out the calls that are over.
    """
    whole = {
        seq: call.what.op not in _ONE_SIDED and not call.many
        for of in calls.values()
        for seq, call in of.items()
    }
    passed: set[int] = set()
    for rank, of in calls.items():
        most = max((one.completed for other, one in counts.items() if other != rank), default=-1)
        # NCCL runs a group's calls in order: who came through a later one came through this one.
        proof = max((seq for seq in of if seq <= most and whole[seq]), default=-1)
        passed.update(seq for seq in _open(of) if seq <= proof)
    return passed


def _find_stuck(job: Job, state: _GroupState) -> None:
    calls, group = state.calls, state.group
    members = sorted({*calls, *state.counts})
    for rank, of in calls.items():
        for seq in sorted(state.over.intersection(_open(of))):
            through = (
                other for other in members if other != rank and _has_completed(other, seq, state)
            )
            if some := tuple(islice(through, _NAMED)):
                job.stuck.setdefault(rank, []).append(Lack(group, of[seq], some))


def _has_completed(rank: int, seq: int, state: _GroupState) -> bool:
    call = state.calls[rank].get(seq) if rank in state.calls else None
    if call is not None:
        return call.done
    return rank in state.counts and state.counts[rank].completed >= seq


def _find_earlier(job: Job, state: _GroupState) -> None:
    """A count tells only where its rank has calls of the group, whose numbers confirm it."""
    calls, counts, group, issued = state.calls, state.counts, state.group, state.issued
    if any(
        call.what.op in _ONE_SIDED or call.many for of in calls.values() for call in of.values()
    ):
        return
    over = {rank: [seq for seq, call in of.items() if call.done] for rank, of in calls.items()}
    if any(call.doubtful for of in calls.values() for call in of.values()):
        return
    done = {rank: max(seqs) for rank, seqs in over.items() if seqs}
    for rank, reach in counts.items():
        if rank in calls:
            done[rank] = max(done.get(rank, -1), reach.completed)
    if not done:
        return
    most, ahead = max((seq, rank) for rank, seq in done.items())
    job.earlier += [Earlier(rank, group, most, ahead) for rank, own in issued.items() if own < most]


def _lacking(
    group: Group,
    calls: Calls,
    issued: Mapping[int, int],
    waiting: Mapping[int, int],
    here: list[int],
) -> dict[int, Lack]:
    """Who has not issued what others wait in; each with the first such collective."""
    most = max(waiting.values())
    behind: dict[int, list[int]] = {}
    for rank in here:
        own = issued.get(rank, -1)
        if own < most:
            behind.setdefault(own, []).append(rank)
    found: dict[int, Lack] = {}
    for own, ranks in behind.items():
        who = tuple(rank for rank, seq in waiting.items() if seq > own)
        if (call := _first_after(calls, who, own)) is not None:
            found |= dict.fromkeys(ranks, Lack(group, call, who))
    return found


def _first_after(calls: Calls, who: tuple[int, ...], own: int) -> Call | None:
    """The first collective after that number in which one of them waits, or failed.

    Where nothing of the group is recorded, a one-sided call tells nothing: it may be over.
    """
    later = (
        call
        for rank in who
        for seq, call in calls[rank].items()
        if seq > own
        and (not call.done or call.doubtful)
        and (own >= 0 or call.what.op not in _ONE_SIDED)
    )
    return min(later, key=lambda call: (call.seq, call.done), default=None)


def _add_rest(
    job: Job,
    group: Group,
    calls: Calls,
    waiting: Mapping[int, int],
    lacking: Mapping[int, Lack],
    absent: list[int],
) -> None:
    """Who may be awaited without a dump; and what all have issued and nobody came through."""
    rank, seq = min(waiting.items(), key=lambda item: item[1])
    first = _open(calls[rank])
    lack = Lack(group, calls[rank][min(first, default=seq)], tuple(waiting))
    for one in absent:
        job.absent.setdefault(one, []).append(lack)
    if not lacking:
        job.open.append(lack)


def _judge_transfers(job: Job) -> None:
    """Open sends without an open receive, and the reverse, in one group."""
    there: Counter[tuple[Group, int, int, bool]] = Counter()
    for rank, dump in job.dumps.items():
        for one in dump.transfers:
            there[one.group, rank, one.peer, one.sends] += 1
    for (group, rank, peer, sends), count in sorted(there.items()):
        if peer < 0 or rank in job.blind or there[group, peer, rank, not sends] >= count:
            continue
        texts = {
            (one.group, one.peer, one.sends): one.text for one in job.dumps[rank].transfers[::-1]
        }
        lack = Lack(group, Call(-1, What(texts[group, peer, sends], None, "")), (rank,))
        if peer in job.dumps:
            job.lacks.setdefault(peer, []).append(lack)
            job.awaits.setdefault(rank, set()).add(peer)
        else:
            job.absent.setdefault(peer, []).append(lack)
