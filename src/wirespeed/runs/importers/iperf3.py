"""`iperf3 -J` and `--json-stream`: TCP or UDP between two hosts, of the client or the server.

{"start": {connected, version, system_info, timestamp, test_start}, "intervals": [{streams, sum}], "end":
{sum_sent, sum_received or sum, cpu_utilization_percent}, "error"}. Rates are bits a second. As a stream
it is a line per event: {"event": "start", "data": …}, then `interval`, `end` or `error`. Source:
src/iperf_api.c of esnet/iperf.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from statistics import fmean, median
from typing import Any, TypedDict

from wirespeed.model.bench_records import ToolFigure
from wirespeed.model.records import Finding, Run
from wirespeed.model.units import counted, format_bandwidth
from wirespeed.runs.findings import make_finding
from wirespeed.runs.importers.repeats import level_change
from wirespeed.runs.importers.told import (
    MILLI,
    SECOND,
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
    """Yield a run per document; the events of `--json-stream` are one document from start to end."""
    begun: dict[str, Any] = {}
    for data in documents(text, source=name):
        if "event" in data:
            begun = _with_event(begun, data)
        else:
            begun = data if "start" in data and "end" in data else {}
        if "end" in begun:
            yield _run(begun, name)
            begun = {}
    if begun.get("intervals") or begun.get("error"):
        yield _run({**begun, "end": {}}, name)


def _with_event(begun: dict[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with one more event of `--json-stream`."""
    event, value = words(data.get("event")), data.get("data")
    if event == "start":
        return {"start": value, "intervals": []}
    if event == "interval":
        return {**begun, "intervals": [*begun.get("intervals", ()), value]}
    return {**begun, event: value} if event in ("end", "error") else begun


