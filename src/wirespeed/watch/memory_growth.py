"""Ranks whose memory grows, step by step, after what a job sets up at its begin."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from wirespeed.checks.soaking_trends import LEAST, slope
from wirespeed.watch.steps import RankUse

_SET_UP = 1 / 3
_LEAST_BYTES, _LEAST_SHARE = 16 << 20, 0.05
_CLOSELY = 8
"""Ranks whose slope is told; those that grew most."""


@dataclass(frozen=True, slots=True)
class Grown:
    rank: int
    per_step: float
    """Bytes."""
    low: float
    high: float
    rss_bytes: int
    since: int


def memory_growth(points: Sequence[RankUse]) -> list[Grown]:
    """Those that surely grew by 16 MiB and 5 % in the last two thirds of the time, worst first."""
    by_rank: dict[int, list[RankUse]] = defaultdict(list)
    for point in points:
        by_rank[point.rank].append(point)
    late = {rank: some[int(len(some) * _SET_UP) :] for rank, some in by_rank.items()}
    rises = {
        rank: some[-1].rss_bytes - some[0].rss_bytes
        for rank, some in late.items()
        if len(some) >= LEAST and some[-1].rss_bytes - some[0].rss_bytes >= _bound(some)
    }
    most = sorted(rises, key=lambda rank: -rises[rank])[:_CLOSELY]
    found = [one for rank in most if (one := _grown(late[rank], len(by_rank))) is not None]
    return sorted(found, key=lambda one: -one.low)


def _bound(some: Sequence[RankUse]) -> float:
    return max(_LEAST_BYTES, _LEAST_SHARE * some[0].rss_bytes)


def _grown(some: Sequence[RankUse], among: int) -> Grown | None:
    steps, sizes = [float(one.step) for one in some], [float(one.rss_bytes) for one in some]
    found = slope(steps, sizes, 1 - 0.1 / among)
    if found is None or found.low * (steps[-1] - steps[0]) < _bound(some):
        return None
    last = some[-1]
    return Grown(last.rank, found.value, found.low, found.high, last.rss_bytes, some[0].step)
