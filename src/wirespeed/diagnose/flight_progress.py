"""Ranks that hold a job up although they wait themselves, by how far each rank came: pure.

A rank's first open call says where its device is, its newest call where its program is. Two things
show that a rank is to blame although it has open calls: others came through a call that it has open,
or its peers, whose devices are no further than its own, called more. Neither counts unless the waits
of the other ranks lead to it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from wirespeed.diagnose.flight_read import Call, Dump, Group, Transfer
from wirespeed.diagnose.flight_waits import Job, Lack


class Item(NamedTuple):
    """An open call or transfer of one rank."""

    place: int
    group: Group
    call: Call | None
    transfer: Transfer | None

    @property
    def holds(self) -> bool:
        """Whether what the rank called after it has to wait for it: a send may end later."""
        return self.transfer is None or not self.transfer.sends


@dataclass(frozen=True, slots=True)
class Stall:
    """A rank that holds others up although it has open calls."""

    rank: int
    lack: Lack
    """The call that shows it: `waiting` came through it, or are its peers in it."""
    calls: int
    """Calls that others came through, or that the peers called beyond the rank's newest."""


@dataclass(slots=True)
class Progress:
    """Where each rank is, and which others its first open call waits for."""

    job: Job
    items: dict[int, list[Item]] = field(default_factory=dict)
    """Open calls by rank, in the order of the rank's program; those that others came through, too."""
    waits: dict[int, set[int]] = field(default_factory=dict)
    pipelines: set[str] = field(default_factory=set)
    """Descriptions of groups in which ranks send to each other."""
    roots: dict[int, Item] = field(default_factory=dict)
    """First open calls of ranks that wait for nobody's call: all have issued these."""

    def stuck(self) -> list[Stall]:
        """Ranks whose device, or what looks after it, is behind: others came through their calls."""
        found = []
        for rank in sorted(self.job.blind()):
            lacks = self.job.stuck[rank]
            found.append(Stall(rank, min(lacks, key=lambda one: one.call.place), len(lacks)))
        return found

    def stopped(self) -> list[Stall]:
        """Ranks that lack what others wait in, while peers that are no further off called more."""
        found = []
        for rank, lacks in sorted(self.job.lacks.items()):
            if rank in self.job.stuck or not self.items.get(rank):
                continue
            if (stall := self._beside_peers(rank)) is not None:
                found.append(stall)
        return found

    def explained_by(self, culprits: set[int]) -> bool:
        """Whether the waits of all others end at one of these, or at a rank without a dump."""
        ends = culprits | set(self.job.absent) | set(self.job.missing)
        return set(self.waits) | set(self.roots) <= ends | self.lead_to(ends)

    def _beside_peers(self, rank: int) -> Stall | None:
        own = self.items[rank]
        last = self.job.dumps[rank].issued - 1
        here = {item.place: item for item in own}
        best: list[tuple[int, int]] = []
        for peer, items in self.items.items():
            # What a blind rank has open says nothing of its device.
            if peer in self.job.stuck or not self._same_program(rank, peer):
                continue
            theirs = {item.place: item for item in items}
            more = self.job.dumps[peer].issued - 1 - last
            if peer == rank or more <= 0 or not set(here) <= set(theirs):
                continue
            if all(_alike(item, theirs[place]) for place, item in here.items()):
                best.append((more, peer))
        first = next((item for item in own if item.call is not None), None)
        if not best or first is None or first.call is None:
            return None
        peers = tuple(sorted(peer for _, peer in best))
        return Stall(rank, Lack(first.group, first.call, peers), min(best)[0])

    def _same_program(self, rank: int, peer: int) -> bool:
        """Whether both are at one place of each pipeline, and in one group that is not all ranks."""
        ours, theirs = (self._groups_by_kind(one) for one in (rank, peer))
        if set(ours) != set(theirs):
            return False
        for kind in self.pipelines & set(ours):
            own, other = ours[kind].members, theirs[kind].members
            if own.index(rank) != other.index(peer):
                return False
        world = len(self.job.dumps) + len(self.job.missing)
        return any(
            group == theirs[kind] and kind not in self.pipelines and len(group.members) < world
            for kind, group in ours.items()
        )

    def _groups_by_kind(self, rank: int) -> dict[str, Group]:
        return {group.desc: group for group in self.job.dumps[rank].told}

    def lead_to(self, culprits: Iterable[int]) -> set[int]:
        """Ranks whose waits end at one of them."""
        known = set(culprits)
        behind: dict[int, list[int]] = {}
        for rank, others in self.waits.items():
            for other in others:
                behind.setdefault(other, []).append(rank)
        left, found = [*known], set[int]()
        while left:
            for rank in behind.get(left.pop(), ()):
                if rank not in found and rank not in known:
                    found.add(rank)
                    left.append(rank)
        return found


