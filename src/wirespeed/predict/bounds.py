"""When a fit is refused: what was asked, why it cannot be told, and the runs that would help."""

from collections.abc import Sequence

import numpy as np

from wirespeed.predict.forecast import Forecast
from wirespeed.predict.points import Series
from wirespeed.records_prediction import Refusal, WorldSize
from wirespeed.units import format_size

__all__ = [
    "FARTHEST_SIZE",
    "MOST_SPREAD",
    "refuse_fit",
    "refuse_series",
    "refuse_size",
    "refuse_spread",
    "refuse_world",
]

LEAST_SIZES, LEAST_SPAN = 4, 16
MOST_ERROR, MOST_ERROR_P90 = 0.2, 0.9
"""Of log time, of what was left out of the fit: 22 % in the median, a factor of 2.5 one time in ten."""
MOST_SPREAD = 10.0
"""Upper over lower end of an interval: beyond, it tells nobody anything."""
FARTHEST_OF_TWO, FARTHEST = 4, 64
"""Times the largest world that was measured: with two worlds, with three or more."""
FARTHEST_SIZE = 64
LEAST_SHARING = 2
"""Measured worlds with more ranks than cores, below which no other such world is told."""


def refuse_series(series: Series) -> Refusal | None:
    """Too few sizes to tell latency from bandwidth."""
    classes = series.classes
    span = classes[-1][-1] / classes[0][0]
    if len(classes) >= LEAST_SIZES and span >= LEAST_SPAN:
        return None
    return Refusal(
        what=series.op,
        because=f"{_count(len(classes), 'size')} over a factor of {span:.3g}: latency and bandwidth "
        f"cannot be told apart below {LEAST_SIZES} sizes over a factor of {LEAST_SPAN}",
        helps=f"wirespeed bench {series.op} -b 1K -e 64M -f 4",
    )


def refuse_fit(forecast: Forecast | None, series: Series) -> Refusal | None:
    """The shapes do not foretell what they were not shown."""
    more = f"wirespeed bench {series.op} --precision 2 --max-time 10, on a quiet cluster, twice"
    if forecast is None:
        why = f"{_count(len(series.points), 'measurement')} are too few for any algorithm's terms"
        return Refusal(what=series.op, because=why, helps=more)
    middle = float(np.median(forecast.errors))
    tail = float(np.quantile(forecast.errors, 0.9))
    if middle <= MOST_ERROR and tail <= MOST_ERROR_P90:
        return None
    return Refusal(
        what=series.op,
        because="the fit does not hold: measurements that were left out of it are missed by "
        f"{np.expm1(middle):.0%} in the median and {np.expm1(tail):.0%} one time in ten (at most "
        f"{np.expm1(MOST_ERROR):.0%} and {np.expm1(MOST_ERROR_P90):.0%})",
        helps=more,
    )


def refuse_world(series: Series, world: WorldSize) -> Refusal | None:
    """A world that lies too far from those that were measured, or in a direction none of them shows."""
    if world in series.worlds:
        return None
    what = f"{series.op} on {_where(world)}"
    alike, why = _comparable(series.worlds, world)
    if why:
        return Refusal(what=what, because=why, helps=_bench(series, world, alike))
    if refusal := _refuse_sharing(series, world, alike):
        return refusal
    far = world.ranks / max(one.ranks for one in alike)
    most = FARTHEST_OF_TWO if len(alike) == 2 else FARTHEST
    if far <= most:
        return None
    return Refusal(
        what=what,
        because=f"{far:.3g} times the largest world measured; {_count(len(alike), 'world')} carry a "
        f"forecast up to {most} times",
        helps=_bench(series, world, alike),
    )


def _refuse_sharing(series: Series, world: WorldSize, alike: Sequence[WorldSize]) -> Refusal | None:
    """Ranks that take turns on the cores of a node: nothing that had cores enough shows how."""
    cores = series.cores
    if not cores or world.nodes > 1 or world.ranks <= cores:
        return None
    sharing = sum(one.ranks > cores for one in alike)
    if sharing >= LEAST_SHARING:
        return None
    return Refusal(
        what=f"{series.op} on {_where(world)}",
        because=f"its {world.ranks} ranks take turns on {_count(cores, 'core')}, and so did those of "
        f"{_count(sharing, 'measured world')}, not {LEAST_SHARING}: what waiting for a core costs is "
        "not known",
        helps=f"wirespeed bench {series.op} --ranks N, for N = {cores + 1}, {cores + 2}",
    )


def refuse_size(series: Series, size: int) -> Refusal | None:
    sizes = series.sizes
    if sizes[0] / FARTHEST_SIZE <= size <= sizes[-1] * FARTHEST_SIZE:
        return None
    return Refusal(
        what=f"{series.op} of {format_size(size)}",
        because=f"measured from {format_size(sizes[0])} to {format_size(sizes[-1])}, and no forecast "
        f"goes {FARTHEST_SIZE} times beyond",
        helps=f"wirespeed bench {series.op} -b {min(size, sizes[0])} -e {max(size, sizes[-1])}",
    )


def refuse_spread(series: Series, world: WorldSize, sizes: Sequence[int]) -> Refusal:
    """The interval of these sizes is wider than a factor of 10."""
    told = ", ".join(format_size(size) for size in sizes)
    return Refusal(
        what=f"{series.op} of {told} on {_where(world)}",
        because=f"its interval would be wider than a factor of {MOST_SPREAD:g}: what was measured does "
        "not tell how it grows that far",
        helps=_bench(series, world, [one for one in series.worlds if one.nodes > 1]),
    )


def _where(world: WorldSize) -> str:
    return f"{_count(world.nodes, 'node')} × {_count(world.ranks_per_node, 'rank')}"


def _comparable(worlds: Sequence[WorldSize], asked: WorldSize) -> tuple[list[WorldSize], str]:
    """Measured worlds that show how time grows towards `asked`, and why they are not enough."""
    if asked.nodes == 1:
        alike = [one for one in worlds if one.nodes == 1]
        if len(alike) < 2:
            return alike, f"{_count(len(alike), 'number')} of ranks on one node measured, not 2"
        return alike, ""
    several = [one for one in worlds if one.nodes > 1]
    if not several:
        return [], "no run over several nodes: their links were never measured"
    alike = [one for one in several if one.ranks_per_node == asked.ranks_per_node]
    if not alike:
        known = sorted({one.ranks_per_node for one in several})
        return [], f"measured with {', '.join(map(str, known))} ranks a node only"
    if len({one.nodes for one in alike}) < 2:
        return (
            alike,
            f"measured on {alike[0].nodes} nodes only: nothing shows how it grows with nodes",
        )
    return alike, ""


def _bench(series: Series, world: WorldSize, alike: Sequence[WorldSize]) -> str:
    each = f" --ranks-per-node {world.ranks_per_node}" if world.ranks_per_node > 1 else ""
    known = {one.nodes for one in alike}
    if world.nodes == 1:
        return f"wirespeed bench {series.op} --ranks N, for three numbers of ranks"
    wanted = [n for n in (2, 3, 4, 6, 8, 16) if n not in known and n <= world.nodes][:3]
    listed = ", ".join(map(str, wanted)) or str(world.nodes)
    return f"wirespeed bench {series.op} --on ssh --nodes N{each}, for N = {listed}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
