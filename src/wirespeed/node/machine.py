"""The machine: virtual or not, its PCI devices and GPUDirect, its kernel's log, installed versions."""

import errno
import hashlib
import os
import platform
import re
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from wirespeed.model.node_facts import Xid
from wirespeed.node.reading import Notes, pci_address, read_fields, read_number, read_text

_VENDORS = ("QEMU", "KVM", "VMware", "Xen", "innotek", "Parallels", "OpenStack")
"""Beginnings of DMI's sys_vendor that only virtual machines have."""
_PRODUCTS = ("Virtual Machine", "Google Compute Engine", "KVM Virtual Machine")
"""DMI's product_name on Hyper-V and Azure, on Google's cloud, and of libvirt."""
_LAYERED = ("overlay", "aufs", "fuse.", "squashfs")
_CONTAINERS = ("kubepods", "docker", "libpod", "containerd", "lxc")
"""Words in the path of a cgroup whose processes may be given some devices only."""


def is_virtual(root: Path) -> bool | None:
    """Whether a hypervisor runs this machine; None where nothing tells.

    x86 has a CPU flag for it (`hypervisor`, CPUID 1 ECX 31). Elsewhere the firmware's vendor tells
    of a virtual machine, and its absence of nothing.
    """
    flags = read_fields(root / "proc/cpuinfo").get("flags")
    if flags is not None:
        return "hypervisor" in flags.split()
    if read_text(root / "sys/hypervisor/type"):
        return True
    vendor = read_text(root / "sys/class/dmi/id/sys_vendor")
    product = read_text(root / "sys/class/dmi/id/product_name") or ""
    if vendor is None:
        return None
    in_a_cloud = vendor == "Amazon EC2" and not product.endswith("metal")
    return vendor.startswith(_VENDORS) or product in _PRODUCTS or in_a_cloud


def hides_devices(root: Path) -> str:
    """Why a GPU of this machine may be withheld from us: `a container`, `Slurm`; else empty."""
    groups = read_text(root / "proc/self/cgroup") or ""
    if "slurm" in groups:
        return "Slurm"
    marked = any((root / name).exists() for name in (".dockerenv", "run/.containerenv"))
    contained = marked or any(word in groups for word in _CONTAINERS)
    return "a container" if contained or _mounts_of_a_container(root) else ""


def _mounts_of_a_container(root: Path) -> bool:
    """Root on a layered file system, or something mounted over the driver's files in /proc.

    A line: `36 35 98:0 / /proc/driver/nvidia rw … - tmpfs tmpfs rw` (proc_pid_mountinfo(5)).
    """
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        words = before.split()
        where = words[4] if len(words) > 4 else ""
        layered = where == "/" and after.startswith(_LAYERED)
        if layered or where.startswith("/proc/driver/nvidia"):
            return True
    return False


_MOST_BYTES = 64 << 20
_MOST_SECONDS = 1.0
_MOST_KINDS = 200
_MOST_TEXT = 300
_ERROR = re.compile(rb"(S?Xid) \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, *(.*))?")
_RECORD = re.compile(rb"\d+,(\d+),(\d+),[^;]*;(.*)")


def note_driver_errors(notes: Notes) -> None:
    """Note `gpu.xids` (one mapping a device and number), `kernel_log.first_s` and `uptime_s`.

    `kernel_log.first_s` is the time of the oldest record, 0 when nothing was overwritten. Bounded
    in bytes, seconds and kinds: a log that goes on while it is read is left.
    """
    path = notes.root / "dev/kmsg"
    found: dict[tuple[bytes, bytes, bytes], Xid] = {}
    oldest: float | None = None
    try:
        for number, seconds, text in _records(path):
            oldest = (seconds if number else 0.0) if oldest is None else oldest
            if match := _ERROR.search(text):
                _count(found, seconds, match)
    except OSError as error:
        why = {
            PermissionError: " (it needs root or CAP_SYSLOG)",
            FileNotFoundError: " (as in most containers)",
        }.get(type(error), "")
        notes.unknown["gpu.xids"] = f"/dev/kmsg: {error.strerror}{why}"
        return
    notes.facts = replace(
        notes.facts, gpu_xids=list(found.values()), kernel_log_first_s=oldest or 0.0
    )
    uptime = (read_text(notes.root / "proc/uptime") or "").split()
    notes.keep("uptime_s", float(uptime[0]) if uptime else None, "/proc/uptime cannot be read")


def _count(
    found: dict[tuple[bytes, bytes, bytes], Xid], seconds: float, match: re.Match[bytes]
) -> None:
    key = (match[1], match[2], match[3])
    said = (match[4] or b"").decode(errors="replace")[:_MOST_TEXT]
    if key in found:
        found[key] |= {"count": found[key]["count"] + 1, "last_s": seconds, "text": said}
    elif len(found) < _MOST_KINDS:
        found[key] = Xid(
            kind=match[1].decode(),
            pci=match[2].decode(),
            code=int(match[3]),
            count=1,
            first_s=seconds,
            last_s=seconds,
            text=said,
        )


