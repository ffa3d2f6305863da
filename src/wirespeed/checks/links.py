"""Whether network cards are as fast as they can be, and GPUs reach them: NODE-010 to NODE-013."""

from collections.abc import Iterator, Sequence
from typing import Any

from wirespeed.checks.registry import Blind, absent, judge_nodes, on_node, without_rdma, worse
from wirespeed.model.records import Finding, NodeFacts, World

Device = dict[str, Any]

_FULL_WIDTH = 4
_OLD_CODING_GTPS = 5.0
"""Up to here (PCIe 1 and 2) 8 of 10 bits carry data, above 128 of 130."""


def link_findings(world: World) -> list[Finding]:
    """NODE-010, NODE-011."""
    return [*judge_nodes("NODE-010", world.nodes, _judge_speed), *_siblings(world)]


# NODE-010.


def _judge_speed(node: NodeFacts) -> Finding | Blind | None:
    interfaces = [nic for nic in node.nics if _in_use(nic, node.nics)]
    devices = _devices(interfaces, node.rdma)
    told = [one for one in interfaces if {"speed_Gbitps", "speed_max_Gbitps"} <= one.keys()]
    linked = [name for name, one in devices if {"pcie_width", "pcie_width_max"} <= one.keys()]
    slow = [*_slow_interfaces(told), *_slow_pcie(devices)]
    if node.facts.machine_virtual is False:
        slow += _narrow_pcie(devices)
    if slow:
        return _too_slow("NODE-010", node, slow)
    return None if told or linked else Blind(_why_blind(node, interfaces))


def _in_use(nic: Device, nics: Sequence[Device]) -> bool:
    """Real, and addressed itself or part of a bond or bridge that is."""
    if nic.get("virtual", True) or nic.get("loopback"):
        return False
    masters = [one for one in nics if one["name"] == nic.get("master")]
    return any(one.get("families") for one in (nic, *masters))


def _devices(interfaces: Sequence[Device], ports: Sequence[Device]) -> list[tuple[str, Device]]:
    """Network and RDMA devices by name, one a PCI device; an RDMA port knows its rate."""
    found: dict[str, tuple[str, Device]] = {}
    for name, one in [
        *((f"{port['device']} port {port['port']}", port) for port in ports),
        *((nic["name"], nic) for nic in interfaces),
    ]:
        found.setdefault(str(one.get("pci", name)), (name, one))
    return list(found.values())


def _slow_interfaces(interfaces: Sequence[Device]) -> Iterator[str]:
    for nic in interfaces:
        speed, fastest = nic["speed_Gbitps"], nic["speed_max_Gbitps"]
        if speed < fastest:
            yield f"{nic['name']}: {speed:g} of {fastest:g} Gbit/s"


def _slow_pcie(devices: Sequence[tuple[str, Device]]) -> Iterator[str]:
    for name, one in devices:
        parts = []
        if one.get("pcie_GTps", 0) < one.get("pcie_GTps_max", 0) and "pcie_GTps" in one:
            parts.append(f"PCIe {one['pcie_GTps']:g} of {one['pcie_GTps_max']:g} GT/s")
        if one.get("pcie_width", 0) < one.get("pcie_width_max", 0) and "pcie_width" in one:
            parts.append(f"PCIe x{one['pcie_width']} of x{one['pcie_width_max']}")
        if parts:
            yield f"{name}: {', '.join(parts)}"


def _narrow_pcie(devices: Sequence[tuple[str, Device]]) -> Iterator[str]:
    """Links at their maximum that carry less than the port: a slot that does not do for the card.

    In virtual machines the numbers of a link are often made up.
    """
    for name, one in devices:
        carries = _pcie_Gbitps(one)
        port = one.get("rate_Gbitps") or one.get("speed_Gbitps") or 0
        at_best = all(one.get(key) == one.get(f"{key}_max") for key in ("pcie_GTps", "pcie_width"))
        if carries is not None and at_best and carries < port:
            link = f"PCIe {one['pcie_GTps']:g} GT/s x{one['pcie_width']}"
            yield f"{name}: {link} carries {carries:.0f} Gbit/s, its port {port:g}"


