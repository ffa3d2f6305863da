"""Sections of the nodes: what they have, how they differ, their pairs, the environment, choices."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.codec import to_json
from wirespeed.model.records import Finding, Located, NodeFacts, PairFigures, Run
from wirespeed.model.units import GIGA, format_duration
from wirespeed.views.html import parts
from wirespeed.views.html.heatmap import Axis, Maps, Quantity, figure_text
from wirespeed.views.html.parts import Figure, Section, Spot
from wirespeed.views.pairs import MOST_IN_MATRIX, Suspects, matrices, simulation_lines, suspects_of
from wirespeed.views.sections import choices_grid
from wirespeed.views.text import Grid, Style, counted

_MOST_ROWS, _MOST_AT_ONCE, _WORST = 1500, 40, 20
_SYNCHRONISING = {op for op, one in CATALOGUE.items() if one.synchronising}
_LEAST_RANKS = 3
_HEIGHT, _MOST_TICKS = 300, 32
_NOTE = (
    "Median over the operations of a rank's median time over that of the middle rank; "
    "above 1 is slower."
)


def nodes_section(run: Run, spot: Spot) -> Iterator[Section]:
    """A row a node."""
    nodes = run.world.nodes
    if not nodes:
        return
    slow = rank_slowness(run)
    worst = _worst_first(nodes, slow, _by_host(run.findings))
    few = nodes if len(nodes) <= _MOST_AT_ONCE else worst[:_WORST]
    caption = "each node" if few is nodes else f"the {_WORST} of which most is said, or the slowest"
    charts = []
    if len(slow) >= _LEAST_RANKS:
        drawn, table = _ranks_chart(nodes, slow), spot.id("nodes-1-caption")
        charts = [parts.chart(spot, "ranks", "Which rank is slow", drawn, _NOTE, table)]
    every = sorted(worst[:_MOST_ROWS], key=lambda node: node.ranks) if few is not nodes else ()
    shown = ((caption, _grid(run, few, slow)), ("each node", _grid(run, every, slow)))
    tables = parts.html_tables(shown, spot.id("nodes"))
    yield parts.section(
        spot,
        "nodes",
        "Nodes",
        "nodes.html",
        title="Nodes",
        said=_summary(run),
        charts=charts,
        table=tables[0],
        every=tables[1] if every else "",
        shown=len(every),
        left=max(0, len(nodes) - _MOST_ROWS),
    )


def _worst_first(
    nodes: Sequence[NodeFacts], slow: Mapping[int, float], said: Mapping[str, Counter[str]]
) -> list[NodeFacts]:
    def badness(node: NodeFacts) -> tuple[int, int, float]:
        counted = said.get(node.host, Counter())
        slowest = max((slow.get(rank, 0.0) for rank in node.ranks), default=0.0)
        return -counted["fail"], -counted["warn"], -slowest

    return sorted(nodes, key=badness)


def rank_slowness(run: Run) -> dict[int, float]:
    """By rank: its median time over the middle rank's, the median over the operations that compare."""
    ratios: dict[int, list[float]] = defaultdict(list)
    for m in run.measurements:
        if m.op not in _SYNCHRONISING or m.groups != "all" or len(m.rank_medians) < _LEAST_RANKS:
            continue
        middle = median(m.rank_medians)
        if 0 < middle < math.inf:
            for rank, time in enumerate(m.rank_medians):
                ratios[rank].append(time / middle)
    found = {rank: median(values) for rank, values in ratios.items()}
    return {rank: value for rank, value in found.items() if math.isfinite(value)}


def _summary(run: Run) -> str:
    nodes = run.world.nodes
    gpus = sum(len(node.gpus) for node in nodes)
    text = f"{counted(run.world.size, 'rank', ',')} on {counted(len(nodes), 'node', ',')}"
    return text + (f", {gpus:,} GPUs." if gpus else ".")


