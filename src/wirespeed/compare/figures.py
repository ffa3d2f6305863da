"""What each run measured, by what was measured: the figures that are compared."""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from statistics import NormalDist, fmean, median
from typing import Any

from wirespeed.compare.estimate import Figure, quantile
from wirespeed.errors import UsageError
from wirespeed.model.bench_records import MedianTime, ToolFigure
from wirespeed.model.codec import to_json
from wirespeed.model.compute_records import ComputeRate
from wirespeed.model.derived_records import Difference, FigureKind, What
from wirespeed.model.lasting_records import Goodput, SoakCell
from wirespeed.model.records import Measurement, NodeFacts, Run
from wirespeed.model.storage_records import StorageFigure
from wirespeed.model.training_records import Training
from wirespeed.model.units import GIGA
from wirespeed.model.watch_records import Watched
from wirespeed.statistics import LEAST_SAMPLES, median_interval, reach_of_ends

COLLECTIVE = (
    *("op", "engine", "dtype", "redop", "root", "in_place", "size_bytes", "ranks", "groups"),
    *("timing", "blocking", "in_flight", "setting"),
)
TRAINING = (
    *("strategy", "bucket_mb", "model", "ranks", "batch", "micro_batches", "precision", "study"),
)
GOODPUT = ("figure", "strategy", "model", "ranks", "for_s")
"""Time that starting takes weighs more in a short run: only what was to last as long is alike."""
WATCHED = ("figure", "ranks")
REPLAY = ("figure", "ranks", "sequence")
LOAD = ("figure", "beside", "ranks")
COMPUTE = ("op", "dtype", "size", "together", "cores", "host", "device")
SOAK = ("op", "dtype", "size_bytes", "ranks")
_UNIT = 1e12
"""Operations or bytes whose time is compared."""
TOOL = ("tool", "test", "place", "size_bytes", "unit", "settings")
STORAGE = ("figure", "ranks", "folder")
_PARTS = (COLLECTIVE, TRAINING, GOODPUT, SOAK, WATCHED, REPLAY, LOAD, COMPUTE, TOOL, STORAGE)
FIELDS = tuple(dict.fromkeys(name for part in _PARTS for name in part))
"""What must be alike; `--across` takes one of them out."""


def figures_of(run: Run, across: Collection[str] = ()) -> dict[What, Figure]:
    """The run's figures; one that was measured twice is the mean of both.

    Raises UsageError when a field in `across` has several values within this one run.
    """
    found: dict[What, list[Figure]] = {}
    seen: dict[What, set[tuple[object, ...]]] = {}
    for what, left_out, figure in _all(run, across):
        found.setdefault(what, []).append(figure)
        seen.setdefault(what, set()).add(left_out)
        if len(seen[what]) > 1:
            raise UsageError(
                f"run {run.id} has several figures that differ in {' and '.join(across)} only",
                expected="one value in each run for what --across pairs",
                next=f"wirespeed runs show {run.id}",
            )
    return {
        what: figures[0] if len(figures) == 1 else _mean(figures) for what, figures in found.items()
    }


def _all(run: Run, across: Collection[str]) -> Iterator[tuple[What, tuple[object, ...], Figure]]:
    """(what is compared, values of what is left out by `across`, figure)."""
    for kind, names, values, figure in _measured(run):
        told = list(zip(names, values, strict=True))
        fields = tuple((name, value) for name, value in told if name not in across)
        yield What(kind, fields), tuple(value for name, value in told if name in across), figure


def _measured(run: Run) -> Iterator[tuple[FigureKind, Sequence[str], Sequence[Any], Figure]]:
    """(kind, names of its fields, their values, figure)."""
    for m in (one for one in run.measurements if one.time.median > 0):
        yield "collective", COLLECTIVE, attrgetter(*COLLECTIVE)(m), _of_measurement(m)
    for t in (one for one in run.training if one.step.mean > 0):
        yield "training", TRAINING, attrgetter(*TRAINING)(t), _of_training(t)
    if g := run.goodput:
        for name, figure in _of_goodput(g).items():
            yield "goodput", GOODPUT, (name, g.strategy, g.model, g.ranks, g.asked_s), figure
    if w := run.watched:
        for name, figure in _of_watched(w).items():
            yield "watched", WATCHED, (name, w.world_size), figure
    if r := run.replay:
        for name, time in (("sequence", r.unbroken), ("paced sequence", r.paced)):
            yield "replay", REPLAY, (name, run.world.size, r.title), _of_median(time)
    yield from _loads(run)
    yield from _of_devices(run)
    for f in (one for one in run.figures if one.unit and one.value > 0 and not one.beyond):
        # Without settings the key is that of a run stored before they were kept.
        names = TOOL if f.settings else TOOL[:-1]
        yield "tool", names, attrgetter(*names)(f), _of_tool(f)
    for key, cells in _soaked(run).items():
        yield "soak", SOAK, key, _of_soak(cells)
    yield from _stored(run)