def _records(path: Path) -> Iterator[tuple[int, float, bytes]]:
    """Number, seconds and text of each record that is there now."""
    rest = b""
    for chunk in _chunks(path):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            # Lines that begin with a space are further fields of the record before.
            if match := _RECORD.match(line):
                yield int(match[1]), int(match[2]) / 1e6, match[3]


def _chunks(path: Path) -> Iterator[bytes]:
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        end, size = time.monotonic() + _MOST_SECONDS, 0
        while size < _MOST_BYTES and time.monotonic() < end:
            # EPIPE: records were overwritten before they were read; the next read goes on.
            with suppress(BrokenPipeError):
                chunk = os.read(file, 8192)
                if not chunk:
                    return
                size += len(chunk)
                yield chunk
    except BlockingIOError:
        return
    finally:
        os.close(file)


_LINE = re.compile(r"^(__version__|cuda)\s*(?::[^=]+)?=\s*(.+)$", re.MULTILINE)
_NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
"""Packages that torch's wheels for CUDA bring NCCL with; another build of torch may hold its own."""


def note_installed(notes: Notes) -> None:
    """Note `torch`, `cuda` and `nccl`, or why they are unknown. Nothing raises."""
    from importlib.metadata import PackageNotFoundError, version  # 20 ms that few need

    said = _said_by_torch()
    if not said:
        named = "torch/version.py names no version"
        why = "torch is not installed in this environment" if said is None else named
        notes.unknown |= dict.fromkeys(("torch", "cuda", "nccl"), why)
        return
    notes.keep("torch", said.get("__version__"), "torch/version.py names no version")
    notes.keep("cuda", said.get("cuda"), "this torch is built without CUDA")
    missing = "no package of NCCL is installed beside torch, which may bring its own"
    if "cuda" not in said:
        notes.unknown["nccl"] = "this torch is built without NCCL"
        return
    found = None
    for package in _NCCL:
        with suppress(PackageNotFoundError):
            found = found or version(package)
    notes.keep("nccl", found, missing)


def _said_by_torch() -> dict[str, str] | None:
    """The values that `torch/version.py` assigns as text; None without torch."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = read_text(Path(spec.origin).with_name("version.py")) or ""
    values = {name: value.strip() for name, value in _LINE.findall(text)}
    return {name: value.strip("'\"") for name, value in values.items() if value[0] in "'\""}


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
    return [
        BusGpu(one.name, driver_of(one), _answers(one))
        for one in gpus
        if not (one / "physfn").exists()
    ]


def driver_of(device: Path) -> str:
    """The name of the driver that has taken a device in sysfs; empty: none has."""
    driver = device / "driver"
    return driver.resolve().name if driver.exists() else ""


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
    above = islice(pci_device(root, address).parents, _MOST_BRIDGES)
    return takewhile(lambda folder: _ADDRESS.fullmatch(folder.name), above)


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
    groups = {one: read_text(pci_device(notes.root, one) / "iommu_group/type") for one in addresses}
    words = (read_text(notes.root / "proc/cmdline") or "").split()
    notes.facts = replace(
        notes.facts,
        iommu_groups={one: kind for one, kind in groups.items() if kind},
        iommu_kernel=[word for word in words if "iommu" in word.partition("=")[0]],
    )
    _note_acs(notes, addresses)


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
    # RDMA devices take dma-bufs from there on; distributions also give it to older ones.
    match = re.match(r"(\d+)\.(\d+)", platform.release())
    new = (int(match[1]), int(match[2])) >= _DMABUF_KERNEL if match else None
    notes.keep("gpudirect.dmabuf_kernel", new, "kernel not known")
    # `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15 …`
    text = read_text(notes.root / "proc/driver/nvidia/version")
    why = "/proc/driver/nvidia/version is not there"
    notes.keep("gpu.open_modules", None if text is None else "Open Kernel Module" in text, why)


def note_hardware(notes: Notes) -> None:
    """Note `machine.*`, `gpu.on_bus` and, where there are GPUs, what they depend on.

    About 15 µs a PCI device; with GPUs also some ms for the kernel's log. Nothing raises.
    """
    notes.keep("machine.virtual", is_virtual(notes.root), "/proc/cpuinfo and DMI do not tell")
    notes.text("machine.boot", "proc/sys/kernel/random/boot_id")
    name = read_text(notes.root / "etc/machine-id")  # itself it is a secret, says machine-id(5)
    hashed = name and hashlib.sha256(f"wirespeed {name}".encode()).hexdigest()[:16]
    notes.keep("machine.id", hashed or None, "/etc/machine-id cannot be read")
    gpus = note_gpus_on_bus(notes)
    if not gpus:
        return
    notes.keep("machine.hides_devices", hides_devices(notes.root))
    note_gpudirect(notes)
    rdma = (notes.root / "sys/class/infiniband").glob("*")
    # A virtual one (rxe, siw) has no address.
    addresses = (pci_address(one / "device") for one in rdma)
    note_peer_paths(notes, [*(gpu.address for gpu in gpus), *filter(None, addresses)])
    note_driver_errors(notes)