def _pcie_Gbitps(one: Device) -> float | None:
    """What the PCIe link carries in one direction, headers of packets included."""
    if not {"pcie_GTps", "pcie_width"} <= one.keys():
        return None
    speed = float(one["pcie_GTps"])
    return speed * int(one["pcie_width"]) * (8 / 10 if speed <= _OLD_CODING_GTPS else 128 / 130)


def _too_slow(id: str, node: NodeFacts, slow: Sequence[str]) -> Finding:
    more = f", and {len(slow) - 1} more" if len(slow) > 1 else ""
    return worse(id, "warn", node, f"{slow[0]}{more}", saw="; ".join(slow), evidence=tuple(slow))


def _why_blind(node: NodeFacts, interfaces: Sequence[Device]) -> str:
    if not interfaces:
        return node.unknown.get("nics", "no real interface with an address")
    reasons = (node.unknown.get(f"nic.{nic['name']}.speed_max") for nic in interfaces)
    why = next(filter(None, reasons), "neither speed nor PCIe link is known")
    return f"{interfaces[0]['name']}: {why}"


# NODE-011.


def _siblings(world: World) -> list[Finding]:
    widest = _widest(world)
    nodes = [node for node in world.nodes if _active(node)]
    if not nodes:
        if any(node.rdma for node in world.nodes):
            title = "rates of RDMA ports not checked"
            return [absent("NODE-011", title, "no ACTIVE port on any node")]
        return [without_rdma("NODE-011", "rates of RDMA ports", world.nodes)]
    rates = sorted({port["rate"] for node in nodes for port in _active(node) if "rate" in port})
    return judge_nodes(
        "NODE-011", nodes, lambda node: _judge_ports(node, widest), saw=", ".join(rates)
    )


def _active(node: NodeFacts) -> list[Device]:
    return [port for port in node.rdma if port.get("state") == "ACTIVE"]


def _kind(port: Device) -> tuple[Any, ...]:
    """Ports of one kind of card; cards for storage are often slower than those for training."""
    return port.get("link_layer"), port.get("board"), port.get("driver")


def _widest(world: World) -> dict[tuple[Any, ...], int]:
    found: dict[tuple[Any, ...], int] = {}
    for port in (port for node in world.nodes for port in _active(node)):
        found[_kind(port)] = max(found.get(_kind(port), 0), port.get("width", 0))
    return found


def _judge_ports(node: NodeFacts, widest: dict[tuple[Any, ...], int]) -> Finding | Blind | None:
    ports = _active(node)
    known = [port for port in ports if "rate_Gbitps" in port]
    if not known:
        return Blind("/sys/class/infiniband/*/ports/*/rate does not tell")
    best: dict[tuple[Any, ...], Device] = {}
    for port in sorted(known, key=lambda one: -one["rate_Gbitps"]):
        best.setdefault(_kind(port), port)
    slow = [text for port in known if (text := _slow_port(port, best[_kind(port)], widest))]
    return _too_slow("NODE-011", node, slow) if slow else None


def _slow_port(port: Device, leader: Device, widest: dict[tuple[Any, ...], int]) -> str:
    name = f"{port['device']} port {port['port']}: {port.get('rate', port['rate_Gbitps'])}"
    if port["rate_Gbitps"] < leader["rate_Gbitps"]:
        return f"{name}, {leader['device']} {leader['rate_Gbitps']:g} Gb/sec"
    # Ethernet has fast ports of one lane, and 2X is what a split InfiniBand cable gives.
    width = port.get("width", _FULL_WIDTH)
    lone = port.get("link_layer") == "InfiniBand" and width < _FULL_WIDTH
    narrow = lone and (width == 1 or widest[_kind(port)] > width)
    return f"{name}, not {_FULL_WIDTH}X" if narrow else ""


