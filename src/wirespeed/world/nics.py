"""Network interfaces: what the network namespace has, with what sysfs adds to it.

Inside `ip netns exec` or a container /sys can still show another namespace's interfaces, also one
of the same name. So psutil (netlink and ioctl of our own namespace) says what there is, and sysfs
is believed about an interface only where the hardware address is the same.
"""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wirespeed.world.ethtool import supported_Gbitps
from wirespeed.world.pci import pcie_link
from wirespeed.world.reading import Notes, pci_address, read_number, read_text

__all__ = ["gather_nics"]

_FAMILIES = {socket.AF_INET: "ipv4", socket.AF_INET6: "ipv6"}
_UNKNOWN_SPEED = (0, 65535, 0xFFFFFFFF)
"""psutil's 0 and the kernel's SPEED_UNKNOWN (-1) as it comes through 16 and 32 bits."""


def gather_nics(notes: Notes) -> tuple[dict[str, Any], ...]:
    """The interfaces that are up, by name.

    Keys: `name`, `loopback`, `virtual` (a bridge, veth, tunnel …), `mtu` in bytes, `families`
    (`ipv4`, `ipv6`), and where known `speed_Gbitps`, `speed_max_Gbitps` (of the fastest mode that
    the interface supports), `driver`, `numa_node`, `pci`, `master` (the bond or bridge that it is
    part of) and the PCIe link as `wirespeed.world.pci.pcie_link` gives it.
    """
    import psutil

    try:
        addresses, states = psutil.net_if_addrs(), psutil.net_if_stats()
    except OSError as error:
        notes.unknown["nics"] = f"the network interfaces cannot be listed: {error.strerror}"
        return ()
    return tuple(
        _nic(notes, name, addresses.get(name, ()), states[name])
        for name in sorted(states)
        if states[name].isup
    )


def _nic(notes: Notes, name: str, addresses: Any, state: Any) -> dict[str, Any]:
    families = {_FAMILIES[found.family] for found in addresses if found.family in _FAMILIES}
    nic: dict[str, Any] = {
        "name": name,
        "loopback": "loopback" in state.flags.split(","),
        "mtu": state.mtu,
        "families": sorted(families),
    }
    if state.speed not in _UNKNOWN_SPEED:
        nic["speed_Gbitps"] = state.speed / 1000
    hardware = {found.address.lower() for found in addresses if found.family == socket.AF_PACKET}
    folder = notes.root / "sys/class/net" / name
    if (read_text(folder / "address") or "").lower() in hardware:
        nic.update(_from_sysfs(notes.root, folder))
        if not nic["virtual"]:
            _add_fastest(notes, nic)
    else:
        notes.unknown[f"nic.{name}.driver"] = "/sys shows another network namespace"
    return nic


def _add_fastest(notes: Notes, nic: dict[str, Any]) -> None:
    """Ask the driver of the interface, in our own network namespace."""
    key = f"nic.{nic['name']}.speed_max"
    try:
        fastest = supported_Gbitps(nic["name"])
    except OSError as error:
        notes.unknown[key] = f"ETHTOOL_GLINKSETTINGS: {error.strerror}"
        return
    if fastest is None:
        notes.unknown[key] = f"its driver ({nic.get('driver', 'unknown')}) names no link mode"
    else:
        nic["speed_max_Gbitps"] = fastest


def _from_sysfs(root: Path, folder: Path) -> Mapping[str, Any]:
    """What only sysfs knows; a device without a parent device is virtual."""
    device = folder / "device"
    if not device.exists():
        return {"virtual": True}
    found: dict[str, Any] = {"virtual": False}
    if (device / "driver").exists():
        found["driver"] = (device / "driver").resolve().name
    if (pci := pci_address(device)) is not None:
        found["pci"] = pci
    if (folder / "master").exists():
        found["master"] = (folder / "master").resolve().name
    node = read_number(device / "numa_node")
    if node is not None and node >= 0:
        found["numa_node"] = node
    return {**found, **pcie_link(root, pci)}
