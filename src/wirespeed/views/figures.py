"""Figures as the human-readable views print them, with their intervals."""

from collections.abc import Iterable
from dataclasses import dataclass

from wirespeed.records import Finding, Measurement, Run
from wirespeed.units import format_bandwidth, format_duration, format_size

__all__ = [
    "Series",
    "bandwidth",
    "bus_factor",
    "counts",
    "duration",
    "gigabytes",
    "interval",
    "place",
    "series_of",
    "size",
    "wrong",
]

_NOTHING = "–"
_LEAST_SHOWN = 0.5e6

_BUS_FACTORS = {
    "all_reduce": "2(n−1)/n",
    "reduce_scatter": "(n−1)/n",
    "all_gather": "(n−1)/n",
    "all_to_all": "(n−1)/n",
    "all_to_all_v": "(n−1)/n",
    "gather": "(n−1)/n",
    "scatter": "(n−1)/n",
    "broadcast": "1",
    "reduce": "1",
    "send_recv": "1",
}


@dataclass(frozen=True, slots=True)
class Series:
    """The sizes of one operation that were measured in the same way."""

    first: Measurement
    rows: tuple[Measurement, ...]

    @property
    def title(self) -> str:
        """`all_reduce`, then how: `float32 sum · 4 ranks · torch · each`."""
        m = self.first
        kind = m.dtype if m.redop == "none" else f"{m.dtype} {m.redop}"
        ranks = f"{m.ranks} ranks" if m.ranks else "ranks not known"
        parts = [kind, ranks, m.engine, m.timing]
        parts += [f"root {m.root}"] if m.root >= 0 else []
        parts += [f"groups {m.groups}"] if m.groups != "all" else []
        parts += ["async"] if m.timing == "each" and not m.blocking else []
        parts += [f"{m.in_flight} in flight"] if m.in_flight > 1 else []
        parts += [m.setting] if m.setting else []
        parts += [m.backend] if m.backend else []
        return " · ".join(parts)


def series_of(measurements: Iterable[Measurement]) -> list[Series]:
    """The measurements by how they were taken, in the order of their first; sizes ascending."""
    groups: dict[tuple[object, ...], list[Measurement]] = {}
    for m in measurements:
        how = (m.op, m.engine, m.dtype, m.redop, m.root, m.ranks, m.groups)
        groups.setdefault(
            (*how, m.timing, m.blocking, m.in_flight, m.setting, m.backend), []
        ).append(m)
    return [
        Series(rows[0], tuple(sorted(rows, key=lambda m: (m.size_bytes, m.in_place))))
        for rows in groups.values()
    ]


def interval(m: Measurement) -> str:
    """`±3.1 %`: the farther end of the 95 % interval of the median, relative to the median.

    Empty where the interval is not known (both ends equal the one figure that there is).
    """
    time = m.time
    if time.median <= 0 or time.low == time.high:
        return ""
    reach = max(time.high - time.median, time.median - time.low) / time.median * 100
    return f"±{reach:.1f} %" if reach < 100 else f"±{reach:.0f} %"


def duration(seconds: float) -> str:
    return format_duration(seconds)


def bandwidth(bytes_per_second: float) -> str:
    """`45.4 GB/s`; a dash where the figure has no meaning, as for a barrier."""
    number = gigabytes(bytes_per_second)
    return number if number == _NOTHING else f"{number} GB/s"


def gigabytes(bytes_per_second: float) -> str:
    """The same without the unit, for columns that name it."""
    if bytes_per_second <= 0:
        return _NOTHING
    if bytes_per_second < _LEAST_SHOWN:
        return "<0.001"
    return format_bandwidth(bytes_per_second).removesuffix(" GB/s")


def size(m: Measurement) -> str:
    return format_size(m.size_bytes)


def place(m: Measurement) -> str:
    return "in" if m.in_place else "out"


def wrong(m: Measurement) -> str:
    return _NOTHING if m.wrong is None else str(m.wrong)


def bus_factor(op: str) -> str:
    """busbw over algbw as a formula in n, the ranks; empty where there is none."""
    return _BUS_FACTORS.get(op, "")


def counts(run: Run) -> str:
    """`1 failed, 1 warning, 2 passed, 1 not checked`: what there is of each."""
    words = (("fail", "failed"), ("warn", "warning"), ("pass", "passed"))
    parts = [_count(run.findings, status, word) for status, word in words]
    parts.append(_count(run.findings, "not_checked", "not checked"))
    return ", ".join(filter(None, parts)) or "no findings"


def _count(findings: Iterable[Finding], status: str, word: str) -> str:
    number = sum(finding.status == status for finding in findings)
    plural = "s" if word == "warning" and number > 1 else ""
    return f"{number} {word}{plural}" if number else ""
