"""Counters of errors and traffic, and what changed between two readings.

InfiniBand ports, interfaces, NVLink and GPUs (NVML), TCP.
"""

import ctypes
import errno
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from wirespeed.node.gpu_reader import error_counters
from wirespeed.node.nics import statistics
from wirespeed.node.reading import numbered, read_number, read_text

_NOT_HERE = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA, errno.ENOENT)
Values = dict[str, dict[str, int]]
"""Counts by device (`RDMA mlx5_0 port 1`, `interface eth0`, `NVLink GPU 3`, `GPU 3`, `TCP`) and
counter."""


class Found:
    """Filled in one thread and copied in another, which may have lost its patience."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: Values = {}
        self._unread: dict[str, str] = {}

    def keep(self, device: str, values: dict[str, int]) -> None:
        """Counters of a device; of one that two sources tell, the first word counts."""
        with self._lock:
            self._values[device] = values | self._values.get(device, {})

    def miss(self, what: str, why: str) -> None:
        with self._lock:
            self._unread[what] = why

    def copy(self) -> tuple[Values, dict[str, str]]:
        with self._lock:
            return {device: dict(values) for device, values in self._values.items()}, dict(
                self._unread
            )


def read_counters(found: Found, device: str, folder: Path) -> dict[str, int]:
    """Every file of a folder that holds a number, by name; no folder, no counters.

    EINVAL and the like are how a driver says that this device has no such counter; any other error is
    noted.
    """
    values: dict[str, int] = {}
    refused: dict[str, list[str]] = {}
    try:
        files = sorted(folder.iterdir())
    except FileNotFoundError:
        return values
    except OSError as error:
        found.miss(f"{device} {folder.name}", error.strerror or "not readable")
        return values
    for file in files:
        try:
            values[file.name] = int(file.read_text())
        except OSError as error:
            if error.errno not in _NOT_HERE:
                refused.setdefault(error.strerror or "not readable", []).append(file.name)
        except ValueError:
            continue  # `N/A (no PMA)`
    if refused:
        told = "; ".join(f"{why}: {', '.join(names)}" for why, names in refused.items())
        found.miss(f"{device} {folder.name}", told)
    elif files and not values:
        found.miss(f"{device} {folder.name}", "no file there holds a number")
    return values


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
            values = [read_counters(found, name, port / part) for part in _FOLDERS]
            found.keep(name, values[0] | values[1])


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


KINDS = ("GPU", "NVLink")
"""First words of the devices."""
_READER = (sys.executable, "-P", "-m", "wirespeed.node.counters")
_LONGEST_S = 60
_NVML_NOT_HERE = frozenset({2, 3, 4, 6, 9, 12, 13, 22, 25})
"""Codes that tell of no fault: no such argument, not supported, no permission, not found, no driver,
no library, no such function, vGPU, version."""


def read_gpus(found: Found, nvml: Any = None) -> None:
    """Every GPU of the node by the library's index. `nvml`: asked in this process (tests)."""
    if nvml is not None:
        _ask(found, nvml)
    elif _is_here():
        _ask_apart(found)


