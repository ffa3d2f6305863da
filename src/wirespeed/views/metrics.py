"""The metrics of runs that check, measure, locate and train; those that last have their own."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median
from typing import get_args

from wirespeed.records import Located, LogVerdict, Measurement, NodeVerdict, Run
from wirespeed.records_reference import Quantity, ReferenceFigure
from wirespeed.records_training import Training
from wirespeed.views.metric_family import Family, Sample, single
from wirespeed.views.references import references_of

__all__ = ["RUN_METRICS"]

_STATUSES = ("pass", "warn", "fail", "not_checked")


def _info(run: Run) -> Iterator[Sample]:
    yield (
        {
            "run": run.id,
            "backend": run.world.backend,
            "launcher": run.world.launcher,
            "version": run.versions.get("wirespeed", ""),
        },
        1,
    )


def _started(run: Run) -> Iterator[Sample]:
    from datetime import UTC, datetime

    try:
        when = datetime.fromisoformat(run.started)
    except ValueError:
        return
    known = when if when.tzinfo else when.replace(tzinfo=UTC)
    yield {}, known.timestamp()


def _verdict(run: Run) -> Iterator[Sample]:
    for verdict in get_args(LogVerdict if run.command == "diagnose" else NodeVerdict):
        yield {"verdict": verdict}, float(run.verdict == verdict)


def _findings(run: Run) -> Iterator[Sample]:
    counted: Counter[str] = Counter(finding.status for finding in run.findings)
    for status in _STATUSES:
        yield {"status": status}, counted[status]


def _by_check(run: Run) -> Iterator[Sample]:
    shown = (one for one in run.findings if one.status in ("fail", "warn"))
    counted = Counter((finding.id, finding.status) for finding in shown)
    for (id, status), number in sorted(counted.items()):
        yield {"id": id, "status": status}, number


def _by_node(run: Run) -> Iterator[Sample]:
    shown = [one for one in run.findings if one.subject.kind == "node"]
    counted = Counter((one.subject.name, one.status) for one in shown)
    for (host, status), number in counted.items():
        if status in ("fail", "warn"):
            yield {"host": host, "status": status}, number


_HOW = (
    "op",
    "size_bytes",
    "ranks",
    "dtype",
    "redop",
    "engine",
    "groups",
    "timing",
    "place",
    "setting",
)


def _measured(
    value: Callable[[Measurement], float | None],
) -> Callable[[Run], Iterator[Sample]]:
    def samples(run: Run) -> Iterator[Sample]:
        for m in run.measurements:
            figure = value(m)
            if figure is not None:
                yield dict(zip(_HOW, _how(m), strict=True)), figure

    return samples


def _how(m: Measurement) -> tuple[object, ...]:
    timing = m.timing if m.blocking and m.in_flight == 1 else f"{m.timing}, {m.in_flight} in flight"
    place = "in" if m.in_place else "out"
    return (
        m.op,
        m.size_bytes,
        m.ranks,
        m.dtype,
        m.redop,
        m.engine,
        m.groups,
        timing,
        place,
        m.setting,
    )


def _rate(m: Measurement, time: float) -> float | None:
    """The bus bandwidth if it took `time`; None where it has no meaning."""
    return m.busbw * m.time.median / time if m.busbw > 0 and time > 0 else None


_AGAINST = ("op", "size_bytes", "ranks", "dtype", "redop", "engine", "place", "kind")


def _graded(quantity: Quantity) -> Callable[[Run], Iterator[Sample]]:
    def samples(run: Run) -> Iterator[Sample]:
        for known in references_of(run):
            if known.quantity == quantity:
                yield dict(zip(_AGAINST, _against(known), strict=True)), known.value

    return samples


def _against(r: ReferenceFigure) -> tuple[object, ...]:
    place = "in" if r.in_place else "out"
    return (r.op, r.size_bytes, r.ranks, r.dtype, r.redop, r.engine, place, r.kind)


_STEP = ("strategy", "bucket_mb", "model", "ranks", "study", "batch", "precision")


def _trained(value: Callable[[Training], float | None]) -> Callable[[Run], Iterator[Sample]]:
    def samples(run: Run) -> Iterator[Sample]:
        for one in run.training:
            figure = value(one)
            bucket = "" if one.bucket_mb is None else f"{one.bucket_mb:g}"
            how = (one.strategy, bucket, one.model, one.ranks, one.study, one.batch, one.precision)
            if figure is not None:
                yield dict(zip(_STEP, how, strict=True)), figure

    return samples


def _pairs(run: Run) -> Iterator[Sample]:
    """Medians over the partners, of the slowest nodes first."""
    if run.located is None:
        return
    rates = _rates(run.located)
    for host in sorted(rates, key=lambda host: min(map(median, rates[host]))):
        for way, found in zip(("sends", "receives"), rates[host], strict=True):
            yield {"host": host, "direction": way}, median(found)


def _rates(located: Located) -> dict[str, tuple[list[float], list[float]]]:
    """By node: what it sends and what it receives, bytes a second."""
    rates: dict[str, tuple[list[float], list[float]]] = {}
    for pair in located.pairs:
        for source, target, rate in (
            (pair.first, pair.second, pair.forth),
            (pair.second, pair.first, pair.back),
        ):
            if math.isfinite(rate):
                rates.setdefault(source, ([], []))[0].append(rate)
                rates.setdefault(target, ([], []))[1].append(rate)
    return {host: both for host, both in rates.items() if all(both)}


_CI = "of the 95 % interval of the median"

RUN_METRICS: tuple[Family, ...] = (
    Family(
        "wirespeed_run_info",
        "The run that these figures come from; always 1.",
        ("run", "backend", "launcher", "version"),
        _info,
    ),
    Family("wirespeed_run_start_timestamp_seconds", "When the run began, Unix time.", (), _started),
    Family(
        "wirespeed_run_duration_seconds",
        "How long the run took.",
        (),
        single(lambda run: run.seconds),
    ),
    Family(
        "wirespeed_run_exit_code",
        "0 good, 1 a finding, 3 could not measure.",
        (),
        single(lambda run: run.exit_code),
    ),
    Family("wirespeed_verdict", "1 for the verdict of the run, else 0.", ("verdict",), _verdict),
    Family(
        "wirespeed_world_ranks", "Ranks that took part.", (), single(lambda run: run.world.size)
    ),
    Family(
        "wirespeed_world_nodes",
        "Nodes that took part.",
        (),
        single(lambda run: run.world.node_count),
    ),
    Family("wirespeed_findings", "Findings of the run, by status.", ("status",), _findings),
    Family(
        "wirespeed_check_findings",
        "Failures and warnings by the check that found them (wirespeed check --explain ID).",
        ("id", "status"),
        _by_check,
    ),
    Family(
        "wirespeed_node_findings",
        "Failures and warnings that name a node.",
        ("host", "status"),
        _by_node,
    ),
    Family(
        "wirespeed_collective_time_seconds",
        "Median time of an operation on its slowest rank.",
        _HOW,
        _measured(lambda m: m.time.median),
    ),
    Family(
        "wirespeed_collective_time_low_seconds",
        f"Lower end {_CI} time.",
        _HOW,
        _measured(lambda m: m.time.low),
    ),
    Family(
        "wirespeed_collective_time_high_seconds",
        f"Upper end {_CI} time.",
        _HOW,
        _measured(lambda m: m.time.high),
    ),
    Family(
        "wirespeed_collective_busbw_bytes_per_second",
        "Bus bandwidth at the median time, as nccl-tests counts it.",
        _HOW,
        _measured(lambda m: _rate(m, m.time.median)),
    ),
    Family(
        "wirespeed_collective_busbw_low_bytes_per_second",
        f"Bus bandwidth at the upper end {_CI} time.",
        _HOW,
        _measured(lambda m: _rate(m, m.time.high)),
    ),
    Family(
        "wirespeed_collective_busbw_high_bytes_per_second",
        f"Bus bandwidth at the lower end {_CI} time.",
        _HOW,
        _measured(lambda m: _rate(m, m.time.low)),
    ),
    Family(
        "wirespeed_collective_samples",
        "Timed iterations behind the figure.",
        _HOW,
        _measured(lambda m: m.iterations),
    ),
    Family(
        "wirespeed_collective_wrong_elements",
        "Wrong elements in the data check; absent where it was not checked.",
        _HOW,
        _measured(lambda m: m.wrong),
    ),
    Family(
        "wirespeed_collective_reference_busbw_bytes_per_second",
        "Bus bandwidth that the run graded against: baseline, fleet, reference or roofline.",
        _AGAINST,
        _graded("busbw"),
    ),
    Family(
        "wirespeed_collective_reference_time_seconds",
        "Time that the run graded against: baseline, fleet or reference.",
        _AGAINST,
        _graded("time"),
    ),
    Family(
        "wirespeed_node_bandwidth_bytes_per_second",
        "Median over its partners of what a node sends and receives (wirespeed locate).",
        ("host", "direction"),
        _pairs,
    ),
    Family(
        "wirespeed_training_step_seconds",
        "Mean step of the slowest rank.",
        _STEP,
        _trained(lambda one: one.step.mean),
    ),
    Family(
        "wirespeed_training_step_low_seconds",
        "Lower end of the 95 % interval of the mean step.",
        _STEP,
        _trained(lambda one: one.step.low),
    ),
    Family(
        "wirespeed_training_step_high_seconds",
        "Upper end of the 95 % interval of the mean step.",
        _STEP,
        _trained(lambda one: one.step.high),
    ),
    Family(
        "wirespeed_training_samples_per_second",
        "Samples trained in a second, over all ranks.",
        _STEP,
        _trained(lambda one: one.samples_per_s),
    ),
    Family(
        "wirespeed_training_exposed_seconds",
        "Communication of a step that no computing hides.",
        _STEP,
        _trained(lambda one: one.exposed.value if one.exposed else None),
    ),
    Family(
        "wirespeed_training_scaling_efficiency_ratio",
        "Throughput over ranks times that of the smallest world; 1 is ideal.",
        _STEP,
        _trained(lambda one: one.efficiency.value if one.efficiency else None),
    ),
    Family(
        "wirespeed_training_peak_memory_bytes",
        "Most memory that was live at once on the rank that needs most.",
        _STEP,
        _trained(lambda one: float(one.memory.peak) if one.memory else None),
    ),
)