def _alike(one: Item, other: Item) -> bool:
    """Whether two ranks made the same call of their program there, each in groups of its own."""
    if (one.call is None) != (other.call is None) or one.group.desc != other.group.desc:
        return False
    if len(one.group.members) != len(other.group.members):
        return False
    if one.call is not None and other.call is not None:
        return one.call.what.name == other.call.what.name
    return (one.transfer and one.transfer.sends) == (other.transfer and other.transfer.sends)


def progress_of(job: Job) -> Progress:
    """Only of dumps that tell the place of every open call, as NCCL's do; else without any."""
    found = Progress(job)
    for rank, dump in job.dumps.items():
        found.pipelines.update(group.desc for group in dump.pipelines)
        items = _items(dump)
        if any(item.place < 0 for item in items):
            return Progress(job)
        found.items[rank] = items
    open_at = _open_at(found.items)
    for rank, items in found.items.items():
        first = next((item for item in items if item.holds and not _is_over(job, rank, item)), None)
        frontier = [first] if first is not None else []
        # A send before it may hold its peer up, and itself wait for one.
        frontier += [item for item in items if first is None or item.place < first.place]
        waits = set[int]()
        for item in frontier:
            if not _is_over(job, rank, item):
                waits |= _awaited(job, found.items, open_at, rank, item)
        if waits:
            found.waits[rank] = waits
        elif first is not None:
            found.roots[rank] = first
    return found


def _items(dump: Dump) -> list[Item]:
    calls = [
        Item(call.place, group, call, None)
        for group, of in dump.groups.items()
        if group.backend != "gloo"
        for call in of.values()
        if not call.done
    ]
    calls += [Item(one.place, one.group, None, one) for one in dump.transfers]
    return sorted(calls, key=lambda item: item.place)


def _is_over(job: Job, rank: int, item: Item) -> bool:
    if item.call is not None:
        return (item.group, item.call.seq) in job.over or job.passed(rank, item.call)
    return item.transfer is not None and job.passed(rank, item.transfer)


_Places = Mapping[tuple[Group, int, int], Item]


def _open_at(every: Mapping[int, Sequence[Item]]) -> dict[tuple[Group, int, int], Item]:
    """Open collectives by group, number and rank."""
    return {
        (item.group, item.call.seq, rank): item
        for rank, items in every.items()
        for item in items
        if item.call is not None
    }


def _awaited(
    job: Job, every: Mapping[int, Sequence[Item]], open_at: _Places, rank: int, item: Item
) -> set[int]:
    """Who has not come to it: has not called it, or has something open before it."""
    if item.transfer is not None:
        return _awaited_in_transfer(job, every, rank, item.transfer)
    if item.call is None:
        return set()
    found = set()
    for other in item.group.members:
        if other == rank:
            continue
        theirs = open_at.get((item.group, item.call.seq, other))
        if theirs is not None:
            if _is_held(every[other], theirs.place):
                found.add(other)
        elif other not in job.dumps or _lacks(job, other, item.group, item.call.seq):
            found.add(other)
    return found


def _lacks(job: Job, rank: int, group: Group, seq: int) -> bool:
    return any(
        lack.group == group and lack.call.seq <= seq for lack in job.lacks.get(rank, ())
    )


def _is_held(items: Sequence[Item], place: int) -> bool:
    """Whether the rank has something open that it called before that place."""
    return any(item.place < place and item.holds for item in items)


def _awaited_in_transfer(
    job: Job, every: Mapping[int, Sequence[Item]], rank: int, one: Transfer
) -> set[int]:
    """The peer, where it has not called the other end, or has something open before that."""
    if one.peer < 0:
        return set()
    if one.peer not in job.dumps:
        return {one.peer}
    own = [
        item.transfer
        for item in every[rank]
        if item.transfer is not None
        and (item.group, item.transfer.peer, item.transfer.sends)
        == (one.group, one.peer, one.sends)
    ]
    ends = [
        item
        for item in every[one.peer]
        if item.transfer is not None
        and (item.group, item.transfer.peer, item.transfer.sends) == (one.group, rank, not one.sends)
    ]
    at = own.index(one)
    if at >= len(ends) or _is_held(every[one.peer], ends[at].place):
        return {one.peer}
    return set()
