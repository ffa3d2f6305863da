"""What the sources of counters put down while they read: values by device, and what was not read."""

import errno
import threading
from pathlib import Path

__all__ = ["Found", "Values", "read_counters"]

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
