"""Each rank's steps: the block that repeats in its calls, begun at the same call on every rank."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from wirespeed.errors import InputError
from wirespeed.watch.calls import Call
from wirespeed.watch.period import LEAST_REPEATS, repeating_block

RECORD_MORE = "a larger TORCH_FR_BUFFER_SIZE for the flight recorder, more steps for a profiler"
_TINY = 1024
"""Bytes up to which a call may be one of a log, or a barrier around a checkpoint."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A process group; there is one object of each, since thousands of ranks are slow to compare."""

    ranks: tuple[int, ...]
    name: str


class Issued(NamedTuple):
    """A call, with its group; what else it says is as in `Call`."""

    group: Group
    op: str
    seq: int
    size_bytes: int
    dtype: str
    begin_s: float
    end_s: float | None


@dataclass(slots=True)
class RankSteps:
    """What one rank did in each of its steps."""

    rank: int
    calls: list[Issued]
    """All of them, by time."""
    gaps: list[float]
    """By call, as `_gaps` gives them."""
    starts: tuple[int, ...]
    length: int

    def step(self, start: int) -> list[Issued]:
        return self.calls[start : start + self.length]

    @property
    def block(self) -> list[Issued]:
        """The newest step."""
        return self.step(self.starts[-1])


def blocks_of(calls: Mapping[int, Sequence[Call]], world: int) -> list[RankSteps]:
    """By rank, in a world of so many. InputError where nothing repeats or a call's group is not told."""
    groups = _Groups(_members_by_name(calls, world))
    return _found({rank: groups.issued(of) for rank, of in sorted(calls.items())})


def _members_by_name(calls: Mapping[int, Sequence[Call]], world: int) -> dict[str, tuple[int, ...]]:
    """Of groups whose members are not told: the world, or of several the ranks that call in each."""
    found: dict[str, set[int]] = defaultdict(set)
    for rank, of in calls.items():
        for one in of:
            if not one.group and not one.group_name:
                raise InputError(
                    f"the record of rank {rank} does not tell the process group of its {one.op}",
                    expected="the group of every call",
                    next="a dump of torch's flight recorder (TORCH_FR_BUFFER_SIZE=20000) tells it",
                )
            if not one.group:
                found[one.group_name].add(rank)
    if len(found) == 1:
        return dict.fromkeys(found, tuple(range(world)))
    return {name: tuple(sorted(ranks)) for name, ranks in found.items()}


class _Groups:
    def __init__(self, members: Mapping[str, tuple[int, ...]]) -> None:
        self._members = members
        self._known: dict[tuple[tuple[int, ...], str], Group] = {}
        self._by_object: dict[tuple[int, str], Group] = {}
        """By the identity of the tuple in a call, of which a trace has one for each group."""

    def issued(self, calls: Sequence[Call]) -> list[Issued]:
        """By time, without groups of one rank, which send nothing."""
        found = [
            Issued(group, c.op, c.seq, c.size_bytes, c.dtype, c.begin_s, c.end_s)
            for c in sorted(calls, key=lambda one: one.begin_s)
            if len((group := self._of(c)).ranks) > 1
        ]
        self._by_object.clear()
        return found

    def _of(self, call: Call) -> Group:
        key = id(call.group), call.group_name
        if (found := self._by_object.get(key)) is None:
            ranks = call.group or self._members[call.group_name]
            group = Group(ranks, call.group_name)
            found = self._by_object[key] = self._known.setdefault((ranks, group.name), group)
        return found


def _found(calls: Mapping[int, list[Issued]]) -> list[RankSteps]:
    found: list[RankSteps] = []
    phases: dict[Group, tuple[int, int]] = {}
    for rank, every in calls.items():
        one = _without_rare(rank, every, found[0].length if found else 0)
        if not one.starts:
            raise InputError(
                f"rank {rank}: {len(every)} collectives, in which no sequence repeats "
                f"{LEAST_REPEATS} times",
                expected=f"the calls of {LEAST_REPEATS} steps or more, each with the same collectives",
                next=RECORD_MORE,
            )
        _turn(one, found[0] if found else None, phases)
        phases |= _phases(one)
        found.append(one)
    if not found:
        raise InputError("no collectives of any rank", expected="a trace or dump of a training job")
    return found


