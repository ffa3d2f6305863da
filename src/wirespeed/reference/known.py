"""References made of figures: the package's, the user's own, and a run that was set as baseline."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median, stdev
from typing import Any

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.errors import CannotMeasure
from wirespeed.model.records import Choice, Measurement, Run, World
from wirespeed.model.training_records import Training
from wirespeed.model.units import format_bandwidth, format_size
from wirespeed.model.verdicts import HISTORY
from wirespeed.reference import STEADY_BYTES, TOO_NOISY, Expectation, OfCollectives, Origin
from wirespeed.reference.capability import limit_of
from wirespeed.reference.figures import Figure, shipped_figures
from wirespeed.reference.ramp import fitted
from wirespeed.reference.shape import CPU, Shape, busbw_interval, shape_of
from wirespeed.statistics import lacks_samples, student_t

# Which figures hold for a world, an operation and a size; nothing in between is made up.
#
# A figure holds where GPU, ranks a node and interconnect are the same. Taken with a note, and never
# good for a failure: another number of nodes, or network cards that one side does not name. Never taken:
# other cards, one node for several.
#
# Sizes: busbw rises with the size until the links are full. So a figure holds from half of its size
# on (8 GiB: from 4 GiB on), and the nearest of those is taken; below that it is scaled to the size by
# the latency and bandwidth that published curves show (reference/ramp.py), and half of that is asked.
#
# Gates: what a site asks of its own clusters is asked of nobody else's.

_PEAK_BYTES = 2**30
"""A figure that names no size is a peak over sizes; those are reached from about here on."""
_FROM = 0.5
_FAR = 16
_LEAST_BYTES = 2**20
_ROUGHLY = 0.5
_RDMA = ("ib", "roce")


@dataclass(frozen=True, slots=True)
class Match:
    """What was found, best first."""

    figures: tuple[Figure, ...]
    rough: bool
    """Only the order of magnitude may be asked for."""
    exact: bool
    """The figures are of the same world, as far as anybody tells."""
    notes: tuple[str, ...]
    size_bytes: int
    """What was asked for."""
    reached: float = 1.0
    """Share of the figures' busbw that is reached at that size, where they are of a larger one."""
    asked: float = _ROUGHLY
    """Share of what is expected that is asked for, where the figures are of a larger size."""
    most: float | None = None
    """Bytes a second that no algorithm passes on these links; None: not known."""
    same_cards: bool = False
    """Whether all figures are of so many nodes, or of any number, with the very network cards told."""

    def expectation(self, origin: Origin) -> Expectation:
        """The median of what was measured, with the range of all; rules only where nothing was."""
        measured = [one for one in self.figures if one.kind == "measured"]
        gates = [one.busbw for one in self.figures if one.kind == "gate" and one.busbw]
        basis = measured or list(self.figures)
        rates = [self._here(one.busbw) for one in basis if one.busbw]
        timed = [one for one in basis if one.time_s and one.size_bytes == self.size_bytes]
        times = [one.time_s for one in timed if one.time_s]
        ends = [self._here(end) for one in self.figures for end in one.busbw_range or ()]
        slow = [end for one in timed for end in one.time_range or ()]
        bound = _own_spread(basis) if origin == "own" else 1.0
        same_world = self.exact and not self.rough and bool(measured or gates)
        # Short operations depend on versions and on who calls them: others' figures may warn then.
        foreign = origin == "reference" and self.size_bytes < STEADY_BYTES
        return Expectation(
            outside_warn=bound,
            outside_fail=bound,
            time_s=median(times) if times else None,
            busbw=median(rates) if rates else None,
            source=_sources(basis),
            origin=origin,
            time_range=_span([*times, *slow]),
            busbw_range=_span([*rates, *gates, *ends]),
            samples=len(basis),
            gate=max(gates) if gates and not self.rough and self.exact else None,
            warn_below=self.asked if self.rough or foreign else None,
            may_fail=same_world and not foreign,
            same_world=same_world,
            same_cards=self.same_cards,
            notes=(*self.notes, *map(figure_words, self.figures)),
        )

    def _here(self, rate: float) -> float:
        """Return a figure's rate at the size that is asked for, never above what these links carry."""
        scaled = rate * self.reached
        return scaled if self.most is None else min(scaled, self.most)


