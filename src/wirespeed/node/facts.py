"""What is so on this node, gathered once by one of its ranks, how far devices are apart. Nothing raises.

Whatever cannot be read is in `unknown` with the reason. On 2 cores it takes about 30 ms without
GPUs, and up to 100 ms for copying memory; starting NVML is the rest.
"""

import os
import platform
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any

from wirespeed.model.codec import to_json
from wirespeed.model.records import NodeFacts
from wirespeed.node.gpus import gather_gpus
from wirespeed.node.interface_choice import note_network
from wirespeed.node.limits import gather_cpus, gather_limits, note_copy_rate
from wirespeed.node.machine import note_hardware, note_installed, pci_device
from wirespeed.node.nics import gather_nics, gather_rdma
from wirespeed.node.placement.gather import note_placement
from wirespeed.node.reading import Notes, numa_node, numbered, read_fields, read_text
from wirespeed.node.redact import allowed_environment

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
    notes: Notes, gpus: Sequence[Device], nics: Sequence[Device], rdma: Sequence[Device]
) -> None:
    """Note `topo.distances`, `topo.nvlinks` and `topo.numa` where there is something to tell.

    distances: `{"GPU0": {"GPU1": "NODE", "mlx5_0": "PIX"}}`, to every other GPU, RDMA device and
    interface on the PCI bus; without GPUs, from each RDMA device to the interfaces. A pair of which
    sysfs does not tell enough is absent. nvlinks: `{"GPU0": {"GPU1": 4, "NVSwitch": 18}}`, active
    links by what is at their other end. numa: the CPUs of each NUMA node.
    """
    near = {f"GPU{gpu['index']}": gpu for gpu in gpus}
    far = {one["device"]: one for one in rdma} | {one["name"]: one for one in nics}
    addresses = {name: one["pci"] for name, one in (near | far).items() if "pci" in one}
    devices = {name: pci_device(notes.root, address) for name, address in addresses.items()}
    spots = {
        name: Spot(tuple(filter(_STEP.fullmatch, device.parts)), numa_node(device))
        for name, device in devices.items()
    }
    single = len(numbered(notes.root / "sys/devices/system/node", "node")) < 2
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


def distance(one: Spot, other: Spot, *, single_numa: bool = False) -> str:
    """`PIX`, `PXB`, `PHB`, `NODE` or `SYS`; empty where the places are not known well enough."""
    if not all(spot.steps and spot.steps[0].startswith("pci") for spot in (one, other)):
        return ""
    steps = zip(one.steps, other.steps, strict=False)
    shared = len([*takewhile(lambda pair: pair[0] == pair[1], steps)])
    if shared > 1:
        # Below the last common bridge: its own downstream port and the device, or more bridges.
        rest = max(len(one.steps), len(other.steps)) - shared
        return "PIX" if rest <= 2 else "PXB"
    if shared == 1:
        return "PHB"
    if one.numa is None or other.numa is None:
        return "NODE" if single_numa else ""
    return "NODE" if one.numa == other.numa else "SYS"


# NVLink.


def _nvlinks(gpus: Sequence[Device]) -> dict[str, dict[str, int]]:
    """Active links of each GPU by their other end, for GPUs that have NVLinks."""
    names = {gpu["pci"]: f"GPU{gpu['index']}" for gpu in gpus if "pci" in gpu}
    return {
        f"GPU{gpu['index']}": {names.get(end, end): links for end, links in ends.items()}
        for gpu in gpus
        if (ends := gpu.get("nvlink_ends"))
    }


_ROOT = Path("/")


def gather_node(
    ranks: Sequence[int],
    *,
    root: Path = _ROOT,
    environ: Mapping[str, str] | None = None,
    nvml: Any = None,
) -> NodeFacts:
    """The facts of this node, on which the global `ranks` run.

    `root`, `environ` and `nvml` stand in for /, os.environ and pynvml in tests. Versions of torch,
    NCCL and CUDA are known only where torch is imported already: importing it takes a second.
    """
    notes = Notes(root)
    notes.facts = replace(notes.facts, kernel=platform.release(), python=platform.python_version())
    name = read_fields(notes.root / "etc/os-release", "=").get("PRETTY_NAME")
    notes.keep("os", name and name.strip("\"'"), "/etc/os-release has no PRETTY_NAME")
    _gather_torch(notes, sys.modules.get("torch"))
    gather_cpus(notes)
    gather_limits(notes)
    note_hardware(notes)
    note_placement(notes, environ)
    variables = os.environ if environ is None else environ
    nics, rdma = gather_nics(notes), gather_rdma(notes)
    note_network(notes, variables, nics, rdma)
    note_copy_rate(notes)
    return NodeFacts(
        host=socket.gethostname(),
        ranks=tuple(ranks),
        gpus=gather_gpus(notes, nvml, environ=variables),
        nics=nics,
        rdma=rdma,
        environment=allowed_environment(variables),
        facts=notes.facts,
        unknown=notes.unknown,
    )


def _gather_torch(notes: Notes, torch: ModuleType | None) -> None:
    if torch is None:
        why = "torch is not imported in this process"
        notes.unknown |= dict.fromkeys(("torch", "cuda", "nccl"), why)
        return
    notes.keep("torch", str(torch.__version__))
    notes.keep("cuda", torch.version.cuda, "this torch is built without CUDA")
    notes.keep("nccl", _nccl(torch), "this torch is built without NCCL")


def _nccl(torch: Any) -> str | None:
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return None
    version = torch.cuda.nccl.version()
    return ".".join(str(part) for part in version) if isinstance(version, tuple) else str(version)


def survey_node(
    ranks: Sequence[int],
    *,
    root: Path = _ROOT,
    environ: Mapping[str, str] | None = None,
    nvml: Any = None,
) -> NodeFacts:
    """As `gather_node`, which it extends, in a process that has not imported torch. Nothing raises."""
    node = gather_node(ranks, root=root, environ=environ, nvml=nvml)
    notes = Notes(root)
    notes.facts = node.facts
    note_installed(notes)
    note_topology(notes, node.gpus, node.nics, node.rdma)
    _note_addresses(notes)
    known = to_json(notes.facts)
    unknown = {name: why for name, why in node.unknown.items() if name not in known}
    return replace(node, facts=notes.facts, unknown=unknown | notes.unknown)


def _note_addresses(notes: Notes) -> None:
    """Note `topo.addresses`: IPv4 and IPv6 addresses by interface, link-local ones left out."""
    import psutil

    try:
        found = psutil.net_if_addrs()
    except OSError as error:
        notes.unknown["topo.addresses"] = f"the interfaces cannot be listed: {error.strerror}"
        return
    families = (socket.AF_INET, socket.AF_INET6)
    told = {
        name: [one.address for one in addresses if one.family in families]
        for name, addresses in found.items()
    }
    routed = {
        name: [one for one in addresses if not one.startswith("fe80:")]
        for name, addresses in told.items()
    }
    notes.keep("topo.addresses", {name: found for name, found in routed.items() if found})