def _run(data: Mapping[str, Any], name: str) -> Run:
    start, error = part(data, "start"), words(data.get("error"), 500)
    setting = part(start, "test_start")
    here, there = _hosts(start)
    figures = list(_figures(data, setting, here, there))
    findings = [reported("iperf3", error)] if error else []
    return tool_run(
        "iperf3",
        name=name,
        figures=figures,
        findings=[*findings, *_level_changes(data)],
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
    both = any(_sums(data, suffix) for suffix in _OTHER_WAY)
    settings = _settings(data, setting, both=both)
    if not (both or served or setting.get("reverse")) and _kept_second(data):
        settings = _settings(data, setting, both=True)
        yield from _one_way(data, test, f"{there} -> {here}", "", "sum_received", settings)
        if (rate := _of_streams(data)) > 0:
            yield ToolFigure(
                tool="iperf3",
                test=test,
                place=f"{here} -> {there}",
                unit="B/s",
                value=rate,
                settings=settings,
            )
        return
    for turned in (False, True):
        first, second = (here, there) if forth != turned else (there, here)
        suffix = next((one for one in _OTHER_WAY if _sums(data, one)), "") if turned else ""
        if turned and not suffix:
            continue
        # What came through is told to the client alone: of what a server sent it tells that.
        known = "sum_sent" if served and first == here else "sum_received"
        yield from _one_way(data, test, f"{first} -> {second}", suffix, known, settings)


_OTHER_WAY = ("_bidir_reverse", SECOND)
"""What the names of the sums end in for the way that `--bidir` adds; 3.7 to 3.10 write the same
name twice."""


def _kept_second(data: Mapping[str, Any]) -> bool:
    """Return whether a JSON reader kept the second of two equal keys, which is of the way back."""
    return part(data, "end", "sum_received").get("sender") is False and _of_streams(data) > 0


def _of_streams(data: Mapping[str, Any]) -> float:
    """Return what came through of all streams that this side sent, in bytes a second."""
    received = [part(one, "receiver") for one in objects(part(data, "end").get("streams"))]
    rates = [number(one.get("bits_per_second")) for one in received if one.get("sender") is True]
    return sum(rate or 0.0 for rate in rates) / 8


def _sums(data: Mapping[str, Any], suffix: str) -> bool:
    names = ("sum_sent", "sum_received", "sum")
    if any(part(data, "end", f"{name}{suffix}") for name in names):
        return True
    return any(part(one, f"sum{suffix}") for one in objects(data.get("intervals"))[:1])


def _settings(data: Mapping[str, Any], setting: Mapping[str, Any], *, both: bool) -> str:
    """Return by what else two tests differ: both ways at once, block size, target rate, congestion."""
    target = number(setting.get("target_bitrate"))
    block = number(setting.get("blksize"))
    congestion = words(part(data, "end").get("sender_tcp_congestion"), 40)
    told = (
        "both ways at once" if both else "one way",
        f"blocks of {int(block)} B" if block else "",
        f"target {int(target)} bit/s" if target else "",
        congestion,
    )
    return ", ".join(word for word in told if word)


def _one_way(
    data: Mapping[str, Any], test: str, place: str, suffix: str, known: str, settings: str
) -> Iterator[ToolFigure]:
    """suffix: of the names of its sums, of the way that `--bidir` adds. known: the sum to take."""
    told = partial(ToolFigure, tool="iperf3", place=place, settings=settings)
    received = part(data, "end", f"{known}{suffix}")
    total = received or part(data, "end", f"sum{suffix}")
    if (rate := number(total.get("bits_per_second"))) is not None:
        lost = 0.0 if received else (number(total.get("lost_percent")) or 0.0) / 100
        value = rate / 8 * (1 - lost)
        ends = _interval(value, data, f"sum{suffix}") if test.startswith("tcp") else {}
        yield told(test=test, unit="B/s", value=value, **ends)
    elif not part(data, "end") and (rates := [rate for _, rate in _rates(data, f"sum{suffix}")]):
        # The stream of events ends early: its seconds are all that is known.
        value = fmean(rates)
        yield told(test=test, unit="B/s", value=value, **_interval(value, data, f"sum{suffix}"))
    if (resent := number(part(data, "end", f"sum_sent{suffix}").get("retransmits"))) is not None:
        yield told(test=f"{test}: retransmits", unit="", value=resent)
    if (jitter := number(total.get("jitter_ms"))) is not None:
        yield told(test=f"{test}: jitter", unit="s", value=jitter * MILLI)
    if (lost_percent := number(total.get("lost_percent"))) is not None:
        yield told(test=f"{test}: lost share", unit="", value=lost_percent / 100)


def _level_changes(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Report a stretch of seconds in which a way was clearly slower than in the rest."""
    for suffix in ("", *_OTHER_WAY):
        rates = _rates(data, f"sum{suffix}")
        stretch = level_change([rate for _, rate in rates])
        if stretch is None:
            continue
        first, last = stretch
        inside = median(rate for _, rate in rates[first : last + 1])
        rest = median(rate for _, rate in (*rates[:first], *rates[last + 1 :]))
        begin, end = rates[first][0], rates[last + 1][0] if last + 1 < len(rates) else None
        when = f"from second {begin:.0f} " + (f"to {end:.0f}" if end is not None else "to the end")
        yield make_finding(
            "level_changed",
            what=f"the rate changes within the run, {when}",
            saw=f"{format_bandwidth(inside)} {when}, {format_bandwidth(rest)} in the rest",
            evidence=(),
        )


def _rates(data: Mapping[str, Any], key: str) -> list[tuple[float, float]]:
    """Return (second of its start, bytes a second) of each whole interval that counts."""
    sums = [part(one, key) for one in objects(data.get("intervals"))]
    kept = [one for one in sums if one and not one.get("omitted")]
    whole = (number(kept[0].get("seconds")) or 0.0) if kept else 0.0
    return [
        (number(one.get("start")) or 0.0, rate / 8)
        for one in kept
        if (rate := number(one.get("bits_per_second"))) is not None
        and (number(one.get("seconds")) or 0.0) >= _SHORT * whole
    ]


class _Ends(TypedDict, total=False):
    low: float
    high: float
    samples: int


def _interval(value: float, data: Mapping[str, Any], key: str) -> _Ends:
    """Of the mean, by Student's t over the whole intervals after those that `--omit` leaves out; it is
    drawn out to the receiver's figure, which lags by what was under way."""
    rates = [rate for _, rate in _rates(data, key)]
    if len(rates) < LEAST_SAMPLES:
        return {}
    ends = mean_interval(rates)
    return {"low": min(ends.low, value), "high": max(ends.high, value), "samples": len(rates)}
