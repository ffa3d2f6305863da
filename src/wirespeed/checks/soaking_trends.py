"""What changes over a soak: times that go up, memory that grows.

A trend is Theil and Sen's slope with its interval, which assumes no normal noise.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import NormalDist, median

from wirespeed.checks.registry import tell
from wirespeed.model.lasting_records import Soak, SoakCell, SoakWindow
from wirespeed.model.records import Finding, Subject
from wirespeed.model.units import format_duration, format_size
from wirespeed.statistics import LEAST_SAMPLES, sure_interval

LEAST = 10
"""Below this many points no slope is told."""
_MOST = 120
"""More are put together, neighbour by neighbour: pairs grow with the square."""

_STRAIGHT = 1e-6
"""Of their range: what leaves a line by less lies on it."""


@dataclass(frozen=True, slots=True)
class Slope:
    """Change of the value for each unit of time."""

    value: float
    low: float
    high: float
    points: int


def slope(times: Sequence[float], values: Sequence[float], confidence: float) -> Slope | None:
    """The slope and its two-sided interval; None for fewer than LEAST points.

    times: rising, as long as values.
    """
    while len(values) > _MOST:
        times, values = _thinned(times), _thinned(values)
    n = len(values)
    if n < LEAST:
        return None
    slopes = sorted(
        (values[j] - values[i]) / (times[j] - times[i])
        for i in range(n)
        for j in range(i + 1, n)
        if times[j] > times[i]
    )
    middle = median(slopes)
    rest = [value - middle * at for at, value in zip(times, values, strict=True)]
    straight = max(rest) - min(rest) <= _STRAIGHT * (max(values) - min(values))
    inflation = 1.0 if straight else _inflation(rest)  # rounding has an order too
    spread = math.sqrt(n * (n - 1) * (2 * n + 5) / 18 * inflation)
    reach = NormalDist().inv_cdf(0.5 + confidence / 2) * spread
    count = len(slopes)
    low, high = math.floor((count - reach) / 2), math.ceil((count + reach) / 2)
    inside = low >= 0 and high < count
    ends = (slopes[low], slopes[high]) if inside else (-math.inf, math.inf)
    return Slope(middle, *ends, n)


def _thinned(values: Sequence[float]) -> list[float]:
    pairs = zip(values[::2], values[1::2], strict=False)
    return [(a + b) / 2 for a, b in pairs]


def _inflation(rest: Sequence[float]) -> float:
    """How many times larger the variance is for their autocorrelation; at least 1."""
    n = len(rest)
    order = sorted(range(n), key=rest.__getitem__)
    ranks = [0.0] * n
    for rank, index in enumerate(order):
        ranks[index] = rank - (n - 1) / 2
    total = sum(rank * rank for rank in ranks)
    lag = sum(a * b for a, b in pairwise(ranks)) / total if total else 0.0
    lag = min(max(lag + 1 / n, 0.0), 0.95)  # a short series shows less than there is
    return (1 + lag) / (1 - lag)


ChangePoints = Callable[[Sequence[float]], Sequence[int]]
"""Indices of the first values of new levels."""

_LEVEL = 0.05
_MATERIAL = 0.10
"""A drift surely above this share over the soak is told."""
_RISE, _MOST_RISE = math.log1p(_MATERIAL), 50.0
_CALLS = 20
"""Of an operation in a window, for its median to count."""
_QUIET = 0.25
"""Share of the time without a core up to which a window tells of more than the machine."""
_MEMORY_BYTES, _MEMORY_SHARE = 16 << 20, 0.05
_SET_UP = 1 / 3


@dataclass(frozen=True, slots=True)
class _Drift:
    name: str
    low: float
    """The least change over the soak, as a share, that the interval allows."""
    value: float
    before: float
    after: float
    change: float | None
    """Seconds from the start at which the level changed, where that can be told."""
    windows: int


def drift_finding(soak: Soak, change_points: ChangePoints) -> Finding:
    """SOAK-003: operations that become slower; corrected for how many are looked at."""
    quiet = [one for one in soak.windows if max(one.waited, default=0.0) <= _QUIET]
    series = {key: points for key, points in _series(quiet).items() if len(points) >= LEAST}
    if not series:
        why = _why_no_drift(len(soak.windows), len(quiet))
        return tell("SOAK-003", "few windows", because=why)
    level = 1 - 2 * _LEVEL / len(series)
    found = [
        one
        for key, points in series.items()
        if (one := _drift(key, points, level, change_points)) is not None
    ]
    if not found:
        figures = {"windows": len(quiet), "operations": len(series), "material": _MATERIAL}
        return tell("SOAK-003", "good", **figures)
    found.sort(key=lambda one: -one.low)
    return _told(found, len(series))


def _why_no_drift(windows: int, quiet: int) -> str:
    if windows < LEAST:
        return f"{windows} windows are too few: it takes {LEAST}"
    if quiet < LEAST:
        busy = windows - quiet
        return f"in {busy} of {windows} windows a rank had no core for a quarter of the time"
    return f"no operation was timed in {LEAST} windows: a longer --for"


def _series(
    windows: Sequence[SoakWindow],
) -> dict[tuple[str, str, int], list[tuple[float, SoakCell]]]:
    """By operation: (seconds from the start, figures) of each window with enough calls."""
    series: dict[tuple[str, str, int], list[tuple[float, SoakCell]]] = {}
    for window in windows:
        for cell in window.cells:
            if cell.calls >= _CALLS and cell.median > 0 and cell.low > 0:
                key = cell.op, cell.dtype, cell.size_bytes
                series.setdefault(key, []).append((window.since_s, cell))
    return series


def _drift(
    key: tuple[str, str, int],
    points: Sequence[tuple[float, SoakCell]],
    level: float,
    change_points: ChangePoints,
) -> _Drift | None:
    """None unless both the median and the quickest tenth surely go up, by a slope or by a step."""
    times = [at for at, _ in points]
    medians = [math.log(cell.median) for _, cell in points]
    lows = [math.log(cell.low) for _, cell in points]
    cuts = change_points(medians)
    rise = _sloping(times, medians, lows, level) or _stepping(medians, lows, cuts, level)
    if rise is None:
        return None
    third = max(1, len(points) // 3)
    op, dtype, size = key
    return _Drift(
        name=f"{op} {dtype} {format_size(size, exact=True)}",
        low=math.expm1(rise[0]),
        value=math.expm1(rise[1]),
        before=math.exp(sorted(medians[:third])[third // 2]),
        after=math.exp(sorted(medians[-third:])[third // 2]),
        change=times[cuts[0]] if cuts else None,
        windows=len(points),
    )


_Rise = tuple[float, float]
"""Of the logarithm: the least that is sure, and the likeliest."""


def _sloping(
    times: Sequence[float], medians: Sequence[float], lows: Sequence[float], level: float
) -> _Rise | None:
    span = times[-1] - times[0]
    of_median, of_low = slope(times, medians, level), slope(times, lows, level)
    if of_median is None or of_low is None:
        return None
    if of_median.low * span < _RISE or of_low.low * span < _RISE / 2:
        return None
    return min(_MOST_RISE, of_median.low * span), min(_MOST_RISE, of_median.value * span)


def _stepping(
    medians: Sequence[float], lows: Sequence[float], cuts: Sequence[int], level: float
) -> _Rise | None:
    """A new level is no slope: what lies before and after it is compared."""
    best: _Rise | None = None
    for cut in cuts:
        rises = [_risen(values[:cut], values[cut:], level) for values in (medians, lows)]
        if rises[0][0] >= _RISE and rises[1][0] >= _RISE / 2:
            best = max(best or rises[0], rises[0])
    return best


def _risen(before: Sequence[float], after: Sequence[float], level: float) -> _Rise:
    if min(len(before), len(after)) < LEAST_SAMPLES:
        return -math.inf, 0.0
    first, second = sure_interval(before, level), sure_interval(after, level)
    return second.low - first.high, median(after) - median(before)


def _told(found: Sequence[_Drift], among: int) -> Finding:
    worst = found[0]
    changes = sorted(one.change for one in found if one.change is not None)
    since = f"; the level changed at +{changes[0]:.0f} s" if changes else ""
    return tell(
        "SOAK-003",
        "slower",
        evidence=(
            f"{one.name}: +{one.value:.0%}, at least +{one.low:.0%}, {one.windows} windows"
            + (f", since +{one.change:.0f} s" if one.change is not None else "")
            for one in found[:12]
        ),
        worst=worst,
        more=f", and {len(found) - 1} more of {among}" if len(found) > 1 else "",
        before=format_duration(worst.before),
        after=format_duration(worst.after),
        since=since,
        material=_MATERIAL,
    )


def memory_finding(soak: Soak) -> Finding:
    """SOAK-005: ranks whose memory grows, each world by itself, without its first third."""
    grown: list[tuple[int, Slope, int]] = []
    looked = 0
    for _, world in groupby(soak.windows, key=lambda one: one.world):
        windows = list(world)
        rest = windows[int(len(windows) * _SET_UP) :]
        ranks = min((len(one.rss_bytes) for one in rest), default=0)
        if len(rest) < LEAST or not ranks:
            continue
        looked = max(looked, len(rest))
        times = [one.since_s for one in rest]
        for rank in range(ranks):
            sizes = [float(one.rss_bytes[rank]) for one in rest]
            found = slope(times, sizes, 1 - 2 * _LEVEL / ranks)
            span = times[-1] - times[0]
            bound = max(_MEMORY_BYTES, _MEMORY_SHARE * sizes[0])
            if found is not None and found.low * span > bound:
                grown.append((rank, found, int(sizes[-1])))
    if not looked:
        return tell("SOAK-005", "few windows", least=LEAST)
    if not grown:
        return tell("SOAK-005", "good", windows=looked, least=format_size(_MEMORY_BYTES))
    return _leak(grown)


def _leak(grown: Sequence[tuple[int, Slope, int]]) -> Finding:
    rank, worst, size = max(grown, key=lambda one: one[1].low)
    ranks = len({one[0] for one in grown})
    return tell(
        "SOAK-005",
        "grows",
        subject=Subject("rank", f"rank {rank}"),
        evidence=(f"rank {one[0]}: {_an_hour(one[1].value)} an hour" for one in grown[:12]),
        rank=rank,
        rate=_an_hour(worst.value),
        more=f", and of {ranks - 1} more ranks" if ranks > 1 else "",
        least=_an_hour(worst.low),
        windows=worst.points,
        size=format_size(size),
    )


def _an_hour(bytes_per_second: float) -> str:
    return format_size(int(bytes_per_second * 3600))
