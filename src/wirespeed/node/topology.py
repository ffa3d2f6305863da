"""How far the devices of a node are from each other: PCI distances from sysfs, NVLinks from NVML.

Distances are told in the words of `nvidia-smi topo -m`, whose legend defines them: PIX (at most one
PCIe bridge between), PXB (several, without the host bridge), PHB (the host bridge), NODE (host bridges
of one NUMA node), SYS (the link between NUMA nodes).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wirespeed.node.pci import pci_device
from wirespeed.node.reading import Notes, numbered, read_number, read_text

__all__ = ["Spot", "distance", "note_topology"]

_STEP = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}|[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
"""Of a device's path in sysfs: the host bridge (`pci0000:16`), then bridges, then the device."""
Device = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a device sits on the PCI tree."""

    steps: tuple[str, ...]
    """The host bridge, the bridges below it, the device itself."""
    numa: int | None


def note_topology(
    notes: Notes,
    gpus: Sequence[Device],
    nics: Sequence[Device],
    rdma: Sequence[Device],
) -> None:
    """Note `topo.distances`, `topo.nvlinks` and `topo.numa` where there is something to tell.

    distances: `{"GPU0": {"GPU1": "NODE", "mlx5_0": "PIX"}}`, to every other GPU, RDMA device and
    interface on the PCI bus; without GPUs, from each RDMA device to the interfaces. A pair of which
    sysfs does not tell enough is absent. nvlinks: `{"GPU0": {"GPU1": 4, "NVSwitch": 18}}`, active
    links by what is at their other end. numa: the CPUs of each NUMA node.
    """
    near = {f"GPU{gpu['index']}": gpu for gpu in gpus}
    far = {one["device"]: one for one in rdma} | {one["name"]: one for one in nics}
    spots = {
        name: _spot(notes.root, one["pci"]) for name, one in (near | far).items() if "pci" in one
    }
    single = len(list(numbered(notes.root / "sys/devices/system/node", "node"))) < 2
    table = {
        name: _row(name, spots, single)
        for name in spots
        if name in near or (not near and name in {one["device"] for one in rdma})
    }
    notes.facts = replace(
        notes.facts,
        topo_distances=table if any(table.values()) else None,
        topo_nvlinks=_nvlinks(gpus) or None,
        topo_numa=_cpus_of_nodes(notes.root) or None,
    )


def _cpus_of_nodes(root: Path) -> dict[str, str]:
    """CPUs by NUMA node, as the kernel lists them: `0-63,128-191`."""
    nodes = numbered(root / "sys/devices/system/node", "node")
    lists = {node.name.removeprefix("node"): read_text(node / "cpulist") for node in nodes}
    return {node: text for node, text in lists.items() if text is not None}


def _row(name: str, spots: Mapping[str, Spot], single: bool) -> dict[str, str]:
    told = {
        other: distance(spots[name], spot, single_numa=single)
        for other, spot in spots.items()
        if other != name and spot.steps != spots[name].steps
    }
    return {other: word for other, word in told.items() if word}


def _spot(root: Path, address: str) -> Spot:
    device = pci_device(root, address)
    node = read_number(device / "numa_node")
    steps = tuple(part for part in device.parts if _STEP.fullmatch(part))
    return Spot(steps, node if node is not None and node >= 0 else None)


def distance(one: Spot, other: Spot, *, single_numa: bool = False) -> str:
    """`PIX`, `PXB`, `PHB`, `NODE` or `SYS`; empty where the places are not known well enough."""
    if not (_is_whole(one) and _is_whole(other)):
        return ""
    shared = _shared(one.steps, other.steps)
    if shared > 1:
        # Below the last common bridge: its own downstream port and the device, or more bridges.
        rest = max(len(one.steps), len(other.steps)) - shared
        return "PIX" if rest <= 2 else "PXB"
    if shared == 1:
        return "PHB"
    if one.numa is None or other.numa is None:
        return "NODE" if single_numa else ""
    return "NODE" if one.numa == other.numa else "SYS"


def _is_whole(spot: Spot) -> bool:
    return bool(spot.steps) and spot.steps[0].startswith("pci")


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Steps that both paths begin with."""
    count = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        count += 1
    return count


# NVLink.


def _nvlinks(gpus: Sequence[Device]) -> dict[str, dict[str, int]]:
    """Active links of each GPU by their other end, for GPUs that have NVLinks."""
    names = {gpu["pci"]: f"GPU{gpu['index']}" for gpu in gpus if "pci" in gpu}
    return {
        f"GPU{gpu['index']}": {names.get(end, end): links for end, links in ends.items()}
        for gpu in gpus
        if (ends := gpu.get("nvlink_ends"))
    }