def _grid(run: Run, nodes: Sequence[NodeFacts], slow: Mapping[int, float]) -> Grid:
    grid = Grid.of("<node|<ranks|<said of it|slowest rank|<GPUs|<network|<RDMA|<CPU")
    said = _by_host(run.findings)
    for node in nodes:
        counted = said.get(node.host, Counter())
        words = [f"{counted[kind]} {word}" for kind, word in _STATUS if counted[kind]]
        color = "red" if counted["fail"] else "yellow" if counted["warn"] else ""
        known = [(slow[rank], rank) for rank in node.ranks if rank in slow]
        worst = f"{max(known)[0]:.2f}× (rank {max(known)[1]})" if known else ""
        about = (node.host, _ranges(node.ranks), ", ".join(words), worst)
        gpus = _counted(gpu.get("name", "GPU") for gpu in node.gpus)
        nics = _counted(_rated(nic, "speed_Gbitps") for nic in node.nics)
        rdma = _counted(_rated(one, "rate_Gbitps", named=False) for one in node.rdma)
        grid.add(*about, gpus, nics, rdma, node.facts.cpu_model or "", color=color, at=2)
    return grid


_STATUS = (("fail", "failed"), ("warn", "warning"))


def _by_host(findings: Iterable[Finding]) -> dict[str, Counter[str]]:
    """Failures and warnings by the node that they name as their subject."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for finding in findings:
        if finding.subject.kind == "node":
            found[finding.subject.name][finding.status] += 1
    return found


def _rated(part: Mapping[str, Any], key: str, *, named: bool = True) -> str:
    """`eth0 25 Gbit/s`; adapters of one kind are counted, so their own names are left out."""
    name = str(part.get("name", "?")) if named else "adapter"
    rate = part.get(key)
    known = isinstance(rate, (int, float)) and 0 < rate < math.inf
    return f"{name} {rate:g} Gbit/s" if known else name


def _counted(names: Iterable[object]) -> str:
    """`8 × NVIDIA H100`."""
    found = Counter(map(str, names))
    return ", ".join(f"{n} × {name}" if n > 1 else name for name, n in found.items())


def _ranges(ranks: Sequence[int]) -> str:
    """`0–7`, `0, 2, 4`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        runs[-1].append(rank) if runs and rank == runs[-1][-1] + 1 else runs.append([rank])
    return ", ".join(f"{one[0]}–{one[-1]}" if len(one) > 1 else str(one[0]) for one in runs)


def _ranks_chart(nodes: Sequence[NodeFacts], slow: Mapping[int, float]) -> Figure:
    host = {rank: node.host for node in nodes for rank in node.ranks}
    ranks = sorted(slow)
    marker = {"color": parts.LINES[0], "size": 5 if len(ranks) > 100 else 8}
    hover = "rank %{x} on %{customdata}: %{y:.2f}×<extra></extra>"
    drawn = parts.marks("rank", ranks, (round(slow[rank], 4) for rank in ranks), hover, marker)
    drawn["customdata"] = [parts.label(host.get(rank, "")) for rank in ranks]
    return {"data": [drawn], "layout": _ranks_layout(ranks, max(slow.values()))}


def _ranks_layout(ranks: Sequence[int], most: float) -> Figure:
    axis = {"gridcolor": "--line", "zeroline": False, "automargin": True}
    room = max(1.0, len(ranks) * 0.02)
    x: Figure = {"title": {"text": "rank", "font": {"size": 13}}, "tickformat": "d"}
    x |= {"range": [ranks[0] - room, ranks[-1] + room]}
    x |= {"dtick": 1} if len(ranks) <= _MOST_TICKS else {}
    y: Figure = {"title": parts.axis_title("times the middle rank"), "ticksuffix": "×"}
    y |= {"range": [0, max(1.25, 1.08 * most)]}
    return {
        "height": _HEIGHT,
        "margin": {"l": 10, "r": 16, "t": 16, "b": 52},
        "xaxis": axis | x,
        "yaxis": axis | y,
        "showlegend": False,
        "shapes": [parts.level(1)],
    }


_MOST_FACTS = 400
_MOST_NODES_NAMED = 4


