"""Network interfaces and RDMA devices, from /sys and the driver (ethtool)."""

import array
import fcntl
import re
import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wirespeed.node.machine import driver_of, pcie_link
from wirespeed.node.reading import Notes, numa_node, numbered, pci_address, read_text

_FAMILIES = {socket.AF_INET: "ipv4", socket.AF_INET6: "ipv6"}
_UNKNOWN_SPEED = (0, 65535, 0xFFFFFFFF)
"""psutil's 0 and the kernel's SPEED_UNKNOWN (-1) as it comes through 16 and 32 bits."""


def gather_nics(notes: Notes) -> tuple[dict[str, Any], ...]:
    """The interfaces that are up, by name.

    Keys: `name`, `loopback`, `virtual` (a bridge, veth, tunnel …), `mtu` in bytes, `families`
    (`ipv4`, `ipv6`), and where known `speed_Gbitps`, `speed_max_Gbitps` (of the fastest mode that
    the interface supports), `driver`, `numa_node`, `pci`, `master` (the bond or bridge that it is
    part of) and the PCIe link as `wirespeed.node.machine.pcie_link` gives it.
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
    if driver := driver_of(device):
        found["driver"] = driver
    if (pci := pci_address(device)) is not None:
        found["pci"] = pci
    if (folder / "master").exists():
        found["master"] = (folder / "master").resolve().name
    if (node := numa_node(device)) is not None:
        found["numa_node"] = node
    return {**found, **pcie_link(root, pci)}


_CLASS = "sys/class/infiniband"
_NO_GID = (None, "", "0000:0000:0000:0000:0000:0000:0000:0000")


def gather_rdma(notes: Notes) -> tuple[dict[str, Any], ...]:
    """One mapping a port, by device and port.

    Keys: `device`, `port`, `gids` (how many are set), and where known `state` (`ACTIVE`, `DOWN` …),
    `phys_state`, `rate` (`100 Gb/sec (2X HDR)`), `rate_Gbitps`, `width` (2), `link_layer`,
    `numa_node`, `firmware`, `board` (PSID, or the type of the device), `driver`, `pci` and the PCIe
    link (`wirespeed.node.machine.pcie_link`). A machine without the folder has no RDMA device: that
    is known, not unknown.
    """
    folder = notes.root / _CLASS
    try:
        devices = sorted(folder.iterdir())
    except FileNotFoundError:
        return ()
    except OSError as error:
        notes.unknown["rdma"] = f"/{_CLASS}: {error.strerror}"
        return ()
    return tuple(port for device in devices for port in _ports(notes, device))


def _ports(notes: Notes, device: Path) -> Iterator[dict[str, Any]]:
    shared = _device(notes.root, device)
    ports = numbered(device / "ports", "")
    if not ports:
        notes.unknown[f"rdma.{device.name}"] = f"/{_CLASS}/{device.name}/ports has no port"
    for port in ports:
        yield {"device": device.name, "port": int(port.name), **_port(port), **shared}


def _device(root: Path, device: Path) -> dict[str, Any]:
    at = device / "device"
    pci = pci_address(at)
    found = {
        "firmware": read_text(device / "fw_ver"),
        "numa_node": numa_node(at),
        "board": read_text(device / "board_id") or read_text(device / "hca_type"),
        "driver": driver_of(at) or None,
        "pci": pci,
    }
    return {**_known(found), **pcie_link(root, pci)}


def _port(port: Path) -> dict[str, Any]:
    text = read_text(port / "rate")
    rate = re.match(r"([\d.]+) Gb/sec(?: \((\d+)X)?", text or "")
    found = {
        "state": _after_number(read_text(port / "state")),
        "phys_state": _after_number(read_text(port / "phys_state")),
        "rate": text,
        "rate_Gbitps": float(rate[1]) if rate else None,
        "width": int(rate[2]) if rate and rate[2] else None,
        "link_layer": read_text(port / "link_layer"),
        # Ethernet ports fail to read entries that are not set, or give zeros.
        "gids": sum(read_text(gid) not in _NO_GID for gid in numbered(port / "gids", "")),
    }
    return _known(found)


def _after_number(text: str | None) -> str | None:
    return None if text is None else text.partition(":")[2].strip() or text


def _known(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value is not None}


_SIOCETHTOOL = 0x8946
_GLINKSETTINGS = 0x4C
_GSSET_INFO, _GSTRINGS, _GSTATS = 0x37, 0x1B, 0x1D
_STATISTICS = 1
"""ETH_SS_STATS: the set of strings that names them."""
_NAME = 32
_SLACK = 4096
"""More statistics than were counted: a queue may be added before they are written."""
_HEADER = 48
"""Bytes of struct ethtool_link_settings before the masks."""
_NWORDS = 15
"""Where in it link_mode_masks_nwords lies, a signed byte."""
_MOST_WORDS = 127
_BITS_BY_MBITPS = {
    10: ((0, 1), (92, 92), (99, 102)),
    100: ((2, 3), (67, 67), (90, 91)),
    1_000: ((4, 5), (17, 17), (41, 41), (68, 68)),
    2_500: ((15, 15), (47, 47)),
    5_000: ((48, 48),),
    10_000: ((12, 12), (18, 20), (42, 46)),
    20_000: ((21, 22),),
    25_000: ((31, 33),),
    40_000: ((23, 26),),
    50_000: ((34, 35), (40, 40), (52, 56)),
    56_000: ((27, 30),),
    100_000: ((36, 39), (57, 61), (75, 79)),
    200_000: ((62, 66), (80, 84), (103, 108)),
    400_000: ((69, 73), (85, 89), (109, 114)),
    800_000: ((93, 98), (115, 120)),
    1_600_000: ((121, 124),),
}
"""First and last bit of each run of link modes of one speed."""


def supported_Gbitps(name: str) -> float | None:
    """Gbit/s of the fastest link mode that an interface supports.

    None: it names no mode, as virtual and InfiniBand interfaces. Raises OSError where the driver
    does not answer.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        words = -_ask(asking, name, bytearray(_HEADER), 0)[_NWORDS]
        if not 0 < words <= _MOST_WORDS:
            return None
        answer = _ask(asking, name, bytearray(_HEADER + 3 * 4 * words), words)
    masks = struct.unpack_from(f"={words}I", answer, _HEADER)
    return fastest_mode(sum(mask << 32 * place for place, mask in enumerate(masks)))