def _without_rare(rank: int, calls: list[Issued], hint: int) -> RankSteps:
    """Its steps; tiny calls, as of logs, are left out where most steps have none."""
    signs, gaps = _signs(calls), _gaps(calls)

    def steps(kept: Sequence[int]) -> RankSteps:
        between = _between(gaps, kept)
        block = repeating_block([signs[n] for n in kept], between, hint)
        of = [calls[n] for n in kept]
        return RankSteps(rank, of, between, *((block.starts, block.length) if block else ((), 0)))

    large = [n for n, one in enumerate(calls) if one.size_bytes > _TINY]
    found = steps(large)
    if not found.starts:
        return steps(range(len(calls)))
    many = Counter(signs)
    usual = [n for n, sign in enumerate(signs) if 2 * many[sign] > len(found.starts)]
    return steps(sorted({*large, *usual}))


def _between(gaps: Sequence[float], kept: Sequence[int]) -> list[float]:
    """Seconds from each call that is kept to the next one that is."""
    return [sum(gaps[a + 1 : b + 1]) for a, b in pairwise([-1, *kept])]


def _signs(calls: Sequence[Issued]) -> list[int]:
    numbers: dict[object, int] = {}
    return [
        numbers.setdefault((one.group, one.op, size_of(one), one.dtype), len(numbers))
        for one in calls
    ]


def size_of(call: Issued) -> int:
    """What must repeat; of uneven exchanges the sizes of each step are its own."""
    return 0 if call.op in ("all_to_all", "all_to_all_v") else call.size_bytes


def _gaps(calls: Sequence[Issued]) -> list[float]:
    """Seconds since the call before was issued; NaN where calls between them are missing, or no times
    are told, as in an execution trace."""
    if len({one.begin_s for one in calls}) == 1:
        return [math.nan] * len(calls)
    gaps, last = [math.nan] if calls else [], {}
    for before, one in pairwise(calls):
        last[before.group] = before.seq
        seen = last.get(one.group, -1)
        whole = one.seq < 0 or seen < 0 or one.seq == seen + 1 or one.op in ("send", "recv")
        gaps.append(one.begin_s - before.begin_s if whole else math.nan)
    return gaps


def _turn(one: RankSteps, first: RankSteps | None, phases: Mapping[Group, tuple[int, int]]) -> None:
    """Let its step begin where the steps of the others do; of the first rank after the longest gap."""
    turns = range(one.length)
    if first is None:
        gaps = _median_gaps(one)
        _turn_by(one, max(turns, key=lambda at: (math.isnan(gaps[at]), gaps[at])))
        return
    like = [_label(call) for call in first.block]
    block = one.block
    labels = [_label(call) for call in block]
    alike = [at for at in turns if labels[at:] + labels[:at] == like]
    for at in (*alike, *turns):
        if _agrees(block[at:] + block[:at], phases):
            _turn_by(one, at)
            return
    if alike:
        _turn_by(one, alike[0])


def _turn_by(one: RankSteps, at: int) -> None:
    if at:
        pairs = pairwise(one.starts)
        turned = tuple(start + at for start, end in pairs if end == start + one.length)
        one.starts = turned or one.starts


def _label(call: Issued) -> tuple[object, ...]:
    return call.op, size_of(call), call.dtype, len(call.group.ranks)


def _phases(rank: RankSteps) -> dict[Group, tuple[int, int]]:
    """By group the number of its first call in a step, and how many calls a step has."""
    first: dict[Group, int] = {}
    many: Counter[Group] = Counter()
    for call in rank.block:
        if call.seq >= 0:
            first.setdefault(call.group, call.seq)
            many[call.group] += 1
    return {key: (seq, many[key]) for key, seq in first.items()}


def _agrees(block: Sequence[Issued], wanted: Mapping[Group, tuple[int, int]]) -> bool:
    seen: set[Group] = set()
    for call in block:
        key = call.group
        if key in wanted and key not in seen and call.seq >= 0:
            seq, many = wanted[key]
            if (call.seq - seq) % many:
                return False
        seen.add(key)
    return True


def _median_gaps(one: RankSteps) -> list[float]:
    found = []
    for at in range(one.length):
        known = [one.gaps[s + at] for s in one.starts if not math.isnan(one.gaps[s + at])]
        found.append(median(known) if known else math.nan)
    return found
