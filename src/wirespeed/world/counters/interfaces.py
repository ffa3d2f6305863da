"""Counters of network interfaces with a device: sysfs's statistics, and those of the driver.

Virtual ones drop by design (bridges, veth), and are left out. Inside a namespace /sys may show
another one's interfaces: an interface is believed where its hardware address is that of ours.
"""

import errno
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from wirespeed.world.counters.found import Found, read_counters
from wirespeed.world.ethtool import statistics
from wirespeed.world.reading import read_number, read_text

__all__ = ["own_addresses", "read_interfaces"]

_OF_DRIVER = re.compile(
    r"(rx|tx)_(prio\d_|global_)?pause\w*|(rx|tx)_(packets|discards)_phy|link_down_events_phy"
    r"|rx_(crc_errors|symbol_err|pcs_symbol_err|in_range_len_errors)_phy|rx_out_of_buffer"
    r"|rx_prio\d_(buf_discard|cong_discard|discards)"
)
"""Of mlx5's thousand statistics, which other drivers' resemble: no queue's, no offload's."""


def own_addresses() -> Mapping[str, str]:
    """Hardware addresses of the interfaces of our own network namespace, by name."""
    import psutil

    return {
        name: next((a.address.lower() for a in found if a.family == socket.AF_PACKET), "")
        for name, found in psutil.net_if_addrs().items()
    }


def read_interfaces(
    found: Found,
    root: Path,
    own: Mapping[str, str],
    of_driver: Callable[[str], Mapping[str, int]] = statistics,
) -> None:
    """Every interface with a device below it. `own`: `own_addresses`; `of_driver`: ETHTOOL_GSTATS."""
    for name, address in sorted(own.items()):
        folder = root / "sys/class/net" / name
        if not (folder / "device").exists() or (read_text(folder / "address") or "") != address:
            continue
        device = f"interface {name}"
        values = read_counters(found, device, folder / "statistics")
        downs = read_number(folder / "carrier_down_count")
        if downs is not None:
            values["carrier_down_count"] = downs
        found.keep(device, values)
        try:
            told = of_driver(name)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:  # a driver that keeps none
                continue
            found.miss(f"{device} driver", f"ETHTOOL_GSTATS: {error.strerror}")
        else:
            found.keep(device, {n: v for n, v in told.items() if _OF_DRIVER.fullmatch(n)})
