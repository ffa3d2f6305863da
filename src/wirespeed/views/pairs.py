"""The pairs of `locate`: their tables, and which nodes and links are suspected."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from wirespeed.model.records import Finding, Located, PairFigures, Run, SimulatedPart, Simulation
from wirespeed.model.units import GIGA, format_duration
from wirespeed.views.text import Grid, Style, titled

MOST_IN_MATRIX = 12
"""More columns do not fit on a line."""
SLOWEST = 10
_RED_BELOW = 0.7
_RED_ABOVE = 3.0
"""Share of the median rate, and multiple of the median latency, from which a cell is marked."""

Cells = Mapping[tuple[str, str], float]


def pair_lines(run: Run, style: Style) -> list[str]:
    """The blocks of a run of `locate`; nothing for other runs."""
    if run.located is None or not run.located.pairs:
        return []
    located = run.located
    if len(located.nodes) > MOST_IN_MATRIX:
        return [_effort(located, style), "", *_slowest(located).lines(style)]
    return [_effort(located, style), "", *titled(matrices(located), style)[:-1]]


def pair_tables(located: Located) -> list[tuple[str, Grid]]:
    """(title, grid): every pair of few nodes, of many those that are slowest in the median."""
    if len(located.nodes) > MOST_IN_MATRIX:
        return [("medians over the partners of each node", _slowest(located))]
    return matrices(located)


def matrices(located: Located) -> list[tuple[str, Grid]]:
    """(title, grid) of the rates and the latencies; of figures of several rounds the median."""
    rates = _rates(located.pairs)
    slow = _RED_BELOW * median(rates.values())
    texts = {key: _three(rate / GIGA) for key, rate in rates.items()}
    grid = _matrix(located.nodes, texts, {key for key, rate in rates.items() if rate < slow})
    found = [("GB/s from the node of the row to that of the column", grid)]
    if late := _medians((pair, pair.latency, pair.latency) for pair in located.pairs):
        slow = _RED_ABOVE * median(late.values())
        texts = {key: format_duration(value) for key, value in late.items()}
        grid = _matrix(located.nodes, texts, {key for key, value in late.items() if value > slow})
        found.append(("latency (half of a small round trip)", grid))
    return found


def simulation_lines(run: Run, style: Style) -> list[str]:
    """What was injected into a simulated fabric, and what was named."""
    simulated = run.simulation
    if simulated is None:
        return []
    return Grid.filled("<|<", _told(simulated)).lines(style)[1:]


def _told(simulated: Simulation) -> list[tuple[str, str]]:
    rails = f", {simulated.rails} rails" if simulated.rails > 1 else ""
    return [
        ("fabric", f"{simulated.nodes:,} simulated nodes{rails}, noise {simulated.noise:.0%}"),
        *(("injected", _part(part)) for part in simulated.faults),
        *(("named", _part(part)) for part in simulated.named),
        ("precision", f"{simulated.precision:.3f}"),
        ("recall", f"{simulated.recall:.3f}"),
        ("rounds", str(simulated.rounds)),
        ("took", format_duration(simulated.seconds)),
    ]


def _part(part: SimulatedPart) -> str:
    how = "no answer" if part.factor is None else f"{part.factor:.3g}× ({part.what})"
    return (
        f"{part.name}, {how}" if part.kind in ("rail", "nic") else f"{part.kind} {part.name}, {how}"
    )


def _effort(located: Located, style: Style) -> str:
    text = (
        f"pairs: {located.pairs_measured:,} of {located.pairs_possible:,} measured, "
        f"in {located.rounds} rounds; {located.stopped}"
    )
    return style.paint(style.text(text), "dim")


def _rates(pairs: Iterable[PairFigures]) -> Cells:
    return _medians((pair, pair.forth, pair.back) for pair in pairs)


def _medians(read: Iterable[tuple[PairFigures, float | None, float | None]]) -> Cells:
    """read: each pair with what it shows in both directions."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for pair, forth, back in read:
        ends = pair.first, pair.second
        for place, value in ((ends, forth), (ends[::-1], back)):
            if value is not None:
                found[place].append(value)
    return {place: median(values) for place, values in found.items()}