def find(figures: Iterable[Figure], shape: Shape, op: str, size: int) -> Match | None:
    """The figures that hold, or None."""
    figures = tuple(figures)
    alike = [one for one in figures if one.collective == op and holds(one, shape)]
    # A figure of no GPU, such as what one card carries, stands back where there are others; so do those
    # without NVLS unless it is switched off, and a rule of thumb where somebody measured.
    alike = [one for one in alike if one.gpu] or alike
    off = shape.switch == "nvls off"
    alike = [one for one in alike if (one.switch == "nvls off") == off] or alike
    nodes, exact_nodes = _nearest_nodes(alike, shape.nodes)
    nodes = [one for one in nodes if one.kind != "rule"] or nodes
    sized, rough, note = _nearest_size(nodes, size)
    if not sized:
        return None
    notes = [note] if note else []
    if not exact_nodes:
        counts = ", ".join(sorted({str(one.nodes) for one in sized}))
        notes.append(f"figures are of {counts} nodes, this is {shape.nodes}")
    vague = any(_vague(one, shape) for one in sized)
    if vague:
        notes.append("some of GPU, ranks per node and NICs are unknown on one side")
    if any(one.switch == "sharp" and one.kind != "gate" for one in sized):
        notes.append(
            "figures with SHARP: where switches do not add up, a ring over the cards is the limit"
        )
    limit = limit_of(shape, op)
    most = limit.busbw if limit and not limit.copies else None
    exact = exact_nodes and not vague
    cards = shape.nodes > 1 and all(_of_these_cards(one, shape) for one in sized)
    if not rough:
        return Match(tuple(sized), rough, exact, tuple(notes), size, most=most, same_cards=cards)
    reached, asked = _reached(shape, op, size, sized)
    notes.insert(0, _scaled_note(sized, size, reached))
    return Match(tuple(sized), rough, exact, tuple(notes), size, reached, asked, most, cards)


def _reached(shape: Shape, op: str, size: int, sized: Sequence[Figure]) -> tuple[float, float]:
    """Return the share of the figures' busbw that is usual at a smaller size, and the share of that
    which even a slow start would reach half of."""
    rate = median([one.busbw for one in sized if one.busbw] or [0.0])
    algbw = rate / (CATALOGUE[op].bus_factor(shape.ranks) or 1.0)
    ramp = fitted(shipped_figures())
    there, _, _ = ramp.reached(shape, _size(sized[0]), algbw)
    usual, least, _ = ramp.reached(shape, size, algbw)
    if not there or not usual:
        return 1.0, _ROUGHLY
    return min(1.0, usual / there), _ROUGHLY * least / usual


def _scaled_note(sized: Sequence[Figure], size: int, reached: float) -> str:
    nearest = format_size(_size(sized[0]))
    return (
        f"{nearest} is the nearest size that was measured; {format_size(size)} reaches {reached:.2f} "
        "of it by the latency and bandwidth of published curves"
    )


def holds(one: Figure, shape: Shape) -> bool:
    """Whether a figure is of such a world, sizes and exact number of nodes aside."""
    if one.kind == "untuned" or not _same_link(one, shape):
        return False
    if one.site and one.kind == "gate" and one.site != shape.site:
        return False
    if shape.switch == "sharp off" and one.switch == "sharp":
        return False
    if one.gpu and shape.gpu != one.gpu and not shape.gpu.startswith(one.gpu + " "):
        return False
    if shape.gpu == CPU and (one.gpu != CPU or one.system != shape.system):
        return False
    if one.gpus_per_node not in (None, shape.per_node):
        return False
    if not one.gpu and one.nics and not (shape.nics and shape.nic_Gbitps):
        return False  # it is a figure of cards, and nobody knows these
    return shape.nodes > 1 if one.nodes is None else (one.nodes > 1) == (shape.nodes > 1)


def _same_link(one: Figure, shape: Shape) -> bool:
    kinds = _RDMA if one.interconnect == "rdma" else (one.interconnect,)
    if shape.interconnect not in kinds:
        return False
    pairs = ((one.nics, shape.nics), (one.nic_Gbitps, shape.nic_Gbitps))
    return all(a is None or b is None or math.isclose(a, b, rel_tol=0.01) for a, b in pairs)


def _of_these_cards(one: Figure, shape: Shape) -> bool:
    both_known = bool(one.nics and one.nic_Gbitps and shape.nics and shape.nic_Gbitps)
    return both_known and one.nodes in (None, shape.nodes)


def _vague(one: Figure, shape: Shape) -> bool:
    """Whether something that matters is told on one side only."""
    if not one.gpu or one.gpus_per_node is None:
        return True
    # What a maker asks of any number of nodes is told, what somebody got on some number is not.
    if one.nodes is None and one.kind != "gate":
        return True
    return shape.nodes > 1 and not shape.interconnect.startswith("mnnvl") and one.nics != shape.nics


