"""Prometheus text exposition 0.0.4, for node_exporter's textfile collector and for an endpoint.

The names and the format follow prometheus.io/docs/instrumenting/exposition_formats and
prometheus.io/docs/practices/naming: base units, the unit in the name, HELP and TYPE for each family. A
run tells the state of today, so everything is a gauge without a timestamp. What grows without bound,
as ids of runs and words of findings do, is no label, except the run's id in `wirespeed_run_info`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, get_args

from wirespeed.model.lasting_records import Goodput, Soak, SoakCell
from wirespeed.model.records import Located, LogVerdict, Measurement, NodeVerdict, Run
from wirespeed.model.reference_records import ReferenceFigure
from wirespeed.model.training_records import Training
from wirespeed.views.lasting import calls_of
from wirespeed.views.sections import place, references_of
from wirespeed.views.text import Style

Sample = tuple[Mapping[str, object], float]
"""(labels, value)."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name, its help, its labels (beside `command`), and how a run gives samples."""

    name: str
    help: str
    labels: tuple[str, ...]
    samples: Callable[[Run], Iterable[Sample]]


def _families(
    of: Callable[[Run], Iterable[tuple[Mapping[str, object], Any]]],
    labels: tuple[str, ...],
    metrics: Mapping[str, tuple[str, Callable[[Any], float | None]]],
) -> Iterator[Family]:
    """of: what a run tells figures of, with its labels. metrics: by name its help and its figure, None
    where there is none."""

    def samples(run: Run, *, value: Callable[[Any], float | None]) -> Iterator[Sample]:
        for about, one in of(run):
            figure = value(one)
            if figure is not None:
                yield about, figure

    for name, (help, value) in metrics.items():
        yield Family(f"wirespeed_{name}", help, labels, partial(samples, value=value))


def _whole(run: Run) -> Iterator[tuple[Mapping[str, object], Run]]:
    yield {}, run


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


def _measurements(run: Run) -> Iterator[tuple[Mapping[str, object], Measurement]]:
    for m in run.measurements:
        alone = m.blocking and m.in_flight == 1
        timing = m.timing if alone else f"{m.timing}, {m.in_flight} in flight"
        how = (m.op, m.size_bytes, m.ranks, m.dtype, m.redop, m.engine, m.groups, timing)
        yield dict(zip(_HOW, (*how, place(m), m.setting), strict=True)), m


def _rate(m: Measurement, time: float) -> float | None:
    """The bus bandwidth if it took `time`; None where it has no meaning."""
    return m.busbw * m.time.median / time if m.busbw > 0 and time > 0 else None


_AGAINST = ("op", "size_bytes", "ranks", "dtype", "redop", "engine", "place", "kind")


def _graded(run: Run) -> Iterator[tuple[Mapping[str, object], ReferenceFigure]]:
    for r in references_of(run):
        how = (r.op, r.size_bytes, r.ranks, r.dtype, r.redop, r.engine)
        yield dict(zip(_AGAINST, (*how, "in" if r.in_place else "out", r.kind), strict=True)), r


_STEP = ("strategy", "bucket_mb", "model", "ranks", "study", "batch", "precision")


def _trainings(run: Run) -> Iterator[tuple[Mapping[str, object], Training]]:
    for one in run.training:
        bucket = "" if one.bucket_mb is None else f"{one.bucket_mb:g}"
        how = (one.strategy, bucket, one.model, one.ranks, one.study, one.batch, one.precision)
        yield dict(zip(_STEP, how, strict=True)), one


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

