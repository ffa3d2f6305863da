"""Whose network is slow, by the kernel's account of TCP connections: data under way all the time, at a
rate far below the others'."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from wirespeed.watch.own_work import Floats
from wirespeed.watch.steps import LinkUse, StepTable

SLOW = 1.5
"""A connection below others' rate by this factor is slow."""
_BUSY = 0.1
"""Share of the time with data under way from which its rate matters."""
_LEAST_BYTES, _LEAST_BUSY_S = 1 << 16, 1e-3
_LEAST_SHARE, _SEGMENT = 0.01, 1448
"""What carries less of the bytes than the way back, and has less than a packet under way, carries short
messages that answer: it tells how long the way is, not how wide."""
_ALIKE = 0.7
"""Of the slowest factor: of nodes that are so slow, who is so both ways counts, then who sends."""
_SLOW_SHARE = 0.6
"""Share of a node's connections one way that are slow, for the node to be."""


@dataclass(frozen=True, slots=True)
class Route:
    """All connections from one host to another."""

    source: str
    target: str
    rate: float
    """Bytes a second while data were under way."""
    busy: float
    """Share of the time with data under way, of the busiest rank's connections."""
    rtt_s: float
    retransmits: int
    sent: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class SlowPart:
    node: str
    """Empty: only `route`."""
    way: str
    """`sends`, `receives`, or `both`."""
    route: Route
    """The slowest of it."""
    factor: float
    """How many times slower than the others."""
    usual: float
    """The others' rate."""
    since: int
    """Last step before the first slow time; -1: since the begin."""


def slow_parts(table: StepTable) -> list[SlowPart]:
    """Nodes, else routes, slowest first; empty where all are alike or nothing was told."""
    uses = [(_ends(table, use), use) for use in table.links]
    between = [(ends, use) for ends, use in uses if ends[0] and ends[1] and ends[0] != ends[1]]
    latest = _latest(between)
    routes = _routes(latest)
    if len(routes) < 2 or not _any_slow(routes):
        return []
    found = _slow_nodes(routes)
    blamed = {one.node for one in found}
    found += [
        part for part in _slow_routes(routes) if not {part.route.source, part.route.target} & blamed
    ]
    return sorted((_dated(one, between) for one in found), key=lambda one: one.factor, reverse=True)


_Ended = tuple[tuple[str, str], LinkUse]


def _ends(table: StepTable, use: LinkUse) -> tuple[str, str]:
    source = table.hosts[use.rank] if use.rank < len(table.hosts) else ""
    return source, table.addresses.get(use.peer, "")


def _latest(between: Sequence[_Ended]) -> list[_Ended]:
    """Those of the later half of the steps, which may have become slow on the way."""
    if not between:
        return []
    last, first = max(u.step for _, u in between), min(u.step for _, u in between)
    return [one for one in between if one[1].step >= (first + last) / 2]


def _routes(between: Iterable[_Ended]) -> list[Route]:
    by_ends: dict[tuple[str, str], list[LinkUse]] = defaultdict(list)
    for ends, use in between:
        by_ends[ends].append(use)
    each = (_route(*ends, uses) for ends, uses in by_ends.items())
    routes = [one for one in each if one is not None]
    back = {(one.target, one.source): _LEAST_SHARE * one.sent for one in routes}
    return [
        one
        for one in routes
        if one.sent >= back.get((one.source, one.target), 0) or one.rate * one.rtt_s >= _SEGMENT
    ]


def _route(source: str, target: str, uses: Sequence[LinkUse]) -> Route | None:
    sent, busy = sum(u.sent_bytes for u in uses), sum(u.busy_s for u in uses)
    if sent < _LEAST_BYTES or busy < _LEAST_BUSY_S:
        return None
    seconds: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for use in uses:
        total = seconds[use.rank, use.peer]
        total[0] += use.busy_s
        total[1] += use.seconds
    share = max(of_busy / of_all for of_busy, of_all in seconds.values() if of_all > 0)
    rtt = median(u.rtt_s for u in uses)
    again = sum(u.retransmits for u in uses)
    return Route(source, target, sent / busy, min(1.0, share), rtt, again, sent)


