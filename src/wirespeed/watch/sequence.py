"""The collectives of one step of a job, from its ranks' calls: what, in which order, how far apart.

Each rank's calls are searched for the block that repeats (`period.py`). The blocks of all ranks are then
put into one order that agrees with each rank's own; calls that are alike in groups side by side are one
entry. Clocks of ranks are not compared.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import DTYPES, Geometry, cut_of
from wirespeed.errors import InputError
from wirespeed.model.bench_records import MedianTime
from wirespeed.model.records import Choice
from wirespeed.plan import Case, InJob, ReplayCall
from wirespeed.statistics import median_interval
from wirespeed.watch.calls import Call
from wirespeed.watch.period import LEAST_REPEATS, Block, repeating_block

_FEW = "TORCH_FR_BUFFER_SIZE=20000 for a flight recorder, more steps for a profiler"
_NAMED = 4
_TINY = 1024
"""Bytes up to which a call may be one of a log, or a barrier around a checkpoint."""
_MOST_SAMPLES = 20_000


class What(NamedTuple):
    """What ranks must agree in."""

    op: str
    size_bytes: int
    dtype: str
    ranks: int


class Key(NamedTuple):
    """A process group."""

    ranks: tuple[int, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Found:
    """One step of a job."""

    world: int
    """Ranks of the job."""
    steps: int
    """Steps that showed it, at most of one rank."""
    step: MedianTime | None
    cases: tuple[Case, ...]
    calls: tuple[ReplayCall, ...]
    """`step` is an index into `cases`."""
    in_job: tuple[InJob, ...]
    """By case."""
    choices: tuple[Choice, ...]


@dataclass(slots=True)
class _Rank:
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


@dataclass(slots=True)
class _Entry:
    """Calls of one step that are alike, in groups side by side."""

    what: What
    groups: list[Key]
    places: list[tuple[int, int]] = field(default_factory=list)
    """(rank, which call of its block)."""


def find_sequence(calls: Mapping[int, Sequence[Call]], world: int = 0) -> Found:
    """One step's sequence out of the calls of each rank.

    world: ranks of the job; 0: the highest that is named. Raises InputError where no block repeats,
    ranks disagree, calls cannot be replayed, or ranks are missing whose part nothing tells.
    """
    world = world or 1 + max(
        (rank for of in calls.values() for one in of for rank in (*one.group, one.rank)), default=-1
    )
    members = _members_by_name(calls, world)
    prepared = {rank: _prepared(of, members) for rank, of in sorted(calls.items())}
    ranks = _blocks(prepared)
    _refuse_unknown(ranks)
    entries = _in_one_order(ranks)
    missing = frozenset(range(world)) - {one.rank for one in ranks}
    return _Builder(ranks, entries, world, missing).found()


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


def _key(call: Call) -> Key:
    return Key(call.group, call.group_name)


# Each rank's block.


def _blocks(calls: Mapping[int, list[Call]]) -> list[_Rank]:
    found: list[_Rank] = []
    for rank, every in calls.items():
        of, block = _without_rare(every, found[0].length if found else 0)
        if block is None:
            raise InputError(
                f"rank {rank}: {len(of)} collectives, in which no sequence repeats "
                f"{LEAST_REPEATS} times",
                expected=f"the calls of {LEAST_REPEATS} steps or more, each with the same collectives",
                next=f"record more of them: {_FEW}",
            )
        one = _Rank(rank, of, _gaps(of), block.starts, block.length)
        _turn(one, found)
        found.append(one)
    if not found:
        raise InputError("no collectives of any rank", expected="a trace or dump of a training job")
    return found


def _without_rare(calls: list[Call], hint: int) -> tuple[list[Call], Block | None]:
    """The calls and their block; tiny ones, as of logs, are left out where most steps have none."""
    signs = _signs(calls)
    large = [n for n, one in enumerate(calls) if one.size_bytes > _TINY]
    block = _block_of(calls, signs, large, hint)
    many = Counter(signs)
    usual = (
        [n for n, sign in enumerate(signs) if 2 * many[sign] > len(block.starts)] if block else []
    )
    kept = sorted({*large, *usual}) if block else range(len(calls))
    return [calls[n] for n in kept], _block_of(calls, signs, kept, hint)


def _block_of(
    calls: Sequence[Call], signs: Sequence[int], kept: Sequence[int], hint: int
) -> Block | None:
    gaps = _gaps([calls[n] for n in kept])
    return repeating_block([signs[n] for n in kept], gaps, hint)


def _signs(calls: Sequence[Call]) -> list[int]:
    numbers: dict[object, int] = {}
    return [
        numbers.setdefault((_key(one), one.op, _size(one), one.dtype), len(numbers))
        for one in calls
    ]


def _size(call: Call) -> int:
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


def _turn(one: _Rank, others: Sequence[_Rank]) -> None:
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


def _turn_by(one: _Rank, at: int) -> None:
    if at:
        pairs = pairwise(one.starts)
        turned = tuple(start + at for start, end in pairs if end == start + one.length)
        one.starts = turned or one.starts


def _label(call: Call) -> tuple[object, ...]:
    return call.op, _size(call), call.dtype, len(call.group)


def _phases(rank: _Rank) -> dict[Key, tuple[int, int]]:
    """By group the number of its first call in a step, and how many calls a step has."""
    first: dict[Key, int] = {}
    many: Counter[Key] = Counter()
    for call in rank.block:
        if call.seq >= 0:
            first.setdefault(_key(call), call.seq)
            many[_key(call)] += 1
    return {key: (seq, many[key]) for key, seq in first.items()}


def _agrees(block: Sequence[Call], wanted: Mapping[Key, tuple[int, int]]) -> bool:
    seen: set[Key] = set()
    for call in block:
        key = _key(call)
        if key in wanted and key not in seen and call.seq >= 0:
            seq, many = wanted[key]
            if (call.seq - seq) % many:
                return False
        seen.add(key)
    return True


def _median_gaps(one: _Rank) -> list[float]:
    found = []
    for at in range(one.length):
        known = [one.gaps[s + at] for s in one.starts if not math.isnan(one.gaps[s + at])]
        found.append(median(known) if known else math.nan)
    return found


# One order of all ranks' blocks.


def _refuse_unknown(ranks: Sequence[_Rank]) -> None:
    unknown = Counter(call.op for rank in ranks for call in rank.block if not _can_replay(call.op))
    if unknown:
        named = ", ".join(sorted(unknown)[:_NAMED])
        raise InputError(
            f"a step of the job has calls that cannot be replayed: {named}",
            expected="collectives of all members of a group: "
            + ", ".join(name for name in CATALOGUE if _can_replay(name)),
        )


def _refuse_without_size(entry: _Entry, sizes: Sequence[int]) -> None:
    if not any(sizes):
        raise InputError(
            f"the record does not tell the sizes of the job's {entry.what.op}",
            expected="the size of every call",
            next="record_shapes=True for torch.profiler, or a dump of the flight recorder",
        )


def _can_replay(op: str) -> bool:
    return op in CATALOGUE and not CATALOGUE[op].point_to_point


def _what(call: Call, key: Key) -> What:
    return What(call.op, _size(call), call.dtype, len(key.ranks))


_Node = tuple[Key, int]
"""A call of a step: its group, and the how many-th of that group it is."""


def _in_one_order(ranks: Sequence[_Rank]) -> list[_Entry]:
    orders = {one.rank: _nodes(one) for one in ranks}
    _refuse_differences(ranks, orders)
    present = set(orders)
    waiting: Counter[_Node] = Counter()
    ready: dict[What, list[_Node]] = defaultdict(list)
    at = dict.fromkeys(orders, 0)
    blocks = {one.rank: one.block for one in ranks}

    def arrive(rank: int) -> None:
        if at[rank] < len(orders[rank]):
            node = orders[rank][at[rank]]
            waiting[node] += 1
            if waiting[node] == len(present.intersection(node[0].ranks)):
                ready[_what(blocks[rank][at[rank]], node[0])].append(node)

    for rank in orders:
        arrive(rank)
    entries = []
    while ready:
        what = max(ready, key=lambda one: (len(ready[one]), -min(ready[one])[0].ranks[0]))
        entry = _Entry(what, [key for key, _ in sorted(ready.pop(what))])
        entries.append(entry)
        for rank in sorted(present.intersection(*[_members(entry)])):
            entry.places.append((rank, at[rank]))
            at[rank] += 1
            arrive(rank)
    stuck = [rank for rank in orders if at[rank] < len(orders[rank])]
    if stuck:
        raise _disagree(stuck[:2], {rank: blocks[rank][at[rank]] for rank in stuck[:2]})
    return entries


def _members(entry: _Entry) -> set[int]:
    return {rank for key in entry.groups for rank in key.ranks}


def _nodes(one: _Rank) -> list[_Node]:
    seen: Counter[Key] = Counter()
    nodes = []
    for call in one.block:
        key = _key(call)
        nodes.append((key, seen[key]))
        seen[key] += 1
    return nodes


def _refuse_differences(ranks: Sequence[_Rank], orders: Mapping[int, list[_Node]]) -> None:
    """InputError where members of a group differ in how many calls a step has, or in what they are."""
    first: dict[_Node, tuple[int, Call]] = {}
    for one in ranks:
        for call, node in zip(one.block, orders[one.rank], strict=True):
            other, known = first.setdefault(node, (one.rank, call))
            if _what(known, node[0]) != _what(call, node[0]) and not CATALOGUE[call.op].rooted:
                raise _disagree([other, one.rank], {other: known, one.rank: call})
    many = {one.rank: Counter(key for key, _ in orders[one.rank]) for one in ranks}
    for key in {key for of in many.values() for key in of}:
        counts = {rank: many[rank][key] for rank in key.ranks if rank in many}
        if len(set(counts.values())) > 1:
            low, high = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
            raise InputError(
                f"a step of rank {low} has {counts[low]} collectives of group {key.name!r}, and one of "
                f"rank {high} {counts[high]}",
                expected="the same of all members of a group; with fewer steps than the others a "
                "rank's block may be cut short",
                next=f"record more of them: {_FEW}",
            )


def _disagree(ranks: Sequence[int], calls: Mapping[int, Call]) -> InputError:
    said = "; ".join(
        f"rank {rank}: {calls[rank].op} of {calls[rank].size_bytes} bytes of {calls[rank].dtype} in "
        f"group {calls[rank].group_name!r}"
        for rank in ranks
    )
    return InputError(
        f"the ranks' records do not agree on the order of collectives: {said}",
        expected="within a group the same collectives in the same order on every member",
        next="wirespeed diagnose with the same files, where the job has hung",
    )


# What it was in the job, as a plan.


@dataclass(slots=True)
class _Builder:
    ranks: Sequence[_Rank]
    entries: Sequence[_Entry]
    world: int
    missing: Collection[int]

    def found(self) -> Found:
        of = {one.rank: one for one in self.ranks}
        cases = [self._case(entry, of) for entry in self.entries]
        kinds = list(dict.fromkeys(cases))
        by_kind: dict[Case, list[_Entry]] = defaultdict(list)
        for case, entry in zip(cases, self.entries, strict=True):
            by_kind[case].append(entry)
        ended = all(call.end_s is not None for one in self.ranks for call in one.block)
        return Found(
            world=self.world,
            steps=max(len(one.starts) for one in self.ranks),
            step=_median([time for one in self.ranks for time in _step_times(one)]),
            cases=tuple(kinds),
            calls=tuple(
                _call(kinds.index(case), entry, of)
                for case, entry in zip(cases, self.entries, strict=True)
            ),
            in_job=tuple(_in_job(by_kind[case], of) for case in kinds),
            choices=tuple(self._choices(kinds, ended=ended)),
        )

    def _case(self, entry: _Entry, of: Mapping[int, _Rank]) -> Case:
        collective = CATALOGUE[entry.what.op]
        groups = cut_of(sorted(key.ranks for key in entry.groups), self.world, self.missing)
        self._refuse_uncovered(groups, entry)
        ranks = max(len(key.ranks) for key in entry.groups)
        if not collective.has_data:
            return Case(op=collective.name, groups=groups)
        calls = [of[rank].block[at] for rank, at in entry.places]
        sizes = [call.size_bytes for call in calls]
        _refuse_without_size(entry, sizes)
        given = max(sizes) if collective.rooted else round(fmean(sizes))
        one = Geometry(0, ranks, 1, 0)
        dtype = _replayed_dtype(entry.what.dtype)
        size = given * collective.size_factor(ranks) // max(1, collective.input_count(one))
        itemsize = DTYPES[dtype].itemsize
        count = collective.count_for(size, itemsize, ranks)
        return Case(
            op=collective.name,
            dtype=dtype,
            redop="sum" if collective.reduces else "none",
            root=0 if collective.rooted else -1,
            size_bytes=collective.size_bytes(count, itemsize, ranks),
            groups=groups,
        )

    def _refuse_uncovered(self, groups: str, entry: _Entry) -> None:
        if groups.startswith("ranks-") and (lost := set(self.missing) - _members(entry)):
            named = ", ".join(map(str, sorted(lost)[:_NAMED])) + (
                ", …" if len(lost) > _NAMED else ""
            )
            raise InputError(
                f"nothing tells which collectives ranks {named} issued",
                expected=f"a trace or dump of each of the {self.world} ranks, or groups so regular that "
                "their peers tell",
            )

    def _choices(self, kinds: Sequence[Case], *, ended: bool) -> Iterable[Choice]:
        first = max(self.ranks, key=lambda one: len(one.starts))
        many = len(self.entries)
        yield Choice(
            "sequence",
            f"{many} collectives a step" if many > 1 else "1 collective a step",
            f"they repeat in {len(first.starts)} steps of rank {first.rank}; what else it called "
            "(warm-up, evaluation) is left out",
        )
        if self.missing:
            yield Choice(
                "ranks without a record",
                f"{len(self.missing)} of {self.world}",
                "they are taken to do as the others of their groups, and groups beside them alike",
            )
        if not ended:
            yield Choice(
                "overlap",
                "each call is issued when the job did, and waited for at the end",
                "the record does not tell when calls were over",
            )
        if any(case.redop == "sum" for case in kinds):
            yield Choice("reduction", "sum", "records do not tell it")
        if any(case.root == 0 for case in kinds):
            yield Choice("root", "the first of each group", "records do not tell it")


def _replayed_dtype(name: str) -> str:
    """Of a type that the catalogue lacks, such as bool, bytes are sent."""
    return name if name in DTYPES else "uint8"


def _call(step: int, entry: _Entry, of: Mapping[int, _Rank]) -> ReplayCall:
    """The gap before it, and whether it was over before its ranks issued another."""
    gaps, slack = [], []
    for rank, at in entry.places:
        one = of[rank]
        gaps += _own(one, at)
        slack += _slack(one, at)
    waited = bool(slack) and median(slack) >= 0
    return ReplayCall(step=step, gap_s=max(0.0, median(gaps)) if gaps else 0.0, waited=waited)


def _own(one: _Rank, at: int) -> list[float]:
    """In each step the rank's own work before call `at` of it."""
    found = []
    for start in one.starts:
        place = start + at
        if math.isnan(one.gaps[place]):
            continue
        before = one.calls[place - 1]
        over = before.end_s if before.end_s is not None else before.begin_s
        own = one.calls[place].begin_s - over
        found.append(own if own >= 0 else one.gaps[place])
    return found


