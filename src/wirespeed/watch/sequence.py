"""The collectives of one step of a job, from its ranks' calls: what, in which order, how far apart.

Each rank's calls are searched for the block that repeats (`period.py`, `blocks.py`). The blocks of all
ranks are then put into one order (`order.py`); alike calls in groups side by side are one entry.
Clocks of ranks are not compared.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import DTYPES, Geometry, cut_of
from wirespeed.errors import InputError
from wirespeed.model.bench_records import MedianTime
from wirespeed.model.records import Choice
from wirespeed.plan import Case, InJob, ReplayCall
from wirespeed.statistics import median_interval
from wirespeed.watch.blocks import Group, RankSteps, blocks_of
from wirespeed.watch.calls import Call
from wirespeed.watch.order import Entry, in_one_order, refuse_unknown

_NAMED = 4
_MOST_CALLS = 20_000
_MOST_SAMPLES = 20_000


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


def find_sequence(
    calls: Mapping[int, Sequence[Call]], world: int = 0, step: MedianTime | None = None
) -> Found:
    """One step's sequence out of the calls of each rank.

    world: ranks of the job; 0: the highest that is named. step: time of a step, for calls of steps
    that do not follow each other. Raises InputError where no block repeats,
    ranks disagree, calls cannot be replayed, or ranks are missing whose part nothing tells.
    """
    told = {id(one.group): one.group for of in calls.values() for one in of if one.group}
    world = world or 1 + max((*calls, *map(max, told.values())), default=-1)
    ranks = blocks_of(calls, world)
    refuse_unknown(ranks)
    entries = in_one_order(ranks)
    if len(entries) > _MOST_CALLS:
        raise InputError(
            f"a step of the job has {len(entries):,} collectives",
            expected=f"up to {_MOST_CALLS:,}, which a launcher can hand to the ranks",
        )
    missing = frozenset(range(world)) - {one.rank for one in ranks}
    return _Builder(ranks, entries, world, missing, step).found()


def _refuse_without_size(entry: Entry, sizes: Sequence[int]) -> None:
    if not any(sizes):
        raise InputError(
            f"the record does not tell the sizes of the job's {entry.what.op}",
            expected="the size of every call",
            next="record_shapes=True for torch.profiler, or a dump of the flight recorder",
        )


@dataclass(slots=True)
class _Builder:
    ranks: Sequence[RankSteps]
    entries: Sequence[Entry]
    world: int
    missing: Collection[int]
    told: MedianTime | None

    def found(self) -> Found:
        of = {one.rank: one for one in self.ranks}
        cases = [self._case(entry, of) for entry in self.entries]
        kinds = list(dict.fromkeys(cases))
        by_kind: dict[Case, list[Entry]] = defaultdict(list)
        for case, entry in zip(cases, self.entries, strict=True):
            by_kind[case].append(entry)
        step = _median([time for one in self.ranks for time in _step_times(one)])
        calls = [
            _call(kinds.index(case), entry, of)
            for case, entry in zip(cases, self.entries, strict=True)
        ]
        if step is None and self.told is not None:
            step = self.told
            rest = step.median - sum(call.gap_s for call in calls)
            calls[0] = replace(calls[0], gap_s=round(max(calls[0].gap_s, rest), 7))
        ended = all(call.end_s is not None for one in self.ranks for call in one.block)
        return Found(
            world=self.world,
            steps=max(len(one.starts) for one in self.ranks),
            step=step,
            cases=tuple(kinds),
            calls=tuple(calls),
            in_job=tuple(_in_job(by_kind[case], of) for case in kinds),
            choices=tuple(self._choices(kinds, ended=ended)),
        )

    def _case(self, entry: Entry, of: Mapping[int, RankSteps]) -> Case:
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

    def _refuse_uncovered(self, groups: str, entry: Entry) -> None:
        if groups.startswith("ranks-") and (lost := set(self.missing) - entry.members):
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
        if all(math.isnan(gap) for one in self.ranks for gap in one.gaps):
            yield Choice("gaps", "none", "the record does not tell when calls were issued")
        elif not ended:
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


def _call(step: int, entry: Entry, of: Mapping[int, RankSteps]) -> ReplayCall:
    """The gap before it, and whether it was over before its ranks issued another."""
    gaps, slack = [], []
    for rank, at in entry.places:
        one = of[rank]
        gaps += _own(one, at)
        slack += _slack(one, at)
    waited = bool(slack) and median(slack) >= 0
    return ReplayCall(
        step=step, gap_s=round(max(0.0, median(gaps)), 7) if gaps else 0.0, waited=waited
    )


def _own(one: RankSteps, at: int) -> list[float]:
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


def _slack(one: RankSteps, at: int) -> list[float]:
    """In each step the time from the end of call `at` to the next call; negative: they overlapped."""
    found = []
    for start in one.starts:
        end = one.calls[start + at].end_s
        if end is not None and start + at + 1 < len(one.calls):
            found.append(one.calls[start + at + 1].begin_s - end)
    return found


def _step_times(one: RankSteps) -> list[float]:
    """From a step's first call to the next one's, where no calls are missing between them."""
    times = [
        sum(one.gaps[start + 1 : following + 1])
        for start, following in pairwise(one.starts)
        if following == start + one.length
    ]
    return [time for time in times if not math.isnan(time)]


def _in_job(entries: Sequence[Entry], of: Mapping[int, RankSteps]) -> InJob:
    seen: dict[tuple[Group, int], list[float]] = defaultdict(list)
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
