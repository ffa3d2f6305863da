"""Whether this is a virtual machine, and whether a container or a scheduler may hide devices."""

from pathlib import Path

from wirespeed.world.reading import read_text

__all__ = ["hides_devices", "is_virtual"]

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
