"""Figures that a file holds several times: cycles, level changes, copies, slow processes.

The same series measured again is one figure with an interval, and the spread is reported. Output that
was printed twice counts once.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean, median

from wirespeed.model.bench_records import ToolFigure
from wirespeed.model.records import Choice, Finding, Measurement, Run, Subject
from wirespeed.model.units import format_bandwidth, format_duration, format_size
from wirespeed.runs.findings import make_finding
from wirespeed.runs.importers.table import Device
from wirespeed.statistics import has_interval, mean_interval, percentile, time_stats

_FAR = 1.1
"""A repetition that takes so many times the usual time is another level."""
_LEAST_TIME = 100e-6
"""Seconds: shorter operations spread that much by themselves."""
_LEAST_RUN = 3
"""Values one after the other that make a level."""
_LEAST_PROCESSES, _LEAST_ITERATIONS = 3, 6
_MOST_EVIDENCE = 20


def combine_cycles(
    measurements: Iterable[Measurement],
) -> tuple[tuple[Measurement, ...], list[tuple[Measurement, ...]]]:
    """Return a measurement per series, and the cycles of each that was measured several times.

    A combined one has the median over its cycles; its samples are the cycles.
    """
    series: dict[Measurement, list[Measurement]] = {}
    for one in measurements:
        series.setdefault(_same_for_all(one), []).append(one)
    several = [tuple(cycles) for cycles in series.values() if len(cycles) > 1]
    return tuple(_combined(cycles) for cycles in series.values()), several


def _same_for_all(one: Measurement) -> Measurement:
    """Return the measurement without its figures: what must be alike in one series."""
    nothing = time_stats([1.0])
    return replace(one, time=nothing, algbw=0.0, busbw=0.0, wrong=None, skew=0.0)


def _combined(cycles: Sequence[Measurement]) -> Measurement:
    if len(cycles) == 1:
        return cycles[0]
    stats = time_stats([one.time.median for one in cycles])
    near = min(cycles, key=lambda one: abs(one.time.median - stats.median))
    scale = near.time.median / stats.median if stats.median else 1.0
    wrong = [one.wrong for one in cycles]
    known = [count for count in wrong if count is not None]
    return replace(
        near,
        time=stats,
        iterations=len(cycles),
        algbw=near.algbw * scale,
        busbw=near.busbw * scale,
        wrong=sum(known) if len(known) == len(wrong) or any(known) else None,
        skew=fmean(one.skew for one in cycles),
    )


def find_changed_cycles(several: Sequence[tuple[Measurement, ...]]) -> Iterator[Finding]:
    """Report cycles of one size that take much longer than the usual one."""
    lines, worst = [], 1.0
    for cycles in several:
        times = [one.time.median for one in cycles]
        ratio = max(times) / min(times) if min(times) > 0 else 1.0
        if median(times) < _LEAST_TIME or ratio <= _FAR:
            continue
        worst = max(worst, ratio)
        place = "in-place" if cycles[0].in_place else "out-of-place"
        shown = ", ".join(
            format_bandwidth(one.busbw) if one.busbw else format_duration(one.time.median)
            for one in cycles[:_MOST_EVIDENCE]
        )
        lines.append(f"{format_size(cycles[0].size_bytes)} {place}: {shown} in this order")
    if lines:
        yield make_finding(
            "level_changed",
            what=f"the cycles of one size differ by up to {worst:.2f} times",
            saw=lines[0],
            evidence=lines[:_MOST_EVIDENCE],
        )


def level_change(values: Sequence[float]) -> tuple[int, int] | None:
    """Return the stretch [first, last] of neighbours that lies clearly below the rest; None: none does.

    Below: the median of the stretch is less than 1 / 1.1 of the rest's, and its largest value is
    smaller than nine tenths of the rest. A slow start of fewer than three values is none.
    """
    if len(values) < 2 * _LEAST_RUN:
        return None
    bound = percentile(values, 0.9) / _FAR
    stretches: list[list[int]] = [[]]
    for index, value in enumerate(values):
        if value < bound:
            stretches[-1].append(index)
        elif stretches[-1]:
            stretches.append([])
    longest = max(stretches, key=len)
    if len(longest) < _LEAST_RUN or len(values) - len(longest) < _LEAST_RUN:
        return None
    inside = [values[index] for index in longest]
    rest = [value for index, value in enumerate(values) if index not in set(longest)]
    clear = max(inside) < percentile(rest, 0.1) and median(inside) * _FAR < median(rest)
    return (longest[0], longest[-1]) if clear else None


def combine_figures(figures: Iterable[ToolFigure]) -> list[ToolFigure]:
    """Return a figure per series: several of one have the mean, with its interval from six on."""
    series: dict[ToolFigure, list[ToolFigure]] = {}
    for one in figures:
        key = replace(one, value=0.0, low=None, high=None, samples=0)
        series.setdefault(key, []).append(one)
    return [_one_figure(same) for same in series.values()]


def _one_figure(same: Sequence[ToolFigure]) -> ToolFigure:
    values = [one.value for one in same]
    if len(same) == 1:
        return same[0]
    ends = mean_interval(values) if has_interval(len(values)) else None
    return replace(
        same[0],
        value=fmean(values),
        low=max(0.0, ends.low) if ends else None,
        high=ends.high if ends else None,
        samples=len(values),
    )


def counted_once(runs: Sequence[Run]) -> list[Run]:
    """Return the runs without copies of one another; the one that stays says how often it was there."""
    kept: list[Run] = []
    copies: list[int] = []
    for run in runs:
        same = next((n for n, one in enumerate(kept) if _is_copy(one, run)), None)
        if same is None:
            kept.append(run)
            copies.append(1)
        else:
            copies[same] += 1
    return [once(run, times) for run, times in zip(kept, copies, strict=True)]


def _is_copy(one: Run, other: Run) -> bool:
    names = ("measurements", "figures", "training", "findings", "config")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def once(run: Run, times: int) -> Run:
    """Return the run with the reason why output that is there several times counts once."""
    if times < 2:
        return run
    why = f"the same output is in the file {times} times, as of client and server or of a copy"
    return replace(run, choices=(*run.choices, Choice("copies", "counted once", why)))


def find_slow_processes(
    times: Sequence[Sequence[float]], devices: Sequence[Device], about: str
) -> Iterator[Finding]:
    """Report a process whose iterations all take longer than those of every other process.

    times: of each iteration by process.
    """
    if len(times) < _LEAST_PROCESSES or min(map(len, times)) < _LEAST_ITERATIONS:
        return
    usual = [median(one) for one in times]
    others = median(usual)
    slow = [n for n, one in enumerate(usual) if one > _FAR * others]
    rest = [value for n, one in enumerate(times) if n not in slow for value in one]
    if not slow or len(slow) * 2 >= len(times):
        return
    for number in slow:
        if min(times[number]) > max(rest):
            name = _process_name(number, devices)
            yield make_finding(
                "slow_process",
                subject=Subject("rank", name) if name.startswith("rank ") else None,
                who=f"process {number}" + (f" ({name})" if name else ""),
                saw=f"median {format_duration(usual[number])} in {about}, "
                f"of the others {format_duration(median(rest))}",
            )


def _process_name(number: int, devices: Sequence[Device]) -> str:
    """Return `rank 2 on node-1` of a process by its place in the list; empty where it is not sure."""
    processes: dict[tuple[str, int], list[Device]] = {}
    for one in devices:
        processes.setdefault((one.host, one.process), []).append(one)
    own = list(processes.values())[number : number + 1]
    return f"rank {own[0][0].rank}" if own and len(own[0]) == 1 else ""