def _stored(run: Run) -> Iterator[tuple[FigureKind, Sequence[str], Sequence[Any], Figure]]:
    for one in run.storage.figures if run.storage else ():
        name, figure = _of_storage(one)
        yield "storage", STORAGE, (name, one.ranks, run.storage and run.storage.folder), figure


def _of_devices(run: Run) -> Iterator[tuple[FigureKind, Sequence[str], Sequence[Any], Figure]]:
    """What devices did, without what was kept up for long, which has another length each time."""
    for one in run.compute.rates if run.compute else ():
        if one.own_per_second > 0 and not one.held:
            yield "compute", COMPUTE, attrgetter(*COMPUTE)(one), _of_device(one)


def _soaked(run: Run) -> dict[tuple[Any, ...], list[SoakCell]]:
    """The windows' cells by what was called."""
    found: dict[tuple[Any, ...], list[SoakCell]] = {}
    for cell in (cell for window in run.soak.windows for cell in window.cells) if run.soak else ():
        if cell.median > 0:
            key = (cell.op, cell.dtype, cell.size_bytes, run.world.size)
            found.setdefault(key, []).append(cell)
    return found


def _of_goodput(g: Goodput) -> dict[str, Figure]:
    """The ratio has no interval of its own: what runs of the same show is all that tells its noise."""
    found = {}
    if g.ratio > 0:
        found["goodput"] = Figure(log=-math.log(g.ratio), within=None)
    if g.step_s > 0:
        within = _error(g.step_low_s, g.step_high_s, NormalDist().inv_cdf(0.975))
        found["step"] = Figure(log=math.log(g.step_s), within=within, samples=g.step_samples)
    return found


def _of_watched(w: Watched) -> dict[str, Figure]:
    """The step, and the share of it that is not exposed communication, as a goodput is compared: an
    exposed share that goes from 0.1 to 0.2 % costs nothing, one that goes from 30 to 40 % a lot."""
    reach: float = reach_of_ends(w.samples)
    found = {}
    if w.step > 0:
        within = _error(w.step_low, w.step_high, reach)
        found["step"] = Figure(log=math.log(w.step), within=within, samples=w.steps)
    if w.exposed_known and w.exposed < 1:
        within = _error(1 - w.exposed_high, 1 - w.exposed_low, reach)
        found["unexposed"] = Figure(log=-math.log1p(-w.exposed), within=within, samples=w.steps)
    return found


def _of_median(time: MedianTime) -> Figure:
    within = _error(time.low, time.high, reach_of_ends(time.samples))
    return Figure(log=math.log(time.median), within=within, samples=time.samples)


def _loads(run: Run) -> Iterator[tuple[FigureKind, Sequence[str], Sequence[Any], Figure]]:
    """What each takes beside the others; what it takes alone is a figure of the collective."""
    for one in (load for load in run.under_load if load.together > 0):
        ends = one.together_interval
        within = _error(ends.low, ends.high, reach_of_ends(one.rounds)) if ends else None
        figure = Figure(log=math.log(one.together), within=within, samples=one.rounds)
        yield "load", LOAD, (one.name, one.beside, run.world.size), figure


def _of_device(one: ComputeRate) -> Figure:
    """Seconds of so much work as a GPU does in one, by time of its own."""
    low, high = (one.own_per_second * (1 + side * one.own_spread) for side in (-1, 1))
    bytes_moved = 0.0 if one.computes else one.own_per_second
    return Figure(
        log=math.log(_UNIT / one.own_per_second),
        within=_error(low, high, NormalDist().inv_cdf(0.975)),
        busbw=bytes_moved,
        samples=one.samples,
        wrong=bool(one.wrong),
    )


def _of_storage(one: StorageFigure) -> tuple[str, Figure]:
    """Seconds of all ranks together for 10^9 bytes, or for one small file or piece."""
    files = one.per_s
    rate = files or one.rate or one.latency
    scale = 1.0 if files else GIGA
    within = _error(scale / rate.high, scale / rate.low, reach_of_ends(rate.samples))
    what = f"{one.access} {'a sample' if files else '1 GB'} ({one.engine})"
    return what, Figure(log=math.log(scale / rate.median), within=within, samples=rate.samples)


