"""Ranks that hold a job up although they wait themselves, by how far each rank came: pure.

A rank's first open call says where its device is, its newest call where its program is. Three things
show that a rank is to blame although it has open calls: others completed a call that it has open, its
device has not started a call that all others of the group are in, or its peers, whose devices are no
further than its own, called more. Neither counts unless the waits of all other ranks lead to it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from wirespeed.diagnose.flight_read import Call, Dump, Group, Transfer
from wirespeed.diagnose.flight_waits import Job, Lack

_REST = 8
"""One of so many ranks may wait where nothing explains it: a dump may show less than it should."""
_CANDIDATES = 64
"""Ranks that are compared with their peers: those that stopped first."""


class Item(NamedTuple):
    """An open call or transfer of one rank."""

    place: int
    group: Group
    call: Call | None
    transfer: Transfer | None

    @property
    def holds(self) -> bool:
        """Return whether the rank's later calls wait for this one; a send may end after them."""
        return self.transfer is None or not self.transfer.sends


class Event(NamedTuple):
    """A collective of a group, or an open transfer between two ranks: where ranks meet."""

    group: Group
    number: int
    """The collective's number, or the transfer's place in its rank's program."""
    rank: int
    """The transfer's rank; -1: a collective."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A rank that holds others up although it has open calls."""

    rank: int
    lack: Lack
    """The call that shows it: `waiting` completed it, or are the rank's peers in it."""
    calls: int
    """Calls that others completed, or that the peers called beyond the rank's newest."""


@dataclass(slots=True)
class Progress:
    """The open calls of each rank, and the ranks that its first open call waits for."""

    job: Job
    items: dict[int, list[Item]] = field(default_factory=dict)
    """Open calls by rank, in the order of the rank's program; those that others completed, too."""
    waits: dict[int, list[Event]] = field(default_factory=dict)
    """Where each rank waits first."""
    awaited: dict[Event, set[int]] = field(default_factory=dict)
    """Who has not come there, has something open before it, or has not started it."""
    idle: dict[Event, set[int]] = field(default_factory=dict)
    """Ranks whose devices have not started a call that others of the group are in."""
    pipelines: set[str] = field(default_factory=set)
    """Descriptions of groups in which ranks send to each other."""

    def stuck(self) -> list[Stall]:
        """Ranks whose device, or what watches it, is behind: others completed their calls."""
        found = []
        for rank in sorted(self.job.blind):
            lacks = self.job.stuck[rank]
            found.append(Stall(rank, min(lacks, key=lambda one: one.call.place), len(lacks)))
        return found

    def not_started(self) -> list[Stall]:
        """Ranks whose device never began the call that the rest of the group is in."""
        found = []
        for event, ranks in self.idle.items():
            others = tuple(rank for rank in event.group.members if rank not in ranks)
            if len(ranks) < len(others) and self.awaited[event] == ranks:
                for rank in sorted(ranks - self.job.blind):
                    call = self.job.dumps[rank].groups[event.group][event.number]
                    found.append(Stall(rank, Lack(event.group, call, others), 1))
        return found

    def stopped(self) -> list[Stall]:
        """Ranks that lack what others wait in, while peers that are no further off called more."""
        candidates = [
            rank for rank in self.job.lacks if rank not in self.job.stuck and self.items.get(rank)
        ]
        candidates.sort(key=lambda rank: (self.job.dumps[rank].newest, rank))
        found = [self._beside_peers(rank) for rank in candidates[:_CANDIDATES]]
        return sorted((one for one in found if one is not None), key=lambda one: one.rank)

    def _beside_peers(self, rank: int) -> Stall | None:
        issued = self.job.dumps[rank].issued
        own = {item.place: item for item in self.items[rank]}
        more: dict[int, int] = {}
        for peer in self._possible_peers(rank):
            # What a blind rank has open says nothing of its device.
            if self.job.dumps[peer].issued <= issued or peer in self.job.stuck:
                continue
            theirs = {item.place: item for item in self.items[peer]}
            alike = own.keys() <= theirs.keys() and all(
                _is_alike(item, theirs[place]) for place, item in own.items()
            )
            if alike and self._is_same_program(rank, peer):
                more[peer] = self.job.dumps[peer].issued - issued
        first = next((item for item in own.values() if item.call is not None), None)
        if not more or first is None or first.call is None:
            return None
        return Stall(rank, Lack(first.group, first.call, tuple(sorted(more))), min(more.values()))

    def _possible_peers(self, rank: int) -> list[int]:
        """Members of the groups that are not of all ranks, and that are no pipelines."""
        world = len(self.job.dumps) + len(self.job.missing)
        found = {
            peer
            for group in self.job.dumps[rank].told
            if group.desc not in self.pipelines and len(group.members) < world
            for peer in group.members
        }
        return sorted(peer for peer in found if peer != rank and peer in self.items)

    def _is_same_program(self, rank: int, peer: int) -> bool:
        """Return whether both ranks are in groups of the same kinds, at the same pipeline stage."""
        ours, theirs = self._groups_by_kind(rank), self._groups_by_kind(peer)
        if set(ours) != set(theirs):
            return False
        return all(
            ours[kind].members.index(rank) == theirs[kind].members.index(peer)
            for kind in self.pipelines & set(ours)
        )

    def _groups_by_kind(self, rank: int) -> dict[str, Group]:
        return {group.desc: group for group in self.job.dumps[rank].told if rank in group.members}

    def lead_to(self, ends: Iterable[int]) -> set[int]:
        """Ranks whose waits end at one of them."""
        behind: dict[int, list[Event]] = {}
        for event, ranks in self.awaited.items():
            for rank in ranks:
                behind.setdefault(rank, []).append(event)
        waiting: dict[Event, list[int]] = {}
        for rank, events in self.waits.items():
            for event in events:
                waiting.setdefault(event, []).append(rank)
        left, found, seen = [*ends], set[int](), set[Event]()
        while left:
            for event in behind.get(left.pop(), ()):
                if event not in seen:
                    seen.add(event)
                    left += [rank for rank in waiting.get(event, ()) if rank not in found]
                    found.update(waiting.get(event, ()))
        return found

    def is_explained_by(self, culprits: set[int]) -> bool:
        """Return whether the waits of all others lead to a culprit, or to a rank without a dump."""
        ends = culprits | self.absent()
        others = set(self.waits) - ends
        return len(others - self.lead_to(ends)) * _REST <= len(others)

    def absent(self) -> set[int]:
        """Ranks without a dump."""
        return set(self.job.absent) | set(self.job.missing)

    def roots(self) -> list[Event]:
        """Calls that stop all and that all their ranks came to: who is to blame is one of these."""
        found = [
            event
            for event in dict.fromkeys(event for some in self.waits.values() for event in some)
            if not self.awaited[event] and event.rank < 0
        ]
        ends = {rank for event in found for rank in event.group.members}
        return found if set(self.waits) <= ends | self.lead_to(ends) else []


