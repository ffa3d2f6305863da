"""Findings about speed: latency at small sizes, bus bandwidth at large ones, stragglers.

A figure is graded against what is expected of it: a share, a status, and where that comes from.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from wirespeed.checks.registry import check_id, tell
from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.bench_records import ENDORSED, Quantity, ReferenceFigure, ReferenceKind
from wirespeed.model.records import Finding, Measurement, Status, Subject, World
from wirespeed.model.units import format_bandwidth, format_duration, format_size
from wirespeed.reference import ASSUMED_SPREAD, ORIGINS, TOO_NOISY, Expectation, Reference
from wirespeed.reference.roofline import passed, roofline, share
from wirespeed.reference.shape import shape_of
from wirespeed.statistics import LEAST_SAMPLES, lacks_samples, lies_outside

SPREAD = 2.0
"""A rank that takes this much longer than the middle rank in one operation is told."""
STRAGGLER = 1.5
"""A rank that does so by this much in most synchronising operations is a straggler."""
WIDE = 0.5
"""An interval of the median wider than this on either side supports no verdict."""
UNREFERENCED = "no reference for this hardware"
NO_TRAFFIC = "one rank: nothing is sent"
SYNCHRONISING = tuple(op for op, one in CATALOGUE.items() if one.synchronising)


def speed_findings(
    world: World, measurements: Sequence[Measurement], reference: Reference
) -> list[Finding]:
    """Return LAT and BW for each operation that was timed, and SKEW-001.

    An operation in which nothing moves, as with one rank, has no bandwidth.
    """
    findings = []
    for op in CATALOGUE:
        timed = sorted((m for m in measurements if m.op == op), key=lambda m: m.size_bytes)
        if timed:
            findings.append(_judged("LAT", world, timed[0], reference))
        if timed and timed[-1].size_bytes > timed[0].size_bytes and timed[-1].busbw > 0:
            findings.append(_judged("BW", world, timed[-1], reference))
    return [*findings, _stragglers(world, measurements)]


def baseline_findings(
    world: World, measurements: Sequence[Measurement], baselines: Reference
) -> list[Finding]:
    """Return a finding for each operation whose figures a baseline of the user knows.

    The operation's worst figure stands for it. Latency counts up to `LATENCY_BYTES`, above it bandwidth.
    """
    findings = []
    for op in CATALOGUE:
        judged = []
        for measurement in measurements:
            if measurement.op == op and baselines.expect(world, measurement) is not None:
                small = measurement.size_bytes <= LATENCY_BYTES or measurement.busbw <= 0
                judged.append(_judged("LAT" if small else "BW", world, measurement, baselines))
        if judged:
            findings.append(min(judged, key=lambda finding: _WORST.index(finding.status)))
    return findings


LATENCY_BYTES = 2**16
"""Up to this size a figure is judged by its time, above it by its bandwidth."""
_WORST: tuple[Status, ...] = ("fail", "warn", "measured", "pass", "not_checked", "not_applicable")


def is_speed_judged(findings: Sequence[Finding]) -> bool:
    """Return whether speed was judged: something was compared with what is named, and nothing that
    could have been compared was too uncertain for it."""
    compared = [finding for finding in findings if _is_compared(finding)]
    return bool(compared) and all(finding.status != "measured" for finding in compared)


_OF_SPEED = ("BW-", "LAT-")


def _is_compared(finding: Finding) -> bool:
    """Return whether a figure of speed has something endorsed to be compared with."""
    if finding.id == STEP:
        return True
    endorsed = any(reference.kind in ENDORSED for reference in finding.references)
    return endorsed and finding.id.startswith(_OF_SPEED)


STEP = "TRAIN-012"
"""The finding about a training step, which is made only where a baseline knows it."""


def _judged(prefix: str, world: World, measurement: Measurement, reference: Reference) -> Finding:
    found = reference.expect(world, measurement)
    grade = _grade_latency if prefix == "LAT" else _grade_bandwidth
    graded = grade(found, measurement) if found else None
    id, title = check_id(prefix, measurement.op), _title(prefix, measurement)
    known = graded.references if graded else ()
    if because := _uncertain(measurement):
        return Finding(
            id=id,
            status="measured",
            title=title,
            because=because,
            saw=f"{_precision(measurement)} after {measurement.iterations} iterations",
            fix="try a longer --level, or a quieter machine",
            next=_again(measurement),
            references=known,
        )
    limit = _limit(world, measurement) if prefix == "BW" else _Bound()
    apart = _by_spread(id, title, world, measurement, limit)
    if found is None or graded is None:
        return apart
    references = graded.references + limit.references
    if apart.status == "warn" and graded.status == "pass" and found.origin != "reference":
        # A run can be as good as all before, and one of its ranks still lie apart.
        return replace(apart, references=references)
    outside = _outside(found, measurement, prefix)
    time = measurement.time
    graded = worse(graded, by_range(found, graded.share, time.low, time.high))
    if graded.status == "pass" and (changed := _changed(found, measurement, grade)):
        found, graded = changed
        references += graded.references
    if graded.status == "pass" and (reason := why_no_pass(found)):
        because = f"{reason}; {outside}" if outside else reason
        return replace(
            apart, because=because, evidence=found.notes + limit.evidence, references=references
        )
    saw = _figure(prefix, measurement)
    if prefix == "BW":
        saw = f"{graded.share:.2f} of {ORIGINS[found.origin]}"
    told = Finding(
        id=id,
        status=graded.status,
        title=title,
        saw=f"{saw}; {outside}" if outside else saw,
        expected=graded.expected,
        evidence=found.notes + limit.evidence,
        references=references,
    )
    return told if told.status == "pass" else _advised(told, world, measurement, graded.share)


_SEVERAL = 3
"""Runs of which it is said that a figure lies outside of them all."""


def _outside(expectation: Expectation, measurement: Measurement, prefix: str) -> str:
    """Return `outside all 5 earlier runs (−88 %)` where it lies far off all of them; else nothing."""
    time, ends = measurement.time, expectation.time_range
    several = expectation.origin in ("baseline", "fleet") and expectation.samples >= _SEVERAL
    if not (several and ends and ends[0] > 0 and 0 < time.low <= time.high):
        return ""
    if not lies_outside((time.low, time.high), ends):
        return ""
    usual = expectation.busbw if prefix == "BW" else expectation.time_s
    own = measurement.busbw if prefix == "BW" else time.median
    change = f" ({own / usual - 1:+.0%})".replace("-", "−").replace("%", " %") if usual else ""
    return f"outside all {expectation.samples} earlier runs{change}"


def why_no_pass(expectation: Expectation) -> str:
    """Return why being as good as this expectation does not pass a speed; empty where it does."""
    if ends := _range_of(expectation):
        too_noisy = ends[1] > ends[0] / FAR_BELOW  # half of them would be within their range
    else:
        too_noisy = expectation.outside_fail < TOO_NOISY
    if too_noisy:
        runs = expectation.source if expectation.origin != "reference" else "earlier runs"
        return f"{runs} lie too far apart to tell a slow run"
    if expectation.origin == "fleet":
        return f"as in the {expectation.source}, which nobody has set as a baseline"
    return ""


def _advised(told: Finding, world: World, measurement: Measurement, share: float) -> Finding:
    """Of what is too slow: the likeliest reasons, and the command that names who it is."""
    from wirespeed.reference.reasons import reasons

    shape = shape_of(world)
    likely = enumerate(reasons(shape, world.nodes, share) if shape else (), 1)
    because = "; ".join(f"({number}) {one}" for number, one in likely)
    several = len(world.nodes) > 1
    return replace(
        told,
        because=f"likeliest first: {because}" if shape else "",
        fix="see which node, link or rank is slow, then look at it",
        next="wirespeed locate" if several else f"wirespeed bench {measurement.op} -o wide",
    )


@dataclass(frozen=True, slots=True)
class _Bound:
    """What the links found allow, and why more may be seen; nothing where no model holds."""

    evidence: tuple[str, ...] = ()
    references: tuple[ReferenceFigure, ...] = ()


def _limit(world: World, measurement: Measurement) -> _Bound:
    shape = shape_of(world) if measurement.groups == "all" and measurement.busbw else None
    limit = roofline(shape, measurement.op, measurement.engine) if shape else None
    if shape is None or limit is None or not limit.holds(measurement.busbw):
        return _Bound()
    above = passed(shape, measurement.op, measurement.busbw, limit)
    told = tuple(filter(None, (share(measurement.busbw, limit), above)))
    line = _figure_against(measurement, "roofline", limit.model, "busbw", limit.busbw)
    return _Bound(told, (line,))


def _by_spread(
    id: str, title: str, world: World, measurement: Measurement, limit: _Bound
) -> Finding:
    """Return the finding without a reference: measured, or a warning where one rank is far slower."""
    alone = Finding(
        id=id,
        status="measured",
        title=title,
        because=NO_TRAFFIC if measurement.ranks < 2 else UNREFERENCED,
        evidence=limit.evidence,
        references=limit.references,
    )
    worst = _worst_rank(measurement)
    if worst is None or measurement.op not in SYNCHRONISING:
        return alone
    rank, ratio = worst
    apart = ratio > SPREAD
    if not apart:
        return replace(alone, saw=f"slowest rank {ratio:.2f}× the median rank's time")
    return replace(
        alone,
        status="warn",
        subject=Subject("rank", f"rank {rank}"),
        saw=f"rank {rank}{_at(world, rank)} takes {ratio:.2f}× the median rank's time",
        expected=f"ranks within {SPREAD:g}× of the median rank",
        because="",
        next=f"wirespeed bench {measurement.op} -o wide",
    )


def _at(world: World, rank: int) -> str:
    host = next((node.host for node in world.nodes if rank in node.ranks), "")
    return f" on {host}" if host else ""


def _title(prefix: str, measurement: Measurement) -> str:
    size = f" {format_size(measurement.size_bytes)}" if measurement.size_bytes else ""
    return f"{measurement.op}{size}: {_figure(prefix, measurement)}"


def _figure(prefix: str, measurement: Measurement) -> str:
    precision = f"{_precision(measurement)}, n={measurement.iterations}"
    if prefix == "BW":
        return f"{format_bandwidth(measurement.busbw)} busbw ({precision})"
    return f"{format_duration(measurement.time.median)} ({precision})"


def _uncertain(measurement: Measurement) -> str:
    """Return why a figure supports no verdict: it has no interval, or a wide one; else nothing."""
    if lacks_samples(measurement.samples):
        return f"a 95 % interval needs {LEAST_SAMPLES} samples"
    return (
        f"95 % interval wider than ±{WIDE * 100:.0f} %" if _half_width(measurement) > WIDE else ""
    )


def _precision(measurement: Measurement) -> str:
    if lacks_samples(measurement.samples):
        return "no interval"
    return f"±{_half_width(measurement) * 100:.0f} %"


def _again(measurement: Measurement) -> str:
    """The same once more, with time to become certain."""
    size = measurement.size_bytes
    sizes = f" -b {size} -e {size}" if size else ""
    return f"wirespeed bench {measurement.op}{sizes} --time-per-size 10"


def _half_width(measurement: Measurement) -> float:
    time = measurement.time
    if time.median <= 0:
        return 0.0
    return max(time.high - time.median, time.median - time.low) / time.median


def _worst_rank(measurement: Measurement) -> tuple[int, float] | None:
    """(global rank, its median over the middle rank's) of the slowest, for 3 ranks and more."""
    medians = measurement.rank_medians
    middle = median(medians) if len(medians) > 2 else 0.0
    if middle <= 0:
        return None
    rank = max(range(len(medians)), key=medians.__getitem__)
    return rank, medians[rank] / middle


def _stragglers(world: World, measurements: Sequence[Measurement]) -> Finding:
    worst = [_worst_rank(m) for m in measurements if m.op in SYNCHRONISING and m.groups == "all"]
    known = [one for one in worst if one is not None]
    if not known:
        return tell("SKEW-001", "too few", operations=", ".join(SYNCHRONISING))
    slow = [rank for rank, ratio in known if ratio > STRAGGLER]
    for rank in sorted(set(slow)):
        if slow.count(rank) * 2 > len(known):
            ratios = [ratio for other, ratio in known if other == rank]
            return tell(
                "SKEW-001",
                "straggler",
                subject=Subject("rank", f"rank {rank}"),
                rank=rank,
                at=_at(world, rank),
                node=_at(world, rank).replace(" on", ","),
                ratio=median(ratios),
                count=len(ratios),
                of=len(known),
                most=STRAGGLER,
            )
    return tell("SKEW-001", "good", most=STRAGGLER)


# Grading.

_FAIL_BELOW, _WARN_BELOW = 0.8, 0.9
"""Share of the expected bandwidth; latency fails at its inverse, squared (it varies more)."""


@dataclass(frozen=True, slots=True)
class Graded:
    status: Status
    share: float
    """1 is what is expected, more is better."""
    expected: str
    """The figure, its spread, and where it comes from."""
    references: tuple[ReferenceFigure, ...]
    """The same as figures: that which decides, then those that contradict it."""


def _grade_latency(expectation: Expectation, measurement: Measurement) -> Graded | None:
    """Grade a time: low only where its whole interval is outside the spread of the expectation."""
    if not expectation.time_s:
        return None
    time = measurement.time
    share = expectation.time_s / time.median
    status = _status(share**0.5, _at_best(share, measurement), expectation)
    figure = _reference(expectation, measurement, "time")
    return Graded(status, share, _expected_time(expectation), (figure,))


def _expected_time(expectation: Expectation) -> str:
    spread = _between(expectation.time_range, format_duration)
    return f"{format_duration(expectation.time_s or 0.0)}{spread} ({expectation.source})"


def grade_time(expectation: Expectation, seconds: float, low: float) -> Graded:
    """Grade a duration such as that of a training step, as bandwidth is graded.

    low: the lower end of its interval, seconds.
    """
    share = (expectation.time_s or 0.0) / seconds
    at_best = share * seconds / low if low > 0 else share
    status = _status(share, at_best, expectation)
    return Graded(status, share, _expected_time(expectation), ())


def _grade_bandwidth(expectation: Expectation, measurement: Measurement) -> Graded | None:
    """Grade a bandwidth. A pass that another known figure contradicts clearly is a warning."""
    if not expectation.busbw:
        return None
    share = measurement.busbw / expectation.busbw
    status = _status(share, _at_best(share, measurement), expectation)
    if expectation.gate and measurement.busbw < expectation.gate and status == "pass":
        status = "warn"
    against = [one for one in expectation.also if _contradicts(one, measurement)]
    if status == "pass" and against:
        status = "warn"
    expected = format_bandwidth(expectation.busbw)
    expected += _between(expectation.busbw_range, format_bandwidth)
    if expectation.lone:
        expected += f", the only known figure, ±{ASSUMED_SPREAD * 100:.0f} % assumed"
    told = [f"{expected} ({expectation.source})"]
    told += [
        f"but {measurement.busbw / rate:.2f} of {format_bandwidth(rate)} ({one.source})"
        for one in against
        if (rate := one.busbw)
    ]
    figures = [_reference(one, measurement, "busbw") for one in (expectation, *against)]
    return Graded(status, share, "; ".join(told), tuple(figures))


def _reference(one: Expectation, measurement: Measurement, quantity: Quantity) -> ReferenceFigure:
    time = quantity == "time"
    value, ends = (one.time_s, one.time_range) if time else (one.busbw, one.busbw_range)
    figure = value or 0.0, ends or (None, None)
    return _figure_against(measurement, one.origin, one.source, quantity, *figure)


def _figure_against(
    m: Measurement,
    kind: ReferenceKind,
    source: str,
    quantity: Quantity,
    value: float,
    ends: tuple[float | None, float | None] = (None, None),
) -> ReferenceFigure:
    """What `m` was held against; value and ends: bytes a second, or seconds."""
    same = ("op", "engine", "dtype", "redop", "in_place", "size_bytes", "ranks")
    told: dict[str, Any] = {name: getattr(m, name) for name in same}
    told |= {quantity: value, f"{quantity}_low": ends[0], f"{quantity}_high": ends[1]}
    return ReferenceFigure(kind=kind, source=source, **told)


def _status(score: float, at_best: float, expectation: Expectation) -> Status:
    """at_best: the share by the better end of the interval, which the spread is compared with."""
    warn_below = expectation.warn_below or _WARN_BELOW
    fail_below = _FAIL_BELOW if expectation.may_fail else 0.0
    if score < fail_below and at_best <= expectation.outside_fail:
        # Runs that nobody has endorsed may warn of a change; they cannot say what is good.
        return "warn" if expectation.origin == "fleet" else "fail"
    return "warn" if score < warn_below and at_best <= expectation.outside_warn else "pass"


def _at_best(share: float, measurement: Measurement) -> float:
    """The share if the time were at the lower end of its interval."""
    time = measurement.time
    return share * time.median / time.low if time.low > 0 else share


def _contradicts(one: Expectation, measurement: Measurement) -> bool:
    """Whether another cluster of the same kind, fully comparable, is clearly faster."""
    comparable = one.busbw is not None and one.may_fail and one.origin == "reference"
    return comparable and measurement.busbw < _FAIL_BELOW * (one.busbw or 0.0)


def _between(ends: tuple[float, float] | None, show: Callable[[float], str]) -> str:
    return f", {show(ends[0])} … {show(ends[1])}" if ends else ""


FAR_BELOW = 0.5
"""Share of a baseline below which a figure fails that lies off all of its runs, however few these are:
of three noisy runs Student's t calls even a tenth of their median possible."""
_FEW = 2
"""Runs from which on a baseline has a range."""


def by_range(expectation: Expectation, share: float, low: float, high: float) -> Status:
    """Judge a figure by the range of a baseline's runs: off all of them, it is low.

    low, high: the interval of its time, seconds.
    """
    ends = _range_of(expectation)
    if ends is None or not 0 < low <= high or not lies_outside((low, high), ends):
        return "pass"
    if share < FAR_BELOW and expectation.may_fail:
        return "fail"
    return "warn" if share < _WARN_BELOW else "pass"


def _range_of(expectation: Expectation) -> tuple[float, float] | None:
    """Return the shortest and longest time of a baseline's runs; None where there is no range."""
    ends = expectation.time_range
    several = expectation.origin == "baseline" and expectation.samples >= _FEW
    return ends if several and ends and ends[0] > 0 else None


def worse(one: Graded, status: Status) -> Graded:
    """Return the grade with the graver of its own status and another."""
    return replace(one, status=min(one.status, status, key=_WORST.index))


def _changed(
    found: Expectation,
    measurement: Measurement,
    grade: Callable[[Expectation, Measurement], Graded | None],
) -> tuple[Expectation, Graded] | None:
    """Return the earlier runs that a figure falls below, though it passes what somebody endorsed."""
    for earlier in found.also:
        graded = grade(earlier, measurement) if earlier.origin == "fleet" else None
        if graded and graded.status == "warn":
            return earlier, graded
    return None
