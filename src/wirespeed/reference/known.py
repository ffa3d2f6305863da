"""References made of figures: the package's, the user's own, and a run that was set as baseline."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from wirespeed.records import Choice, Measurement, Run, World
from wirespeed.reference import Expectation, Origin
from wirespeed.reference.figures import Figure
from wirespeed.reference.fleet import fleet_shape, is_crowded, measured_alike, spread_shares
from wirespeed.reference.matching import find
from wirespeed.reference.shape import Shape, shape_of

__all__ = [
    "BaselineReference",
    "FigureReference",
    "baseline_references",
    "busbw_interval",
    "figures_of_run",
]


class FigureReference:
    """Answers from figures, for operations over the whole world."""

    def __init__(self, figures: Iterable[Figure], origin: Origin) -> None:
        self._figures = tuple(figures)
        self._origin = origin
        self._shape: Shape | None = None
        """Of the last world that a figure was found for."""

    def expect(self, world: World, measurement: Measurement) -> Expectation | None:
        shape = shape_of(world)
        if shape is None or measurement.groups != "all":
            return None
        found = find(self._figures, shape, measurement.op, measurement.size_bytes)
        if found is None:
            return None
        self._shape = shape
        expectation = found.expectation(self._origin)
        return replace(expectation, may_fail=expectation.may_fail and not is_crowded(world))

    def choices(self) -> tuple[Choice, ...]:
        if self._shape is None:
            return ()
        name = "own figures" if self._origin == "own" else "reference"
        return (Choice(name, f"for {self._shape.words}", self._shape.why or "as the facts tell"),)


class BaselineReference:
    """Runs, repeats of the same, that the user has set as what is good."""

    def __init__(self, name: str, runs: Sequence[Run]) -> None:
        self.name = name
        self._runs = [(fleet_shape(run.world), _by_what(run)) for run in runs]
        self._since = max(run.started for run in runs)[:10]
        self._asked = False

    def expect(self, world: World, measurement: Measurement) -> Expectation | None:
        shape, what = fleet_shape(world), measured_alike(measurement)
        found = [known[what] for one, known in self._runs if one == shape and what in known]
        if not found:
            return None
        self._asked = True
        times = [one.time.median for one in found]
        rates = [one.busbw for one in found]
        # Of one run its own interval is all that tells of its spread.
        ends = found[0].time
        shares = (ends.median / ends.high,) * 2 if len(found) == 1 else spread_shares(times)
        lone = busbw_interval(found[0])
        return Expectation(
            time_s=median(times),
            busbw=median(rates) or None,
            source=f"baseline {self.name!r}, {_runs(len(found))} of {self._since}",
            origin="baseline",
            time_range=(ends.low, ends.high) if len(found) == 1 else (min(times), max(times)),
            busbw_range=lone if len(found) == 1 else (min(rates), max(rates)),
            samples=len(found),
            outside_warn=shares[0],
            outside_fail=shares[1],
            may_fail=not is_crowded(world),
        )

    def choices(self) -> tuple[Choice, ...]:
        if not self._asked:
            return ()
        return (Choice("baseline", self.name, "the newest one of the same nodes and figures"),)


def baseline_references(
    baselines: Iterable[tuple[str, str, Sequence[Run]]],
) -> list[BaselineReference]:
    """One a baseline, the newest first, from (name, when it was set, its runs)."""
    newest = sorted(baselines, key=lambda one: one[1], reverse=True)
    return [BaselineReference(name, runs) for name, _, runs in newest if runs]


def _by_what(run: Run) -> dict[tuple[Any, ...], Measurement]:
    return {
        measured_alike(one): one for one in run.measurements if 0 < one.time.median <= one.time.high
    }


def _runs(count: int) -> str:
    return f"{count} run" + ("s" if count != 1 else "")


def figures_of_run(run: Run, name: str) -> list[Figure]:
    """What a run measured, as figures of the set `name`; empty where its shape is not known.

    One figure an operation and size, of float32 and out of place where there are several.
    """
    shape = shape_of(run.world)
    if shape is None or not shape.interconnect:
        return []
    usual = [one for one in run.measurements if one.groups == "all" and one.time.median > 0]
    usual.sort(key=lambda one: (one.dtype != "float32", one.in_place))
    chosen: dict[tuple[str, int], Measurement] = {}
    for one in usual:
        chosen.setdefault((one.op, one.size_bytes), one)
    return [_figure(chosen[key], shape, run, name) for key in sorted(chosen)]


def _figure(one: Measurement, shape: Shape, run: Run, name: str) -> Figure:
    time = one.time
    return Figure(
        name=name,
        system=shape.system,
        gpu=shape.gpu,
        gpus_per_node=shape.per_node,
        nodes=shape.nodes,
        interconnect=shape.interconnect,
        nics=shape.nics,
        nic_Gbitps=shape.nic_Gbitps,
        switch=shape.switch,
        collective=one.op,
        size_bytes=one.size_bytes,
        busbw=one.busbw or None,
        busbw_range=busbw_interval(one),
        time_s=time.median,
        time_range=(time.low, time.high),
        source=f"run {run.id}",
        published=run.started[:10],
    )


def busbw_interval(one: Measurement) -> tuple[float, float] | None:
    """The interval of the time turned into that of the bandwidth; None where there is none."""
    time = one.time
    if not one.busbw or not 0 < time.low < time.high:
        return None
    return one.busbw * time.median / time.high, one.busbw * time.median / time.low