def _is_alike(one: Item, other: Item) -> bool:
    """Return whether two ranks made the same call of the program, each in groups of its own."""
    if one.group.desc != other.group.desc or len(one.group.members) != len(other.group.members):
        return False
    if one.call is not None and other.call is not None:
        return one.call.what.name == other.call.what.name
    if one.transfer is not None and other.transfer is not None:
        return one.transfer.sends == other.transfer.sends
    return False


def progress_of(job: Job) -> Progress:
    """Return the progress of every rank; none where a dump lacks the order of its calls, as gloo's."""
    found = Progress(job)
    for rank, dump in job.dumps.items():
        found.pipelines.update(group.desc for group in dump.pipelines)
        found.items[rank] = _items(dump)
    if any(item.place < 0 for items in found.items.values() for item in items):
        return Progress(job)
    finder = _Finder(found)
    for rank, items in found.items.items():
        if rank in job.blind:
            continue
        events = [finder.add(rank, item) for item in _first_of(job, items)]
        if events:
            found.waits[rank] = events
    return found


def _first_of(job: Job, items: Sequence[Item]) -> list[Item]:
    """The first call that holds up what comes after it, and sends before it, which may wait, too."""
    left = [item for item in items if not _is_over(job, item)]
    first = next((at for at, item in enumerate(left) if item.holds), len(left))
    return left[: first + 1]


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


def _is_over(job: Job, item: Item) -> bool:
    return item.call is not None and (item.group, item.call.seq) in job.over


_Ends = dict[tuple[Group, int, bool], list[Item]]
"""One rank's open transfers by group, peer and direction, in the order of its program."""


class _Finder:
    """Who has not come to an event; each is looked at once, as all ranks may wait in one."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.job = progress, progress.job
        self.first = {
            rank: next((item.place for item in items if item.holds), -1)
            for rank, items in progress.items.items()
        }
        self.ends: dict[int, _Ends] = {}

    def add(self, rank: int, item: Item) -> Event:
        """Note the event, and who is awaited there."""
        if item.call is not None:
            event = Event(item.group, item.call.seq, -1)
        else:
            event = Event(item.group, item.place, rank)
        if event not in self.progress.awaited:
            if item.transfer is not None:
                awaited = self.awaited_in_transfer(rank, item, item.transfer)
            else:
                awaited = self.awaited_in_call(event)
            self.progress.awaited[event] = awaited
        return event

    def awaited_in_call(self, event: Event) -> set[int]:
        found, states = set[int](), dict[int, str]()
        for rank in event.group.members:
            dump = self.job.dumps.get(rank)
            call = dump.groups.get(event.group, {}).get(event.number) if dump else None
            if call is not None and not call.done:
                if self.is_held(rank, call.place):
                    found.add(rank)
                else:
                    states[rank] = call.state
            elif dump is None or self.is_lacking(rank, event):
                found.add(rank)
        if "started" in states.values():
            idle = {rank for rank, state in states.items() if state == "scheduled"}
            if idle:
                self.progress.idle[event] = idle
                found |= idle
        return found

    def is_lacking(self, rank: int, event: Event) -> bool:
        lacks = self.job.lacks.get(rank, ())
        return any(one.group == event.group and one.call.seq <= event.number for one in lacks)

    def is_held(self, rank: int, place: int) -> bool:
        """Return whether the rank has a call open from before that place of its program."""
        return 0 <= self.first[rank] < place

    def awaited_in_transfer(self, rank: int, item: Item, one: Transfer) -> set[int]:
        """The peer, where it has not called the other end, or has something open before that."""
        if one.peer < 0:  # a batch, whose peers the recorder leaves out
            return set(one.group.members) - {rank}
        if one.peer not in self.job.dumps or one.peer in self.job.blind:
            return {one.peer}
        own = self.ends_of(rank)[one.group, one.peer, one.sends]
        ends = self.ends_of(one.peer).get((one.group, rank, not one.sends), ())
        at = own.index(item)
        if at >= len(ends) or self.is_held(one.peer, ends[at].place):
            return {one.peer}
        return set()

    def ends_of(self, rank: int) -> Mapping[tuple[Group, int, bool], list[Item]]:
        if rank not in self.ends:
            ends = self.ends[rank] = {}
            for item in self.progress.items[rank]:
                if item.transfer is not None:
                    key = (item.group, item.transfer.peer, item.transfer.sends)
                    ends.setdefault(key, []).append(item)
        return self.ends[rank]