def _is_here() -> bool:
    """Loading the library asks no driver; without it, and without pynvml, there is nothing to start."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return find_spec("pynvml") is not None


def _ask_apart(found: Found) -> None:
    why = "the process that asked NVML ended early"
    told = None
    try:
        done = subprocess.run(
            _READER, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LONGEST_S, check=False
        )
        told = json.loads(done.stdout or b"{}")
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        why = f"asking NVML: {type(error).__name__}"
    told = told or {"unread": dict.fromkeys(KINDS, why)}
    for device, values in told.get("values", {}).items():
        found.keep(device, values)
    for what, reason in told.get("unread", {}).items():
        found.miss(what, reason)


def _ask(found: Found, nvml: Any) -> None:
    with _noting(found, nvml, *KINDS):
        nvml.nvmlInit()
        try:
            for index in range(nvml.nvmlDeviceGetCount()):
                _read_gpu(found, nvml, index)
        finally:
            nvml.nvmlShutdown()


def _read_gpu(found: Found, nvml: Any, index: int) -> None:
    memory, links = f"GPU {index}", f"NVLink GPU {index}"
    with _noting(found, nvml, memory, links):
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        with _noting(found, nvml, links):
            counts = {
                f"link {link} {kind}": count
                for link, kinds in error_counters(nvml, gpu).items()
                for kind, count in kinds.items()
            }
            if counts:
                found.keep(links, counts)
        with _noting(found, nvml, memory):
            count = nvml.nvmlDeviceGetTotalEccErrors(
                gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
            found.keep(memory, {"ECC uncorrectable": int(count)})


@contextmanager
def _noting(found: Found, nvml: Any, *devices: str) -> Iterator[None]:
    """Note an error of NVML, unless it says that there is no such thing here."""
    try:
        yield
    except nvml.NVMLError as error:
        if error.value not in _NVML_NOT_HERE:
            for device in devices:
                found.miss(device, f"NVML: {error}")


def _main() -> None:
    import pynvml

    found = Found()
    _ask(found, pynvml)
    values, unread = found.copy()
    sys.stdout.write(json.dumps({"values": values, "unread": unread}))


if __name__ == "__main__":
    _main()


_KEPT = {
    "snmp": ("Tcp", ("InSegs", "OutSegs", "RetransSegs", "InErrs", "InCsumErrors")),
    "netstat": (
        "TcpExt",
        ("TCPTimeouts", "TCPLostRetransmit", "TCPFastRetrans", "TCPSynRetrans", "TCPDSACKRecv"),
    ),
}


def read_tcp(found: Found, root: Path) -> None:
    """Segments sent, received and sent again, and why; as device `TCP`."""
    for file, (protocol, names) in _KEPT.items():
        try:
            lines = (root / "proc/net" / file).read_text().splitlines()
        except FileNotFoundError:
            continue
        except OSError as error:
            found.miss(f"TCP {file}", f"/proc/net/{file}: {error.strerror}")
            continue
        rows = [line.split()[1:] for line in lines if line.startswith(f"{protocol}:")]
        if len(rows) != 2:
            found.miss(f"TCP {file}", f"/proc/net/{file} has no two lines of {protocol}")
            continue
        table = dict(zip(*rows, strict=False))
        kept = {name: table.get(name, "") for name in names}
        found.keep("TCP", {name: int(text) for name, text in kept.items() if text.isdecimal()})


BOUND_S = 15.0
"""Starting NVML without nvidia-persistenced takes some seconds on nodes of 8 GPUs."""
_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Snapshot:
    at: float
    """Seconds of the monotonic clock."""
    values: Values
    unread: dict[str, str]
    """What could not be read, and why."""


def take(
    root: Path = _ROOT,
    *,
    nvml: Any = None,
    own: Callable[[], Mapping[str, str]] = own_addresses,
    bound_s: float = BOUND_S,
) -> Snapshot:
    """Read every source, for `bound_s` seconds at most; nothing raises.

    root: where /sys and /proc are; `nvml` and `own` stand in for pynvml and for the interfaces of this
    network namespace, in tests.
    """
    found = Found()
    sources: dict[tuple[str, ...], Callable[[], None]] = {
        ("TCP",): partial(read_tcp, found, root),
        ("RDMA",): partial(read_ports, found, root),
        ("interface",): lambda: read_interfaces(found, root, own()),
        KINDS: partial(read_gpus, found, nvml),
    }
    left = list(sources)
    # Not joined after its time: a thread that waits for a device cannot be ended.
    reader = threading.Thread(target=_read, args=(found, sources, left), daemon=True)
    reader.start()
    reader.join(bound_s)
    values, unread = found.copy()
    for kinds in list(left):
        unread |= dict.fromkeys(kinds, f"reading took longer than {bound_s:g} s")
    return Snapshot(time.monotonic(), values, unread)


def _read(
    found: Found, sources: dict[tuple[str, ...], Callable[[], None]], left: list[tuple[str, ...]]
) -> None:
    """One after the other; `left` loses those that are done."""
    for kinds, read in sources.items():
        try:
            read()
        except Exception as error:  # facts may be missing, the run goes on: this is only beside it
            for kind in kinds:
                found.miss(kind, f"{type(error).__name__}: {error}")
        left.remove(kinds)


def growth(before: Snapshot, after: Snapshot) -> dict[str, Any]:
    """What a node tells (`NodeFacts.counters`), of what has happened in between.

    Keys: `seconds`; `watched`, how many counters of a device were read both times; `grown`, by device
    and counter; `reset`, those that are less than before; `full`, those that cannot count on;
    `came` and `gone`, devices; `unread`, with the reason.
    """
    watched, grown, reset, full = {}, {}, [], []
    for device in sorted(before.values.keys() & after.values.keys()):
        old, new = before.values[device], after.values[device]
        both = {name: new[name] - old[name] for name in new if name in old}
        if both:
            watched[device] = len(both)
        if more := {name: count for name, count in both.items() if count > 0}:
            grown[device] = more
        reset += [f"{device}: {name}" for name, count in both.items() if count < 0]
        full += [
            f"{device}: {name}" for name in both if LARGEST.get(name) == old[name] == new[name]
        ]
    return {
        "seconds": after.at - before.at,
        "unread": after.unread,
        "came": sorted(after.values.keys() - before.values.keys()),
        "gone": sorted(before.values.keys() - after.values.keys()),
        **{"watched": watched, "grown": grown, "reset": reset, "full": full},
    }


def added(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """What two stretches of time that follow each other come to, as `growth` gives them."""
    lists = ("reset", "full", "came", "gone")
    grown: dict[str, Counter[str]] = defaultdict(Counter)
    for device, counts in (*first["grown"].items(), *second["grown"].items()):
        grown[device].update(counts)
    return {
        **{name: sorted({*first[name], *second[name]}) for name in lists},
        "seconds": first["seconds"] + second["seconds"],
        **{name: first[name] | second[name] for name in ("watched", "unread")},
        "grown": {device: dict(counts) for device, counts in grown.items()},
    }
