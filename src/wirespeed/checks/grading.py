"""How good a figure is against what is expected of it: a share, a status, and where that comes from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wirespeed.model.records import Measurement, Status
from wirespeed.model.reference_records import Quantity, ReferenceFigure, ReferenceKind
from wirespeed.model.units import format_bandwidth, format_duration
from wirespeed.reference import ASSUMED_SPREAD, ORIGINS, Expectation

FAIL_BELOW, WARN_BELOW = 0.8, 0.9
"""Share of the expected bandwidth; latency fails at its inverse, squared (it varies more)."""


@dataclass(frozen=True, slots=True)
class Graded:
    status: Status
    share: float
    """1 is what is expected, more is better."""
    saw: str
    expected: str
    """The figure, its spread, and where it comes from."""
    evidence: tuple[str, ...]
    references: tuple[ReferenceFigure, ...]
    """The same as figures: that which decides, then those that contradict it."""


Grader = Callable[[Expectation, Measurement], Graded | None]
"""None: the expectation has no such figure."""


def grade_latency(expectation: Expectation, measurement: Measurement) -> Graded | None:
    """By time; low only where the whole interval is outside the spread of what it is compared with."""
    if not expectation.time_s:
        return None
    time = measurement.time
    share = expectation.time_s / time.median
    status = _status(share**0.5, _at_best(share, measurement), expectation)
    spread = _between(expectation.time_range, format_duration)
    expected = format_duration(expectation.time_s) + spread
    return _graded(status, share, expected, expectation, [_time(expectation, measurement)])


def grade_bandwidth(expectation: Expectation, measurement: Measurement) -> Graded | None:
    """By busbw. A pass that another known figure contradicts clearly is a warning."""
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
    others = [_other(one, measurement) for one in against]
    figures = [_busbw(one, measurement) for one in (expectation, *against)]
    return _graded(status, share, expected, expectation, figures, others)


def _graded(
    status: Status,
    share: float,
    expected: str,
    expectation: Expectation,
    references: Sequence[ReferenceFigure],
    others: Sequence[str] = (),
) -> Graded:
    return Graded(
        status=status,
        share=share,
        saw=f"{share:.2f} of {ORIGINS[expectation.origin]}",
        expected="; ".join([f"{expected} ({expectation.source})", *others]),
        evidence=expectation.notes,
        references=tuple(references),
    )


def _time(one: Expectation, measurement: Measurement) -> ReferenceFigure:
    value = one.time_s or 0.0
    return reference_figure(
        measurement, one.origin, one.source, "time", value, one.time_range or (None, None)
    )


def _busbw(one: Expectation, measurement: Measurement) -> ReferenceFigure:
    value = one.busbw or 0.0
    return reference_figure(
        measurement, one.origin, one.source, "busbw", value, one.busbw_range or (None, None)
    )


def reference_figure(
    m: Measurement,
    kind: ReferenceKind,
    source: str,
    quantity: Quantity,
    value: float,
    ends: tuple[float | None, float | None] = (None, None),
) -> ReferenceFigure:
    """What `m` was held against; value and ends: bytes a second, or seconds."""
    figures = {quantity: value, f"{quantity}_low": ends[0], f"{quantity}_high": ends[1]}
    return ReferenceFigure(
        kind=kind,
        source=source,
        op=m.op,
        engine=m.engine,
        dtype=m.dtype,
        redop=m.redop,
        in_place=m.in_place,
        size_bytes=m.size_bytes,
        ranks=m.ranks,
        **figures,
    )


def _other(one: Expectation, measurement: Measurement) -> str:
    rate = one.busbw or 0.0
    return f"but {measurement.busbw / rate:.2f} of {format_bandwidth(rate)} ({one.source})"


def _status(score: float, at_best: float, expectation: Expectation) -> Status:
    """at_best: the share by the better end of the interval, which the spread is compared with."""
    warn_below = expectation.warn_below or WARN_BELOW
    fail_below = FAIL_BELOW if expectation.may_fail else 0.0
    if score < fail_below and at_best <= expectation.outside_fail:
        return "fail"
    return "warn" if score < warn_below and at_best <= expectation.outside_warn else "pass"


def _at_best(share: float, measurement: Measurement) -> float:
    """The share if the time were at the lower end of its interval."""
    time = measurement.time
    return share * time.median / time.low if time.low > 0 else share


def _contradicts(one: Expectation, measurement: Measurement) -> bool:
    """Whether another cluster of the same kind, fully comparable, is clearly faster."""
    comparable = one.busbw is not None and one.may_fail and one.origin == "reference"
    return comparable and measurement.busbw < FAIL_BELOW * (one.busbw or 0.0)


def _between(ends: tuple[float, float] | None, show: Callable[[float], str]) -> str:
    return f", {show(ends[0])} … {show(ends[1])}" if ends else ""