def _of_soak(cells: Sequence[SoakCell]) -> Figure:
    """The middle of the windows' medians: calls of one window share its moment, so windows count."""
    medians = [cell.median for cell in cells]
    within = None
    if len(cells) >= LEAST_SAMPLES:
        ends = median_interval(medians)
        within = _error(ends.low, ends.high, reach_of_ends(len(cells)))
    return Figure(
        log=math.log(median(medians)),
        within=within,
        samples=sum(cell.calls for cell in cells),
        wrong=any(cell.wrong for cell in cells),
    )


def _of_measurement(m: Measurement) -> Figure:
    return Figure(
        log=math.log(m.time.median),
        within=_error(m.time.low, m.time.high, reach_of_ends(m.samples)),
        busbw=m.busbw,
        samples=m.iterations,
        wrong=bool(m.wrong),
    )


def _of_tool(f: ToolFigure) -> Figure:
    """Of a rate the time of one of its unit, so that more is better."""
    sign = 1 if f.unit == "s" else -1
    within = None
    if f.low is not None and f.high is not None:
        within = _error(f.low, f.high, NormalDist().inv_cdf(0.975))
    rate = f.value if f.unit == "B/s" else 0.0
    return Figure(log=sign * math.log(f.value), within=within, busbw=rate, samples=f.samples)


def _of_training(t: Training) -> Figure:
    reach = quantile(0.95, t.rounds - 1) if t.rounds > 1 else math.inf
    return Figure(
        log=math.log(t.step.mean),
        within=_error(t.step.low, t.step.high, reach),
        samples=t.step.samples,
        wrong=t.equal is False,
    )


def _error(low: float, high: float, reach: float) -> float | None:
    """Standard error of the logarithm; None where there is no interval, as in an import."""
    if not 0 < low < high < math.inf:
        return None
    return math.log(high / low) / 2 / reach


def _mean(figures: list[Figure]) -> Figure:
    errors = [f.within for f in figures if f.within is not None]
    return Figure(
        log=fmean(f.log for f in figures),
        within=math.hypot(*errors) / len(errors) if errors else None,
        busbw=fmean(f.busbw for f in figures),
        samples=sum(f.samples for f in figures),
        wrong=any(f.wrong for f in figures),
    )


# Names of series that were less exact in runs stored by earlier versions.

_ONE_CALL = re.compile(r"(?:OpenSHMEM|MPI)_?\w* (?=\S)")
_ITSELF = "osu "


def earlier_name(what: What) -> What | None:
    """Return the name that an earlier version gave such a series; None where it is the same.

    Until then an import of perftest, iperf3 or OSU kept no settings, OSU's one-sided tests had no
    call in their name, and its collectives no library.
    """
    told = dict(what.fields)
    engine = str(told.get("engine") or "")
    if what.kind == "collective" and engine.startswith(_ITSELF):
        return What(what.kind, tuple({**told, "engine": _ITSELF.strip()}.items()))
    if what.kind != "tool" or not told.pop("settings", None):
        return None
    if told.get("tool") == "osu":
        told["test"] = _ONE_CALL.sub("", str(told["test"]), count=1)
    return What(what.kind, tuple(told.items()))


def same_series(whats: Iterable[What]) -> dict[What, What]:
    """Return by name of an earlier version the series of today that it stands for.

    Only where one of these is such a series: of several nobody knows which was meant.
    """
    known = dict.fromkeys(whats)
    found: dict[What, list[What]] = {}
    for what in known:
        earlier = earlier_name(what)
        if earlier is not None and earlier in known:
            found.setdefault(earlier, []).append(what)
    return {earlier: today[0] for earlier, today in found.items() if len(today) == 1}


# What is recorded of a run beside its figures, and what of that differs between two sides.

GROUPS = ("versions", "environment", "hosts", "image", "hardware", "clocks", "world", "options")

