"""One node of `wirespeed topo`: a heading, CPUs, and tables of its GPUs, RDMA ports and interfaces."""

from collections.abc import Mapping
from typing import Any

from wirespeed.records import NodeFacts
from wirespeed.units import format_size
from wirespeed.views.grid import Column, Grid
from wirespeed.views.style import Style

__all__ = ["node_lines", "place_of"]

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
        return str(node.facts.get(f"placement.{name}", ""))

    zone, id = told("zone"), told("zone_id")
    named = f"{zone} ({id})" if zone and id and zone != id else zone or id
    return told("region"), named, told("placement_group"), told("rack"), told("physical_host")


def _software(node: NodeFacts) -> list[str]:
    facts = node.facts
    _, zone, *_ = place_of(node)
    found = [str(facts.get("placement.instance_type", "")), zone and f"zone {zone}"]
    found += [str(facts.get("os", "")), _named("kernel", facts.get("kernel"))]
    found += [_named("NVIDIA driver", facts.get("gpu.driver")), _named("torch", facts.get("torch"))]
    found += [_named("CUDA", facts.get("cuda")), _named("NCCL", facts.get("nccl"))]
    return [part for part in found if part]


def _named(name: str, value: object) -> str:
    return f"{name} {value}" if value else ""


def _processors(node: NodeFacts) -> list[str]:
    facts = node.facts
    found = [str(facts.get("cpu.model", "CPU model not known"))]
    if (logical := facts.get("cpu.logical")) is not None:
        cores = facts.get("cpu.physical", logical)
        threads = f" / {logical} threads" if cores != logical else ""
        found.append(_count(cores, "core") + threads)
    if "numa.nodes" in facts:
        found.append(_count(facts["numa.nodes"], "NUMA node"))
    if "memory.total_bytes" in facts:
        found.append(f"{format_size(facts['memory.total_bytes'])} memory")
    return found


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("s" if number != 1 else "")


def _table(*titles: str) -> Grid:
    return Grid(tuple(Column(title, left=True) for title in titles))


def _numa(node: NodeFacts, style: Style) -> list[str]:
    """Which CPUs and devices are near each other, where there are several NUMA nodes."""
    cpus: Mapping[str, str] = node.facts.get("topo.numa", {})
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
    if not node.gpus:
        return []
    links: Mapping[str, Mapping[str, int]] = node.facts.get("topo.nvlinks", {})
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
    on_bus, reason = node.facts.get("gpu.on_bus"), node.unknown.get("gpus", "")
    if on_bus:
        why = f" ({reason})" if reason else ""
        return [f"{_count(len(on_bus), 'GPU')} on the PCI bus, and NVML gives none{why}"]
    if on_bus is not None or node.facts.get("gpu.count") == 0:
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
    if not node.rdma:
        return []
    several = {one.get("device", "?") for one in node.rdma if one.get("port", 1) > 1}
    by_pci = {one["pci"]: one.get("name", "?") for one in node.nics if "pci" in one}
    grid = _table("rdma", "state", "rate", "layer", "board", "firmware", "pci", "numa", "interface")
    for one in node.rdma:
        device = one.get("device", "?")
        named = device + (f" port {one.get('port')}" if device in several else "")
        names = ("state", "rate", "link_layer", "board", "firmware", "pci", "numa_node")
        cells = [str(one.get(name, "")) for name in names]
        grid.add(named, *cells, by_pci.get(one.get("pci"), ""))
    _mark(grid, column=1, good="ACTIVE")
    return grid.lines(style, indent=_INDENT)


def _no_rdma(node: NodeFacts) -> list[str]:
    if node.rdma:
        return []
    reason = node.unknown.get("rdma", "")
    return [f"no RDMA device known ({reason})" if reason else "no RDMA device"]


def _mark(grid: Grid, *, column: int, good: str) -> None:
    for number, row in enumerate(grid.rows):
        if row[column] not in ("", good):
            grid.painted[number, column] = "yellow"


def _nics(node: NodeFacts, style: Style) -> list[str]:
    shown = [one for one in node.nics if style.verbose or _matters(node, one)]
    if not shown:
        return []
    kinds = {one.get("name"): one.get("kind", "") for one in node.facts.get("net.interfaces", ())}
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
    found: list[str] = node.facts.get("topo.addresses", {}).get(name, [])
    return found
