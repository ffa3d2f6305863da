"""What `wirespeed topo` shows: each node's devices and how near they are; nodes that are alike once."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from wirespeed.model.node_facts import Facts
from wirespeed.model.records import NodeFacts, Run
from wirespeed.model.units import format_duration, format_size
from wirespeed.views.findings import finding_lines
from wirespeed.views.sections import closing_lines, note
from wirespeed.views.text import Column, Grid, Style, counted

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
    # A zone tells where a node is; what kind of machine it is, is part of its form.
    facts = Facts(placement_instance_type=node.facts.placement_instance_type)
    own = {name for name in Facts.__slots__ if name.startswith("placement_")} | {"topo_addresses"}
    bare = replace(node, host="", facts=replace(node.facts, **{n: getattr(facts, n) for n in own}))
    return (*node_lines(bare, Style()), *distance_lines(bare, Style()))


def _group(group: Sequence[NodeFacts], style: Style) -> list[str]:
    first, others = group[0], group[1:]
    lines = node_lines(first, style) + distance_lines(first, style)
    if others:
        names = _listed([node.host for node in others])
        text = f"{names} ({counted(len(others), 'node')}): the same as {first.host}"
        lines += ["", style.paint(style.text(text), "bold")]
    return lines


def _places(nodes: Sequence[NodeFacts], style: Style) -> list[str]:
    """Where the nodes stand, if there are several and it is known of one."""
    places = Counter(place_of(node) for node in nodes)
    if len(nodes) < 2 or not any(any(place) for place in places):
        return []
    titles = ("region", "zone", "placement group", "rack", "machine")
    grid = _table(*titles, "nodes")
    for place in places:
        hosts = [node.host for node in nodes if place_of(node) == place]
        cells = place if any(place) else ("not known", "", "", "", "")
        grid.add(*cells, f"{_listed(hosts)} ({len(hosts)})" if len(hosts) > 1 else hosts[0])
    return grid.lines(style)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _ENDS else f"{names[0]} … {names[-1]}"


def _unread(nodes: Sequence[NodeFacts], style: Style) -> list[str]:
    """What is not known, by reason; for many nodes alike told once."""
    found: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        for name, reason in node.unknown.items():
            found.setdefault((name, reason), []).append(node.host)
    grid = _table("not known", "why", "nodes")
    for (name, reason), hosts in found.items():
        grid.add(name, reason, _listed(hosts) if len(hosts) < len(nodes) else "")
    return grid.lines(style)


def _head(run: Run, style: Style) -> str:
    parts = ["wirespeed topo", counted(len(run.world.nodes), "node"), run.world.launcher]
    return style.paint(style.text(" · ".join(filter(None, parts))), "dim")


def _closing(run: Run, style: Style) -> list[str]:
    if run.findings or run.exit_code:
        return closing_lines(run, style)
    text = f"{format_duration(run.seconds)}   run {run.id}"
    return [style.paint(style.text(text), "dim")]


_INDENT = "  "
Device = Mapping[str, Any]


def node_lines(node: NodeFacts, style: Style) -> list[str]:
    """Everything but the distances."""
    heading = style.paint(style.text(node.host), "bold")
    lines = [f"{heading}  {style.text(' · '.join(_software(node)))}"]
    lines += [_INDENT + style.text(" · ".join(_processors(node)))]
    nothing = [*_no_gpu(node), *_no_rdma(node)]
    lines += [_INDENT + style.text("; ".join(nothing))] if nothing else []
    for block in (_numa(node, style), _gpus(node, style), _rdma(node, style), _nics(node, style)):
        lines += ["", *block] if block else []
    return lines


def place_of(node: NodeFacts) -> tuple[str, str, str, str, str]:
    """Region, zone, placement group, rack and machine; empty where not known."""

    def told(name: str) -> str:
        return getattr(node.facts, f"placement_{name}") or ""

    zone, id = told("zone"), told("zone_id")
    named = f"{zone} ({id})" if zone and id and zone != id else zone or id
    return told("region"), named, told("placement_group"), told("rack"), told("physical_host")


def _software(node: NodeFacts) -> list[str]:
    facts = node.facts
    _, zone, *_ = place_of(node)
    found = [facts.placement_instance_type or "", zone and f"zone {zone}"]
    found += [facts.os or "", _named("kernel", facts.kernel)]
    found += [_named("NVIDIA driver", facts.gpu_driver), _named("torch", facts.torch)]
    found += [_named("CUDA", facts.cuda), _named("NCCL", facts.nccl)]
    return [part for part in found if part]


def _named(name: str, value: object) -> str:
    return f"{name} {value}" if value else ""


def _processors(node: NodeFacts) -> list[str]:
    facts = node.facts
    found = [facts.cpu_model or "CPU model not known"]
    if (logical := facts.cpu_logical) is not None:
        cores = logical if facts.cpu_physical is None else facts.cpu_physical
        threads = f" / {logical} threads" if cores != logical else ""
        found.append(counted(cores, "core") + threads)
    if facts.numa_nodes is not None:
        found.append(counted(facts.numa_nodes, "NUMA node"))
    if facts.memory_total_bytes is not None:
        found.append(f"{format_size(int(facts.memory_total_bytes))} memory")
    return found


def _table(*titles: str) -> Grid:
    return Grid([Column(title, left=True) for title in titles])


def _numa(node: NodeFacts, style: Style) -> list[str]:
    """Which CPUs and devices are near each other, where there are several NUMA nodes."""
    cpus: Mapping[str, str] = node.facts.topo_numa or {}
    if len(cpus) < 2:
        return []
    grid = _table("numa", "CPUs", "GPUs", "devices")
    for number, listed in cpus.items():
        gpus = [f"GPU{one.get('index', '?')}" for one in node.gpus if _is_on(one, number)]
        rest = [one.get("device", "?") for one in node.rdma if _is_on(one, number)]
        rest += [one.get("name", "?") for one in node.nics if _is_on(one, number)]
        grid.add(number, listed or "none", " ".join(gpus), " ".join(dict.fromkeys(rest)))
    return grid.lines(style, indent=_INDENT)


def _is_on(device: Device, number: str) -> bool:
    return str(device.get("numa_node", "")) == number


# GPUs.


def _gpus(node: NodeFacts, style: Style) -> list[str]:
    links: Mapping[str, Mapping[str, int]] = node.facts.topo_nvlinks or {}
    grid = _table("gpu", "name", "memory", "pci", "numa", "PCIe", "NVLinks")
    for gpu in node.gpus:
        memory = gpu.get("memory_bytes")
        grid.add(
            f"GPU{gpu.get('index', '?')}",
            str(gpu.get("name", "not known")),
            format_size(memory) if memory else "",
            str(gpu.get("pci", "")),
            str(gpu.get("numa_node", "")),
            _pcie(gpu),
            _trouble(gpu) or _nvlinks(gpu, links.get(f"GPU{gpu.get('index', '?')}", {})),
        )
    return grid.lines(style, indent=_INDENT)


def _trouble(gpu: Device) -> str:
    """What a GPU answers that does not answer: its other columns are empty then."""
    return f"answers {gpu['errors'][0].get('text', '')!r}" if gpu.get("errors") else ""


def _no_gpu(node: NodeFacts) -> list[str]:
    """How well that is known: the bus tells what is there, NVML what can be used."""
    if node.gpus:
        return []
    on_bus, reason = node.facts.gpu_on_bus, node.unknown.get("gpus", "")
    if on_bus:
        why = f" ({reason})" if reason else ""
        return [f"{counted(len(on_bus), 'GPU')} on the PCI bus, and NVML gives none{why}"]
    if on_bus is not None or node.facts.gpu_count == 0:
        return ["no NVIDIA GPU"]
    return [f"no GPU known ({reason})" if reason else "no GPU known"]


def _pcie(gpu: Device) -> str:
    """`gen 5 ×16`, of what it can; an idle GPU lowers the generation, so that is left out."""
    generation, width = gpu.get("pcie_gen_max"), gpu.get("pcie_width")
    if width is None:
        return ""
    most = gpu.get("pcie_width_max", width)
    text = f"gen {generation} ×{width}" if generation else f"×{width}"
    return text if width >= most else f"{text} of ×{most}"


def _nvlinks(gpu: Device, ends: Mapping[str, int]) -> str:
    states = gpu.get("nvlinks", ())
    if not states:
        return ""
    up, down = sum(states), len(states) - sum(states)
    told = ", ".join(f"{count} to {end}" for end, count in ends.items()) or f"{up} active"
    return f"{told}, {down} inactive" if down else told


# Network.


def _rdma(node: NodeFacts, style: Style) -> list[str]:
    several = {one.get("device", "?") for one in node.rdma if one.get("port", 1) > 1}
    by_pci = {one["pci"]: one.get("name", "?") for one in node.nics if "pci" in one}
    grid = _table("rdma", "state", "rate", "layer", "board", "firmware", "pci", "numa", "interface")
    for one in node.rdma:
        device = one.get("device", "?")
        named = device + (f" port {one.get('port')}" if device in several else "")
        names = ("state", "rate", "link_layer", "board", "firmware", "pci", "numa_node")
        cells = [str(one.get(name, "")) for name in names]
        color = "" if cells[0] in ("", "ACTIVE") else "yellow"
        grid.add(named, *cells, by_pci.get(one.get("pci"), ""), color=color, at=1)
    return grid.lines(style, indent=_INDENT)


def _no_rdma(node: NodeFacts) -> list[str]:
    if node.rdma:
        return []
    reason = node.unknown.get("rdma", "")
    return [f"no RDMA device known ({reason})" if reason else "no RDMA device"]


def _nics(node: NodeFacts, style: Style) -> list[str]:
    shown = [one for one in node.nics if style.verbose or _matters(node, one)]
    kinds = {one.get("name"): one.get("kind", "") for one in (node.facts.net_interfaces or ())}
    grid = _table("nic", "kind", "speed", "mtu", "addresses", "pci", "numa", "part of")
    for one in shown:
        kind = str(one.get("driver") or kinds.get(one.get("name", "?"), ""))
        grid.add(
            one.get("name", "?"),
            kind or ("virtual" if one.get("virtual") else ""),
            f"{one['speed_Gbitps']:g} Gbit/s" if "speed_Gbitps" in one else "",
            str(one.get("mtu", "")),
            ", ".join(_addresses(node, one.get("name", "?"))),
            str(one.get("pci", "")),
            str(one.get("numa_node", "")),
            str(one.get("master", "")),
        )
    return grid.lines(style, indent=_INDENT)


def _matters(node: NodeFacts, nic: Device) -> bool:
    """Cards, and what carries an address; not loopback, nor the hundred veths of a Kubernetes node."""
    if nic.get("loopback"):
        return False
    return not nic.get("virtual", True) or bool(_addresses(node, nic.get("name", "?")))


def _addresses(node: NodeFacts, name: str) -> list[str]:
    return (node.facts.topo_addresses or {}).get(name, [])


_MEANINGS = {
    "NV": "NV#: that many NVLinks",
    "PIX": "PIX: at most one PCIe bridge between",
    "PXB": "PXB: several PCIe bridges",
    "PHB": "PHB: the PCIe host bridge of the CPU",
    "NODE": "NODE: host bridges of one NUMA node",
    "SYS": "SYS: the link between NUMA nodes",
}
_FAR = {"SYS": "yellow", "NODE": "", "PHB": "", "PXB": "", "PIX": "green"}
Words = Mapping[str, Mapping[str, str]]


def distance_lines(node: NodeFacts, style: Style) -> list[str]:
    """The matrix after a blank line; GPUs that are all equally near each other in one line."""
    told = _words(node)
    if not told:
        return []
    rows = list(told)
    among = {told[one].get(other, "") for one in rows for other in rows if one != other}
    every = ["", _between(rows, among.pop(), style)] if len(among) == 1 and len(rows) > 1 else []
    alone = every or len(rows) == 1
    columns = _devices(node, told) if alone else [*rows, *_devices(node, told)]
    grid = _table("distance", *columns)
    for name in rows:
        cells = ["X" if name == column else told[name].get(column, "?") for column in columns]
        for number, cell in enumerate(cells, start=1):
            grid.painted[len(grid.rows), number] = _FAR.get(cell, "")
        grid.add(name, *cells)
    return [*every, *(["", *grid.lines(style, indent="  ")] if columns else [])]


def legend(nodes: Sequence[NodeFacts]) -> str:
    """What the words mean that were used."""
    used = {
        word.rstrip("0123456789")
        for node in nodes
        for row in _words(node).values()
        for word in row.values()
    }
    return "; ".join(text for word, text in _MEANINGS.items() if word in used)


def _between(rows: Sequence[str], word: str, style: Style) -> str:
    text = f"{rows[0]} … {rows[-1]}: {word or '?'} to each other" if len(rows) > 2 else ""
    return "  " + style.text(text or f"{rows[0]} and {rows[1]}: {word or '?'}")


def _words(node: NodeFacts) -> dict[str, dict[str, str]]:
    """Distances, with NVLinks in place of the PCI path where they join two GPUs."""
    told: Words = node.facts.topo_distances or {}
    links: Mapping[str, Mapping[str, int]] = node.facts.topo_nvlinks or {}
    found = {name: dict(row) for name, row in told.items()}
    for one in links:
        for other in {*links} - {one}:
            count = _links(links[one], links[other], other)
            if count:
                found.setdefault(one, {})[other] = f"NV{count}"
    return found


def _links(mine: Mapping[str, int], others: Mapping[str, int], other: str) -> int:
    """NVLinks between two GPUs: their own, or through switches as many as both have there."""
    return mine.get(other, 0) or min(mine.get("NVSwitch", 0), others.get("NVSwitch", 0))


def _devices(node: NodeFacts, told: Words) -> list[str]:
    """Network devices that some row knows; an interface only where no RDMA device is the same card."""
    known = {name for row in told.values() for name in row}
    rdma = {one.get("device", "?"): one.get("pci") for one in node.rdma}
    cards = set(rdma.values())
    rows = set(told)
    nics = [one.get("name", "?") for one in node.nics if one.get("pci") not in cards]
    return [name for name in (*rdma, *nics) if name in known and name not in rows]
