"""Why own work is long: what a step would take without data loading, garbage collection, checkpoints
or uneven batches; and what grew where a rank is late for none of these."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

import numpy as np

from wirespeed.watch.late import Late
from wirespeed.watch.own_work import (
    Floats,
    Matrix,
    OwnWork,
    highest,
    lower_median,
    median_over,
    others,
    sample,
)
from wirespeed.watch.steps import RankUse

APART = ("data", "gc", "checkpoint")
"""Columns that are judged by themselves, in this order."""
PHASES = ("forward", "backward", "optimizer")
_OF_ONE = 0.8
"""Share of a cause's cost that one rank, or the ranks of one host, bear for it to be theirs."""
_LEAST_VARIATION = 0.02
"""Of batches: below it they are even."""
_LEAST_CORRELATION = 0.5
_MOST_POWER = 2.0
"""Time grows with the square of the elements at most (attention)."""
_SAMPLE = 50_000
_HALF = 0.5
_COMPUTES = 0.3
"""Share of a delay that is CPU time: where cores are few, who computes more also waits more for one."""
_TWICE = 2.0
_LEAST_LOOKS, _STARVED = 3, 0.3
_CONTENDED = 0.1
"""Share of a step that ranks wait for a core."""


@dataclass(frozen=True, slots=True)
class Part:
    """Of own work, what has a cause by itself."""

    name: str
    """A column's."""
    times: Matrix


@dataclass(frozen=True, slots=True)
class Cause:
    name: str
    extra: Floats
    """By row, seconds that a step takes more for it, if nothing else were wrong."""
    ranks: tuple[int, ...]
    """Rows of OwnWork that bear it; empty: the whole job does."""


def parts_of(seen: OwnWork) -> tuple[Matrix, list[Part]]:
    """Own work without what has a cause by itself, and that."""
    work, parts = seen.own, []
    for name in APART:
        column = seen.column(name)
        if np.nanmax(column, initial=0) > 0:
            parts.append(Part(name, np.fmax(column, 0)))
            work = np.maximum(work - parts[-1].times, 0)
    uneven = _uneven(seen, work)
    if uneven is not None:
        parts.append(uneven)
        work = np.maximum(work - uneven.times, 0)
    return work, parts


def causes_of(part: Part, well: Matrix, seen: OwnWork) -> list[Cause]:
    """What all ranks have of it is the job's; what some have beyond that is theirs, if they are known.

    well: work of ranks with which nothing is wrong.
    """
    common = np.nan_to_num(lower_median(sample(part.times)))
    own = np.maximum(part.times - common.astype(np.float32), 0)
    alone = (highest(well + own) - highest(well)).astype(np.float64)
    bearers = _bearers(well + own, own, alone, seen) if alone.any() else ()
    if not bearers:
        return [Cause(part.name, common + alone, ())]
    return [Cause(part.name, common, ()), Cause(part.name, alone, bearers)]


def _uneven(seen: OwnWork, work: Matrix) -> Part | None:
    """What larger batches than the others' take, where time goes with the elements."""
    load = seen.column("load")
    apart = highest(load) - np.fmin.reduce(load, axis=0)
    if len(load) < 2 or not np.nanmax(apart, initial=0) > _LEAST_VARIATION * highest(load).max():
        return None
    rest = others(load)
    share = (load / np.where(rest > 0, rest, np.nan) - 1).astype(np.float32)
    slope = _slope(share, work)
    if slope is None:
        return None
    return Part("load", np.fmax(share * np.float32(slope), 0))