_RUN_METRICS: tuple[Family, ...] = (
    Family(
        "wirespeed_run_info",
        "The run that these figures come from; always 1.",
        ("run", "backend", "launcher", "version"),
        _info,
    ),
    Family("wirespeed_run_start_timestamp_seconds", "When the run began, Unix time.", (), _started),
    *_families(
        _whole,
        (),
        {
            "run_duration_seconds": ("How long the run took.", lambda run: run.seconds),
            "run_exit_code": (
                "0 good, 1 a finding, 3 could not measure.",
                lambda run: run.exit_code,
            ),
        },
    ),
    Family("wirespeed_verdict", "1 for the verdict of the run, else 0.", ("verdict",), _verdict),
    *_families(
        _whole,
        (),
        {
            "world_ranks": ("Ranks that took part.", lambda run: run.world.size),
            "world_nodes": ("Nodes that took part.", lambda run: run.world.node_count),
        },
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
    *_families(
        _measurements,
        _HOW,
        {
            "collective_time_seconds": (
                "Median time of an operation on its slowest rank.",
                lambda m: m.time.median,
            ),
            "collective_time_low_seconds": (f"Lower end {_CI} time.", lambda m: m.time.low),
            "collective_time_high_seconds": (f"Upper end {_CI} time.", lambda m: m.time.high),
            "collective_busbw_bytes_per_second": (
                "Bus bandwidth at the median time, as nccl-tests counts it.",
                lambda m: _rate(m, m.time.median),
            ),
            "collective_busbw_low_bytes_per_second": (
                f"Bus bandwidth at the upper end {_CI} time.",
                lambda m: _rate(m, m.time.high),
            ),
            "collective_busbw_high_bytes_per_second": (
                f"Bus bandwidth at the lower end {_CI} time.",
                lambda m: _rate(m, m.time.low),
            ),
            "collective_samples": ("Timed iterations behind the figure.", lambda m: m.iterations),
            "collective_wrong_elements": (
                "Wrong elements in the data check; absent where it was not checked.",
                lambda m: m.wrong,
            ),
        },
    ),
    *_families(
        _graded,
        _AGAINST,
        {
            "collective_reference_busbw_bytes_per_second": (
                "Bus bandwidth that the run graded against: baseline, fleet, reference or roofline.",
                lambda one: one.value if one.quantity == "busbw" else None,
            ),
            "collective_reference_time_seconds": (
                "Time that the run graded against: baseline, fleet or reference.",
                lambda one: one.value if one.quantity == "time" else None,
            ),
        },
    ),
    Family(
        "wirespeed_node_bandwidth_bytes_per_second",
        "Median over its partners of what a node sends and receives (wirespeed locate).",
        ("host", "direction"),
        _pairs,
    ),
    *_families(
        _trainings,
        _STEP,
        {
            "training_step_seconds": ("Mean step of the slowest rank.", lambda one: one.step.mean),
            "training_step_low_seconds": (
                "Lower end of the 95 % interval of the mean step.",
                lambda one: one.step.low,
            ),
            "training_step_high_seconds": (
                "Upper end of the 95 % interval of the mean step.",
                lambda one: one.step.high,
            ),
            "training_samples_per_second": (
                "Samples trained in a second, over all ranks.",
                lambda one: one.samples_per_s,
            ),
            "training_exposed_seconds": (
                "Communication of a step that no computing hides.",
                lambda one: one.exposed.value if one.exposed else None,
            ),
            "training_scaling_efficiency_ratio": (
                "Throughput over ranks times that of the smallest world; 1 is ideal.",
                lambda one: one.efficiency.value if one.efficiency else None,
            ),
            "training_peak_memory_bytes": (
                "Most memory that was live at once on the rank that needs most.",
                lambda one: float(one.memory.peak) if one.memory else None,
            ),
        },
    ),
)


_TRAINED = ("model", "strategy", "ranks")
_SOAKED = ("ranks",)
_CALLED = ("op", "dtype", "size_bytes", "ranks")
_NOT_KEPT = "not kept"
"""Stands for the id of incidents that were counted only, since there were too many."""


def _goodputs(run: Run) -> Iterator[tuple[Mapping[str, object], Goodput]]:
    if g := run.goodput:
        yield dict(zip(_TRAINED, (g.model, g.strategy, g.ranks), strict=True)), g


def _parts(run: Run) -> Iterator[Sample]:
    for about, one in _goodputs(run):
        for cause, seconds in one.parts_s.items():
            yield {**about, "cause": cause}, seconds


def _soaks(run: Run) -> Iterator[tuple[Mapping[str, object], Soak]]:
    if run.soak:
        yield {"ranks": run.world.size}, run.soak


def _incidents(run: Run) -> Iterator[Sample]:
    """None at all is a sample too: of the ids that any soak may have."""
    if run.soak is None:
        return
    counted = Counter({"SOAK-001": 0, "SOAK-002": 0})
    counted.update(one.id for one in run.soak.incidents)
    if more := run.soak.uncounted.get("incidents", 0):
        counted[_NOT_KEPT] += more
    for id, number in sorted(counted.items()):
        yield {"ranks": run.world.size, "id": id}, number


def _calls(run: Run) -> Iterator[tuple[Mapping[str, object], SoakCell]]:
    for one in calls_of(run.soak) if run.soak else ():
        how = (one.op, one.dtype, one.size_bytes, run.world.size)
        yield dict(zip(_CALLED, how, strict=True)), one


LASTING_METRICS: tuple[Family, ...] = (
    *_families(
        _goodputs,
        _TRAINED,
        {
            "goodput_ratio": (
                "Useful time over wall time of training that lasted (wirespeed train --for).",
                lambda one: one.ratio,
            ),
        },
    ),
    Family(
        "wirespeed_goodput_seconds",
        "Where the wall time went, by cause: useful, and what was lost to each other one; they add up.",
        (*_TRAINED, "cause"),
        _parts,
    ),
    *_families(
        _goodputs,
        _TRAINED,
        {
            "goodput_wall_seconds": (
                "From the start of the first world of ranks to the end of the last.",
                lambda one: one.wall_s,
            ),
            "goodput_restarts": (
                "Worlds of ranks that were started after one that failed.",
                lambda one: one.restarts,
            ),
            "goodput_failed_worlds": ("Worlds of ranks that failed.", lambda one: one.failures),
            "goodput_steps": (
                "Steps of the run whose results are in the final state.",
                lambda one: one.steps,
            ),
            "goodput_lost_steps": (
                "Steps that had to be made again, or are not in the final state.",
                lambda one: one.lost_steps,
            ),
            "goodput_step_seconds": (
                "Mean step, without anything between steps.",
                lambda one: one.step_s if one.step_samples else None,
            ),
            "goodput_checkpoints": (
                "Checkpoints that were written whole.",
                lambda one: one.checkpoints,
            ),
            "goodput_checkpoint_seconds": (
                "Mean time that a checkpoint kept training waiting.",
                lambda one: one.checkpoint_s if one.checkpoints else None,
            ),
        },
    ),
    *_families(
        _soaks,
        _SOAKED,
        {
            "soak_seconds": (
                "How long was soaked (wirespeed check -l soak).",
                lambda one: one.elapsed_s,
            ),
            "soak_calls": (
                "Calls whose results were compared, element by element.",
                lambda one: one.calls,
            ),
            "soak_compared_bytes": (
                "Results that were compared, over all ranks.",
                lambda one: one.checked_bytes,
            ),
            "soak_wrong_calls": (
                "Calls with a wrong element on some rank.",
                lambda one: one.wrong_calls,
            ),
            "soak_stalled_calls": (
                "Calls that took many times as long as that operation takes.",
                lambda one: one.stall_calls,
            ),
        },
    ),
    Family(
        "wirespeed_soak_incidents",
        "Incidents by the finding that tells of them (wirespeed check --explain ID).",
        (*_SOAKED, "id"),
        _incidents,
    ),
    *_families(
        _soaks,
        _SOAKED,
        {
            "soak_worlds": (
                "Worlds of ranks that soaked, one after the other.",
                lambda one: one.worlds,
            ),
            "soak_failed_worlds": ("Worlds of ranks that failed.", lambda one: len(one.failures)),
        },
    ),
    *_families(
        _calls,
        _CALLED,
        {
            "soak_call_seconds": (
                "Middle window's median time of a call on its slowest rank.",
                lambda one: one.median,
            ),
            "soak_call_p99_seconds": (
                "Highest 99th percentile of any window.",
                lambda one: one.p99,
            ),
            "soak_call_slowest_seconds": ("Slowest call of all.", lambda one: one.max),
        },
    ),
)


FAMILIES: tuple[Family, ...] = (*_RUN_METRICS, *LASTING_METRICS)
"""Every metric, in the order in which they are written; docs/report.md lists them."""

MOST_SERIES = 2000
"""Of one family in one run; what is more is counted in `wirespeed_series_left_out`."""
_LONGEST = 200
"""Characters of a label's value."""
_LEFT_OUT = "wirespeed_series_left_out"


def render(run: Run, style: Style) -> str:
    """One run."""
    return render_all([run], style)


def render_all(runs: Sequence[Run], _: Style) -> str:
    """Several runs of different commands; of one command the newest is told."""
    told = newest_of_each(runs)
    lines: list[str] = []
    left: list[tuple[str, str, int]] = []
    for family in FAMILIES:
        found = [(run, _bounded(family, run)) for run in told]
        left += [(run.command, family.name, more) for run, (_, more) in found]
        lines += _lines(family, [(run, samples) for run, (samples, _) in found])
    lines += _head(_LEFT_OUT, "Series of a metric that are not told, because there are too many.")
    for command, name, more in left:
        if more:
            lines.append(_line(_LEFT_OUT, {"command": command, "metric": name}, more))
    return "\n".join(lines) + "\n"


def newest_of_each(runs: Iterable[Run]) -> list[Run]:
    """Of each command the run that started last: a label for the run would grow without bound."""
    found: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: run.started):
        found[run.command] = run
    return list(found.values())


