"""Findings about speed: latency at small sizes, bus bandwidth at large ones, stragglers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from wirespeed.checks.grading import Grader, grade_bandwidth, grade_latency, reference_figure
from wirespeed.checks.per_node import worded
from wirespeed.checks.registry import check_id
from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.records import Finding, Measurement, Status, Subject, World
from wirespeed.model.reference_records import ReferenceFigure
from wirespeed.model.units import format_bandwidth, format_duration, format_size
from wirespeed.reference import Reference
from wirespeed.reference.reasons import reasons
from wirespeed.reference.roofline import passed, roofline, share
from wirespeed.reference.shape import shape_of

SPREAD = 2.0
"""A rank that takes this much longer than the middle rank in one operation is told."""
STRAGGLER = 1.5
"""A rank that does so by this much in most synchronising operations is a straggler."""
WIDE = 0.5
"""An interval of the median wider than this on either side supports no verdict."""
UNREFERENCED = "no reference for this hardware"
SYNCHRONISING = tuple(op for op, one in CATALOGUE.items() if one.synchronising)


def speed_findings(
    world: World, measurements: Sequence[Measurement], reference: Reference
) -> list[Finding]:
    """LAT and BW for each operation that was timed, and SKEW-001."""
    findings = []
    for op in CATALOGUE:
        timed = sorted((m for m in measurements if m.op == op), key=lambda m: m.size_bytes)
        if timed:
            findings.append(_graded("LAT", world, timed[0], reference, grade_latency))
        if timed and timed[-1].size_bytes > timed[0].size_bytes:
            findings.append(_graded("BW", world, timed[-1], reference, grade_bandwidth))
    return findings + _stragglers(world, measurements)


def _graded(
    prefix: str, world: World, measurement: Measurement, reference: Reference, grade: Grader
) -> Finding:
    found = reference.expect(world, measurement)
    graded = grade(found, measurement) if found else None
    id, title = check_id(prefix, measurement.op), _title(prefix, measurement)
    if _half_width(measurement) > WIDE:
        return Finding(
            id=id,
            status="not_checked",
            title=title,
            because=f"95 % interval wider than ±{WIDE * 100:.0f} %",
            saw=f"{_precision(measurement)} after {measurement.iterations} iterations",
            fix="try a longer --level, or a quieter machine",
            next=_again(measurement),
        )
    limit = _limit(world, measurement) if prefix == "BW" else _Bound()
    apart = _by_spread(id, title, world, measurement, limit)
    if found is None or graded is None:
        return apart
    references = graded.references + limit.references
    if apart.status == "warn" and graded.status == "pass" and found.origin != "reference":
        # A run can be as good as all before, and one of its ranks still lie apart.
        return replace(apart, references=references)
    low = graded.status != "pass"
    shape = shape_of(world) if low else None
    return Finding(
        id=id,
        status=graded.status,
        title=title,
        saw=graded.saw if prefix == "BW" else _figure(prefix, measurement),
        expected=graded.expected,
        because=_likeliest(reasons(shape, world.nodes, graded.share)) if shape else "",
        fix="see which node, link or rank is slow, then look at it" if low else "",
        next=_who(world, measurement) if low else "",
        evidence=graded.evidence + limit.evidence,
        references=references,
    )


def _who(world: World, measurement: Measurement) -> str:
    """The command that names who is slow."""
    if len(world.nodes) > 1:
        return "wirespeed locate"
    return f"wirespeed bench {measurement.op} -o wide"


def _likeliest(found: Sequence[str]) -> str:
    return "likeliest first: " + "; ".join(f"({n}) {one}" for n, one in enumerate(found, 1))


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
    line = reference_figure(measurement, "roofline", limit.model, "busbw", limit.busbw)
    return _Bound(told, (line,))


def _by_spread(
    id: str, title: str, world: World, measurement: Measurement, limit: _Bound
) -> Finding:
    """Without a reference: do the ranks agree with each other?"""
    worst = _worst_rank(measurement)
    if worst is None or measurement.op not in SYNCHRONISING:
        return Finding(
            id=id,
            status="pass",
            title=title,
            expected=UNREFERENCED,
            evidence=limit.evidence,
            references=limit.references,
        )
    rank, ratio = worst
    status: Status = "warn" if ratio > SPREAD else "pass"
    return Finding(
        id=id,
        status=status,
        title=title,
        subject=Subject("rank", f"rank {rank}") if status == "warn" else Subject("job", "job"),
        saw=f"rank {rank}{_at(world, rank)} takes {ratio:.2f}× the middle rank's time",
        expected=f"{UNREFERENCED}; ranks within {SPREAD:g}× of the middle one",
        next=f"wirespeed bench {measurement.op} -o wide" if status == "warn" else "",
        evidence=limit.evidence,
        references=limit.references,
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


def _precision(measurement: Measurement) -> str:
    return f"±{_half_width(measurement) * 100:.0f} %"


def _again(measurement: Measurement) -> str:
    """The same once more, with time to become certain."""
    size = measurement.size_bytes
    sizes = f" -b {size} -e {size}" if size else ""
    return f"wirespeed bench {measurement.op}{sizes} --max-time 10"


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


def _stragglers(world: World, measurements: Sequence[Measurement]) -> list[Finding]:
    worst = [_worst_rank(m) for m in measurements if m.op in SYNCHRONISING and m.groups == "all"]
    known = [one for one in worst if one is not None]
    if not known:
        reason = "it takes 3 ranks, and one of " + ", ".join(SYNCHRONISING)
        return [_skew("not_checked", "stragglers not checked", because=reason)]
    slow = [rank for rank, ratio in known if ratio > STRAGGLER]
    for rank in sorted(set(slow)):
        if slow.count(rank) * 2 > len(known):
            ratios = [ratio for other, ratio in known if other == rank]
            return [_straggler(world, rank, ratios, len(known))]
    return [_skew("pass", f"no rank takes {STRAGGLER:g}× the middle one's time in most operations")]


def _straggler(world: World, rank: int, ratios: list[float], of: int) -> Finding:
    return worded(
        id="SKEW-001",
        status="warn",
        title=f"rank {rank}{_at(world, rank)} is a straggler",
        subject=Subject("rank", f"rank {rank}"),
        saw=f"{median(ratios):.2f}× the middle rank's time in {len(ratios)} of {of} measurements",
        expected=f"within {STRAGGLER:g}× in most operations",
        fix=f"look at load, clocks and links of its node{_at(world, rank).replace(' on', ',')}",
        next="wirespeed bench all_reduce -o wide",
    )


def _skew(status: Status, title: str, because: str = "") -> Finding:
    return Finding(id="SKEW-001", status=status, title=title, because=because)