def environment_section(run: Run, spot: Spot) -> Iterator[Section]:
    """What was recorded of it."""
    title = "Environment"
    if tables := parts.html_tables(_grids(run), spot.id("environment")):
        yield parts.section(
            spot, "environment", title, "environment.html", title=title, tables=tables
        )


def _grids(run: Run) -> Iterator[tuple[str, Grid]]:
    if run.versions:
        yield "versions", _pairs("software", "version", run.versions)
    if run.choices:
        yield "chosen automatically", choices_grid(run)
    settings = {name: _said(value) for name, value in run.config.items() if value not in (None, "")}
    if settings:
        yield "options of the command", _pairs("option", "value", settings)
    if run.environment:
        grid = _pairs("variable", "value", run.environment)
        yield "environment variables (only those of the libraries)", grid
    if facts := facts_of(run.world.nodes):
        yield "facts of the nodes", _facts(facts, len(run.world.nodes))


def _pairs(first: str, second: str, values: Mapping[str, object]) -> Grid:
    rows = [(name, str(value)) for name, value in sorted(values.items())[:_MOST_FACTS]]
    return Grid.filled(f"<{first}|<{second}", rows)


def _said(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)


def facts_of(nodes: Sequence[NodeFacts]) -> dict[str, dict[str, list[str]]]:
    """By fact: each value with the hosts that have it, the commonest first."""
    found: dict[str, dict[str, list[str]]] = {}
    for node in nodes:
        for name, value in {**to_json(node.facts), **node.environment}.items():
            found.setdefault(name, {}).setdefault(_said(value), []).append(node.host)
    return {
        name: dict(sorted(values.items(), key=lambda item: -len(item[1])))
        for name, values in sorted(found.items())
    }


def _facts(facts: Mapping[str, Mapping[str, Sequence[str]]], nodes: int) -> Grid:
    grid = Grid.of("<fact|<value|<on")
    for name, values in list(facts.items())[:_MOST_FACTS]:
        for value, hosts in list(values.items())[:_MOST_NODES_NAMED]:
            grid.add(name, value, _where(hosts, nodes))
    return grid


def _where(hosts: Sequence[str], nodes: int) -> str:
    if len(hosts) == nodes:
        return "every node"
    named = ", ".join(hosts[:_MOST_NODES_NAMED])
    more = len(hosts) - _MOST_NODES_NAMED
    return f"{named} and {more:,} more" if more > 0 else named


# Heat maps of the pairs, each with the same figures as a table; and what was simulated.

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
        yield parts.section(spot, "maps", _TITLE, "no_maps.html", title=_TITLE, why=why)
    if lines := simulation_lines(run, Style()):
        yield parts.section(
            spot, "simulation", "The simulated fabric", "simulation.html", lines=lines
        )


def _maps(run: Run, located: Located, spot: Spot) -> Section:
    suspects = suspects_of(run.findings, located.nodes)
    maps = Maps(located, suspects)
    known = {rail: any(one.latency is not None for one in maps.pairs[rail]) for rail in maps.pairs}
    rails = _rails(maps, suspects)
    by_rail: list[tuple[Quantity, int]] = [("bandwidth", rail) for rail in rails]
    late = [rail for rail in rails if known[rail]]
    by_rail += [("latency", rail) for rail in late] if len(late) > 1 else []
    quantities: list[Quantity] = ["bandwidth", "latency"] if known[None] else ["bandwidth"]
    return parts.section(
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
        tables=parts.html_tables(_tables(located, maps.axis), spot.id("pairs")),
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
        "json": parts.script_json(drawn),
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
    of_node: dict[str, list[PairFigures]] = {node: [] for node in shown}
    for pair in located.pairs:
        for node in {pair.first, pair.second} & of_node.keys():
            of_node[node].append(pair)
    header = "<node|sends GB/s|receives GB/s|latency|<slowest partner|GB/s"
    return Grid.filled(header, [(node, *_of_node(node, pairs)) for node, pairs in of_node.items()])


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