def _bounded(family: Family, run: Run) -> tuple[list[Sample], int]:
    """(the samples that are numbers, each set of labels once; how many there are too many)."""
    found: dict[tuple[str, ...], Sample] = {}
    for labels, value in family.samples(run):
        if math.isfinite(value):
            found.setdefault(tuple(_text(one) for one in labels.values()), (labels, value))
    kept = list(found.values())[:MOST_SERIES]
    return kept, len(found) - len(kept)


def _lines(family: Family, found: Sequence[tuple[Run, Sequence[Sample]]]) -> list[str]:
    lines = [
        _line(family.name, {"command": run.command, **labels}, value)
        for run, samples in found
        for labels, value in samples
    ]
    return [*_head(family.name, family.help), *lines] if lines else []


def _head(name: str, help: str) -> list[str]:
    escaped = help.replace("\\", "\\\\").replace("\n", "\\n")
    return [f"# HELP {name} {escaped}", f"# TYPE {name} gauge"]


def _line(name: str, labels: Mapping[str, object], value: float) -> str:
    inside = ",".join(f'{key}="{_text(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {_number(value)}"


def _text(value: object) -> str:
    """A label's value: one line, bounded, and escaped as the format asks."""
    clean = Style().text(value)[:_LONGEST]
    return clean.replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
