"""Each rank's steps: the block that repeats in its calls, begun at the same call on every rank."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from wirespeed.errors import InputError
from wirespeed.watch.calls import Call
from wirespeed.watch.period import LEAST_REPEATS, repeating_block

RECORD_MORE = "a larger TORCH_FR_BUFFER_SIZE for the flight recorder, more steps for a profiler"
_TINY = 1024
"""Bytes up to which a call may be one of a log, or a barrier around a checkpoint."""


class GroupKey(NamedTuple):
    """A process group."""

    ranks: tuple[int, ...]
    name: str


@dataclass(slots=True)
class RankSteps:
    """What one rank did in each of its steps."""

    rank: int
    calls: list[Call]
    """All of them, by time."""
    gaps: list[float]
    """By call, as `_gaps` gives them."""
    starts: tuple[int, ...]
    length: int

    def step(self, start: int) -> list[Call]:
        return self.calls[start : start + self.length]

    @property
    def block(self) -> list[Call]:
        """The newest step."""
        return self.step(self.starts[-1])


def blocks_of(calls: Mapping[int, Sequence[Call]], world: int) -> list[RankSteps]:
    """By rank, in a world of so many. InputError where nothing repeats or a call's group is not told."""
    members = _members_by_name(calls, world)
    return _found({rank: _prepared(of, members) for rank, of in sorted(calls.items())})


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


def _prepared(calls: Iterable[Call], members: Mapping[str, tuple[int, ...]]) -> list[Call]:
    """By time, with the members of each group, and without groups of one rank, which send nothing."""
    known = [one if one.group else replace(one, group=members[one.group_name]) for one in calls]
    return sorted((one for one in known if len(one.group) > 1), key=lambda one: one.begin_s)


def key_of(call: Call) -> GroupKey:
    return GroupKey(call.group, call.group_name)


def _found(calls: Mapping[int, list[Call]]) -> list[RankSteps]:
    found: list[RankSteps] = []
    for rank, every in calls.items():
        one = _without_rare(rank, every, found[0].length if found else 0)
        if not one.starts:
            raise InputError(
                f"rank {rank}: {len(every)} collectives, in which no sequence repeats "
                f"{LEAST_REPEATS} times",
                expected=f"the calls of {LEAST_REPEATS} steps or more, each with the same collectives",
                next=RECORD_MORE,
            )
        _turn(one, found)
        found.append(one)
    if not found:
        raise InputError("no collectives of any rank", expected="a trace or dump of a training job")
    return found


def _without_rare(rank: int, calls: list[Call], hint: int) -> RankSteps:
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


def _signs(calls: Sequence[Call]) -> list[int]:
    numbers: dict[object, int] = {}
    return [
        numbers.setdefault((key_of(one), one.op, size_of(one), one.dtype), len(numbers))
        for one in calls
    ]


def size_of(call: Call) -> int:
    """What must repeat; of uneven exchanges the sizes of each step are its own."""
    return 0 if call.op in ("all_to_all", "all_to_all_v") else call.size_bytes


def _gaps(calls: Sequence[Call]) -> list[float]:
    """Seconds since the call before was issued; NaN where calls between them are missing."""
    gaps, last = [math.nan] if calls else [], {}
    for before, one in pairwise(calls):
        last[before.group, before.group_name] = before.seq
        seen = last.get((one.group, one.group_name), -1)
        whole = one.seq < 0 or seen < 0 or one.seq == seen + 1 or one.op in ("send", "recv")
        gaps.append(one.begin_s - before.begin_s if whole else math.nan)
    return gaps


def _turn(one: RankSteps, others: Sequence[RankSteps]) -> None:
    """Let its step begin where the steps of the others do; of the first rank after the longest gap."""
    turns = range(one.length)
    if not others:
        gaps = _median_gaps(one)
        _turn_by(one, max(turns, key=lambda at: (math.isnan(gaps[at]), gaps[at])))
        return
    like = [(_label(call)) for call in others[0].block]
    block = one.block
    labels = [_label(call) for call in block]
    alike = [at for at in turns if labels[at:] + labels[:at] == like]
    wanted = {key: seq for other in others for key, seq in _phases(other).items()}
    for at in (*alike, *turns):
        rest = block[at:] + block[:at]
        if _agrees(rest, wanted):
            _turn_by(one, at)
            return
    if alike:
        _turn_by(one, alike[0])


def _turn_by(one: RankSteps, at: int) -> None:
    if at:
        pairs = pairwise(one.starts)
        turned = tuple(start + at for start, end in pairs if end == start + one.length)
        one.starts = turned or one.starts


def _label(call: Call) -> tuple[object, ...]:
    return call.op, size_of(call), call.dtype, len(call.group)


def _phases(rank: RankSteps) -> dict[GroupKey, tuple[int, int]]:
    """By group the number of its first call in a step, and how many calls a step has."""
    first: dict[GroupKey, int] = {}
    many: Counter[GroupKey] = Counter()
    for call in rank.block:
        if call.seq >= 0:
            first.setdefault(key_of(call), call.seq)
            many[key_of(call)] += 1
    return {key: (seq, many[key]) for key, seq in first.items()}


def _agrees(block: Sequence[Call], wanted: Mapping[GroupKey, tuple[int, int]]) -> bool:
    seen: set[GroupKey] = set()
    for call in block:
        key = key_of(call)
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
