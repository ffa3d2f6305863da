"""From what all ranks answered in some rounds to one figure."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from wirespeed.model.bench_records import MedianTime
from wirespeed.model.storage_records import Access, StorageFigure
from wirespeed.rank.storage.answer import Answer
from wirespeed.statistics import median_interval, sure_interval

Round = Sequence[Answer]
"""Of every rank, by rank."""
_TICK = 1e-9
"""Seconds that a clock shows at least."""


def figure_of(
    access: Access, engine: str, rounds: Sequence[Round], hosts: Sequence[str]
) -> StorageFigure:
    """At least one round. hosts: by rank."""
    slowest = [max(max(one.seconds for one in told), _TICK) for told in rounds]
    moved = [sum(one.size_bytes for one in told) for told in rounds]
    calls = [sum(one.calls for one in told) for told in rounds]
    host, ratio = _slowest(rounds, hosts)

    def rates(done: Sequence[int]) -> MedianTime | None:
        found = [one / seconds for one, seconds in zip(done, slowest, strict=True)]
        return _median(found) if min(done) else None

    def worst(name: str) -> float:
        return float(median(max(getattr(one, name) for one in told) for told in rounds))

    return StorageFigure(
        access=access,
        engine=engine,
        ranks=len(hosts),
        size=max(one.size_bytes for told in rounds for one in told),
        calls=max(one.calls for told in rounds for one in told),
        rate=rates(moved),
        per_s=rates(calls) if access not in ("write", "read", "save", "load") else None,
        latency=_median([median(one.median for one in told) for told in rounds]),
        p95=worst("p95"),
        p99=worst("p99"),
        max=max(one.max for told in rounds for one in told),
        cached=max(one.cached for told in rounds for one in told),
        slowest=host,
        slowest_ratio=ratio,
    )


def _slowest(rounds: Sequence[Round], hosts: Sequence[str]) -> tuple[str, MedianTime | None]:
    """The node with the highest time over the middle one of the others, and that ratio."""
    names = list(dict.fromkeys(hosts))
    if len(names) < 2:
        return "", None
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for told in rounds:
        times = dict.fromkeys(names, _TICK)
        for host, one in zip(hosts, told, strict=True):
            times[host] = max(times[host], one.seconds)
        for name in names:
            ratios[name].append(times[name] / median(times[o] for o in names if o != name))
    host = max(names, key=lambda name: median(ratios[name]))
    return host, _median(ratios[host], sure_interval)


def _median(samples: Sequence[float], interval: Any = median_interval) -> MedianTime:
    ends = interval(samples)
    return MedianTime(median=median(samples), low=ends.low, high=ends.high, samples=len(samples))
