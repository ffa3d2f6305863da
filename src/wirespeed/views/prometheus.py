"""Prometheus text exposition 0.0.4, for node_exporter's textfile collector and for an endpoint.

The names and the format follow prometheus.io/docs/instrumenting/exposition_formats and
prometheus.io/docs/practices/naming: base units, the unit in the name, HELP and TYPE for each family. A
run tells the state of today, so everything is a gauge without a timestamp. What grows without bound,
as ids of runs and words of findings do, is no label, except the run's id in `wirespeed_run_info`.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from msgspec import Struct

from wirespeed.compiled import Compiled
from wirespeed.model.bench_records import MedianTime
from wirespeed.model.compute_records import ComputeRate
from wirespeed.model.records import Located, Measurement, Run, TimeStats
from wirespeed.model.verdicts import words_of
from wirespeed.statistics import has_interval, lacks_samples
from wirespeed.views.lasting import calls_of
from wirespeed.views.sections import place, references_of
from wirespeed.views.text import STATUSES, Style
from wirespeed.views.watched import latest, ranks_of

Sample = tuple[Mapping[str, object], float]
"""(labels, value)."""


class Family(Struct, frozen=True):
    """One metric: its name, its help, its labels (beside `command`)."""

    name: str
    help: str
    labels: tuple[str, ...]

    @property
    def lasts(self) -> bool:
        """Whether it tells of work that lasts: goodput or a soak."""
        return self.name.startswith(("wirespeed_goodput_", "wirespeed_soak_"))


def _read(texts: Mapping[str, bytes]) -> tuple[Family, ...]:
    from wirespeed.yaml_tree import data_of

    return tuple(
        Family(f"wirespeed_{name}", help, tuple(group["labels"]))
        for group in data_of(texts["metrics.yaml"])
        for name, help in group["metrics"].items()
    )


TEXTS = Compiled(Path(__file__).parent, "metrics.yaml", "metrics.json", tuple[Family, ...], _read)
FAMILIES: tuple[Family, ...] = TEXTS.load()
"""Every metric, in the order in which they are written: metrics.yaml; docs/report.md lists them."""

_Figures = Iterator[tuple[tuple[object, ...], Mapping[str, float | None]]]
"""(values of the labels, figures by the metric's name; None where there is none)."""
MOST_RANKS = 64
"""Ranks of a watched job that have a series, the latest first."""
_NOT_KEPT = "not kept"
"""Stands for the id of incidents that were counted only, since there were too many."""


def _whole(run: Run) -> _Figures:
    world = run.world
    version = run.versions.get("wirespeed", "")
    yield (run.id, world.backend, world.launcher, version), {"run_info": 1}
    yield (
        (),
        {
            "run_start_timestamp_seconds": _started(run),
            "run_duration_seconds": run.seconds,
            "run_exit_code": run.exit_code,
            "run_speed_judged": None if run.speed_judged is None else float(run.speed_judged),
            "world_ranks": world.size,
            "world_nodes": world.node_count,
        },
    )
    for verdict in dict.fromkeys((*words_of(run.command), run.verdict)):
        yield (verdict,), {"verdict": float(run.verdict == verdict)}


def _started(run: Run) -> float | None:
    try:
        when = datetime.fromisoformat(run.started)
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _findings(run: Run) -> _Figures:
    counted = Counter(str(finding.status) for finding in run.findings)
    for status in STATUSES:
        yield (status,), {"findings": counted[status]}
    shown = [one for one in run.findings if one.status in ("fail", "warn")]
    for check, number in sorted(Counter((one.id, one.status) for one in shown).items()):
        yield check, {"check_findings": number}
    about_nodes = (one for one in shown if one.subject.kind == "node")
    for node, number in Counter((one.subject.name, one.status) for one in about_nodes).items():
        yield node, {"node_findings": number}


def _measurements(run: Run) -> _Figures:
    for m in run.measurements:
        alone = m.blocking and m.in_flight == 1
        timing = m.timing if alone else f"{m.timing}, {m.in_flight} in flight"
        how = (m.op, m.size_bytes, m.ranks, m.dtype, m.redop, m.engine, m.groups, timing)
        low, high = _ends(m.time, m.samples)
        yield (
            (*how, place(m), m.setting),
            {
                "collective_time_seconds": m.time.median,
                "collective_time_low_seconds": low,
                "collective_time_high_seconds": high,
                "collective_busbw_bytes_per_second": _rate(m, m.time.median),
                "collective_busbw_low_bytes_per_second": _rate(m, high),
                "collective_busbw_high_bytes_per_second": _rate(m, low),
                "collective_samples": m.iterations,
                "collective_wrong_elements": m.wrong,
            },
        )


def _ends(
    one: TimeStats | MedianTime | ComputeRate, samples: int
) -> tuple[float | None, float | None]:
    """Return the ends of the interval; of too few samples there is none, and no metric of it."""
    return (None, None) if lacks_samples(samples) else (one.low, one.high)


def _rate(m: Measurement, time: float | None) -> float | None:
    """The bus bandwidth if it took `time`; None where it has no meaning."""
    return m.busbw * m.time.median / time if m.busbw > 0 and time else None


def _graded(run: Run) -> _Figures:
    for r in references_of(run):
        how = (r.op, r.size_bytes, r.ranks, r.dtype, r.redop, r.engine)
        busbw, time = (r.value if r.quantity == one else None for one in ("busbw", "time"))
        yield (
            (*how, "in" if r.in_place else "out", r.kind),
            {
                "collective_reference_busbw_bytes_per_second": busbw,
                "collective_reference_time_seconds": time,
            },
        )


def _trainings(run: Run) -> _Figures:
    for one in run.training:
        bucket = "" if one.bucket_mb is None else f"{one.bucket_mb:g}"
        known = has_interval(one.rounds)
        yield (
            (one.strategy, bucket, one.model, one.ranks, one.study, one.batch, one.precision),
            {
                "training_step_seconds": one.step.mean,
                "training_step_low_seconds": one.step.low if known else None,
                "training_step_high_seconds": one.step.high if known else None,
                "training_samples_per_second": one.samples_per_s,
                "training_exposed_seconds": one.exposed.value if one.exposed else None,
                "training_scaling_efficiency_ratio": one.efficiency.value
                if one.efficiency
                else None,
                "training_peak_memory_bytes": one.memory.peak if one.memory else None,
            },
        )


def _pairs(run: Run) -> _Figures:
    """Medians over the partners, of the slowest nodes first."""
    if run.located is None:
        return
    rates = _rates(run.located)
    for host in sorted(rates, key=lambda host: min(map(median, rates[host]))):
        for way, found in zip(("sends", "receives"), rates[host], strict=True):
            yield (host, way), {"node_bandwidth_bytes_per_second": median(found)}


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


def _devices(run: Run) -> _Figures:
    for r in run.compute.rates if run.compute else ():
        if r.reason:
            continue
        working = "sustained" if r.held else "together" if r.together else "alone"
        low, high = _ends(r, r.samples)
        yield (
            (r.host, r.device, r.op, r.dtype, r.size, working),
            {
                "device_rate_per_second": r.per_second,
                "device_rate_low_per_second": low,
                "device_rate_high_per_second": high,
                "device_own_rate_per_second": r.own_per_second,
                "device_peak_ratio": r.per_second / r.peak if r.peak else None,
                "device_held_ratio": r.held or None,
                "device_clock_hertz": r.clock_MHz * 1e6 or None,
                "device_temperature_celsius": r.temperature_C or None,
                "device_power_watts": r.power_W or None,
            },
        )
    for p in run.compute.proofs if run.compute else ():
        wrong = sum(fault.wrong for fault in p.faults)
        figures = {"device_results_compared": p.elements, "device_wrong_results": wrong}
        yield (p.host, p.device, p.dtype), figures if not p.reason else {}


def _goodput(run: Run) -> _Figures:
    if run.goodput is None:
        return
    one = run.goodput
    about = (one.model, one.strategy, one.ranks)
    yield (
        about,
        {
            "goodput_ratio": one.ratio,
            "goodput_wall_seconds": one.wall_s,
            "goodput_restarts": one.restarts,
            "goodput_failed_worlds": one.failures,
            "goodput_steps": one.steps,
            "goodput_lost_steps": one.lost_steps,
            "goodput_step_seconds": one.step_s if one.step_samples else None,
            "goodput_checkpoints": one.checkpoints,
            "goodput_checkpoint_seconds": one.checkpoint_s if one.checkpoints else None,
        },
    )
    for cause, seconds in one.parts_s.items():
        yield (*about, cause), {"goodput_seconds": seconds}


def _soak(run: Run) -> _Figures:
    """No incident at all is a figure too: of the ids that any soak may have."""
    if run.soak is None:
        return
    one, ranks = run.soak, run.world.size
    yield (
        (ranks,),
        {
            "soak_seconds": one.elapsed_s,
            "soak_calls": one.calls,
            "soak_compared_bytes": one.checked_bytes,
            "soak_wrong_calls": one.wrong_calls,
            "soak_stalled_calls": one.stall_calls,
            "soak_worlds": one.worlds,
            "soak_failed_worlds": len(one.failures),
        },
    )
    counted = Counter({"SOAK-001": 0, "SOAK-002": 0})
    counted.update(incident.id for incident in one.incidents)
    if more := one.uncounted.get("incidents", 0):
        counted[_NOT_KEPT] += more
    for id, number in sorted(counted.items()):
        yield (ranks, id), {"soak_incidents": number}
    for call in calls_of(one):
        times = {"": call.median, "p99_": call.p99, "slowest_": call.max}
        figures = {f"soak_call_{which}seconds": time for which, time in times.items()}
        yield (call.op, call.dtype, call.size_bytes, ranks), figures


def _storage(run: Run) -> _Figures:
    if run.storage is None:
        return
    for one in run.storage.figures:
        rate, calls = one.rate, one.per_s
        low, high = _ends(rate, rate.samples) if rate else (None, None)
        yield (
            (one.access, one.engine, one.ranks),
            {
                "storage_bytes_per_second": rate.median if rate else None,
                "storage_low_bytes_per_second": low,
                "storage_high_bytes_per_second": high,
                "storage_calls_per_second": calls.median if calls else None,
                "storage_call_seconds": one.latency.median,
                "storage_call_p99_seconds": one.p99,
            },
        )
    for node in run.storage.nodes:
        files = node.free_inodes if node.inodes else None
        free = {"storage_free_bytes": node.free, "storage_size_bytes": node.total}
        yield (node.host,), {**free, "storage_free_files": files}


def _watched(run: Run) -> _Figures:
    """Of the ranks only the latest: each would be a series."""
    if run.watched is None:
        return
    one, ranks = run.watched, run.watched.ranks
    timed = bool(one.steps and one.step)
    known = timed and has_interval(one.samples)
    yield (
        (ranks,),
        {
            "watched_steps": one.steps,
            "watched_step_seconds": one.step if timed else None,
            "watched_step_low_seconds": one.step_low if known else None,
            "watched_step_high_seconds": one.step_high if known else None,
            "watched_exposed_ratio": one.exposed if one.exposed_known else None,
            "watched_changes": len(one.changes),
        },
    )
    for part, took_ms in one.parts_ms.items():
        yield (ranks, part), {"watched_part_seconds": took_ms / 1e3}
    for rank in latest(ranks_of(one), MOST_RANKS):
        yield (rank.rank, rank.host), {"watched_rank_late_seconds": rank.late}
    for use in one.traffic:
        figures = {"bytes": use.bytes_per_step, "exposed_seconds": use.exposed}
        yield (use.group, use.op), {f"watched_traffic_{name}": v for name, v in figures.items()}


def _tools(run: Run) -> _Figures:
    names = {"B/s": "bytes_per_second", "FLOP/s": "flops", "1/s": "per_second", "s": "seconds"}
    for f in run.figures:
        if f.unit and not f.beyond:
            test = f"{f.test} ({f.settings})" if f.settings else f.test
            yield (f.tool, test, f.place, f.size_bytes), {f"tool_{names[f.unit]}": f.value}


_SOURCES = (
    *(_whole, _findings, _measurements, _graded, _pairs, _trainings, _devices, _goodput, _soak),
    *(_watched, _tools, _storage),
)


def samples_of(run: Run) -> dict[Family, list[Sample]]:
    """Every metric with what the run tells of it, which may be nothing."""
    told: dict[str, list[tuple[tuple[object, ...], float]]] = defaultdict(list)
    for labels, figures in (found for source in _SOURCES for found in source(run)):
        for name, value in figures.items():
            if value is not None:
                told[f"wirespeed_{name}"].append((labels, value))
    return {
        family: [
            (dict(zip(family.labels, labels, strict=True)), value)
            for labels, value in told[family.name]
        ]
        for family in FAMILIES
    }


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
    told = [(run, samples_of(run)) for run in newest_of_each(runs)]
    lines: list[str] = []
    left: list[tuple[str, str, int]] = []
    for family in FAMILIES:
        found = [(run, _bounded(samples[family])) for run, samples in told]
        left += [(run.command, family.name, more) for run, (_, more) in found]
        lines += _lines(family, [(run, samples) for run, (samples, _) in found])
    lines += _head(_LEFT_OUT, "Series of a metric that are not told, because there are too many.")
    for command, name, more in left:
        if more:
            lines.append(_line(_LEFT_OUT, {"command": command, "metric": name}, more))
    return "\n".join(lines) + "\n"


STATES = ("fail", "warn", "unknown", "pass")
"""Of a node, the worst first."""


def render_states(states: Mapping[str, str]) -> str:
    """Nodes by what is known of them from all runs; states: by host one of `STATES`."""
    help = {family.name: family.help for family in FAMILIES}
    counts = Counter(states.values())
    worst_first = sorted(states.items(), key=lambda one: (STATES.index(one[1]), one[0]))
    nodes = "wirespeed_nodes", [({"state": state}, counts[state]) for state in STATES]
    each = [({"host": host, "state": state}, 1) for host, state in worst_first[:MOST_SERIES]]
    lines: list[str] = []
    for name, samples in (nodes, ("wirespeed_node_state", each)):
        lines += [*_head(name, help[name]), *(_line(name, *sample) for sample in samples)]
    return "\n".join(lines) + "\n"


def newest_of_each(runs: Iterable[Run]) -> list[Run]:
    """Of each command the run that started last: a label for the run would grow without bound."""
    found: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: run.started):
        found[run.command] = run
    return list(found.values())


def _bounded(samples: Iterable[Sample]) -> tuple[list[Sample], int]:
    """(the samples that are numbers, each set of labels once; how many there are too many)."""
    found: dict[tuple[str, ...], Sample] = {}
    for labels, value in samples:
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


if __name__ == "__main__":
    TEXTS.write()
