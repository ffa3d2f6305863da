"""Errors of NVIDIA's driver in the kernel log: Xid (GPUs) and SXid (NVSwitches).

/dev/kmsg gives one record a read, `6,2760,20471086423,-;text`: priority, number, microseconds
since the start of the system (the kernel's Documentation/ABI/testing/dev-kmsg). Reading needs
CAP_SYSLOG where kernel.dmesg_restrict is set, and containers have no such file.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from wirespeed.world.reading import Notes, read_text

__all__ = ["DriverError", "note_driver_errors"]

_MOST_BYTES = 64 << 20
_MOST_SECONDS = 1.0
_MOST_KINDS = 200
_MOST_TEXT = 300
_ERROR = re.compile(rb"(S?Xid) \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, *(.*))?")
_RECORD = re.compile(rb"\d+,(\d+),(\d+),[^;]*;(.*)")


@dataclass(slots=True)
class DriverError:
    """All messages of one number about one device."""

    kind: str
    """`Xid` or `SXid`."""
    pci: str
    """`0000:3b:00`, as the driver writes it: without the function."""
    code: int
    count: int
    first_s: float
    """Seconds since the start of the system."""
    last_s: float
    text: str
    """What the driver said the last time, cut to 300 characters."""


def note_driver_errors(notes: Notes) -> None:
    """Note `gpu.xids` (one mapping a device and number), `kernel_log.first_s` and `uptime_s`.

    `kernel_log.first_s` is the time of the oldest record, 0 when nothing was overwritten. Bounded
    in bytes, seconds and kinds: a log that goes on while it is read is left.
    """
    path = notes.root / "dev/kmsg"
    found: dict[tuple[bytes, bytes, bytes], DriverError] = {}
    oldest: float | None = None
    try:
        for number, seconds, text in _records(path):
            oldest = (seconds if number else 0.0) if oldest is None else oldest
            _count(found, seconds, text)
    except OSError as error:
        notes.unknown["gpu.xids"] = f"/dev/kmsg: {error.strerror}{_needs(error)}"
        return
    notes.facts["gpu.xids"] = [asdict(one) for one in found.values()]
    notes.facts["kernel_log.first_s"] = oldest or 0.0
    uptime = (read_text(notes.root / "proc/uptime") or "").split()
    notes.keep("uptime_s", float(uptime[0]) if uptime else None, "/proc/uptime cannot be read")


def _needs(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return " (it needs root or CAP_SYSLOG)"
    return " (as in most containers)" if isinstance(error, FileNotFoundError) else ""


def _count(
    found: dict[tuple[bytes, bytes, bytes], DriverError], seconds: float, text: bytes
) -> None:
    match = _ERROR.search(text)
    if match is None:
        return
    key = (match[1], match[2], match[3])
    said = (match[4] or b"").decode(errors="replace")[:_MOST_TEXT]
    if key in found:
        one = found[key]
        one.count, one.last_s, one.text = one.count + 1, seconds, said
    elif len(found) < _MOST_KINDS:
        kind, pci = match[1].decode(), match[2].decode()
        found[key] = DriverError(kind, pci, int(match[3]), 1, seconds, seconds, said)


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
