"""RDMA devices and their ports, from /sys/class/infiniband.

Files and formats: the kernel's Documentation/ABI/stable/sysfs-class-infiniband (`state` is
`4: ACTIVE`, `phys_state` is `5: LinkUp`, `rate` is `400 Gb/sec (4X NDR)`, `link_layer` is
`InfiniBand` or `Ethernet`).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wirespeed.world.pci import pcie_link
from wirespeed.world.reading import Notes, numbered, pci_address, read_number, read_text

__all__ = ["gather_rdma"]

_CLASS = "sys/class/infiniband"
_NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


def gather_rdma(notes: Notes) -> tuple[dict[str, Any], ...]:
    """One mapping a port, by device and port.

    Keys: `device`, `port`, `gids` (how many are set), and where known `state` (`ACTIVE`, `DOWN` …),
    `phys_state`, `rate` (`100 Gb/sec (2X HDR)`), `rate_Gbitps`, `width` (2), `link_layer`,
    `numa_node`, `firmware`, `board` (PSID, or the type of the device), `driver`, `pci` and the PCIe
    link (`wirespeed.world.pci.pcie_link`). A machine without the folder has no RDMA device: that
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
    ports = list(numbered(device / "ports", ""))
    if not ports:
        notes.unknown[f"rdma.{device.name}"] = f"/{_CLASS}/{device.name}/ports has no port"
    for port in ports:
        yield {"device": device.name, "port": int(port.name), **_port(port), **shared}


def _device(root: Path, device: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"firmware": read_text(device / "fw_ver")}
    node = read_number(device / "device/numa_node")
    found["numa_node"] = node if node is not None and node >= 0 else None
    found["board"] = read_text(device / "board_id") or read_text(device / "hca_type")
    driver = device / "device/driver"
    found["driver"] = driver.resolve().name if driver.exists() else None
    found["pci"] = pci_address(device / "device")
    return {**_known(found), **pcie_link(root, found["pci"])}


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
        "gids": sum(_is_gid(read_text(gid)) for gid in numbered(port / "gids", "")),
    }
    return _known(found)


def _after_number(text: str | None) -> str | None:
    return None if text is None else text.partition(":")[2].strip() or text


def _is_gid(text: str | None) -> bool:
    """Whether an entry of the table is set; Ethernet ports fail to read the others or give zeros."""
    return text is not None and text not in ("", _NO_GID)


def _known(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value is not None}
