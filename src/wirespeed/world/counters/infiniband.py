"""Counters of RDMA ports: /sys/class/infiniband/*/ports/*/{counters,hw_counters}.

Names and meanings: the kernel's Documentation/ABI/stable/sysfs-class-infiniband, and NVIDIA's
"Understanding mlx5 Linux Counters and Status Parameters". The port counters of InfiniBand's
PortCounters attribute have few bits and stay at their largest value, until somebody resets them.
"""

from pathlib import Path

from wirespeed.world.counters.found import Found, read_counters
from wirespeed.world.reading import numbered

__all__ = ["LARGEST", "read_ports"]

_FOLDERS = ("counters", "hw_counters")
LARGEST = {
    "symbol_error": 0xFFFF,
    "link_error_recovery": 0xFF,
    "link_downed": 0xFF,
    "port_rcv_errors": 0xFFFF,
    "port_rcv_remote_physical_errors": 0xFFFF,
    "local_link_integrity_errors": 0xF,
    "excessive_buffer_overrun_errors": 0xF,
    "port_xmit_discards": 0xFFFF,
}
"""Where such a counter stops (InfiniBand Architecture Specification 1, PortCounters)."""


def read_ports(found: Found, root: Path) -> None:
    """Each port of each device; a machine without any has none to read."""
    folder = root / "sys/class/infiniband"
    try:
        devices = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        found.miss("RDMA", f"/sys/class/infiniband: {error.strerror}")
        return
    for device in devices:
        for port in numbered(device / "ports", ""):
            name = f"RDMA {device.name} port {port.name}"
            values: dict[str, int] = {}
            for part in _FOLDERS:
                values |= read_counters(found, name, port / part)
            found.keep(name, values)
