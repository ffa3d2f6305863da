"""PCI devices as sysfs shows them: NVIDIA GPUs on the bus, PCIe links, bridges on the way up.

Files: the kernel's Documentation/ABI/testing/sysfs-bus-pci. Configuration space and its
capabilities: include/uapi/linux/pci_regs.h. Everybody may read the first 64 bytes of `config`;
the rest needs CAP_SYS_ADMIN.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirespeed.world.reading import Notes, read_number, read_text

__all__ = ["BusGpu", "bridges_above", "find_gpus", "note_gpus_on_bus", "pci_device", "pcie_link"]

DEVICES = "sys/bus/pci/devices"
_NVIDIA_GPU = re.compile(r"pci:v000010DE.*bc03sc0[02]")
"""Vendor 0x10de, class 0x0300 (VGA) or 0x0302 (3D controller) of `modalias`."""
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SPEED = re.compile(r"([\d.]+) GT/s")
_NO_WIDTH = (0, 63, 255)
"""What sysfs gives where there is no link: a virtual function, or a device that is gone."""
_MOST_BRIDGES = 32


@dataclass(frozen=True, slots=True)
class BusGpu:
    """An NVIDIA GPU on the PCI bus, whether a driver runs it or not."""

    address: str
    driver: str
    """`nvidia`, `vfio-pci`, …; empty where no driver has taken it."""
    answers: bool
    """False: its configuration space reads as ones only, as that of a device that is gone."""


def find_gpus(root: Path) -> list[BusGpu] | None:
    """NVIDIA's GPUs by address, or None where sysfs cannot be read. About 15 µs a PCI device.

    Virtual functions beside their physical one (vGPU) are left out; in a virtual machine one counts.
    """
    try:
        folders = sorted((root / DEVICES).iterdir())
    except FileNotFoundError:
        return [] if (root / "sys/bus").is_dir() else None
    except OSError:
        return None
    gpus = (one for one in folders if _NVIDIA_GPU.match(read_text(one / "modalias") or ""))
    return [_gpu(one) for one in gpus if not (one / "physfn").exists()]


def note_gpus_on_bus(notes: Notes) -> list[BusGpu]:
    """Note `gpu.on_bus`, `gpu.mute`, `gpu.driverless` (lists of addresses); return the GPUs.

    GPUs that vfio holds for a virtual machine are left out: they are not for this system.
    """
    found = find_gpus(notes.root)
    if found is None:
        notes.unknown["gpu.on_bus"] = f"/{DEVICES} cannot be read"
        return []
    ours = [gpu for gpu in found if gpu.driver != "vfio-pci"]
    notes.facts["gpu.on_bus"] = [gpu.address for gpu in ours]
    notes.facts["gpu.mute"] = [gpu.address for gpu in ours if not gpu.answers]
    notes.facts["gpu.driverless"] = [gpu.address for gpu in ours if not gpu.driver]
    return ours


def _gpu(folder: Path) -> BusGpu:
    driver = folder / "driver"
    name = driver.resolve().name if driver.exists() else ""
    return BusGpu(folder.name, name, _answers(folder))


def _answers(folder: Path) -> bool:
    """Whether a read of the vendor's number gives one; a file that is not there counts as yes."""
    try:
        with (folder / "config").open("rb", buffering=0) as config:
            return config.read(4) != b"\xff\xff\xff\xff"
    except OSError:
        return True


def pci_device(root: Path, address: str) -> Path:
    """The folder of a PCI device within the tree of buses; its parent is the bridge above it."""
    return (root / DEVICES / address).resolve()


def bridges_above(root: Path, address: str) -> Iterator[Path]:
    """The bridges between a device and the root complex, nearest first."""
    folder = pci_device(root, address).parent
    for _ in range(_MOST_BRIDGES):
        if not _ADDRESS.fullmatch(folder.name):
            return
        yield folder
        folder = folder.parent


def pcie_link(root: Path, address: str | None) -> dict[str, Any]:
    """The PCIe link of a device: `pcie_GTps`, `pcie_width` and both with `_max`, where known.

    The maximum is the lower one of the device's and of the port's above it: a card in a slot with
    fewer lanes runs as it can. A device without a link (virtual, on the root complex) gives nothing.
    """
    if address is None:
        return {}
    device = pci_device(root, address)
    ends = [device, device.parent]
    found = {
        "pcie_GTps": _speed(device / "current_link_speed"),
        "pcie_GTps_max": _lowest(_speed(end / "max_link_speed") for end in ends),
        "pcie_width": _width(device / "current_link_width"),
        "pcie_width_max": _lowest(_width(end / "max_link_width") for end in ends),
    }
    return {name: value for name, value in found.items() if value is not None}


def _lowest(values: Iterator[Any]) -> Any:
    return min((value for value in values if value is not None), default=None)


def _speed(path: Path) -> float | None:
    """`16.0 GT/s PCIe`, in older kernels without the last word; `Unknown` is None."""
    match = _SPEED.match(read_text(path) or "")
    return float(match[1]) if match else None


def _width(path: Path) -> int | None:
    width = read_number(path)
    return None if width in _NO_WIDTH else width
