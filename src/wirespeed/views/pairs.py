"""What `locate` measured: the matrix of pairs for few nodes, the slowest nodes for many."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from wirespeed.records import Located, PairFigures, Run, SimulatedPart, Simulation
from wirespeed.units import GIGA, format_duration
from wirespeed.views.grid import Column, Grid
from wirespeed.views.style import Style

__all__ = ["matrices", "pair_lines", "pair_tables", "simulation_lines"]

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
    lines = [_effort(located, style)]
    for title, grid in matrices(located):
        lines += ["", style.paint(style.text(title), "bold"), *grid.lines(style, indent="  ")]
    return lines


def pair_tables(located: Located) -> list[tuple[str, Grid]]:
    """(title, grid): every pair of few nodes, of many those that are slowest in the median."""
    if len(located.nodes) > MOST_IN_MATRIX:
        return [("medians over the partners of each node", _slowest(located))]
    return matrices(located)


def matrices(located: Located) -> list[tuple[str, Grid]]:
    """(title, grid) of the rates and the latencies; of figures of several rounds the median."""
    rates = _rates(located.pairs)
    late = _latencies(located.pairs)
    found = [
        ("GB/s from the node of the row to that of the column", _rate_grid(located.nodes, rates))
    ]
    if late:
        found.append(("latency (half of a small round trip)", _late_grid(located.nodes, late)))
    return found


def simulation_lines(run: Run, style: Style) -> list[str]:
    """What was injected into a simulated fabric, and what was named."""
    simulated = run.simulation
    if simulated is None:
        return []
    grid = Grid((Column("", left=True), Column("", left=True)))
    for name, value in _told(simulated):
        grid.add(name, value)
    return grid.lines(style)[1:]


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


def _rates(pairs: Sequence[PairFigures]) -> Cells:
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for pair in pairs:
        found[pair.first, pair.second].append(pair.forth)
        found[pair.second, pair.first].append(pair.back)
    return {key: median(values) for key, values in found.items()}


def _latencies(pairs: Sequence[PairFigures]) -> Cells:
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for pair in pairs:
        if pair.latency is not None:
            found[pair.first, pair.second].append(pair.latency)
            found[pair.second, pair.first].append(pair.latency)
    return {key: median(values) for key, values in found.items()}


def _rate_grid(nodes: Sequence[str], cells: Cells) -> Grid:
    usual = median(cells.values())
    texts = {key: _three(value / GIGA) for key, value in cells.items()}
    slow = {key for key, value in cells.items() if value < _RED_BELOW * usual}
    return _matrix(nodes, texts, slow)


def _late_grid(nodes: Sequence[str], cells: Cells) -> Grid:
    usual = median(cells.values())
    texts = {key: format_duration(value) for key, value in cells.items()}
    return _matrix(
        nodes, texts, {key for key, value in cells.items() if value > _RED_ABOVE * usual}
    )


def _matrix(
    nodes: Sequence[str], texts: Mapping[tuple[str, str], str], marked: set[tuple[str, str]]
) -> Grid:
    """A mark beside the colour: the cell of a slow pair ends in `!`."""
    grid = Grid((Column("from \\ to", left=True), *(Column(node) for node in nodes)))
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
    grid = Grid((Column(title, left=True), Column("sends GB/s"), Column("receives GB/s")))
    for node in order[:SLOWEST]:
        rates = median(sent[node]), median(received[node])
        grid.add(node, *(_three(rate / GIGA) for rate in rates))
    return grid


def _three(value: float) -> str:
    return f"{value:#.3g}".rstrip(".") if value else "0"