def _slope(share: Matrix, work: Matrix) -> float | None:
    """Seconds for a batch that is larger than the others' by its whole size."""
    excess = work - others(work)
    known = ~(np.isnan(share) | np.isnan(excess) | np.isinf(share))
    x, y = share[known], excess[known]
    pick = slice(None, None, max(1, len(x) // _SAMPLE))
    x, y = np.clip(x[pick], -1, 3).astype(np.float64), y[pick].astype(np.float64)
    if len(x) < 20 or np.std(x) < _LEAST_VARIATION:
        return None
    y = np.clip(y, *np.percentile(y, (1, 99)))
    correlation = float(np.corrcoef(x, y)[0, 1]) if np.std(y) > 0 else 0.0
    slope = correlation * float(np.std(y) / np.std(x))
    typical = float(np.nanmedian(work))
    if correlation < _LEAST_CORRELATION or slope > _MOST_POWER * typical:
        return None
    return slope


def _bearers(work: Matrix, part: Matrix, extra: Floats, seen: OwnWork) -> tuple[int, ...]:
    """The rank, or the ranks of one host, without whose part nearly all of the cost is gone."""
    last = np.argmax(np.nan_to_num(work), axis=0)
    blame = np.bincount(last, extra * seen.each, minlength=len(work))
    rank = int(np.argmax(blame))
    if len(work) > 1 and _gone_without((rank,), work, part, extra, seen.each):
        return (rank,)
    hosts = seen.hosts
    mates = tuple(i for i, host in enumerate(hosts) if host == hosts[rank])
    if 1 < len(mates) < len(hosts) and _gone_without(mates, work, part, extra, seen.each):
        return mates
    return ()


def _gone_without(
    ranks: tuple[int, ...], work: Matrix, part: Matrix, extra: Floats, each: Floats
) -> bool:
    index = list(ranks)
    less = np.maximum(highest(np.delete(work, index, axis=0)), highest(work[index] - part[index]))
    gone = (highest(work) - less) * each
    return float(gone.sum()) >= _OF_ONE * float((extra * each).sum())


@dataclass(frozen=True, slots=True)
class Growth:
    """Shares of a delay by what else grew with it; NaN: not known."""

    cpu: float
    waited: float
    phase: str
    """`forward`, `backward` or `optimizer` if half of it is there, else empty."""

    @property
    def case(self) -> str:
        """What kind of trouble that is."""
        if self.cpu >= _COMPUTES:
            return "computes"
        if self.waited >= _HALF:
            return "no core"
        return "unknown" if np.isnan(self.cpu) else "sleeps"


def growth(seen: OwnWork, ranks: list[int], late: Late) -> Growth:
    """ranks: of a node several; `late.unit` does not matter."""
    delay = float(late.delay[late.rows].mean())
    grown = {
        name: _grown(seen.column(name), ranks, late) / delay for name in ("cpu", "waited", *PHASES)
    }
    phase = max(PHASES, key=lambda name: np.nan_to_num(grown[name]))
    return Growth(
        grown["cpu"], grown["waited"], phase if np.nan_to_num(grown[phase]) >= _HALF else ""
    )


def contended(seen: OwnWork) -> bool:
    """Whether all ranks wait for cores, so that who waits most is the scheduler's luck."""
    waited = median_over(sample(seen.column("waited")), 0)
    if np.isnan(waited).all():
        return False
    return bool(np.nanmedian(waited / seen.step_s) >= _CONTENDED)


def lacks_most(seen: OwnWork, ranks: list[int], late: Late) -> bool:
    """Whether they lack a core twice as long as any other rank, since a step: no luck stays with one."""
    waited = seen.column("waited")[:, late.rows]
    typical = np.nan_to_num(median_over(waited, 1))
    rest = np.delete(typical, ranks)
    return late.onset is not None and bool(typical[ranks].min() >= _TWICE * rest.max(initial=0.0))


@dataclass(frozen=True, slots=True)
class Starved:
    """A rank whose threads, all together, lack cores."""

    rank: int
    lacked: float
    """Seconds a second."""
    others: float
    """The same of the rank that lacks most after it."""


def starved(use: Sequence[RankUse], ranks: Collection[int], since: int) -> Starved | None:
    """The one of these ranks whose threads lack cores since a step as no other's do.

    Where these carry its collectives, the one that trains waits in communication as all ranks do.
    """
    looks: dict[bool, dict[int, list[float]]] = {True: defaultdict(list), False: defaultdict(list)}
    for one in use:
        if one.seconds > 0 and one.rank in ranks:
            looks[one.step > since][one.rank].append(one.lacked_s / one.seconds)
    typical, before = ({r: median(some) for r, some in looks[on].items()} for on in (True, False))
    if len(typical) < 2 or min(map(len, looks[True].values())) < _LEAST_LOOKS:
        return None
    rank, second = sorted(typical, key=lambda one: -typical[one])[:2]
    found = Starved(rank, typical[rank], typical[second])
    more = found.lacked - found.others
    others_before = [lacked for one, lacked in before.items() if one != rank]
    usual = before.get(rank, 0.0) - max(others_before, default=0.0)
    lowest, highest_other = quantiles(looks[True][rank])[0], quantiles(looks[True][second])[2]
    sure = lowest > highest_other and found.lacked >= _TWICE * found.others
    return found if sure and more >= max(_STARVED, _TWICE * usual) else None


def _grown(column: Matrix, ranks: list[int], late: Late) -> float:
    """By how much those ranks' values exceed the others' more than in rows where nobody was late."""
    rest = sample(np.delete(column, ranks, axis=0))
    if np.isnan(column[ranks]).all() or np.isnan(rest).all():
        return float("nan")
    kept = np.zeros(column.shape[1])
    for part in (late.rows, ~late.rows):
        if part.any():
            kept[part] = np.nan_to_num(median_over(rest[:, part], 0))
    excess = np.nan_to_num(median_over(column[ranks], 0)) - kept
    before = excess[~late.rows]
    return float(excess[late.rows].mean() - (np.median(before) if len(before) > 5 else 0.0))
