"""What redirects PCI peer-to-peer traffic: a translating IOMMU, and PCIe Access Control Services.

Both are described in NCCL's user guide (Troubleshooting, PCI Access Control Services). Types of
IOMMU groups: the kernel's Documentation/ABI/testing/sysfs-kernel-iommu_groups; the ACS capability:
PCI Express Base Specification 7.7.11 and include/uapi/linux/pci_regs.h.
"""

import errno
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from wirespeed.world.pci import bridges_above, pci_device
from wirespeed.world.reading import Notes, read_text

__all__ = ["acs_control", "note_peer_paths"]

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
    notes.facts["iommu.groups"] = {one: kind for one, kind in groups.items() if kind}
    words = (read_text(notes.root / "proc/cmdline") or "").split()
    notes.facts["iommu.kernel"] = [word for word in words if "iommu" in word.partition("=")[0]]
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
    notes.facts["acs.redirects"] = redirects


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
