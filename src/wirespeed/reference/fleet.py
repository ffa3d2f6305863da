"""What earlier runs of the same kind of nodes measured: the fleet's median, and its spread.

A new figure of the same machines lies, with 99.9 % (two sides), above what Student's t says of one
more draw from the logarithms of n earlier ones: exp(-t(n-1) s sqrt(1 + 1/n)) of their median (G. J.
Hahn and W. Q. Meeker, Statistical Intervals, 1991, section 4.7). With 5 noisy runs that is far below,
with 20 quiet ones close: what is uncertain fails nobody. The lowest run seen is taken where that is
lower still.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median, stdev
from typing import Any

from wirespeed.records import Choice, Measurement, Run, World
from wirespeed.reference import Expectation
from wirespeed.reference.shape import CPU, shape_of
from wirespeed.statistics import student_t

__all__ = [
    "LEAST_RUNS",
    "FleetReference",
    "Past",
    "fleet_shape",
    "is_crowded",
    "measured_alike",
    "spread_shares",
]

LEAST_RUNS = 5
_WARN, _FAIL = 0.98, 0.999
"""Two-sided confidences; one side of each is 1 % and 0.05 %."""

_TOO_NOISY = 0.1

Past = Callable[[], Iterable[Run]]
"""Gives earlier runs, newest first; called once, when the first figure is judged."""


def measured_alike(one: Measurement) -> tuple[Any, ...]:
    """Two measurements with the same are of the same thing."""
    return (
        *(one.op, one.engine, one.dtype, one.redop, one.root, one.in_place, one.size_bytes),
        *(one.ranks, one.groups, one.timing, one.blocking, one.in_flight),
    )


def fleet_shape(world: World) -> tuple[Any, ...]:
    """Worlds with the same are of the same kind of nodes, whatever their names."""
    shape = shape_of(world)
    link = (shape.interconnect, shape.nics, shape.nic_Gbitps) if shape else ()
    nodes = sorted(
        (
            len(node.ranks),
            str(node.facts.get("cpu.model", "")),
            str(node.facts.get("cpu.allowed", "")),
            tuple(sorted(str(gpu.get("name", "")) for gpu in node.gpus)),
        )
        for node in world.nodes
    )
    return world.size, world.backend, tuple(nodes), link


def spread_shares(times: list[float]) -> tuple[float, float]:
    """(warn, fail): shares of the median's performance that one more run hardly falls below.

    times: of at least two runs, in seconds, above 0.
    """
    logs = [math.log(time) for time in times]
    sigma = stdev(logs) * math.sqrt(1 + 1 / len(logs))
    freedom = len(logs) - 1
    lowest = median(times) / max(times)
    warn, fail = (math.exp(-student_t(p, freedom) * sigma) for p in (_WARN, _FAIL))
    return min(warn, lowest), min(fail, lowest)


@dataclass(frozen=True, slots=True)
class _Seen:
    time_s: float
    busbw: float


class FleetReference:
    """The median of READY runs on the same kind of nodes, at least five."""

    def __init__(self, past: Past) -> None:
        self._past = past
        self._shape: tuple[Any, ...] | None = None
        self._seen: dict[tuple[Any, ...], list[_Seen]] = {}
        self._runs = 0

    def expect(self, world: World, measurement: Measurement) -> Expectation | None:
        seen = self._of(world).get(measured_alike(measurement), [])
        if len(seen) < LEAST_RUNS:
            return None
        times = [one.time_s for one in seen]
        rates = [one.busbw for one in seen]
        warn, fail = spread_shares(times)
        return Expectation(
            time_s=median(times),
            busbw=median(rates) or None,
            source=f"median of {len(seen)} READY runs on such nodes",
            origin="fleet",
            time_range=(min(times), max(times)),
            busbw_range=(min(rates), max(rates)),
            samples=len(seen),
            outside_warn=warn,
            outside_fail=fail,
            may_fail=not is_crowded(world),
            notes=_spread_notes(world, fail),
        )

    def choices(self) -> tuple[Choice, ...]:
        if self._shape is None:
            return ()
        why = f"READY runs on such nodes in the runs' folder; it takes {LEAST_RUNS}"
        return (Choice("fleet", f"{self._runs} earlier runs", why),)

    def _of(self, world: World) -> dict[tuple[Any, ...], list[_Seen]]:
        shape = fleet_shape(world)
        if shape != self._shape:
            self._shape, self._seen, self._runs = shape, {}, 0
            for run in self._past():
                if _counts(run, shape):
                    self._runs += 1
                    self._take(run)
        return self._seen

    def _take(self, run: Run) -> None:
        """One figure a run, so that a run with many repeats is no fleet."""
        alike = {measured_alike(one): one for one in run.measurements if one.time.median > 0}
        for key, one in alike.items():
            self._seen.setdefault(key, []).append(_Seen(one.time.median, one.busbw))


def _counts(run: Run, shape: tuple[Any, ...]) -> bool:
    """Whether a run may speak for the fleet: good, nothing acted out, alone on nodes of that kind."""
    good = run.verdict == "READY" and not run.config.get("inject")
    alone = not any(node.facts.get("neighbours") for node in run.world.nodes)
    return good and alone and fleet_shape(run.world) == shape


def is_crowded(world: World) -> bool:
    """Whether ranks share cores, so that their times are the scheduler's."""
    shape = shape_of(world)
    if shape is not None and shape.gpu != CPU:
        return False
    cores = [(len(node.ranks), node.facts.get("cpu.allowed", 0)) for node in world.nodes]
    return any(ranks > (count if isinstance(count, int) else 0) for ranks, count in cores)


def _spread_notes(world: World, fail: float) -> tuple[str, ...]:
    bound = f"the runs' own spread reaches down to {fail:.2f} of their median (99.9 %)"
    if fail < _TOO_NOISY:
        bound = "these runs lie too far apart to tell a slow one"
    if is_crowded(world):
        return bound, "ranks share cores, so a slow run warns and does not fail"
    return (bound,)
