"""Heat maps of the pairs, each with the same figures as a table; and what was simulated."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from wirespeed.model.records import Located, PairFigures, Run
from wirespeed.model.units import GIGA, format_duration
from wirespeed.views.html.heatmap import Axis, Maps, Quantity, figure_text
from wirespeed.views.html.parts import Section, Spot, html_tables, script_json, section
from wirespeed.views.pairs import MOST_IN_MATRIX, Suspects, matrices, simulation_lines, suspects_of
from wirespeed.views.text import Grid, Style

_TITLE = "Who talks how fast to whom"
_TITLES: dict[Quantity, str] = {
    "bandwidth": "Bandwidth, GB/s",
    "latency": "Latency, half of a small round trip",
}
_MOST_CELLS = 120_000
"""Of all maps of single rails together: what more would make the page slow to open."""


def maps_section(run: Run, spot: Spot) -> Iterator[Section]:
    """The heat maps, and in words what they leave out; then what was simulated."""
    located = run.located
    if located is not None and located.pairs:
        yield _maps(run, located, spot)
    elif run.command == "locate":
        why = _why_no_map(run)
        yield section(spot, "maps", _TITLE, "no_maps.html", title=_TITLE, why=why)
    if lines := simulation_lines(run, Style()):
        yield section(spot, "simulation", "The simulated fabric", "simulation.html", lines=lines)


def _maps(run: Run, located: Located, spot: Spot) -> Section:
    suspects = suspects_of(run.findings, located.nodes)
    maps = Maps(located, suspects)
    known = {rail: any(one.latency is not None for one in maps.pairs[rail]) for rail in maps.pairs}
    rails = _rails(maps, suspects)
    by_rail: list[tuple[Quantity, int]] = [("bandwidth", rail) for rail in rails]
    late = [rail for rail in rails if known[rail]]
    by_rail += [("latency", rail) for rail in late] if len(late) > 1 else []
    quantities: list[Quantity] = ["bandwidth", "latency"] if known[None] else ["bandwidth"]
    return section(
        spot,
        "maps",
        _TITLE,
        "maps.html",
        title=_TITLE,
        located=located,
        folded=maps.axis.folded,
        suspects=suspects,
        maps=[_map(spot, maps, quantity) for quantity in quantities],
        rails=[_map(spot, maps, *one) for one in by_rail] if len(rails) > 1 else [],
        left=len(maps.pairs) - 1 - len(rails),
        tables=html_tables(_tables(located, maps.axis), spot.id("pairs")),
    )


def _why_no_map(run: Run) -> str:
    if run.simulation is not None:
        return "a simulation of that many nodes does not keep the figures of single pairs"
    return "no pair of nodes was measured"


def _rails(maps: Maps, suspects: Suspects) -> list[int]:
    """Those whose maps are drawn: all, or those that are named and as many more as there is room for."""
    rails = sorted(rail for rail in maps.pairs if rail is not None)
    most = max(1, _MOST_CELLS // (2 * len(maps.axis.names) ** 2))
    return sorted(sorted(rails, key=lambda rail: rail not in suspects.rails)[:most])


def _map(spot: Spot, maps: Maps, quantity: Quantity, rail: int | None = None) -> dict[str, Any]:
    """What map.html takes: the figure, and the room it needs before it is drawn."""
    drawn = maps.figure(quantity, rail)
    name, title = str(quantity), _TITLES[quantity]
    if rail is not None:
        late = quantity == "latency"
        name = f"latency-{rail}" if late else f"rail-{rail}"
        title = f"Rail {rail}, latency" if late else f"Rail {rail}"
    return {
        "name": spot.id(name),
        "title": title,
        "marked": quantity == "bandwidth" and rail in maps.suspects.rails,
        "table": spot.id("maps-table"),
        "json": script_json(drawn),
        "width": drawn["layout"]["width"],
        "height": drawn["layout"]["height"],
    }


def _tables(located: Located, axis: Axis) -> list[tuple[str, Grid]]:
    """The figures of the maps: every pair of few nodes, of many what each node shows."""
    if len(located.nodes) <= MOST_IN_MATRIX:
        return matrices(located)
    shown = axis.names[:-1] if axis.folded else axis.names
    return [("medians over the partners of each node", _by_node(located, shown))]


def _by_node(located: Located, shown: Sequence[str]) -> Grid:
    grid = Grid.of("<node|sends GB/s|receives GB/s|latency|<slowest partner|GB/s")
    of_node: dict[str, list[PairFigures]] = {node: [] for node in shown}
    for pair in located.pairs:
        for node in {pair.first, pair.second} & of_node.keys():
            of_node[node].append(pair)
    for node, pairs in of_node.items():
        grid.add(node, *_of_node(node, pairs))
    return grid


def _of_node(node: str, pairs: Sequence[PairFigures]) -> list[str]:
    if not pairs:
        return ["not measured", "", "", "", ""]
    sent = [one.forth if one.first == node else one.back for one in pairs]
    received = [one.back if one.first == node else one.forth for one in pairs]
    late = [one.latency for one in pairs if one.latency is not None]
    worst = min(pairs, key=lambda one: min(one.forth, one.back))
    partner = worst.second if worst.first == node else worst.first
    return [
        figure_text("bandwidth", median(sent)),
        figure_text("bandwidth", median(received)),
        format_duration(median(late)) if late else "",
        partner,
        f"{min(worst.forth, worst.back) / GIGA:#.3g}",
    ]