def _slack(one: _Rank, at: int) -> list[float]:
    """In each step the time from the end of call `at` to the next call; negative: they overlapped."""
    found = []
    for start in one.starts:
        end = one.calls[start + at].end_s
        if end is not None and start + at + 1 < len(one.calls):
            found.append(one.calls[start + at + 1].begin_s - end)
    return found


def _step_times(one: _Rank) -> list[float]:
    """From a step's first call to the next one's, where no calls are missing between them."""
    times = [
        sum(one.gaps[start + 1 : following + 1])
        for start, following in pairwise(one.starts)
        if following == start + one.length
    ]
    return [time for time in times if not math.isnan(time)]


def _in_job(entries: Sequence[_Entry], of: Mapping[int, _Rank]) -> InJob:
    seen: dict[tuple[Key, int], list[float]] = defaultdict(list)
    for entry in entries:
        group_of = {rank: key for key in entry.groups for rank in key.ranks}
        for rank, at in entry.places:
            one = of[rank]
            for back, start in enumerate(reversed(one.starts)):
                call = one.calls[start + at]
                if call.end_s is not None:
                    number = call.seq if call.seq >= 0 else -1 - back
                    seen[group_of[rank], number].append(max(0.0, call.end_s - call.begin_s))
    times = [time for one in seen.values() for time in one]
    least = [min(one) for one in seen.values() if len(one) > 1]
    last = median(least) if least else None
    return InJob(calls=len(entries), time=_median(times), last_s=last)


def _median(samples: Sequence[float]) -> MedianTime | None:
    """Of at most so many, evenly taken; None of none."""
    if not samples:
        return None
    some = sorted(samples)[:: -(-len(samples) // _MOST_SAMPLES)]
    ends = median_interval(some)
    return MedianTime(median=median(some), low=ends.low, high=ends.high, samples=len(samples))