_OWN_PEER_MEMORY = ("efa",)
"""RDMA drivers that reach GPU memory without nvidia-peermem (Amazon's efa asks NVIDIA's itself)."""


def peer_findings(world: World) -> list[Finding]:
    """NODE-012, NODE-013."""
    with_gpus = [node for node in world.nodes if _gpus(node)]
    rdma = [node for node in with_gpus if node.rdma]
    none = "no node has both GPUs and RDMA devices"
    peers = [node for node in with_gpus if _gpus(node) > 1 or node.rdma]
    no_peer = "no node has a GPU and another GPU or an RDMA device"
    return [
        *judge_nodes("NODE-012", rdma, _judge_gpudirect, none=none),
        *judge_nodes("NODE-013", peers, _judge_redirects, none=no_peer),
    ]


def _gpus(node: NodeFacts) -> int:
    """GPUs of the node: those that NVML told, or that are on the bus."""
    return len(node.gpus) or len(node.facts.gpu_on_bus or ())


# NODE-012.


def _judge_gpudirect(node: NodeFacts) -> Finding | Blind | None:
    drivers = {port.get("driver") for port in node.rdma}
    if drivers <= set(_OWN_PEER_MEMORY):
        names = ", ".join(_OWN_PEER_MEMORY)
        return Blind(f"the driver {names} brings its own access to GPU memory", applies=False)
    module = node.facts.gpudirect_peer_module
    by_dmabuf = (node.facts.gpudirect_dmabuf_kernel, node.facts.gpu_open_modules)
    if module or all(by_dmabuf):
        return None
    if module is None or (by_dmabuf[1] is None and by_dmabuf[0]):
        name = "gpudirect.peer_module" if module is None else "gpu.open_modules"
        return Blind(node.unknown.get(name, f"{name} not reported"))
    return on_node(
        "NODE-012",
        "none",
        node,
        kernel=node.facts.kernel or "unknown",
        modules="open" if node.facts.gpu_open_modules else "closed",
    )


# NODE-013.


def _judge_redirects(node: NodeFacts) -> Finding | Blind | None:
    virtual = node.facts.machine_virtual
    if virtual:
        why = "virtual machine: ACS isolates it and has to stay (the card should have ATS)"
        return Blind(why, applies=False)
    groups = node.facts.iommu_groups or {}
    translated = {one: kind for one, kind in groups.items() if kind.startswith("DMA")}
    bridges = node.facts.acs_redirects or {}
    if (translated or bridges) and virtual is None:
        return Blind(f"bare metal or not: {node.unknown.get('machine.virtual', 'not reported')}")
    if translated or bridges:
        return _redirected(node, translated, bridges)
    if node.facts.acs_redirects is None:
        return Blind(node.unknown.get("acs.redirects", "ACS not reported"))
    return None


def _redirected(node: NodeFacts, translated: dict[str, str], bridges: dict[str, str]) -> Finding:
    texts, fixes = [], []
    if translated:
        kinds = "/".join(sorted(set(translated.values())))
        texts.append(f"IOMMU translates for {len(translated)} GPU and RDMA devices ({kinds})")
        fixes.append("iommu=pt on the kernel's command line (or off in the BIOS)")
    if bridges:
        texts.append(f"ACS is on at {len(bridges)} PCI bridges above GPU and RDMA devices")
        fixes.append("setpci -s BRIDGE ECAP_ACS+0x6.w=0000 after every start (or off in the BIOS)")
    kernel = " ".join(node.facts.iommu_kernel or ()) or "nothing about the IOMMU"
    return on_node(
        "NODE-013",
        "redirected",
        node,
        what="; ".join(texts),
        kernel=kernel,
        fix="; ".join(fixes),
        evidence=(
            *(f"{one}: IOMMU group {kind}" for one, kind in sorted(translated.items())),
            *(f"{one}: ACSCtl {bits}" for one, bits in sorted(bridges.items())),
        ),
    )
