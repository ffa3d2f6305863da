"""PCI devices: where they are, ACS and IOMMU, modules of GPUDirect."""

import errno
import os
import platform
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wirespeed.node.machine import hides_devices, is_virtual, note_driver_errors
from wirespeed.node.reading import Notes, pci_address, read_number, read_text

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
    notes.facts = replace(
        notes.facts,
        gpu_on_bus=[gpu.address for gpu in ours],
        gpu_mute=[gpu.address for gpu in ours if not gpu.answers],
        gpu_driverless=[gpu.address for gpu in ours if not gpu.driver],
    )
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


_ACS = 0x000D
_FIRST_EXTENDED = 0x100
_MOST_CAPABILITIES = 96
_REDIRECTS = {0x01: "SrcValid", 0x04: "ReqRedir", 0x08: "CmpltRedir", 0x10: "UpstreamFwd"}
"""Bits of the control register that send peer-to-peer traffic to the root complex, or check it."""


def note_peer_paths(notes: Notes, devices: Iterable[str]) -> None:
    """Note `iommu.groups` and `acs.redirects` for the PCI addresses of GPUs and RDMA devices.

    `iommu.groups`: type of the group (`DMA`, `DMA-FQ`, `identity` …) by address, without those that
    no IOMMU manages. `acs.redirects`: bits that are set (`SrcValid+ ReqRedir+`) by the address of
    the bridge, of bridges above these devices. `iommu.kernel`: what the kernel was started with.
    """
    addresses = sorted(set(devices))
    groups = {one: _group_type(notes.root, one) for one in addresses}
    words = (read_text(notes.root / "proc/cmdline") or "").split()
    notes.facts = replace(
        notes.facts,
        iommu_groups={one: kind for one, kind in groups.items() if kind},
        iommu_kernel=[word for word in words if "iommu" in word.partition("=")[0]],
    )
    _note_acs(notes, addresses)


def _group_type(root: Path, address: str) -> str:
    """Of the device's IOMMU group; empty without one."""
    return read_text(pci_device(root, address) / "iommu_group/type") or ""


def _note_acs(notes: Notes, addresses: Iterable[str]) -> None:
    bridges = {one.name: one for address in addresses for one in bridges_above(notes.root, address)}
    redirects = {}
    for name, folder in sorted(bridges.items()):
        try:
            control = acs_control(folder / "config")
        except PermissionError:
            notes.unknown["acs.redirects"] = (
                "reading the PCIe capabilities of a bridge needs root (CAP_SYS_ADMIN)"
            )
            return
        except OSError as error:
            notes.unknown["acs.redirects"] = f"{name}/config: {error.strerror}"
            return
        bits = [f"{word}+" for bit, word in _REDIRECTS.items() if control & bit]
        if bits:
            redirects[name] = " ".join(bits)
    notes.keep("acs.redirects", redirects)


def acs_control(config: Path) -> int:
    """The ACS control register out of a device's configuration space; 0 without the capability.

    Reads some words only, as each is a read from the device. Raises PermissionError where nothing
    beyond the first 64 bytes is given (the size of the file tells otherwise), and OSError.
    """
    with config.open("rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size == _FIRST_EXTENDED:
            return 0  # PCI without extended space
        at = _FIRST_EXTENDED
        for _ in range(_MOST_CAPABILITIES):
            words = os.pread(file.fileno(), 8, at)
            if len(words) < 8:
                raise PermissionError(errno.EPERM, "only the first bytes are given", str(config))
            header, _, control = struct.unpack("<IHH", words)
            if header & 0xFFFF == _ACS:
                return int(control)
            at = header >> 20 & 0xFFC
            if at < _FIRST_EXTENDED:
                return 0
    return 0


_PEER_MODULES = {
    "nvidia_peermem": "sys/module/nvidia_peermem",
    "nv_peer_mem": "sys/module/nv_peer_mem",
    "nv_mem": "sys/kernel/mm/memory_peers/nv_mem",
    "nv_mem_nc": "sys/kernel/mm/memory_peers/nv_mem_nc",
}
"""Where each shows that it is loaded; the last two with Mellanox' own RDMA drivers."""
_DMABUF_KERNEL = (5, 12)


def note_gpudirect(notes: Notes) -> None:
    """Note `gpudirect.peer_module` (empty: none), `gpu.open_modules` and `gpudirect.dmabuf_kernel`."""
    if (notes.root / "sys/module").is_dir():
        loaded = [name for name, path in _PEER_MODULES.items() if (notes.root / path).exists()]
        notes.keep("gpudirect.peer_module", loaded[0] if loaded else "")
    else:
        notes.unknown["gpudirect.peer_module"] = "/sys/module is not there"
    notes.keep("gpudirect.dmabuf_kernel", _knows_dmabuf(platform.release()), "kernel not known")
    notes.keep(
        "gpu.open_modules", _open_modules(notes.root), "/proc/driver/nvidia/version is not there"
    )


def _knows_dmabuf(release: str) -> bool | None:
    """RDMA devices take dma-bufs from Linux 5.12 on; distributions also give it to older ones."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) >= _DMABUF_KERNEL if match else None


def _open_modules(root: Path) -> bool | None:
    """`NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15 …` says it."""
    text = read_text(root / "proc/driver/nvidia/version")
    return None if text is None else "Open Kernel Module" in text


def note_hardware(notes: Notes) -> None:
    """Note `machine.*`, `gpu.on_bus` and, where there are GPUs, what they depend on.

    About 15 µs a PCI device; with GPUs also some ms for the kernel's log. Nothing raises.
    """
    notes.keep("machine.virtual", is_virtual(notes.root), "/proc/cpuinfo and DMI do not tell")
    gpus = note_gpus_on_bus(notes)
    if not gpus:
        return
    notes.keep("machine.hides_devices", hides_devices(notes.root))
    note_gpudirect(notes)
    note_peer_paths(notes, [*(gpu.address for gpu in gpus), *_rdma_devices(notes)])
    note_driver_errors(notes)


def _rdma_devices(notes: Notes) -> list[str]:
    """PCI addresses of the RDMA devices; a virtual one (rxe, siw) has none."""
    try:
        devices = list((notes.root / "sys/class/infiniband").iterdir())
    except OSError:
        return []
    return [found for one in devices if (found := pci_address(one / "device")) is not None]
