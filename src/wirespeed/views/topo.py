"""What `wirespeed topo` shows: each node's devices and how near they are; nodes that are alike once."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from wirespeed.records import NodeFacts, Run
from wirespeed.units import format_duration
from wirespeed.views.findings import finding_lines
from wirespeed.views.grid import Column, Grid
from wirespeed.views.sections import closing_lines, note
from wirespeed.views.style import Style
from wirespeed.views.topo_distances import distance_lines, legend
from wirespeed.views.topo_node import node_lines, place_of

__all__ = ["render", "render_md"]

_ENDS = 4
"""So many names of a group are listed; of a longer one the first and the last."""


def render(run: Run, style: Style) -> str:
    groups = [[node] for node in run.world.nodes] if style.verbose else _alike(run.world.nodes)
    blocks = [
        [_head(run, style)],
        finding_lines(run.findings, style),
        *(_group(group, style) for group in groups),
        _places(run.world.nodes, style),
        note(legend(run.world.nodes), style),
        _unread(run.world.nodes, style) if style.verbose or run.exit_code == 3 else [],
        _closing(run, style),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def render_md(run: Run, style: Style) -> str:
    """The same text as a code block: a matrix is read best in one width."""
    plain = Style(ascii=style.ascii, verbose=style.verbose)
    return f"## Topology\n\n```\n{render(run, plain)}```\n"


def _alike(nodes: Sequence[NodeFacts]) -> list[list[NodeFacts]]:
    """Nodes of which everything shown is the same but names, addresses and place."""
    groups: dict[tuple[str, ...], list[NodeFacts]] = {}
    for node in nodes:
        groups.setdefault(_form(node), []).append(node)
    return list(groups.values())


def _form(node: NodeFacts) -> tuple[str, ...]:
    own = ("topo.addresses", *(name for name in node.facts if name.startswith("placement.")))
    facts = {name: value for name, value in node.facts.items() if name not in own}
    # A zone tells where a node is; what kind of machine it is, is part of its form.
    kind = node.facts.get("placement.instance_type", "")
    bare = replace(node, host="", facts=facts | {"placement.instance_type": kind})
    return (*node_lines(bare, Style()), *distance_lines(bare, Style()))


def _group(group: Sequence[NodeFacts], style: Style) -> list[str]:
    first, others = group[0], group[1:]
    lines = node_lines(first, style) + distance_lines(first, style)
    if others:
        names = _listed([node.host for node in others])
        text = f"{names} ({_nodes(len(others))}): the same as {first.host}"
        lines += ["", style.paint(style.text(text), "bold")]
    return lines


def _places(nodes: Sequence[NodeFacts], style: Style) -> list[str]:
    """Where the nodes stand, if there are several and it is known of one."""
    places = Counter(place_of(node) for node in nodes)
    if len(nodes) < 2 or not any(any(place) for place in places):
        return []
    titles = ("region", "zone", "placement group", "rack", "machine")
    grid = Grid((*(Column(title, left=True) for title in titles), Column("nodes", left=True)))
    for place in places:
        hosts = [node.host for node in nodes if place_of(node) == place]
        cells = place if any(place) else ("not known", "", "", "", "")
        grid.add(*cells, f"{_listed(hosts)} ({len(hosts)})" if len(hosts) > 1 else hosts[0])
    return grid.lines(style)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _ENDS else f"{names[0]} … {names[-1]}"


def _nodes(count: int) -> str:
    return f"{count} node" + ("s" if count > 1 else "")


def _unread(nodes: Sequence[NodeFacts], style: Style) -> list[str]:
    """What is not known, by reason; for many nodes alike told once."""
    found: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        for name, reason in node.unknown.items():
            found.setdefault((name, reason), []).append(node.host)
    grid = Grid(tuple(Column(title, left=True) for title in ("not known", "why", "nodes")))
    for (name, reason), hosts in found.items():
        grid.add(name, reason, _listed(hosts) if len(hosts) < len(nodes) else "")
    return grid.lines(style) if found else []


def _head(run: Run, style: Style) -> str:
    parts = ["wirespeed topo", _nodes(len(run.world.nodes)), run.world.launcher]
    return style.paint(style.text(" · ".join(filter(None, parts))), "dim")


def _closing(run: Run, style: Style) -> list[str]:
    if run.findings or run.exit_code:
        return closing_lines(run, style)
    text = f"{format_duration(run.seconds)}   run {run.id}"
    return [style.paint(style.text(text), "dim")]