def _matrix(
    nodes: Sequence[str], texts: Mapping[tuple[str, str], str], marked: set[tuple[str, str]]
) -> Grid:
    """A mark beside the colour: the cell of a slow pair ends in `!`."""
    grid = Grid.of("<from \\ to", *nodes)
    for number, row in enumerate(nodes):
        cells = []
        for column, other in enumerate(nodes):
            text = "–" if row == other else texts.get((row, other), "not measured")
            if (row, other) in marked:
                grid.painted[number, column + 1] = "red"
                text += " !"
            cells.append(text)
        grid.add(row, *cells)
    return grid


def _slowest(located: Located) -> Grid:
    sent: dict[str, list[float]] = defaultdict(list)
    received: dict[str, list[float]] = defaultdict(list)
    for (source, target), rate in _rates(located.pairs).items():
        sent[source].append(rate)
        received[target].append(rate)
    order = sorted(sent, key=lambda node: min(median(sent[node]), median(received[node])))
    title = f"the {SLOWEST} slowest of {len(order):,}"
    grid = Grid.of(f"<{title}|sends GB/s|receives GB/s")
    for node in order[:SLOWEST]:
        rates = median(sent[node]), median(received[node])
        grid.add(node, *(_three(rate / GIGA) for rate in rates))
    return grid


def _three(value: float) -> str:
    return f"{value:#.3g}".rstrip(".") if value else "0"


_CULPRIT = "LOC-"
_COMPUTES = "LOC-007"
"""Slow without any traffic: nothing is wrong with the figures of its pairs."""
_GROUP = "uplink of "
_ADAPTER = re.compile(r"rail (\d+) of (.+)", re.DOTALL)
_RAIL = re.compile(r"rail (\d+)")
_BETWEEN = " <-> "
_MORE = re.compile(r" and \d+ more$")


@dataclass(frozen=True, slots=True)
class Suspects:
    """Names as in `Located.nodes`; `links` are pairs of them."""

    nodes: tuple[str, ...] = ()
    """Their own traffic is slow: the whole row and column is theirs."""
    members: tuple[str, ...] = ()
    """Part of a slow group, the end of a slow link, or slow at computing only."""
    links: tuple[tuple[str, str], ...] = ()
    rails: tuple[int, ...] = ()
    partial: bool = False
    """A finding names a group by its first nodes only (`a, b, c, d and 12 more`)."""

    @property
    def named(self) -> tuple[str, ...]:
        """Every node that a finding names, once."""
        return tuple(dict.fromkeys((*self.nodes, *self.members)))


def suspects_of(findings: Iterable[Finding], nodes: Sequence[str]) -> Suspects:
    """What the culprits' findings name; names that are none of `nodes` are left out.

    A finding names at most four nodes of a group in its subject; `partial` tells that there are more.
    """
    known = frozenset(nodes)
    whole: list[str] = []
    members: list[str] = []
    links: list[tuple[str, str]] = []
    rails: list[int] = []
    named = [one for one in findings if one.id.startswith(_CULPRIT)]
    culprits = [one for one in named if one.status in ("fail", "warn")]
    for finding in culprits:
        kind, name = finding.subject.kind, finding.subject.name
        if kind == "rail":
            number, host = _rail(name)
            rails += number
            whole += [one for one in host if one in known]
        elif kind == "link" and _BETWEEN in name:
            links += [pair for pair in [_ends(name)] if known.issuperset(pair)]
        elif kind == "link":
            members += _listed(name.removeprefix(_GROUP), known)
        elif kind in ("node", "rank"):
            (members if finding.id == _COMPUTES else whole).extend(_listed(name, known))
    members += [end for pair in links for end in pair]
    partial = any(_MORE.search(finding.subject.name) for finding in culprits)
    return Suspects(_once(whole), _once(members), tuple(links), tuple(sorted(set(rails))), partial)


def _rail(name: str) -> tuple[list[int], list[str]]:
    """`rail 1` and `rail 1 of node-3`: the rail's number, and the node if it is of one only."""
    if found := _ADAPTER.fullmatch(name):
        return [int(found[1])], [found[2]]
    found = _RAIL.fullmatch(name)
    return ([int(found[1])] if found else []), []


def _ends(name: str) -> tuple[str, str]:
    first, _, second = name.partition(_BETWEEN)
    return first, second


def _listed(name: str, known: frozenset[str]) -> list[str]:
    """`a, b and 2 more` as names; a name that holds such words itself is taken whole."""
    if name in known:
        return [name]
    return [part for part in _MORE.sub("", name).split(", ") if part in known]


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
