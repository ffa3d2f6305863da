"""From what `locate` measured to findings: who is slow, by how much, what it costs, what to do."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from wirespeed.checks.registry import EXPLAINED, tell
from wirespeed.model.records import Finding, Located, PairFigures, Subject
from wirespeed.model.units import counted, format_bandwidth, format_duration, listed
from wirespeed.statistics import has_interval

_KINDS = ("node", "direction", "rail", "nic", "uplink", "link", "straggler", "dead")
_IDS = {kind: f"LOC-{number:03d}" for number, kind in enumerate(_KINDS, 1)}

Culprit = Mapping[str, Any]


def culprit_findings(located: Located, culprits: Sequence[Culprit]) -> list[Finding]:
    """One failing finding a culprit, costliest first; a passing one where there is none."""
    named = {located.nodes[node] for one in culprits for node in one["nodes"]}
    found = [_finding(located, one, named) for one in culprits] or [_healthy(located)]
    possible, missing = located.pairs_possible, located.pairs_possible - located.pairs_measured
    if missing > 0:
        found.append(tell("LOC-009", "pairs left", missing=missing, possible=possible))
    return found


def _healthy(located: Located) -> Finding:
    rates = [rate for pair in located.pairs for rate in (pair.forth, pair.back) if rate > 0]
    one = "rank" if located.over == "ranks" else "node"
    effort = (
        f"{len(located.nodes)} {one}s, {located.pairs_measured:,} of "
        f"{located.pairs_possible:,} pairs in {located.rounds} rounds"
    )
    rate = format_bandwidth(median(rates)) if rates else "unknown"
    return tell("LOC-001", "none", one=one, effort=effort, rate=rate)


def _finding(located: Located, culprit: Culprit, named: set[str]) -> Finding:
    kind, names = culprit["kind"], [located.nodes[node] for node in culprit["nodes"]]
    id, late = _IDS[kind], culprit["what"] == "latency" and kind in ("node", "link")
    host, other = [*names, "", ""][:2]
    return tell(
        id,
        "late" if late else "culprit",
        subject=_subject(located, culprit, names),
        evidence=_evidence(located, names),
        host=host,
        other=other,
        hosts=listed(names),
        rail=culprit["rail"],
        times=_times(culprit["factor"]),
        way="sends" if culprit["towards"] == "out" else "receives",
        saw=_saw(located, culprit),
        expected=_expected(located, culprit, named),
        because=f"{EXPLAINED[id].because} (confidence {culprit['confidence']:.0%})",
        costs=_costs(culprit),
    )


def _subject(located: Located, culprit: Culprit, names: Sequence[str]) -> Subject:
    match culprit["kind"]:
        case "rail":
            return Subject("rail", f"rail {culprit['rail']}")
        case "nic":
            return Subject("rail", f"rail {culprit['rail']} of {names[0]}")
        case "uplink":
            return Subject("link", f"uplink of {listed(names)}")
        case "link":
            return Subject("link", f"{names[0]} <-> {names[1]}")
        case _:
            return Subject("rank" if located.over == "ranks" else "node", listed(names))


def _saw(located: Located, culprit: Culprit) -> str:
    times, low, high = (_times(culprit[name]) for name in ("factor", "low", "high"))
    own, samples = _own(located, culprit), culprit["samples"]
    if not has_interval(samples):
        return f"{own}{times} worse ({counted(samples, 'reading')}, no interval)"
    return f"{own}{times} worse (95 %: {low} to {high}), from {culprit['samples']} readings"


def _own(located: Located, culprit: Culprit) -> str:
    """The named one's own figure, where it is a matter of nodes."""
    names = {located.nodes[node] for node in culprit["nodes"]}
    if culprit["kind"] == "straggler":
        share = culprit["share"]
        return "" if share == 1 else f"in {share:.0%} of the timings "
    mine = [pair for pair in located.pairs if _covers(culprit, names, pair)]
    if culprit["what"] == "latency":
        late = [pair.latency for pair in mine if pair.latency is not None]
        return f"median latency {format_duration(median(late))}, " if late else ""
    rates = [
        rate
        for pair in mine
        for rate, sender in ((pair.forth, pair.first), (pair.back, pair.second))
        if not culprit["towards"] or (sender in names) == (culprit["towards"] == "out")
    ]
    return f"median {format_bandwidth(median(rates))}, " if rates else ""


def _covers(culprit: Culprit, names: set[str], pair: PairFigures) -> bool:
    """Whether the culprit lies on the way between these two."""
    if culprit["rail"] >= 0 and pair.rail != culprit["rail"]:
        return False
    ends = {pair.first, pair.second}
    if culprit["kind"] == "link":
        return ends == names
    if culprit["kind"] == "uplink":
        return len(ends & names) == 1
    return culprit["kind"] == "rail" or bool(ends & names)


def _expected(located: Located, culprit: Culprit, named: set[str]) -> str:
    """What the others show: pairs without anybody who is named, where there are any."""
    if culprit["kind"] == "straggler":
        known = [one for one in located.compute if one > 0]
        return f"the median of the nodes, {format_duration(median(known))}" if known else ""
    healthy = [pair for pair in located.pairs if not named & {pair.first, pair.second}]
    pairs, which = (healthy, "the other pairs") if healthy else (located.pairs, "all pairs")
    if culprit["what"] == "latency":
        late = [pair.latency for pair in pairs if pair.latency is not None]
        return f"the median of {which}, {format_duration(median(late))}" if late else ""
    rates = [rate for pair in pairs for rate in (pair.forth, pair.back) if rate > 0]
    return f"the median of {which}, {format_bandwidth(median(rates))}" if rates else ""


def _costs(culprit: Culprit) -> str:
    if culprit["factor"] is None:
        return "a job that uses it hangs"
    what = "step that computes" if culprit["kind"] == "straggler" else "collective that crosses it"
    return f"every {what} takes up to {_times(culprit['factor'])} as long, on all nodes"


def _evidence(located: Located, names: Sequence[str]) -> list[str]:
    """The slowest readings of the named nodes, a few of them."""
    mine = [pair for pair in located.pairs if pair.first in names or pair.second in names]
    mine.sort(key=lambda pair: min(pair.forth, pair.back))
    return [
        f"round {pair.round + 1}, rail {pair.rail}: {pair.first} -> {pair.second} "
        f"{format_bandwidth(pair.forth)}, back {format_bandwidth(pair.back)}, latency "
        + ("none" if pair.latency is None else format_duration(pair.latency))
        for pair in mine[:8]
    ]


def _times(factor: float | None) -> str:
    return "infinitely" if factor is None else f"{factor:.3g}×"
