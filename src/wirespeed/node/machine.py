"""The machine: virtual or not, what its kernel logged, which versions are installed."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from wirespeed.model.node_facts import Xid
from wirespeed.node.reading import Notes, read_text

_VENDORS = ("QEMU", "KVM", "VMware", "Xen", "innotek", "Parallels", "OpenStack")
"""Beginnings of DMI's sys_vendor that only virtual machines have."""
_PRODUCTS = ("Virtual Machine", "Google Compute Engine", "KVM Virtual Machine")
"""DMI's product_name on Hyper-V and Azure, on Google's cloud, and of libvirt."""
_LAYERED = ("overlay", "aufs", "fuse.", "squashfs")
_CONTAINERS = ("kubepods", "docker", "libpod", "containerd", "lxc", "slurm")
"""Words in the path of a cgroup whose processes may be given some devices only."""


def is_virtual(root: Path) -> bool | None:
    """Whether a hypervisor runs this machine; None where nothing tells.

    x86 has a CPU flag for it (`hypervisor`, CPUID 1 ECX 31). Elsewhere the firmware's vendor tells
    of a virtual machine, and its absence of nothing.
    """
    for line in (read_text(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return "hypervisor" in value.split()
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
    if "slurm" in (read_text(root / "proc/self/cgroup") or ""):
        return "Slurm"
    if any((root / name).exists() for name in (".dockerenv", "run/.containerenv")):
        return "a container"
    if any(word in (read_text(root / "proc/self/cgroup") or "") for word in _CONTAINERS):
        return "a container"
    return "a container" if _mounts_of_a_container(root) else ""


def _mounts_of_a_container(root: Path) -> bool:
    """Root on a layered file system, or something mounted over the driver's files in /proc.

    A line: `36 35 98:0 / /proc/driver/nvidia rw … - tmpfs tmpfs rw` (proc_pid_mountinfo(5)).
    """
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        words = before.split()
        where = words[4] if len(words) > 4 else ""
        if where.startswith("/proc/driver/nvidia"):
            return True
        if where == "/" and after.startswith(_LAYERED):
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
            _count(found, seconds, text)
    except OSError as error:
        notes.unknown["gpu.xids"] = f"/dev/kmsg: {error.strerror}{_needs(error)}"
        return
    notes.facts = replace(
        notes.facts, gpu_xids=list(found.values()), kernel_log_first_s=oldest or 0.0
    )
    uptime = (read_text(notes.root / "proc/uptime") or "").split()
    notes.keep("uptime_s", float(uptime[0]) if uptime else None, "/proc/uptime cannot be read")


def _needs(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return " (it needs root or CAP_SYSLOG)"
    return " (as in most containers)" if isinstance(error, FileNotFoundError) else ""


def _count(found: dict[tuple[bytes, bytes, bytes], Xid], seconds: float, text: bytes) -> None:
    match = _ERROR.search(text)
    if match is None:
        return
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
    said = _said_by_torch()
    if not said:
        why = "torch is not installed in this environment"
        why = why if said is None else "torch/version.py names no version"
        notes.unknown |= dict.fromkeys(("torch", "cuda", "nccl"), why)
        return
    notes.keep("torch", said.get("__version__"), "torch/version.py names no version")
    notes.keep("cuda", said.get("cuda"), "this torch is built without CUDA")
    missing = "no package of NCCL is installed beside torch, which may bring its own"
    without = "this torch is built without NCCL"
    notes.keep("nccl", _nccl() if "cuda" in said else None, missing if "cuda" in said else without)


def _said_by_torch() -> dict[str, str] | None:
    """The values that `torch/version.py` assigns as text; None without torch."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = read_text(Path(spec.origin).with_name("version.py")) or ""
    values = {name: value.strip() for name, value in _LINE.findall(text)}
    return {name: value.strip("'\"") for name, value in values.items() if value[0] in "'\""}


def _nccl() -> str | None:
    for package in _NCCL:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None
