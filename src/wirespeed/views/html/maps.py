"""Heat maps of the pairs, each with the same figures as a table; and what was simulated."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from wirespeed.model.records import Located, PairFigures, Run
from wirespeed.model.units import GIGA, format_duration
from wirespeed.views.html.heatmap import (
    MOST_IN_MAP,
    Axis,
    Matrix,
    Quantity,
    Scale,
    figure,
    figure_text,
    matrix_of,
    scale_of,
)
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
    whole = matrix_of(located, suspects.named)
    axis = whole.axis
    rails = _rails(located, axis, suspects)
    scales = _scales(located, suspects, whole)
    return section(
        spot,
        "maps",
        _TITLE,
        "maps.html",
        title=_TITLE,
        located=located,
        folded=axis.folded,
        suspects=suspects,
        maps=list(_whole_fabric(located, suspects, scales, whole, spot)),
        rails=list(_by_rail(located, suspects, rails, scales, spot)) if len(rails) > 1 else [],
        left=len({pair.rail for pair in located.pairs}) - len(rails),
        tables=html_tables(_tables(located, axis), spot.id("pairs")),
    )


def _why_no_map(run: Run) -> str:
    if run.simulation is not None:
        return "a simulation of that many nodes does not keep the figures of single pairs"
    return "no pair of nodes was measured"


def _rails(located: Located, axis: Axis, suspects: Suspects) -> list[int]:
    """Those whose maps are drawn: all, or those that are named and as many more as there is room for."""
    rails = sorted({pair.rail for pair in located.pairs})
    most = max(1, _MOST_CELLS // (2 * len(axis.names) ** 2))
    first = sorted(rails, key=lambda rail: rail not in suspects.rails)[:most]
    return sorted(first)


def _scales(located: Located, suspects: Suspects, whole: Matrix) -> dict[Quantity, Scale]:
    """Of what was measured: one scale for all maps of it, so that they compare."""
    known: list[Quantity] = ["bandwidth"]
    if any(pair.latency is not None for pair in located.pairs):
        known.append("latency")
    return {quantity: scale_of(located, quantity, suspects, whole) for quantity in known}


def _whole_fabric(
    located: Located,
    suspects: Suspects,
    scales: Mapping[Quantity, Scale],
    whole: Matrix,
    spot: Spot,
) -> Iterator[dict[str, Any]]:
    for quantity, scale in scales.items():
        drawn = figure(located, quantity, suspects=suspects, scale=scale, matrix=whole)
        yield _map(spot, quantity, _TITLES[quantity], drawn)


def _by_rail(
    located: Located,
    suspects: Suspects,
    rails: Sequence[int],
    scales: Mapping[Quantity, Scale],
    spot: Spot,
) -> Iterator[dict[str, Any]]:
    parts = {rail: _of_rail(located, rail) for rail in rails}
    by_rail = {rail: matrix_of(part, suspects.named, rail) for rail, part in parts.items()}
    for rail, part in parts.items():
        drawn = figure(
            part,
            rail=rail,
            suspects=suspects,
            small=True,
            scale=scales["bandwidth"],
            matrix=by_rail[rail],
        )
        marked = rail in suspects.rails
        yield _map(spot, f"rail-{rail}", f"Rail {rail}", drawn, marked=marked)
    late = [rail for rail in rails if any(one.latency is not None for one in parts[rail].pairs)]
    for rail in late if len(late) > 1 else ():
        drawn = figure(
            parts[rail],
            "latency",
            rail=rail,
            suspects=suspects,
            small=True,
            scale=scales["latency"],
            matrix=by_rail[rail],
        )
        yield _map(spot, f"latency-{rail}", f"Rail {rail}, latency", drawn)


def _of_rail(located: Located, rail: int) -> Located:
    """The same with the pairs of that rail only; of many nodes those that the other maps show."""
    if len(located.nodes) > MOST_IN_MAP:
        return located
    return replace(located, pairs=tuple(pair for pair in located.pairs if pair.rail == rail))


def _map(
    spot: Spot, name: str, title: str, drawn: dict[str, Any], *, marked: bool = False
) -> dict[str, Any]:
    """What map.html takes: the figure, and the room it needs before it is drawn."""
    room = {side: drawn["layout"][side] for side in ("width", "height")}
    told = {"name": spot.id(name), "title": title, "marked": marked, "table": spot.id("maps-table")}
    return {**told, "json": script_json(drawn), **room}


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
