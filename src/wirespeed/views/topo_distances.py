"""The matrix of `wirespeed topo`: how near GPUs and network devices are, as `nvidia-smi topo -m`."""

from collections.abc import Mapping, Sequence

from wirespeed.records import NodeFacts
from wirespeed.views.grid import Column, Grid
from wirespeed.views.style import Style

__all__ = ["distance_lines", "legend"]

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
    grid = Grid((Column("distance", left=True), *(Column(name, left=True) for name in columns)))
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
    told: Words = node.facts.get("topo.distances", {})
    links: Mapping[str, Mapping[str, int]] = node.facts.get("topo.nvlinks", {})
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