def _nearest_nodes(alike: Sequence[Figure], nodes: int) -> tuple[list[Figure], bool]:
    same = [one for one in alike if one.nodes in (nodes, None)]
    if same:
        exact = [one for one in same if one.nodes is not None or one.kind == "gate"]
        return (exact if any(one.kind != "gate" for one in exact) else same), True
    if not alike:
        return [], True
    nearest = min((one.nodes or nodes for one in alike), key=lambda k: abs(math.log(k / nodes)))
    return [one for one in alike if one.nodes == nearest], False


def _nearest_size(alike: Sequence[Figure], size: int) -> tuple[list[Figure], bool, str]:
    """(figures of the nearest size that holds, whether only roughly, what to say about it)."""
    near = [one for one in alike if _size(one) * _FROM <= size or one.size_bytes == size]
    rough = not near and size >= _LEAST_BYTES
    # Far below, a smaller figure would say little of what full links carry.
    near = [one for one in near if _size(one) >= size / _FAR] or near
    near = near or (list(alike) if rough else [])
    if not near:
        return [], False, ""
    chosen = sorted(near, key=lambda one: abs(math.log(max(1, _size(one)) / max(1, size))))
    best = _size(chosen[0])
    chosen = _one_a_table(chosen)
    if size < _PEAK_BYTES:
        # Links may not be full yet: two sizes are two figures.
        chosen = [one for one in chosen if _size(one) == best]
    elif best >= _PEAK_BYTES:
        chosen = [one for one in chosen if _size(one) >= _PEAK_BYTES]
    if rough:
        return chosen, True, ""
    sizes = " and ".join(format_size(one) for one in sorted(set(map(_size, chosen))))
    note = "" if best == size else f"figures of {sizes} taken for {format_size(size)}"
    return chosen, False, note


def _one_a_table(nearest: Sequence[Figure]) -> list[Figure]:
    """Of the sizes of one table the nearest, so that several figures are of several tables."""
    first: dict[tuple[object, ...], Figure] = {}
    for one in nearest:
        table = (one.name, one.system, one.source, one.nodes, one.switch, one.kind)
        first.setdefault(table, one)
    return list(first.values())


def _size(one: Figure) -> int:
    return _PEAK_BYTES if one.size_bytes is None else one.size_bytes


def _own_spread(figures: Sequence[Figure]) -> float:
    """The share of its figure that the low end of the user's widest interval is."""
    shares = [one.busbw_range[0] / one.busbw for one in figures if one.busbw_range and one.busbw]
    shares += [one.time_s / one.time_range[1] for one in figures if one.time_range and one.time_s]
    return min([1.0, *shares])


