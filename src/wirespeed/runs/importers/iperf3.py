"""`iperf3 -J`: TCP or UDP between two hosts, of the client or the server.

{"start": {connected, version, system_info, timestamp, test_start}, "intervals": [{streams, sum}], "end":
{sum_sent, sum_received or sum, cpu_utilization_percent}, "error"}. Rates are bits a second. Source:
src/iperf_api.c of esnet/iperf.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, TypedDict

from wirespeed.model.bench_records import ToolFigure
from wirespeed.model.records import Run
from wirespeed.model.units import counted
from wirespeed.runs.importers.told import (
    MILLI,
    documents,
    moment,
    node,
    number,
    objects,
    part,
    reported,
    tool_run,
    words,
)
from wirespeed.statistics import LEAST_SAMPLES, mean_interval

_SHORT = 0.5
"""An interval shorter than this share of the first is the rest at the end."""


def runs_of_iperf3(text: str, name: str) -> Iterator[Run]:
    """A run a document."""
    for data in documents(text, source=name):
        if "start" in data and "end" in data:
            yield _run(data, name)


def _run(data: Mapping[str, Any], name: str) -> Run:
    start, error = part(data, "start"), words(data.get("error"), 500)
    setting = part(start, "test_start")
    here, there = _hosts(start)
    figures = list(_figures(data, setting, here, there))
    return tool_run(
        "iperf3",
        name=name,
        figures=figures,
        findings=[reported("iperf3", error)] if error else [],
        nodes=[node(here)] if here else [],
        versions={"iperf3": words(start.get("version")).removeprefix("iperf ")},
        config={key: value for key, value in setting.items() if isinstance(value, (int, str))},
        started=moment(part(start, "timestamp").get("timesecs")),
        seconds=number(part(data, "end", "sum_sent").get("seconds")) or 0.0,
    )


def _hosts(start: Mapping[str, Any]) -> tuple[str, str]:
    """(this host's name as `uname` tells it, the other's as it was given or its address)."""
    found = re.match(r"\w+ (\S{1,255}) ", words(start.get("system_info"), 500))
    connected = next(iter(objects(start.get("connected"))), {})
    other = part(start, "connecting_to").get("host") or connected.get("remote_host")
    here = found[1] if found else words(connected.get("local_host"))
    return here, words(other) or "the other host"


def _figures(
    data: Mapping[str, Any], setting: Mapping[str, Any], here: str, there: str
) -> Iterator[ToolFigure]:
    protocol = words(setting.get("protocol")).lower() or "tcp"
    streams = number(setting.get("num_streams"))
    test = f"{protocol}, {counted(int(streams or 1), 'stream')}"
    served = "accepted_connection" in part(data, "start")
    forth = served == bool(setting.get("reverse"))
    for turned in (False, True):
        first, second = (here, there) if forth != turned else (there, here)
        suffix = "_bidir_reverse" if turned else ""
        # What came through is told to the client alone: of what a server sent it tells that.
        known = "sum_sent" if served and first == here else "sum_received"
        yield from _one_way(data, test, f"{first} -> {second}", suffix, known)


def _one_way(
    data: Mapping[str, Any], test: str, place: str, suffix: str, known: str
) -> Iterator[ToolFigure]:
    """suffix: of the names of its sums, of the way that `--bidir` adds. known: the sum to take."""
    told = partial(ToolFigure, tool="iperf3", place=place)
    received = part(data, "end", f"{known}{suffix}")
    total = received or part(data, "end", f"sum{suffix}")
    if (rate := number(total.get("bits_per_second"))) is not None:
        lost = 0.0 if received else (number(total.get("lost_percent")) or 0.0) / 100
        value = rate / 8 * (1 - lost)
        ends = _interval(value, data, f"sum{suffix}") if test.startswith("tcp") else {}
        yield told(test=test, unit="B/s", value=value, **ends)
    if (resent := number(part(data, "end", f"sum_sent{suffix}").get("retransmits"))) is not None:
        yield told(test=f"{test}: retransmits", unit="", value=resent)
    if (jitter := number(total.get("jitter_ms"))) is not None:
        yield told(test=f"{test}: jitter", unit="s", value=jitter * MILLI)
    if (lost_percent := number(total.get("lost_percent"))) is not None:
        yield told(test=f"{test}: lost share", unit="", value=lost_percent / 100)


class _Ends(TypedDict, total=False):
    low: float
    high: float
    samples: int


def _interval(value: float, data: Mapping[str, Any], key: str) -> _Ends:
    """Of the mean, by Student's t over the whole intervals after those that `--omit` leaves out; it is
    drawn out to the receiver's figure, which lags by what was under way."""
    sums = [part(one, key) for one in objects(data.get("intervals"))]
    kept = [one for one in sums if one and not one.get("omitted")]
    whole = (number(kept[0].get("seconds")) or 0.0) if kept else 0.0
    rates = [
        rate / 8
        for one in kept
        if (rate := number(one.get("bits_per_second"))) is not None
        and (number(one.get("seconds")) or 0.0) >= _SHORT * whole
    ]
    if len(rates) < LEAST_SAMPLES:
        return {}
    ends = mean_interval(rates)
    return {"low": min(ends.low, value), "high": max(ends.high, value), "samples": len(rates)}
