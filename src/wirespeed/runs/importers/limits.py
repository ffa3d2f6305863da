"""The most that links carry, so that a rate in a wrong unit or by a wrong clock is marked."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from wirespeed.model.bench_records import ToolFigure
from wirespeed.model.records import Finding, Measurement
from wirespeed.model.units import GIGA, counted, format_bandwidth, format_size
from wirespeed.reference.figures import rows_of
from wirespeed.runs.findings import make_finding

_FASTEST_LINK = 1800 * GIGA
"""Bytes a second one way of the fastest link that is announced (NVLink 6)."""
_FASTEST_PORT = 200 * GIGA
"""Of a network port (1.6 Tbit/s)."""
_MEMORY = 25_000 * GIGA
"""Of a GPU's memory; copies within one device and between threads of one host may come near it."""
_AGAIN = 2.0
"""Reduction in the switch, both ways at once, and rounding explain up to twice the link."""
_ANY = {"perftest": _FASTEST_PORT, "iperf3": _FASTEST_LINK, "ds_bench": _FASTEST_LINK}
_MOST_EVIDENCE = 20


def most_of_gpus(names: Iterable[str]) -> float:
    """Return the busbw above which nothing is believed on these GPUs; the fastest link's if unknown."""
    links = [_link_of(name) for name in names]
    known = [link for link in links if link]
    return _AGAIN * (max(known) if known and len(known) == len(links) else _FASTEST_LINK)


def _link_of(name: str) -> float:
    for row in rows_of("gpus.csv"):
        if "link_GBps" in row and re.search(rf"(?:^|\s|-){row['pattern']}(?:$|\s)", name):
            return float(row["link_GBps"]) * GIGA
    return 0.0


def set_apart(
    measurements: Iterable[Measurement], most: float, tool: str = "nccl-tests"
) -> tuple[tuple[Measurement, ...], tuple[ToolFigure, ...]]:
    """Return the measurements that a link can carry, and the others as figures that are marked."""
    kept, beyond = [], []
    for one in measurements:
        if one.busbw <= most or one.ranks == 1:
            kept.append(one)
        else:
            beyond.append(
                ToolFigure(
                    tool=tool,
                    test=f"{one.op}, {'in-place' if one.in_place else 'out-of-place'}",
                    size_bytes=one.size_bytes,
                    unit="B/s",
                    value=one.busbw,
                    beyond=True,
                )
            )
    return tuple(kept), tuple(beyond)


def marked(figures: Iterable[ToolFigure]) -> list[ToolFigure]:
    """Return the figures with a mark on rates that are more than twice what any such link carries."""
    return [
        replace(one, beyond=True)
        if one.unit == "B/s" and one.value > _AGAIN * _ANY.get(one.tool, _MEMORY)
        else one
        for one in figures
    ]


def most_of_any() -> float:
    """Return the busbw above which nothing is believed whatever the link is."""
    return _AGAIN * _FASTEST_LINK


def find_beyond(figures: Iterable[ToolFigure], most: float = 0.0) -> Iterator[Finding]:
    """Report the rates that are marked. most: their limit in bytes a second, where one was known."""
    beyond = [one for one in figures if one.beyond]
    if not beyond:
        return
    limit = most or _AGAIN * max(_ANY.get(one.tool, _MEMORY) for one in beyond)
    lines = [
        f"{one.test}"
        + (f" {format_size(one.size_bytes)}" if one.size_bytes else "")
        + f": {format_bandwidth(one.value)}"
        for one in beyond[:_MOST_EVIDENCE]
    ]
    be = "is" if len(beyond) == 1 else "are"
    yield make_finding(
        "beyond_link",
        what=f"{counted(len(beyond), 'rate')} {be}",
        saw=lines[0],
        limit=f"{format_bandwidth(limit)}, twice the link",
        evidence=lines,
    )