def _span(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if len(values) > 1 else None


def _sources(figures: Sequence[Figure]) -> str:
    first = figures[0].dated
    return first if len(figures) == 1 else f"{first}; and {len(figures) - 1} more"


def figure_words(one: Figure) -> str:
    """One figure with its source, as evidence."""
    size = format_size(one.size_bytes) if one.size_bytes is not None else "peak"
    rate = f" {format_bandwidth(one.busbw)}" if one.busbw else ""
    switch = f" ({one.switch})" if one.switch else ""
    return f"{one.system}: {one.collective} {size}{rate} {one.kind}{switch} ({one.dated})"


LEAST_RUNS = 5
_WARN, _FAIL = 0.98, 0.999
"""Two-sided confidences; one side of each is 1 % and 0.05 %."""

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
            node.facts.cpu_model or "",
            node.facts.cpu_allowed or "",
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


def _joined(
    world: World,
    origin: Origin,
    source: str,
    figures: Sequence[tuple[float, float]],
) -> Expectation:
    """What earlier runs say together. figures: (seconds, bytes a second) of each."""
    times, rates = [time for time, _ in figures], [rate for _, rate in figures]
    warn, fail = spread_shares(times) if len(times) > 1 else (1.0, 1.0)
    return Expectation(
        time_s=median(times),
        busbw=median(rates) or None,
        source=source,
        origin=origin,
        time_range=(min(times), max(times)),
        busbw_range=(min(rates), max(rates)),
        samples=len(figures),
        outside_warn=warn,
        outside_fail=fail,
        may_fail=not is_crowded(world),
    )


class FleetReference(OfCollectives):
    """The median of earlier runs that did not fail, on the same kind of nodes, at least five.

    Nobody has endorsed them: they may warn of a change, and pass no speed (checks/speed.py).
    """

    def __init__(self, past: Past) -> None:
        self._past = past
        self._shape: tuple[Any, ...] | None = None
        self._seen: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
        self._runs = 0

    def expect(self, world: World, measurement: Measurement) -> Expectation | None:
        seen = self._of(world).get(measured_alike(measurement), [])
        if len(seen) < LEAST_RUNS:
            return None
        source = f"median of {len(seen)} earlier runs on such nodes"
        found = _joined(world, "fleet", source, seen)
        return replace(found, notes=_spread_notes(world, found.outside_fail))

    def choices(self) -> tuple[Choice, ...]:
        if self._shape is None:
            return ()
        why = f"runs on such nodes in the runs' folder that did not fail; it takes {LEAST_RUNS}"
        return (Choice("fleet", f"{self._runs} earlier runs", why),)

    def _of(self, world: World) -> dict[tuple[Any, ...], list[tuple[float, float]]]:
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
            self._seen.setdefault(key, []).append((one.time.median, one.busbw))


def _counts(run: Run, shape: tuple[Any, ...]) -> bool:
    """Return whether a run may speak for the fleet: it did not fail, no fault was injected, and it ran
    alone on nodes of that kind."""
    good = may_be_history(run) and not run.config.get("inject")
    alone = not any(node.facts.neighbours for node in run.world.nodes)
    return good and alone and fleet_shape(run.world) == shape


def may_be_history(run: Run) -> bool:
    """Return whether the run's figures may serve later runs as a history.

    UNKNOWN is also said of a check of speed alone that had nothing to be judged by.
    """
    if run.verdict in HISTORY:
        return True
    only_measured = run.verdict == "UNKNOWN" and run.exit_code == CannotMeasure.exit_code
    return only_measured and any(finding.status == "measured" for finding in run.findings)


def is_crowded(world: World) -> bool:
    """Whether ranks share cores, so that their times are the scheduler's."""
    shape = shape_of(world)
    if shape is not None and shape.gpu != CPU:
        return False
    cores = [(len(node.ranks), (node.facts.cpu_allowed or 0)) for node in world.nodes]
    return any(ranks > count for ranks, count in cores)


def _spread_notes(world: World, fail: float) -> tuple[str, ...]:
    bound = f"the runs' own spread reaches down to {fail:.2f} of their median (99.9 %)"
    if fail < TOO_NOISY:
        bound = "these runs lie too far apart to tell a slow one"
    if is_crowded(world):
        return bound, "ranks share cores, so a slow run warns and does not fail"
    return (bound,)


class FigureReference(OfCollectives):
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
        self._steps = [(fleet_shape(run.world), _by_step(run)) for run in runs]
        self._since = max(run.started for run in runs)[:10]
        self._asked = False

    def expect(self, world: World, measurement: Measurement) -> Expectation | None:
        shape, what = fleet_shape(world), measured_alike(measurement)
        found = [known[what] for one, known in self._runs if one == shape and what in known]
        if not found:
            return None
        self._asked = True
        figures = [(one.time.median, one.busbw) for one in found]
        joined = _joined(world, "baseline", self._source(len(found)), figures)
        if len(found) > 1:
            return joined
        if lacks_samples(found[0].samples):
            # Nothing shows the spread of such a figure, so that it may warn and not fail.
            return replace(joined, time_range=None, busbw_range=None, may_fail=False)
        # Of one run its own interval is all that tells of its spread.
        time = found[0].time
        return replace(
            joined,
            outside_warn=time.median / time.high,
            outside_fail=time.median / time.high,
            time_range=(time.low, time.high),
            busbw_range=busbw_interval(found[0]),
        )

    def expect_step(self, world: World, training: Training) -> Expectation | None:
        """Return the expected mean step, from the runs that trained the same on such nodes."""
        shape, key = fleet_shape(world), trained_alike(training)
        found = [known[key] for one, known in self._steps if one == shape and key in known]
        if not found:
            return None
        self._asked = True
        figures = [(one.step.mean, 0.0) for one in found]
        joined = _joined(world, "baseline", self._source(len(found)), figures)
        if len(found) > 1:
            return joined
        step = found[0].step
        alone = step.mean / step.high
        return replace(
            joined, outside_warn=alone, outside_fail=alone, time_range=(step.low, step.high)
        )

    def _source(self, runs: int) -> str:
        return f"baseline {self.name!r}, {runs} run{'s' * (runs > 1)} of {self._since}"

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


def trained_alike(training: Training) -> tuple[Any, ...]:
    """Two training results with the same key are of the same work."""
    return (
        *(training.strategy, training.bucket_mb, training.model, training.ranks, training.batch),
        *(training.micro_batches, training.precision, training.study),
    )


def _by_step(run: Run) -> dict[tuple[Any, ...], Training]:
    return {trained_alike(one): one for one in run.training if 0 < one.step.mean <= one.step.high}


def _by_what(run: Run) -> dict[tuple[Any, ...], Measurement]:
    return {
        measured_alike(one): one for one in run.measurements if 0 < one.time.median <= one.time.high
    }