def _any_slow(routes: Sequence[Route]) -> bool:
    """Whether it is worth a closer look; with few nodes one of them touches most routes."""
    rates = sorted(route.rate for route in routes)
    return rates[0] * SLOW <= rates[-1] if len(rates) < 64 else rates[0] * SLOW <= median(rates)


def _slow_nodes(routes: Sequence[Route]) -> list[SlowPart]:
    """A node whose routes out, or in, are slow beside those that do not touch it."""
    out, into = defaultdict(list), defaultdict(list)
    for route in routes:
        out[route.source].append(route)
        into[route.target].append(route)
    rates = np.array([route.rate for route in routes])
    ends = np.array([(route.source, route.target) for route in routes])
    found = []
    for host in sorted({*out, *into}):
        usual = _usual(rates, (ends != host).all(axis=1))
        ways = [
            w
            for w, some in (("sends", out[host]), ("receives", into[host]))
            if _mostly_slow(some, usual)
        ]
        if ways:
            worst = min((out if "sends" in ways else into)[host], key=lambda r: r.rate)
            way = "both" if len(ways) == 2 else ways[0]
            found.append(SlowPart(host, way, worst, usual / worst.rate, usual, -1))
    return _without_consequences(_apart_from_worst(found, routes))


def _usual(rates: Floats, apart: NDArray[np.bool_]) -> float:
    """Median of those apart, 0 where there is none."""
    return float(np.median(rates[apart])) if apart.any() else 0.0


def _mostly_slow(routes: Sequence[Route], usual: float) -> bool:
    slow = [r for r in routes if r.rate * SLOW <= usual and r.busy >= _BUSY]
    return bool(slow) and len(slow) >= _SLOW_SHARE * len(routes)


def _apart_from_worst(found: Sequence[SlowPart], routes: Sequence[Route]) -> list[SlowPart]:
    """Without those whose own routes, that do not touch the slowest node, are not nearly as slow: what a
    neighbour of it hands on comes in small pieces, and takes longer than others' for that alone."""
    if not found:
        return []
    ways, highest = ("receives", "sends", "both"), max(one.factor for one in found)
    alike = [one for one in found if one.factor >= _ALIKE * highest]
    worst = max(alike, key=lambda one: (ways.index(one.way), one.factor))
    rates = np.array([route.rate for route in routes])
    ends = np.array([(route.source, route.target) for route in routes])
    kept = [worst]
    for one in found:
        touches = (ends == one.node).any(axis=1)
        away = (ends != worst.node).all(axis=1)
        usual, own = _usual(rates, away & ~touches), rates[away & touches]
        bound = max(SLOW, worst.factor**0.5)
        if one is not worst and len(own) and float(own.min()) * bound <= usual:
            kept.append(one)
    return [one for one in found if one in kept]


def _without_consequences(found: Sequence[SlowPart]) -> list[SlowPart]:
    """In a ring the next node's only route in is the slow node's only route out: who sends is named
    where both could be, unless one of them is slow both ways."""
    both = {one.node for one in found if one.way == "both"}
    senders = {one.node for one in found if one.way == "sends"} | both
    return [
        one
        for one in found
        if one.way == "both"
        or (one.way == "sends" and one.route.target not in both)
        or (one.way == "receives" and one.route.source not in senders)
    ]


def _slow_routes(routes: Sequence[Route]) -> list[SlowPart]:
    rates = np.array([route.rate for route in routes])
    found = []
    for index, route in enumerate(routes):
        usual = _usual(rates, np.arange(len(rates)) != index)
        if route.rate * SLOW <= usual and route.busy >= _BUSY:
            found.append(SlowPart("", "", route, usual / route.rate, usual, -1))
    return found


def _dated(part: SlowPart, between: Sequence[_Ended]) -> SlowPart:
    """With the last step at which its slowest route was still quick."""
    ends = part.route.source, part.route.target
    bound = (part.usual * part.route.rate) ** 0.5
    quick = [
        use.step
        for pair, use in between
        if pair == ends and use.busy_s > 0 and use.sent_bytes > bound * use.busy_s
    ]
    since = max(quick, default=-1)
    return SlowPart(part.node, part.way, part.route, part.factor, part.usual, since)