_NODE_FACTS = {
    "versions": ("cuda", "gpu.driver", "kernel", "nccl", "os", "python", "torch"),
    "image": ("image", "image.digest"),
    "hardware": (
        *("cpu.model", "cpu.logical", "cpu.allowed", "cpu.quota", "gpu.count", "numa.nodes"),
        *("memlock.soft", "memory.limit_bytes", "memory.total_bytes", "shm.size_bytes"),
        *("net.gloo.interface", "net.nccl.interfaces"),
    ),
    "clocks": ("cpu.governor", "cpu.scaling_driver"),
}
_DEVICES = {
    "gpus": {
        "name": "hardware",
        "memory_bytes": "hardware",
        "ecc": "hardware",
        "clock_sm_max_MHz": "clocks",
        "power_limit_W": "clocks",
        "slowed_by": "clocks",
    },
    "nics": {"mtu": "hardware", "speed_Gbitps": "hardware"},
    "rdma": {"rate_Gbitps": "hardware", "state": "hardware", "firmware": "versions"},
}
_OPTIONS = (
    *("level", "warmup", "iterations", "precision", "max_time", "rounds", "steps"),
    *("time_per_size", "checkpoint_every", "inject", "command"),
)
"""How long and how often was measured, and what was done meanwhile; what was measured is in each figure
itself. But the command of a launched job: who changes its arguments wants to see what that does."""
_PROCESS_OWN = (
    *("OMPI_MCA_orte_", "OMPI_MCA_ess_", "NCCL_HOSTID", "TORCHELASTIC_RUN_ID", "MASTER_PORT"),
)
"""Variables that a launcher makes up for each start."""

_ENVIRONMENT = ("environment", "")
"""Stands where the variables were read: to be without any is another thing than not known."""

Facts = dict[tuple[str, str], frozenset[str]]
"""Values by (group, name); several where nodes or runs differ."""


def facts_of(runs: Iterable[Run]) -> Facts:
    """Everything recorded that may explain a difference, of all runs of one side."""
    values: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        for group, name, value in _of_run(run):
            values.setdefault((group, name), set()).add(_text(value))
    return {key: frozenset(found) for key, found in values.items()}


def differences(
    before: Facts, after: Facts
) -> tuple[tuple[Difference, ...], tuple[str, ...], tuple[str, ...]]:
    """(what differs, groups that are alike, groups that are not recorded on both sides).

    What one side alone recorded is unknown, not different; but a variable is set or is not.
    """
    both = {_ENVIRONMENT} & before.keys() & after.keys()
    names = [
        key
        for key in sorted({*before, *after}, key=lambda key: (GROUPS.index(key[0]), key[1]))
        if (both if key[0] == "environment" else key in before and key in after)
    ]
    found = tuple(
        Difference(*key, _shown(before, key), _shown(after, key))
        for key in names
        if before.get(key) != after.get(key)
    )
    known = {group for group, _ in names}
    differing = {one.group for one in found}
    alike = tuple(g for g in GROUPS if g in known and g not in differing)
    return found, alike, tuple(g for g in GROUPS if g not in known)


def _shown(facts: Facts, key: tuple[str, str]) -> str:
    return " | ".join(sorted(facts.get(key, ("(not set)",))))


def _of_run(run: Run) -> Iterator[tuple[str, str, Any]]:
    versions = dict(run.versions)
    yield from (("versions", name, value) for name, value in versions.items())
    for variables in (run.environment, *(node.environment for node in run.world.nodes)):
        for name, value in variables.items():
            if not name.startswith(_PROCESS_OWN):
                yield "environment", name, value
    if run.world.nodes:
        yield *_ENVIRONMENT, "recorded"
        yield "hosts", "hosts", sorted(node.host for node in run.world.nodes)
    if run.world.size:
        yield "world", "ranks", run.world.size
        yield "world", "nodes", run.world.node_count or None
    for name in ("backend", "launcher"):
        if value := getattr(run.world, name):
            yield "world", name, value
    yield from (("options", name, run.config[name]) for name in _OPTIONS if name in run.config)
    for node in run.world.nodes:
        yield from _of_node(node, versions)


def _of_node(node: NodeFacts, versions: Mapping[str, str]) -> Iterator[tuple[str, str, Any]]:
    facts = to_json(node.facts)
    for group, known in _NODE_FACTS.items():
        for name in known:
            if name in facts and name not in versions:
                yield group, name, facts[name]
    for kind, names in _DEVICES.items():
        devices: Sequence[Mapping[str, Any]] = getattr(node, kind)
        real = [one for one in devices if not one.get("loopback") and not one.get("virtual")]
        for name, group in names.items():
            values = sorted(_text(one[name]) for one in real if name in one)
            if values:
                yield group, f"{kind.removesuffix('s')} {name}", list(dict.fromkeys(values))


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return "auto" if value is None else str(value)