def statistics(name: str) -> dict[str, int]:
    """The driver's own statistics of an interface, by the names that it gives them.

    None at all for a driver that keeps none. Raises OSError where it does not answer.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        request = struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _STATISTICS, 0)
        _, _, known, count = struct.unpack("=IIQI", ethtool(asking, name, request))
        if not known or not count:
            return {}
        room = count + _SLACK
        header = struct.pack("=III", _GSTRINGS, _STATISTICS, count)
        names = ethtool(asking, name, header + bytes(_NAME * room))[12:]
        values = ethtool(asking, name, struct.pack("=II", _GSTATS, count) + bytes(8 * room))
    texts = (names[at : at + _NAME].partition(b"\0")[0] for at in range(0, _NAME * count, _NAME))
    numbers = struct.unpack_from(f"={count}Q", values, 8)
    return dict(zip((text.decode(errors="replace") for text in texts), numbers, strict=True))


def fastest_mode(supported: int) -> float | None:
    """Gbit/s of the fastest mode in a bit mask of link modes."""
    for speed in sorted(_BITS_BY_MBITPS, reverse=True):
        for first, last in _BITS_BY_MBITPS[speed]:
            if supported >> first & ((1 << last - first + 1) - 1):
                return speed / 1000
    return None


def _ask(asking: socket.socket, name: str, request: bytearray, words: int) -> "array.array[int]":
    """One request for link settings; the answer as signed bytes."""
    struct.pack_into("=I", request, 0, _GLINKSETTINGS)
    request[_NWORDS] = words
    return array.array("b", ethtool(asking, name, bytes(request)))


def ethtool(asking: socket.socket, name: str, request: bytes) -> bytes:
    """What the kernel makes of a request, which must not move while it writes."""
    buffer = array.array("b", request)
    address, _ = buffer.buffer_info()
    fcntl.ioctl(asking, _SIOCETHTOOL, struct.pack("16sP16x", name.encode()[:15], address))
    return buffer.tobytes()
